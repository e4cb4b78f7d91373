"""Tensors with histories of their own, for a call whose nodes are copied where gradients are recorded (`repeated_calls.py`).

In:     the nodes of a call that was followed, with what its tensors were told to be, and what stands for the tensors from outside.
Out:    what stands for all that the nodes make: results of the same calls, made again on the tensors that stand for the arguments.
Holds:  nothing is recorded, and nothing of the program runs. A tensor that is not as the first one was is a difference.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from pliant.capture.protocols.other_block import Differs
from pliant.capture.signatures import Tracer
from pliant.capture.structures import leaves, mapped
from pliant.capture.value_kinds import is_of_program
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.lent_numbers import call_on_fakes
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch

Told = list[tuple[FakeTensor, tuple[Any, ...]]]
_PLAIN_META = frozenset(("val", "origin"))  # anything else, as of checkpoints, says that the call is more than an operator


def told_of(nodes: Iterable[fx.Node]) -> Told:
    """What autograd knows of each tensor that the nodes make, which later writes may change."""
    with DisableTorchFunction(), below_python_dispatch():
        made = {id(one): one for node in nodes for one in leaves(node.meta.get("val")) if is_fake(one)}
        return [(one, _told(one)) for one in made.values()]


def _told(fake: FakeTensor) -> tuple[Any, ...]:
    spec = fake.spec
    description = spec.size_key, spec.stride_key, spec.dtype, spec.device, spec.lazy
    return (*description, fake.requires_grad, fake.is_leaf, type(fake.grad_fn), fake._is_view(), fake._version, fake.is_inference())


def may_be_called_again(node: fx.Node) -> bool:
    """Whether it is PyTorch's own operator, of which the tensors and the mode say all, and not a part with a graph or rules of its own."""
    if node.op not in ("call_function", "call_method") or not node.meta.keys() <= _PLAIN_META:
        return False
    function = _function_of(node)
    module = getattr(function, "__module__", None) or ""
    return not is_of_program(function) and not module.startswith(("pliant", "torch.autograd"))


def _function_of(node: fx.Node) -> Any:
    return getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target


def make_again(t: Tracer, recorded: list[fx.Node], nodes: dict[fx.Node, fx.Node], fakes: dict[int, FakeTensor], told: Told) -> None:
    """Add to `fakes` what stands for all that the recorded nodes make, given what stands for the rest; Differs if one is otherwise."""
    before = t.mode.writes, t.mode.draws
    try:
        if any(id(node.meta.get("val")) not in fakes for node in nodes):
            raise Differs
        with DisableTorchFunction():
            for node in recorded:
                _call_again(t, node, fakes)
        with DisableTorchFunction(), below_python_dispatch():
            if any(_told(fakes[id(one)]) != first for one, first in told):
                raise Differs
    except Differs:
        t.mode.writes, t.mode.draws = before
        raise


def _call_again(t: Tracer, node: fx.Node, fakes: dict[int, FakeTensor]) -> None:
    if node.target is operator.getitem and not is_fake(node.all_input_nodes[0].meta["val"]):  # one of several results
        return
    made = [one for one in leaves(node.meta["val"]) if is_fake(one)]
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: mapped(one.meta["val"], lambda x: fakes.get(id(x), x)))
    found = call_on_fakes(_function_of(node), args, kwargs, _refuse)
    others = [one for one in leaves(found) if is_fake(one)]
    if len(others) != len(made):
        raise Differs
    constants = t.recorder.elements.constants
    for one, other in zip(made, others, strict=True):
        if fakes.setdefault(id(one), other) is not other:
            raise Differs
        if constants.is_noted(one):
            constants.note(other)


def _refuse(warnings: Any) -> None:
    raise Differs
