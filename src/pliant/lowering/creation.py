"""Tensors made from nothing: filled, counted, masked by position. They are never kept in memory unless they must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, cast, where
from pliant.lowering.context import Lowering
from pliant.lowering.pointwise import elements, number
from pliant.lowering.tensors import Index, Tensor, opmath
from pliant.symbolic.expr import Expr, lit
from pliant.symbolic.rules.floats import to_int

aten = torch.ops.aten


def filled(low: Lowering, out: torch.Tensor, value: Any) -> Tensor:
    scalar = number(low, value, out.dtype)
    return Tensor(low, out.dtype, low.shape_of(out), lambda index: scalar)


def _constant(value: float) -> Callable[..., Tensor]:
    return lambda low, out, *args, **kwargs: filled(low, out, value)


def _empty(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """What nobody may read costs nothing as a number: as memory it would be made, and what it is made like, kept. Where
    results are to be the same each time, eager fills it."""
    if torch.are_deterministic_algorithms_enabled():
        raise Unsupported("new memory is filled")
    return filled(low, out, 0)


def _arange(low: Lowering, out: torch.Tensor, start: Any, end: Any, step: Any = 1, **kwargs: Any) -> Tensor:
    if out.dtype.is_floating_point:
        return _float_arange(low, out, start, step)
    first, by = _whole(start), _whole(step)
    return Tensor(low, out.dtype, low.shape_of(out), lambda i: low.number(first + i[0] * by, out.dtype))


def _whole(value: int | float | Expr) -> Expr:
    """The number as eager has it where it counts in whole numbers."""
    if isinstance(value, float):
        return lit(int(value))
    return lit(value) if isinstance(value, int) or value.kind is int else to_int(value)


def _are_whole(*numbers: Any) -> bool:
    return all(isinstance(n, int) or (n.is_integer() if isinstance(n, float) else n.kind is int) for n in numbers)


def _float_arange(low: Lowering, out: torch.Tensor, start: Any, step: Any) -> Tensor:
    """Eager counts in double precision on the CPU. Whole numbers are the same in single precision."""
    in_doubles = out.dtype is torch.float32 and out.device.type == "cpu" and not _are_whole(start, step)
    dtype = torch.float64 if out.dtype is torch.float64 or in_doubles else torch.float32
    first, by = number(low, start, dtype), number(low, step, dtype)
    final = opmath(out.dtype)

    def at(index: Index) -> Scalar:
        return cast(apply("add", first, apply("mul", low.number(index[0], dtype), by)), final)

    return Tensor(low, out.dtype, low.shape_of(out), at)


def triangle(op: str) -> Callable[..., Tensor]:
    """tril (`le`) and triu (`ge`): zero where column - row compares otherwise with the diagonal."""

    def rule(low: Lowering, out: torch.Tensor, x: Tensor, diagonal: Any = 0) -> Tensor:
        zero = number(low, 0, opmath(out.dtype))

        def at(index: Index) -> Scalar:
            column, row = low.number(index[-1]), low.number(index[-2] + lit(diagonal))
            return where(apply(op, column, row), x.math_at(index), zero)

        return low.pointwise(out.dtype, low.shape_of(out), at, x.weight + 1)

    return rule


def _eye(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Tensor:
    def at(index: Index) -> Scalar:
        return cast(apply("eq", low.number(index[0]), low.number(index[1])), opmath(out.dtype))

    return Tensor(low, out.dtype, low.shape_of(out), at)


def _filled_with(low: Lowering, out: torch.Tensor, x: Tensor, value: Tensor) -> Tensor:
    """`fill` with a tensor of one element. Eager refuses a value that does not fit, so only dtypes that hold all do."""
    kinds_differ = value.dtype.is_floating_point != out.dtype.is_floating_point
    if value.dtype is not out.dtype and (kinds_differ or torch.promote_types(value.dtype, out.dtype) is not out.dtype):
        raise Unsupported(f"a value of {value.dtype} that may not fit {out.dtype}")
    return elements(low, out, (value,), opmath(out.dtype), lambda v: v, 0)


RULES: dict[Any, Callable[..., Any]] = {
    aten.empty_like.default: _empty,
    aten.empty.memory_format: _empty,
    aten.new_empty.default: _empty,
    aten.full.default: lambda low, out, size, value, **kw: filled(low, out, value),
    aten.full_like.default: lambda low, out, x, value, **kw: filled(low, out, value),
    aten.new_full.default: lambda low, out, x, size, value, **kw: filled(low, out, value),
    aten.fill.Scalar: lambda low, out, x, value: filled(low, out, value),
    aten.fill.Tensor: _filled_with,
    aten.scalar_tensor.default: lambda low, out, value, **kw: filled(low, out, value),
    aten.zeros.default: _constant(0),
    aten.zeros_like.default: _constant(0),
    aten.new_zeros.default: _constant(0),
    aten.ones.default: _constant(1),
    aten.ones_like.default: _constant(1),
    aten.new_ones.default: _constant(1),
    aten.arange.default: lambda low, out, end, **kw: _arange(low, out, 0, end),
    aten.arange.start: lambda low, out, start, end, **kw: _arange(low, out, start, end),
    aten.arange.start_step: _arange,
    aten.tril.default: triangle("le"),
    aten.triu.default: triangle("ge"),
    aten.eye.default: _eye,
    aten.eye.m: _eye,
}
