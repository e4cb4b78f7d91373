"""Cut a program so that its gradients are ready part by part.

In:     a `CapturedGraph` that data parallelism calls, which sums the gradients of all processes up, so many bytes at a time.
Out:    `find_buckets`: before which nodes to cut, so that each segment has as many bytes of parameters, or more.
Holds:  to autograd each segment is one function, which gives its gradients when its own backward has run: they travel while
        the backward of earlier segments computes. Where to cut changes no result. Programs of GPUs are left whole: there
        the calls of segments took longer than what was won.
Reads on: `runtime.py`, which builds the segments.
"""

from __future__ import annotations

import itertools

from torch import fx
from torch.utils._pytree import tree_leaves

from pliant.autograd.layers import least_work, lends_itself
from pliant.autograd.partition.cost import size_in_bytes
from pliant.autograd.segments import Cuts
from pliant.graph.contracts import CapturedGraph

MOST_SEGMENTS = 8  # what travels last is then an eighth, and each costs a call


def find_buckets(captured: CapturedGraph) -> Cuts | None:
    """Where to cut; None where gradients travel at once anyway, or the program doesn't lend itself."""
    (size,) = captured.attributes.get("gradient_bytes", (0,))
    if not size or not captured.grad_enabled:
        return None
    nodes = list(captured.module.graph.nodes)
    calls = [node for node in nodes if node.op.startswith("call_")]
    if not lends_itself(captured, calls) or least_work(calls) is None:
        return None
    sizes = _gradients(captured, nodes)
    count = min(sum(sizes) // size, MOST_SEGMENTS)
    if count < 2:
        return None
    first = nodes.index(calls[0])
    cuts = [place for place in _cuts(sizes, _crossing(nodes), sum(sizes) // count) if place > first]
    return Cuts(tuple(cuts)) if cuts else None


def _gradients(captured: CapturedGraph, nodes: list[fx.Node]) -> list[int]:
    """Bytes of the gradients of parameters by the place of the node that reads the parameter first: its backward is the last
    to add to them."""
    sizes = [0] * len(nodes)
    places = {node: place for place, node in enumerate(nodes)}
    for node, given in zip(captured.module.graph.find_nodes(op="placeholder"), captured.inputs):
        if given.kind == "tensor" and given.static and given.fake.requires_grad and node.users:
            sizes[min(places[user] for user in node.users)] += size_in_bytes(given.fake)
    return sizes


def _crossing(nodes: list[fx.Node]) -> list[int]:
    """Bytes of what is computed before each place and read behind it."""
    places = {node: place for place, node in enumerate(nodes)}
    change = [0] * (len(nodes) + 1)
    for place, node in enumerate(nodes):
        if node.op.startswith("call_") and node.users:
            size = sum(map(size_in_bytes, tree_leaves(node.meta.get("val"))))
            change[place + 1] += size
            change[max(places[user] for user in node.users) + 1] -= size
    return list(itertools.accumulate(change))


def _cuts(sizes: list[int], crossing: list[int], aim: int) -> list[int]:
    """From the end on, the narrowest place behind which there are as many bytes as aimed at, by a quarter."""
    cuts: list[int] = []
    behind, best = 0, len(sizes)
    for place in range(len(sizes) - 1, 0, -1):
        behind += sizes[place]
        if behind < aim * 3 // 4:
            continue
        if best == len(sizes) or crossing[place] < crossing[best]:
            best = place
        if behind + sizes[place - 1] > aim * 5 // 4:
            cuts.append(best)
            behind, best = sum(sizes[place:best]), len(sizes)
    return cuts[::-1]
