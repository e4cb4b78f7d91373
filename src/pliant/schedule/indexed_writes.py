"""Calls that write at indices: what they make sure of before, and loops that do the same.

In:     an `Extern` of an operator that writes places of its first argument, functional or not.
Out:    `what_it_checks`: a key of what it makes sure of; `looking_up`: a call that makes sure of it and writes nothing;
        `places_written`: a loop in its place.
Reads on: `in_place.py`, which has such calls write tensors of the caller's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from pliant.ir.failing import may_fail
from pliant.ir.loops import Axis, Buffer, Computation, Extern, Pointwise, View
from pliant.ir.scalar import Scalar, apply, cast, const, index_value, load, where
from pliant.symbolic.expr import ONE, ZERO, symbol

_aten = torch.ops.aten
_PUTS = frozenset((_aten.index_put.default, _aten.index_put_.default))
_FILLS = frozenset(
    (
        _aten.index_fill.int_Scalar, _aten.index_fill_.int_Scalar,
        _aten.index_fill.int_Tensor, _aten.index_fill_.int_Tensor,
    )
)  # fmt: skip
_SCATTERS = frozenset((_aten.scatter.src, _aten.scatter_.src, _aten.scatter.value, _aten.scatter_.value))
_TAKE_NEGATIVE = _PUTS | _FILLS  # the others refuse negative indices
_BY_INDEX = _TAKE_NEGATIVE | _SCATTERS | {_aten.index_copy.default, _aten.index_copy_.default}


def may_raise(one: Computation) -> bool:
    """Whether it may be an exception. On GPUs an index out of range is none, but the end of the program."""
    on_gpu = not isinstance(one, Extern) and one.out.device.type == "cuda" or what_it_checks(one) is not None and _device(one).type == "cuda"
    return may_fail(one) and not on_gpu


def what_it_checks(one: Computation) -> object:
    """What an operator makes sure of before it writes at indices: equal for two that do the same. None of others."""
    if not isinstance(one, Extern) or one.target not in _BY_INDEX or one.kwargs:
        return None
    dim, indices = indices_of(one)
    accumulates = one.target in _PUTS and len(one.args) > 3 and one.args[3]
    integers = all(view.dtype in (torch.int64, torch.int32) for view in indices if view is not None)
    if accumulates or not integers:
        return None
    return one.target in _TAKE_NEGATIVE, dim, tuple(indices), one.args[0].shape, _device(one)


def indices_of(call: Extern) -> tuple[int, list[View | None]]:
    """The indices along a dimension and those that follow it."""
    if call.target in _PUTS:
        return 0, call.args[1]
    return call.args[1], [call.args[2]]


def _device(one: Computation) -> torch.device:
    assert isinstance(one, Extern)
    device: torch.device = one.args[0].buffer.device
    return device


def looking_up(call: Computation) -> Computation | None:
    """A call that fails where the indices of another one are out of range, and writes nothing; None if there is none."""
    assert isinstance(call, Extern)
    start, (dim, indices) = call.args[0], indices_of(call)
    if call.target in _SCATTERS:
        return Extern(_aten.gather.default, (start, dim, indices[0]), {}, (None,), origin=call.origin)
    if call.target in _PUTS:
        count = len(indices)
        table = dataclasses.replace(start, shape=start.shape[:count], strides=start.strides[:count])
        return Extern(_aten.index.Tensor, (table, indices), {}, (None,), origin=call.origin)
    d = dim % len(start.shape)
    table = dataclasses.replace(start, shape=(start.shape[d],), strides=(start.strides[d],))
    if call.target in _FILLS:
        return Extern(_aten.index.Tensor, (table, indices), {}, (None,), origin=call.origin)
    (index,) = indices
    if index is None or len(index.shape) != 1:
        return None
    return Extern(_aten.index_select.default, (table, 0, index), {}, (None,), origin=call.origin)


def places_written(call: Extern, known: Mapping[Buffer, Scalar]) -> Pointwise | None:
    """The loop that does what a call does that writes rows at indices, on devices where kernels cost less than calls do. There
    an index out of range is an error of the device. `known`: what some tensors of one element hold."""
    if what_it_checks(call) is None or _device(call).type == "cpu" or call.target not in _PUTS | {_aten.index_copy_.default}:
        return None
    start, source = call.args[0], call.args[2 if call.target in _PUTS else 3]
    dim, indices = indices_of(call)
    given = [(dim + k, view) for k, view in enumerate(indices) if view is not None]
    if len(given) != 1 or len(given[0][1].shape) != 1 or source.dtype is not start.dtype:
        return None
    ((d, index),) = given
    d %= len(start.shape)
    shape = [index.shape[0] if k == d else n for k, n in enumerate(start.shape)]
    axes = [Axis(symbol(f"i{k}"), n) for k, n in enumerate(shape)]
    point = [ZERO if a.extent is ONE else a.symbol for a in axes]
    place = symbol(f"j_{start.buffer.name}_{index.buffer.name}")
    found = known.get(index.buffer, load(index.buffer, index.offset + point[d] * index.strides[0]))
    found = cast(found, torch.int64)
    size = index_value(start.shape[d])
    below = apply("lt", found, const(0, torch.int64))
    wrapped = where(below, apply("add", found, size) if call.target in _PUTS else size, found)
    to = start.offset + sum((e * s for e, s in zip([*point[:d], place, *point[d + 1 :]], start.strides)), ZERO)
    near = zip(reversed(point), reversed(source.shape), reversed(source.strides))
    value = load(source.buffer, source.offset + sum((e * s for e, n, s in near if n is not ONE), ZERO))
    bound = ((place, apply("check_index", wrapped, size)),)
    loops = tuple(a for a in axes if a.extent is not ONE)
    return Pointwise(start.buffer, loops, to, value, indirect=bound, origin=call.origin, part=True)
