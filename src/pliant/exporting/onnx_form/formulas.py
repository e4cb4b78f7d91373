"""Operators of arithmetic by several ONNX operators: functions near 0, remainders, losses, variances, truths.

In, Out, Holds: as `operators.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.exporting.onnx_form.operators import row_of

if TYPE_CHECKING:
    from pliant.exporting.onnx_form.writer import Writer

_WITH_IS_INF = (torch.float32, torch.float64)


# ---- functions
@row_of("expm1.default")
def _expm1(w: Writer, x: fx.Node) -> str:
    """tanh(x/2) * (exp(x) + 1), which loses no digits near 0."""
    dtype = w.result.dtype_
    given, one = w.value(x, dtype), w.scalar(1, dtype)
    half = w.op("Tanh", w.op("Mul", given, w.scalar(0.5, dtype)))
    return w.op("Mul", half, w.op("Add", w.op("Exp", given), one))


@row_of("log1p.default")
def _log1p(w: Writer, x: fx.Node) -> str:
    """u = 1 + x is rounded, and log(u) * x / (u - 1) makes up for it. Far from 0 it is log(u) itself."""
    dtype = w.result.dtype_
    given, one = w.value(x, dtype), w.scalar(1, dtype)
    u = w.op("Add", given, one)
    away, logarithm = w.op("Sub", u, one), w.op("Log", u)
    near = w.op("Mul", logarithm, w.op("Div", given, away))
    far = w.op("Greater", w.op("Abs", given), w.scalar(0.5, dtype))
    found = w.op("Where", far, logarithm, near)
    return w.op("Where", w.op("Equal", away, w.scalar(0, dtype)), given, found)


def _logarithm(base: float) -> Any:
    def row(w: Writer, x: fx.Node) -> str:
        dtype = w.result.dtype_
        return w.op("Mul", w.op("Log", w.value(x, dtype)), w.scalar(1 / math.log(base), dtype))

    return row


def _named(kind: str) -> Any:
    return lambda w, x: w.op(kind, w.value(x, w.result.dtype_))


row_of("log2.default")(_logarithm(2))
row_of("log10.default")(_logarithm(10))
row_of("acosh.default")(_named("Acosh"))
row_of("asinh.default")(_named("Asinh"))
row_of("atanh.default")(_named("Atanh"))


@row_of("trunc.default", "fix.default")
def _trunc(w: Writer, x: fx.Node) -> str:
    dtype, given = w.result.dtype_, w.value(x)
    if not dtype.is_floating_point:
        return w.op("Identity", given)
    return w.op("Where", w.op("Less", given, w.scalar(0, dtype)), w.op("Ceil", given), w.op("Floor", given))


@row_of("leaky_relu.default")
def _leaky(w: Writer, x: fx.Node, slope: Any = 0.01) -> str:
    dtype, given = w.result.dtype_, w.value(x)
    return w.op("Where", w.op("Greater", given, w.scalar(0, dtype)), given, w.op("Mul", given, w.scalar(slope, dtype)))


def _elu(w: Writer, x: fx.Node, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> str:
    dtype, given = w.result.dtype_, w.value(x)
    inner = w.op("Mul", given, w.scalar(input_scale, dtype))
    half = w.op("Tanh", w.op("Mul", inner, w.scalar(0.5, dtype)))
    below = w.op("Mul", half, w.op("Add", w.op("Exp", inner), w.scalar(1, dtype)))
    above = w.op("Mul", given, w.scalar(scale, dtype))
    return w.op("Where", w.op("Greater", given, w.scalar(0, dtype)), above, w.op("Mul", below, w.scalar(alpha * scale, dtype)))


row_of("elu.default")(_elu)


@row_of("celu.default")
def _celu(w: Writer, x: fx.Node, alpha: Any = 1) -> str:
    return _elu(w, x, alpha, 1, 1 / alpha)


# ---- two operands
@row_of("remainder.Tensor", "remainder.Scalar")
def _remainder(w: Writer, x: Any, y: Any) -> str:
    """With the sign of the divisor."""
    dtype = w.result.dtype_
    a, b = w.value(x, dtype), w.value(y, dtype)
    if dtype in (torch.bool, torch.bfloat16):
        raise w.refused("a remainder of this dtype")
    if not dtype.is_floating_point:
        return w.op("Mod", a, b)
    rest, none = w.op("Mod", a, b, fmod=1), w.scalar(0, dtype)
    signs = w.op("Xor", w.op("Less", b, none), w.op("Less", rest, none))
    other = w.op("And", signs, w.op("Not", w.op("Equal", rest, none)))
    return w.op("Where", other, w.op("Add", rest, b), rest)


@row_of("fmod.Tensor", "fmod.Scalar")
def _fmod(w: Writer, x: Any, y: Any) -> str:
    dtype = w.result.dtype_
    if dtype in (torch.bool, torch.bfloat16):
        raise w.refused("a remainder of this dtype")
    return w.op("Mod", w.value(x, dtype), w.value(y, dtype), fmod=1)


@row_of("logical_xor.default")
def _xor(w: Writer, x: fx.Node, y: fx.Node) -> str:
    return w.op("Xor", w.value(x, torch.bool), w.value(y, torch.bool))


@row_of("isinf.default")
def _isinf(w: Writer, x: fx.Node) -> str:
    own = w.fake(x).dtype_
    if not own.is_floating_point:
        return w.op("Expand", w.scalar(False, torch.bool), w.sizes(w.result.size_))
    return w.op("IsInf", w.value(x, own if own in _WITH_IS_INF else torch.float32))


# ---- all of a dimension
def _of(w: Writer, x: fx.Node, dims: Any) -> list[int]:
    rank = len(w.fake(x).size_)
    given = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return [d % rank for d in given]


@row_of("any.default", "any.dim", "any.dims")
def _any(w: Writer, x: fx.Node, dims: Any = None, keep: bool = False, **named: Any) -> str:
    return _truth(w, x, named.get("dim", dims), named.get("keepdim", keep), "ReduceMax")


@row_of("all.default", "all.dim", "all.dims")
def _all(w: Writer, x: fx.Node, dims: Any = None, keep: bool = False, **named: Any) -> str:
    return _truth(w, x, named.get("dim", dims), named.get("keepdim", keep), "ReduceMin")


def _truth(w: Writer, x: fx.Node, dims: Any, keep: bool, kind: str) -> str:
    if w.result.dtype_ is not torch.bool:
        raise w.refused("truths as bytes")
    given = w.op("Cast", w.value(x, torch.bool), to=w.type(torch.int32))
    if w.fake(x).size_:
        if not all(_is_positive(w.fake(x).size_[d]) for d in _of(w, x, dims)):
            raise w.refused("truths of what may have no elements")
        given = w.op(kind, given, w.sizes(_of(w, x, dims)), keepdims=int(keep))
    return w.op("Cast", given, to=w.type(torch.bool))


def _is_positive(size: Any) -> bool:
    """Whether it is at every call."""
    if isinstance(size, torch.SymInt):
        return size.node.shape_env.statically_known(size.node.expr.gt(0)) is True
    return bool(size > 0)


@row_of("argmax.default", "argmin.default")
def _place(w: Writer, x: fx.Node, dim: Any = None, keep: bool = False) -> str:
    """Of the first NaN, if there is one, as ATen has it."""
    own, kind = w.fake(x), str(w.node.target).split(".")[1].replace("argm", "ArgM")  # type: ignore[union-attr]
    if own.dtype_ is torch.bool or not own.size_:
        raise w.refused("the place of the largest of bools or of one number")
    given = w.value(x) if dim is not None else w.op("Reshape", w.value(x), w.sizes([-1]))
    named = {"axis": 0 if dim is None else dim, "keepdims": int(keep and dim is not None)}
    found = w.op(kind, given, **named)
    if own.dtype_.is_floating_point:
        nans = w.op("Cast", w.op("IsNaN", given), to=w.type(torch.int32))
        some = w.op("ReduceMax", nans, w.sizes([named["axis"]]), keepdims=named["keepdims"])
        found = w.op("Where", w.op("Cast", some, to=w.type(torch.bool)), w.op("ArgMax", nans, **named), found)
    return w.op("Reshape", found, w.sizes(w.result.size_)) if keep and dim is None else found


@row_of("prod.default", "prod.dim_int")
def _prod(w: Writer, x: fx.Node, dim: Any = None, keep: bool = False, **_: Any) -> str:
    if not w.result.dtype_.is_floating_point:
        raise w.refused("products of whole numbers, which ATen lets run over")
    return w.op("ReduceProd", w.value(x, w.result.dtype_), w.sizes(_of(w, x, dim)), keepdims=int(keep))


def _var(w: Writer, x: fx.Node, dims: Any = None, *rest: Any, **named: Any) -> str:
    """Twice through the elements: the mean of what is left without the mean."""
    dtype, sizes = w.result.dtype_, w.fake(x).size_
    correction = named.get("correction", int(rest[0]) if rest else 1)
    keep = named.get("keepdim", rest[1] if len(rest) > 1 else False)
    axes = _of(w, x, dims)
    if not sizes or type(correction) not in (int, float, type(None)):
        raise w.refused("the variance of one number")
    count, axis_list = math.prod([sizes[d] for d in axes]), w.sizes(axes)
    left = w.op("Sub", w.value(x), w.op("ReduceMean", w.value(x), axis_list, keepdims=1))
    total = w.op("ReduceSum", w.op("Mul", left, left), axis_list, keepdims=int(keep))
    over = w.op("Sub", w.scalar(count, dtype), w.scalar(1 if correction is None else correction, dtype))
    return w.op("Div", total, w.op("Max", over, w.scalar(0, dtype)))


row_of("var.correction", "var.dim")(_var)


@row_of("std.correction", "std.dim")
def _std(w: Writer, x: fx.Node, dims: Any = None, *rest: Any, **named: Any) -> str:
    return w.op("Sqrt", _var(w, x, dims, *rest, **named))


# ---- losses
_REDUCED = {0: None, 1: "ReduceMean", 2: "ReduceSum"}


def _loss(w: Writer, each: str, reduction: int) -> str:
    kind = _REDUCED[reduction]
    return each if kind is None else w.op(kind, each, keepdims=0)


@row_of("mse_loss.default")
def _mse(w: Writer, x: fx.Node, y: fx.Node, reduction: int = 1) -> str:
    left = w.op("Sub", w.value(x, w.result.dtype_), w.value(y, w.result.dtype_))
    return _loss(w, w.op("Mul", left, left), reduction)


@row_of("smooth_l1_loss.default", "huber_loss.default")
def _huber(w: Writer, x: fx.Node, y: fx.Node, reduction: int = 1, bound: Any = 1.0) -> str:
    """Squares up to the bound, lines beyond; the smooth one divides by it."""
    dtype, smooth = w.result.dtype_, "smooth" in str(w.node.target)  # type: ignore[union-attr]
    away = w.op("Abs", w.op("Sub", w.value(x, dtype), w.value(y, dtype)))
    if not bound:
        return _loss(w, away, reduction)
    factor, half = w.scalar(1 / bound if smooth else 1.0, dtype), w.scalar(0.5, dtype)
    square = w.op("Mul", w.op("Mul", w.op("Mul", away, away), half), factor)
    line = w.op("Sub", away, w.scalar(0.5 * bound, dtype))
    line = line if smooth else w.op("Mul", line, w.scalar(bound, dtype))
    return _loss(w, w.op("Where", w.op("Less", away, w.scalar(bound, dtype)), square, line), reduction)
