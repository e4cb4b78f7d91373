"""The quickest call of an operator, and the form in which a buffer is made: what a call costs beside the work.

In:     an overload; a `LoopProgram` with its `Schedule`.
Out:    `product`, `quicker`: functions to call in the overload's place; `given_as`: buffers that need no view of them.
Holds:  the values, sizes and strides are those that the overload, or the view, has.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from pliant.ir.loops import Buffer, LoopProgram, View
from pliant.lowering.tensors import is_row_major, numel
from pliant.schedule.dependencies import access
from pliant.schedule.kernel import ExternCall, Schedule
from pliant.symbolic.expr import ZERO, Expr
from pliant.torch_adapter import OpOverload

# Products. Their functions do the work of the overloads that write into a buffer with 0.8 us less before the call; what
# they return themselves has no gaps, and costs another 0.8 us less than a buffer made for it.
_PRODUCTS: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name) for name in ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "addbmm")
}


_aten = torch.ops.aten
# What a method of tensors does that has another name than the operator.
_METHODS: dict[Any, Callable[..., Any]] = {_aten._local_scalar_dense.default: torch.Tensor.item}


@functools.cache
def quicker(overload: Any) -> Callable[..., Any] | None:
    """The function of `torch` that calls the operator in less time than the overload does: 3 to 5 us less of 6 to 10. None
    where the function might take the same arguments for another overload, or in other places."""
    if overload in _METHODS:
        return _METHODS[overload]
    if not isinstance(overload, OpOverload) or overload.namespace != "aten":
        return None
    if overload._overloadname != "default" or overload._schema.is_mutable:
        return None
    packet = overload.overloadpacket
    others = [one for one in packet.overloads() if one != "default" and "name" not in one]  # names of dimensions
    if not all(getattr(packet, one)._schema.is_mutable for one in others):  # by `out=`
        return None
    if any(argument.kwarg_only for argument in overload._schema.arguments):
        return None
    function = getattr(torch, packet.__name__, None)
    return function if type(function) is type(torch.mm) else None


def given_as(program: LoopProgram, schedule: Schedule) -> dict[Buffer, View]:
    """Buffers that are made in the form in which they are given: no statement but kernels', which go by addresses, needs
    them in their own."""
    externs = [access(step.extern) for step in schedule.steps if isinstance(step, ExternCall)]
    in_form = {b for touched in externs for b in (*touched.reads, *touched.writes)}
    in_form |= {*schedule.in_place, *schedule.in_place.values(), *program.constants}
    in_form |= {one for one in program.inputs if isinstance(one, Buffer)}
    views = [one for one in program.outputs if isinstance(one, View)]
    given = Counter(one.buffer if isinstance(one, View) else one for one in program.outputs)
    return {v.buffer: v for v in views if v.buffer not in in_form and given[v.buffer] == 1 and _is_whole(v)}


def _is_whole(v: View) -> bool:
    """Whether it is its buffer's memory from the first element to the last."""
    b = v.buffer
    same = v.offset is ZERO and v.dtype is b.dtype and numel(v.shape) is numel(b.shape)
    return same and is_row_major(v) and is_row_major(b)


def product(overload: Any) -> Callable[..., Any] | None:
    """The function of a product that does the work of the overload which writes into a buffer."""
    base, _, variant = getattr(overload, "__name__", "").partition(".")
    return _PRODUCTS.get(base) if variant == "out" and overload.namespace == "aten" else None


def swapped(extents: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Those of the last two dimensions in turn."""
    return (*extents[:-2], extents[-1], extents[-2])
