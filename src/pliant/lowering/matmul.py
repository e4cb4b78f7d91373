"""Products and other operators that vendor libraries do best: extern calls that write into planned memory where they
can.

`out` overloads run the same kernel as the functional ones and need no allocation of their own. `addmm` copies its bias to
the result and has the product added to it, which takes a tenth to a fifth of its time at the sizes of linear layers: where
loops read the sum, they add the bias.

The product of a single row reads each element of the other factor once. On GPUs loops do that as fast as memory gives them,
and convert what they read, add biases and residuals; the library takes as long (8192 x 8192 in bf16) to 2.5 times as long
(2048 x 768), and a copy in another dtype is to be made for it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from pliant.ir.loops import View
from pliant.ir.scalar import Scalar, apply, cast, loads
from pliant.lowering.context import Lowering
from pliant.lowering.factors import row_bytes
from pliant.lowering.fallback import call, lower_call
from pliant.lowering.formulas import add
from pliant.lowering.tensors import Index, Tensor, is_unaligned, opmath
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol
from pliant.symbolic.traverse import linear_coefficient
from pliant.targets.registry import has_target, target_of

aten = torch.ops.aten


def _mm(low: Lowering, out: torch.Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`out` overloads write into rows that begin anywhere."""
    found = _row_in_loops(low, out, a, b)
    if found is not None:
        return found
    left, right, rows, columns = _factors(low, out, a, b)
    (result,) = low.extern(aten.mm.default, (left, right), {}, [out], aten.mm.out, rows, columns)
    assert result is not None
    return result


def _row_in_loops(low: Lowering, out: torch.Tensor, a: Tensor, b: Tensor) -> Tensor | None:
    """The product of a single row, as sums along the columns of `b`, where these are dense; None where it is the library's."""
    wanted = has_target(out.device) and out.dtype in target_of(out.device).row_products
    if not wanted or low.shape_of(out)[0] is not ONE or not b.is_cheap:
        return None
    axes, (column, depth) = low.axes((b.shape[1], b.shape[0]))
    with low.ranges.over(axes):
        read = list(loads(b.math_at([depth, column])))
    if not read or not isinstance(depth, Symbol) or any(linear_coefficient(x.index, depth) is not ONE for x in read):
        return None
    row = low.realize_readable(a)

    def at(index: Index) -> Scalar:
        factor = cast(low.load(row, [ZERO, index[1]]), opmath(out.dtype))
        return apply("mul", b.math_at([index[1], index[0]]), factor)

    terms = low.pointwise(opmath(out.dtype), (b.shape[1], b.shape[0]), at, 1)
    sums = low.reduce(terms, [1], "sum", out.dtype, opmath(out.dtype))
    return low.pointwise(out.dtype, low.shape_of(out), lambda i: sums.at([i[1]]), 0)


def _factors(low: Lowering, out: torch.Tensor, a: Tensor, b: Tensor) -> tuple[View, View, int, Expr | None]:
    """The factors, with the zeros behind them where these help; how rows of the product are aligned; how many columns are
    computed, where there are some to spare."""
    left, right = low.realize_readable(a), low.realize_readable(b)
    wide_left, wide_right = low.with_zeros(left), low.with_zeros(right)
    rows = row_bytes(out, left.shape[1].as_int() or 0)
    if wide_left.shape[1] is wide_right.shape[0]:  # zeros meet zeros
        left = replace(left, shape=(left.shape[0], wide_left.shape[1]))
        right = replace(right, shape=(wide_right.shape[0], right.shape[1]))
    if not rows or wide_right.shape[1] is right.shape[1]:
        return left, right, rows, None
    columns = wide_right.shape[1]
    return left, replace(right, shape=(right.shape[0], columns)), rows, columns


def _with_out(target: Any, out_overload: Any) -> Callable[..., Any]:
    def rule(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return lower_call(low, target, out, args, kwargs, out_overload)

    return rule


_ADDMM = _with_out(aten.addmm.default, aten.addmm.out)


def _addmm(low: Lowering, out: torch.Tensor, bias: Tensor, a: Tensor, b: Tensor, **scales: Any) -> Any:
    """Rows that begin anywhere are written by a loop, which adds the bias; the library adds it to columns to spare too, with
    zeros behind it, and rounds once."""
    if _is_plain(bias, **scales) and (row := _row_in_loops(low, out, a, b)) is not None:
        return _biased(low, out, row, bias)
    depth = a.shape[-1].as_int() or 0
    apart = row_bytes(out, depth) and is_unaligned(low.shape_of(out), out.dtype.itemsize, row_bytes(out))
    if not apart or not _is_plain(bias, **scales):
        return _ADDMM(low, out, bias, a, b, **scales)
    left, right, rows, columns = _factors(low, out, a, b)
    longer = None if columns is None else _with_zeros(low, out, bias, columns)
    if longer is None:
        return _biased(low, out, _mm(low, out, a, b), bias)
    (result,) = low.extern(aten.addmm.default, (longer, left, right), {}, [out], aten.addmm.out, rows, columns)
    return result


def _with_zeros(low: Lowering, out: torch.Tensor, bias: Tensor, columns: Expr) -> View | None:
    """The bias with zeros behind it for so many columns; None if it is not known how many, or it is one for all of them."""
    spare = (columns - bias.shape[0]).as_int()
    if not spare or bias.shape[0] is ONE:
        return None
    copy = low.pointwise(out.dtype, bias.shape, bias.at, 1)
    copy.zeros = {0: spare}
    longer = low.with_zeros(low.realize(copy))
    return longer if longer.shape[0] is columns else None


def _is_plain(bias: Tensor, *, beta: Any = 1, alpha: Any = 1) -> bool:
    return beta == 1 and alpha == 1 and len(bias.shape) == 1


def _biased(low: Lowering, out: torch.Tensor, product: Tensor, bias: Tensor) -> Tensor:
    last = [ZERO] if bias.shape[0] is ONE else None
    return low.pointwise(
        out.dtype, product.shape, lambda i: add(product.math_at(i), bias.math_at(last or [i[-1]])), 1 if bias.is_cheap else 4
    )


def _in_loops(out: torch.Tensor) -> bool:
    return has_target(out.device) and target_of(out.device).biases_in_loops


def product_read_by_loops(
    low: Lowering, out: torch.Tensor, bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    """`addmm` whose result loops read: these add the bias. Half types round once, in the library."""
    exact = out.dtype in (torch.float32, torch.float64) and bias.dtype is out.dtype
    if not exact or not _is_plain(bias, beta=beta, alpha=alpha) or not _in_loops(out):
        return _addmm(low, out, bias, a, b, beta=beta, alpha=alpha)
    return _biased(low, out, call(low, aten.mm.default, out, a, b, out_variant=aten.mm.out), bias)


RULES: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: _with_out(aten.bmm.default, aten.bmm.out),
    aten.baddbmm.default: _with_out(aten.baddbmm.default, aten.baddbmm.out),
}
