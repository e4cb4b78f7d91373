"""Where attention as one operator is faster than compiled products around a softmax.

In:     a device and how many scores there are; a captured program.
Out:    `pays`; `may_pay`: whether any softmax of the program is of so many scores, so that it is worth a trace to look closer.
"""

from __future__ import annotations

import math

import torch

from pliant.autograd.partition.cost import hinted
from pliant.graph.contracts import CapturedGraph, known_name
from pliant.graph.fake_tensor import FakeTensor
from pliant.targets.registry import known_target


def pays(device: torch.device, scores: int, trained: bool) -> bool:
    target = known_target(device)
    if target is None:
        return False
    least = target.attention_scores_trained if trained else target.attention_scores
    return 0 < least <= scores


def may_pay(captured: CapturedGraph) -> bool:
    found = [node.meta.get("val") for node in captured.module.graph.nodes if known_name(node).strip("_") == "softmax"]
    weights = [value for value in found if type(value) is FakeTensor]
    return any(pays(one.device_, math.prod(map(hinted, one.size_)), one.requires_grad) for one in weights)
