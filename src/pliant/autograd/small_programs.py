"""Programs that are called as they are: a function of ours would take longer to call than its kernels save.

In:     a program, be it a segment of a larger one, and its joint graph.
Out:    `is_called_as_it_is`: whether PyTorch's operators run it, with autograd's own functions.
Holds:  only speed depends on the answer. Programs that write, draw sizes from data or run code of the user's are compiled.
Reads on: `runtime.py`, which asks before it compiles.
"""

from __future__ import annotations

import operator

from torch import fx

from pliant.autograd.joint import JointGraph
from pliant.autograd.partition.cost import size_in_bytes
from pliant.autograd.places import MadeOutputs
from pliant.graph.contracts import CapturedGraph, known_name
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import is_view
from pliant.targets.registry import known_target

FEW = 4  # operators of forward and backward that take no longer than one function of autograd's in Python
LEAST, TIMES = 2, 4  # of one forward and one backward loops of ours save no reads: on so many times the bytes of others
_SLOW_TO_CALL = frozenset(("gelu",))  # PyTorch gives it to a library that takes 30 us to begin
_SLOW = frozenset("elu celu selu mish softplus logsigmoid".split())  # loops of ours are faster on half as many bytes as others


def is_called_as_it_is(program: CapturedGraph, joint: JointGraph) -> bool:
    """Whether the program is few operators on little memory, whose results have a history."""
    plan = joint.plan
    if not plan.differentiable or plan.writes or not MadeOutputs.of(plan).is_plain:
        return False
    nodes = [node for node in program.module.graph.nodes if node.op != "output"]
    calls = [node for node in nodes if node.op.startswith("call_")]
    computing = [node for node in joint.graph.nodes if node.op == "call_function" and not _is_of_results(node)]
    if not calls or len(computing) > FEW or not all(map(_is_operator, calls)):
        return False
    values = [one.fake for one in program.inputs] + [node.meta.get("val") for node in calls]
    if len(nodes) != len(calls) + len(program.inputs) or not all(map(_has_known_size, values)):
        return False
    targets = {known_target(device) for device in {value.device for value in values}}
    least = min([target.called_bytes if target is not None else 0 for target in targets])
    times = 0.5 if any(known_name(node) in _SLOW for node in calls) else TIMES if len(computing) <= LEAST else 1
    return sum(map(size_in_bytes, values)) < least * times


def _is_operator(node: fx.Node) -> bool:
    """Whether it is one of PyTorch's own, outside of blocks of other modes."""
    ours = str(getattr(node.target, "__module__", "")).startswith("pliant")
    name = known_name(node)
    return bool(name) and name not in _SLOW_TO_CALL and not ours and not node.meta.get("inference")


def _is_of_results(node: fx.Node) -> bool:
    """Whether it computes nothing: a view, or one of several results."""
    return node.target is operator.getitem or is_view(node.target)


def _has_known_size(value: object) -> bool:
    return type(value) is FakeTensor and all(type(number) is int for number in (*value.size_, *value.stride_))
