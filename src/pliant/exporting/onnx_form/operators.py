"""ATen operators by ONNX operators of opset 18.

In:     the writer, an operator's arguments: nodes, numbers, symbolic numbers.
Out:    the name of what is made, or several.
Holds:  a row is for every call of its operator, or refuses what it is not for. Operands are cast to the dtype in which
        ATen computes: ONNX promotes nothing. What ATen makes of sizes is taken from the node's own description.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx

from pliant.graph.tensor_spec import keys_of
from pliant.tables import Table

if TYPE_CHECKING:
    from pliant.exporting.onnx_form.writer import Writer

Row: TypeAlias = "Callable[..., str | list[str]]"

EXPANDED = ("aten.gelu",)  # of PyTorch's core set, and not of opset 18
_END = (1 << 63) - 1

ROWS: Table[str, Row] = Table()


def row_of(*names: str) -> Callable[[Row], Row]:
    def put(row: Row) -> Row:
        ROWS.add({f"aten.{name}": row for name in names})
        return row

    return put


# ---- pointwise
# ONNX has no form of these for bfloat16.
_NOT_OF_BFLOAT16 = frozenset("Sin Cos Tan Asin Acos Atan Sinh Cosh Round".split())
_ROUNDING = frozenset("Floor Ceil Round".split())  # of whole numbers: themselves


def _unary(kind: str) -> Row:
    def row(w: Writer, x: Any, **_: Any) -> str:
        dtype = w.result.dtype_
        if kind in _ROUNDING and not dtype.is_floating_point:
            return w.op("Identity", w.value(x, dtype))
        if dtype is torch.bfloat16 and kind in _NOT_OF_BFLOAT16:
            return w.op("Cast", w.op(kind, w.value(x, torch.float32)), to=w.type(dtype))
        return w.op(kind, w.value(x, dtype))

    return row


def _binary(kind: str) -> Row:
    def row(w: Writer, x: Any, y: Any, alpha: Any = 1) -> str:
        dtype = w.result.dtype_
        second = w.value(y, dtype)
        if alpha != 1:
            second = w.op("Mul", second, w.scalar(alpha, dtype))
        if dtype is torch.bool:
            raise w.refused(f"`{kind}` of bools")
        return w.op(kind, w.value(x, dtype), second)

    return row


def _logical(kind: str, bitwise: str = "") -> Row:
    """`bitwise`: what it is of whole numbers."""

    def row(w: Writer, x: Any, y: Any) -> str:
        dtype = w.result.dtype_ if bitwise else torch.bool
        return w.op(kind if dtype is torch.bool else bitwise, w.value(x, dtype), w.value(y, dtype))

    return row


def _compared(*kinds: str) -> Row:
    """Operators from the inside out: `Equal`, then `Not`."""

    def row(w: Writer, x: Any, y: Any) -> str:
        dtype = _common(w, x, y)
        found = w.op(kinds[0], w.value(x, dtype), w.value(y, dtype))
        for kind in kinds[1:]:
            found = w.op(kind, found)
        return found

    return row


def _common(w: Writer, x: Any, y: Any) -> torch.dtype:
    """The dtype in which two operands are compared."""
    sample = [torch.empty([0] * len(w.fake(v).size_), dtype=w.fake(v).dtype_) if isinstance(v, fx.Node) else v for v in (x, y)]
    sample = [1 if isinstance(v, torch.SymInt) else v for v in sample]  # a whole number, whichever it is
    if not all(isinstance(v, (torch.Tensor, bool, int, float)) for v in sample):
        raise w.refused("a comparison with a number of another kind")
    found = torch.result_type(sample[0], sample[1])
    return torch.int32 if found is torch.bool else found


for _names, _kind in {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "erf": "Erf", "neg": "Neg",
    "abs": "Abs", "sin": "Sin", "cos": "Cos", "tan": "Tan", "atan": "Atan", "asin": "Asin", "acos": "Acos", "sinh": "Sinh",
    "cosh": "Cosh", "floor": "Floor", "ceil": "Ceil", "round": "Round", "reciprocal": "Reciprocal",
    "alias": "Identity",
}.items():  # fmt: skip
    ROWS[f"aten.{_names}.default"] = _unary(_kind)


@row_of("isnan.default")
def _isnan(w: Writer, x: fx.Node) -> str:
    dtype = w.fake(x).dtype_
    return w.op("IsNaN", w.value(x, dtype if dtype in (torch.float16, torch.float64) else torch.float32))


@row_of("sign.default")
def _sign(w: Writer, x: fx.Node) -> str:
    """0 of NaN, of which ONNX does not say what it is."""
    dtype, given = w.result.dtype_, w.value(x)
    if dtype is torch.bool:
        raise w.refused("the sign of bools")
    zero = w.scalar(0, dtype)
    above, below = (w.op("Cast", w.op(kind, given, zero), to=w.type(dtype)) for kind in ("Greater", "Less"))
    return w.op("Sub", above, below)


_MOST_FACTORS = 8


def _power(w: Writer, x: Any, y: Any) -> str:
    """Products where ATen multiplies, exact in whole numbers; a root where it takes one."""
    dtype = w.result.dtype_
    if type(y) is int and 1 <= y <= (3 if dtype.is_floating_point else _MOST_FACTORS):
        base = w.value(x, dtype)
        return functools.reduce(lambda made, _: w.op("Mul", made, base), range(y - 1), base)
    if not dtype.is_floating_point:
        raise w.refused("a power of whole numbers that is no small number")
    if y in (0.5, -0.5) and isinstance(y, float):
        root = w.op("Sqrt", w.value(x, dtype))
        return root if y > 0 else w.op("Reciprocal", root)
    return w.op("Pow", w.value(x, dtype), w.value(y, dtype))


for _names, _kind in {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "minimum": "Min", "maximum": "Max"}.items():
    ROWS[f"aten.{_names}.Tensor"] = ROWS[f"aten.{_names}.Scalar"] = ROWS[f"aten.{_names}.default"] = _binary(_kind)
for _overload in ("Tensor_Tensor", "Tensor_Scalar", "Scalar"):
    ROWS[f"aten.pow.{_overload}"] = _power
for _overload in ("Tensor", "Scalar"):
    ROWS |= {
        f"aten.eq.{_overload}": _compared("Equal"), f"aten.ne.{_overload}": _compared("Equal", "Not"),
        f"aten.lt.{_overload}": _compared("Less"), f"aten.le.{_overload}": _compared("LessOrEqual"),
        f"aten.gt.{_overload}": _compared("Greater"), f"aten.ge.{_overload}": _compared("GreaterOrEqual"),
        f"aten.bitwise_and.{_overload}": _logical("And", "BitwiseAnd"),
        f"aten.bitwise_or.{_overload}": _logical("Or", "BitwiseOr"),
        f"aten.bitwise_xor.{_overload}": _logical("Xor", "BitwiseXor"),
    }  # fmt: skip
ROWS |= {"aten.logical_and.default": _logical("And"), "aten.logical_or.default": _logical("Or")}


@row_of("div.Tensor_mode", "div.Scalar_mode", "floor_divide.default")
def _rounded_quotient(w: Writer, x: Any, y: Any, rounding_mode: Any = "floor") -> str:
    """Of floats as ATen computes it: the quotient of what is a multiple, one less where signs differ."""
    dtype = w.result.dtype_
    a, b = w.value(x, dtype), w.value(y, dtype)
    if rounding_mode is None or dtype in (torch.bool, torch.bfloat16):
        raise w.refused("a quotient of this dtype, or that is not rounded")
    if not dtype.is_floating_point:  # ONNX divides towards 0; `Mod` has Python's sign
        return w.op("Div", w.op("Sub", a, w.op("Mod", a, b)) if rounding_mode == "floor" else a, b)
    if rounding_mode != "floor":
        raise w.refused("a quotient of floats that is rounded towards 0")
    rest, none = w.op("Mod", a, b, fmod=1), w.scalar(0, dtype)
    signs = w.op("Xor", w.op("Less", b, none), w.op("Less", rest, none))
    less = w.op("And", signs, w.op("Not", w.op("Equal", rest, none)))
    whole = w.op("Sub", w.op("Div", w.op("Sub", a, rest), b), w.op("Cast", less, to=w.type(dtype)))
    lower = w.op("Floor", whole)
    up = w.op("Cast", w.op("Greater", w.op("Sub", whole, lower), w.scalar(0.5, dtype)), to=w.type(dtype))
    return w.op("Where", w.op("Equal", b, none), w.op("Div", a, b), w.op("Add", lower, up))


@row_of("clone.default", "_to_copy.default")
def _copy(w: Writer, x: fx.Node, **_: Any) -> str:
    return w.op("Identity", w.value(x, w.result.dtype_))


@row_of("logical_not.default", "bitwise_not.default")
def _not(w: Writer, x: fx.Node) -> str:
    if w.result.dtype_ is not torch.bool:
        return w.op("BitwiseNot", w.value(x))
    return w.op("Not", w.value(x, torch.bool))


@row_of("rsub.Scalar", "rsub.Tensor")
def _rsub(w: Writer, x: fx.Node, y: Any, alpha: Any = 1) -> str | list[str]:
    return _binary("Sub")(w, y, x, alpha)


@row_of("rsqrt.default")
def _rsqrt(w: Writer, x: fx.Node) -> str:
    return w.op("Reciprocal", w.op("Sqrt", w.value(x, w.result.dtype_)))


@row_of("clamp.default", "clamp.Tensor")
def _clamp(w: Writer, x: fx.Node, low: Any = None, high: Any = None, **named: Any) -> str:
    dtype, low, high = w.result.dtype_, named.get("min", low), named.get("max", high)
    found = w.value(x, dtype)
    found = found if low is None else w.op("Max", found, w.value(low, dtype))
    return found if high is None else w.op("Min", found, w.value(high, dtype))


ROWS |= {
    "aten.clamp_min.default": lambda w, x, low: _clamp(w, x, low),
    "aten.clamp_max.default": lambda w, x, high: _clamp(w, x, None, high),
    "aten.hardtanh.default": lambda w, x, low=-1, high=1: _clamp(w, x, low, high),
}


@row_of("softplus.default")
def _softplus(w: Writer, x: fx.Node, beta: Any = 1, threshold: Any = 20) -> str:
    """Beyond the threshold the line itself."""
    dtype, given = w.result.dtype_, w.value(x)
    scaled = given if beta == 1 else w.op("Mul", given, w.scalar(beta, dtype))
    curve = w.op("Softplus", scaled)
    curve = curve if beta == 1 else w.op("Div", curve, w.scalar(beta, dtype))
    return w.op("Where", w.op("Greater", scaled, w.scalar(threshold, dtype)), given, curve)


@row_of("where.self")
def _where(w: Writer, chosen: fx.Node, x: fx.Node, y: fx.Node) -> str:
    return w.op("Where", w.value(chosen, torch.bool), w.value(x, w.result.dtype_), w.value(y, w.result.dtype_))


@row_of("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(w: Writer, x: fx.Node, mask: fx.Node, value: Any) -> str:
    dtype = w.result.dtype_
    return w.op("Where", w.value(mask, torch.bool), w.value(value, dtype), w.value(x, dtype))


# ---- sizes
@row_of("view.default", "_unsafe_view.default", "unsqueeze.default", "squeeze.dims", "squeeze.dim", "squeeze.default")
def _reshape(w: Writer, x: fx.Node, *_: Any) -> str:
    return w.op("Reshape", w.value(x), w.sizes(w.result.size_), allowzero=1)


@row_of("expand.default")
def _expand(w: Writer, x: fx.Node, *_: Any, **__: Any) -> str:
    return w.op("Expand", w.value(x), w.sizes(w.result.size_))


@row_of("permute.default")
def _permute(w: Writer, x: fx.Node, order: Sequence[int]) -> str:
    return w.op("Transpose", w.value(x), perm=[d % len(order) for d in order]) if order else w.value(x)


@row_of("slice.Tensor")
def _slice(w: Writer, x: fx.Node, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> str:
    bounds = (0 if start is None else start, _END if end is None else end)
    return w.op("Slice", w.value(x), *(w.sizes([one]) for one in (*bounds, dim, step)))


@row_of("slice_scatter.default")
def _slice_scatter(w: Writer, x: fx.Node, new: fx.Node, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> str:
    """What is before, the new part, what is behind it."""
    start, end = 0 if start is None else start, _END if end is None else end
    if type(start) is not int or type(end) is not int or not 0 <= start <= end or step != 1:
        raise w.refused("a slice that is written from its end, by steps or by a size")
    axis = w.sizes([dim])
    before = w.op("Slice", w.value(x), w.sizes([0]), w.sizes([start]), axis)
    behind = w.op("Slice", w.value(x), w.sizes([end]), w.sizes([_END]), axis)
    return w.op("Concat", before, w.value(new, w.result.dtype_), behind, axis=dim)


@row_of("select.int")
def _select(w: Writer, x: fx.Node, dim: int, index: Any) -> str:
    return w.op("Gather", w.value(x), w.scalar(index, torch.int64), axis=dim)


@row_of("split.Tensor", "split_with_sizes.default")
def _split(w: Writer, x: fx.Node, size: Any, dim: int = 0) -> list[str]:
    """Each part from where the ones before it end."""
    found: list[str] = []
    start: Any = 0
    for part in w.result:
        end = start + part.size_[dim]
        found.append(w.op("Slice", w.value(x), w.sizes([start]), w.sizes([end]), w.sizes([dim])))
        start = end
    return found


@row_of("as_strided.default")
def _as_strided(w: Writer, x: fx.Node, *_: Any) -> str:
    """The same elements: ONNX's tensors have no strides."""
    own, made = w.fake(x), w.result
    same = keys_of(own.size_) == keys_of(made.size_) and keys_of([own.storage_offset()]) == keys_of([made.storage_offset()])
    strides = zip(keys_of(own.size_), keys_of(own.stride_), keys_of(made.stride_))
    if not same or any(size != 1 and a != b for size, a, b in strides):
        raise w.refused("memory that is read by strides")
    return w.op("Identity", w.value(x))


@row_of("cat.default")
def _cat(w: Writer, parts: Sequence[fx.Node], dim: int = 0) -> str:
    if any(len(w.fake(one).size_) != len(w.result.size_) for one in parts):
        raise w.refused("parts of another rank, which `cat` leaves out")
    return w.op("Concat", *(w.value(one, w.result.dtype_) for one in parts), axis=dim)


# ---- made from numbers
def _filled(w: Writer, size: Sequence[Any], value: Any) -> str:
    return w.op("Expand", w.scalar(value, w.result.dtype_), w.sizes(size))


ROWS |= {
    "aten.full.default": lambda w, size, value, **_: _filled(w, size, value),
    "aten.zeros.default": lambda w, size, **_: _filled(w, size, 0),
    "aten.ones.default": lambda w, size, **_: _filled(w, size, 1),
    "aten.full_like.default": lambda w, x, value, **_: _filled(w, w.result.size_, value),
    "aten.zeros_like.default": lambda w, x, **_: _filled(w, w.result.size_, 0),
    "aten.ones_like.default": lambda w, x, **_: _filled(w, w.result.size_, 1),
    "aten.fill.Scalar": lambda w, x, value: _filled(w, w.result.size_, value),
    "aten.fill.Tensor": lambda w, x, value: w.op("Expand", w.value(value, w.result.dtype_), w.sizes(w.result.size_)),
    "aten.new_full.default": lambda w, x, size, value, **_: _filled(w, size, value),
    **dict.fromkeys(
        ("aten.new_zeros.default", "aten.new_empty.default", "aten.empty.memory_format", "aten.empty_like.default", "aten.empty_strided.default"),
        lambda w, *_, **__: _filled(w, w.result.size_, 0),
    ),
}


@row_of("_local_scalar_dense.default")
def _item(w: Writer, x: fx.Node) -> str:
    if not isinstance(w.result, torch.SymInt):
        raise w.refused("a number of elements that is not whole")
    return w.op("Reshape", w.value(x, torch.int64), w.constant(torch.zeros(0, dtype=torch.int64)))


@row_of("scalar_tensor.default")
def _scalar_tensor(w: Writer, value: Any, **_: Any) -> str:
    return w.scalar(value, w.result.dtype_)


@row_of("eye.default", "eye.m")
def _eye(w: Writer, rows: Any, columns: Any = None, **_: Any) -> str:
    return w.op("EyeLike", _filled(w, w.result.size_, 0))


@row_of("arange.default")
def _arange(w: Writer, end: Any, **_: Any) -> str:
    return _ranged(w, 0, end, 1)


@row_of("arange.start", "arange.start_step")
def _range(w: Writer, start: Any, end: Any, step: Any = 1, **_: Any) -> str:
    return _ranged(w, start, end, step)


def _ranged(w: Writer, start: Any, end: Any, step: Any) -> str:
    if any(isinstance(one, float) for one in (start, end, step)):
        raise w.refused("a range of floats")
    found = w.op("Range", *(w.scalar(one, torch.int64) for one in (start, end, step)))
    return w.op("Cast", found, to=w.type(w.result.dtype_))


@row_of("constant_pad_nd.default")
def _pad(w: Writer, x: fx.Node, pad: Sequence[Any], value: Any = 0) -> str:
    """ATen names the last dimension first, ONNX all begins and then all ends."""
    rank = len(w.fake(x).size_)
    pairs = [pad[i : i + 2] for i in range(0, len(pad), 2)]
    each = [*([0, 0] for _ in range(rank - len(pairs))), *reversed(pairs)]
    ends = w.sizes([one[0] for one in each] + [one[1] for one in each])
    return w.op("Pad", w.value(x), ends, w.scalar(value, w.result.dtype_), mode="constant")


@row_of("repeat.default")
def _repeat(w: Writer, x: fx.Node, times: Sequence[Any]) -> str:
    more = len(times) - len(w.fake(x).size_)
    given = w.value(x)
    if more:
        given = w.op("Unsqueeze", given, w.sizes(list(range(more))))
    return w.op("Tile", given, w.sizes(times))


# ---- over dimensions
def _reduced(kind: str) -> Row:
    def row(w: Writer, x: fx.Node, dims: Any = None, keep: bool = False, **_: Any) -> str:
        dtype = w.result.dtype_
        if dtype is torch.bool or not len(w.fake(x).size_):
            raise w.refused(f"`{kind}` of bools or of one number")
        axes = list(range(len(w.fake(x).size_))) if not dims and dims != 0 else dims if isinstance(dims, (list, tuple)) else [dims]
        if kind != "ReduceMean":
            return w.op(kind, w.value(x, dtype), w.sizes(axes), keepdims=int(keep))
        total = w.op("ReduceSum", w.value(x, dtype), w.sizes(axes), keepdims=int(keep))
        extents = [w.scalar(w.fake(x).size_[axis], torch.int64) for axis in axes]
        count = functools.reduce(lambda a, b: w.op("Mul", a, b), extents)
        return w.op("Div", total, w.op("Cast", count, to=w.type(dtype)))  # of nothing: NaN, which ReduceMean need not give

    return row


for _overloads, _kind in (("mean.dim mean.default", "ReduceMean"), ("sum.dim_IntList sum.default", "ReduceSum")):
    row_of(*_overloads.split())(_reduced(_kind))


@row_of("linalg_vector_norm.default")
def _norm(w: Writer, x: fx.Node, order: Any = 2, dims: Any = None, keep: bool = False, **_: Any) -> str:
    kind, dtype, rank = {1: "ReduceL1", 2: "ReduceL2"}.get(order), w.result.dtype_, len(w.fake(x).size_)
    if kind is None or not rank or not dtype.is_floating_point:
        raise w.refused("a norm other than the sum of absolutes or the root of squares")
    axes = list(range(rank)) if dims is None else dims if isinstance(dims, (list, tuple)) else [dims]
    return w.op(kind, w.value(x, dtype), w.sizes(axes), keepdims=int(keep))


def _along(kind: str) -> Row:
    return lambda w, x, dim, half_to_float=False: w.op(kind, w.value(x, w.result.dtype_), axis=dim)


@row_of("cumsum.default")
def _cumsum(w: Writer, x: fx.Node, dim: int, dtype: Any = None) -> str:
    if not len(w.fake(x).size_) or w.result.dtype_ not in _SUMMED:
        raise w.refused("running sums of one number, or of this dtype")
    return w.op("CumSum", w.value(x, w.result.dtype_), w.scalar(dim, torch.int64))


_SUMMED = (torch.float32, torch.float64, torch.int32, torch.int64)  # that ONNX's CumSum is for


@row_of("tril.default")
def _tril(w: Writer, x: fx.Node, diagonal: int = 0) -> str:
    return w.op("Trilu", w.value(x), w.scalar(diagonal, torch.int64), upper=0)


@row_of("triu.default")
def _triu(w: Writer, x: fx.Node, diagonal: int = 0) -> str:
    return w.op("Trilu", w.value(x), w.scalar(diagonal, torch.int64), upper=1)


_REDUCTIONS = ("none", "mean", "sum")


@row_of("nll_loss_forward.default", "nll_loss2d_forward.default")
def _nll_loss(w: Writer, x: fx.Node, target: fx.Node, weight: Any, reduction: int, ignored: int) -> list[str]:
    """The loss alone, not the weight of what counted."""
    if len(w.fake(x).size_) < 2:
        raise w.refused("a loss of one row")
    weights = [] if weight is None else [w.value(weight)]
    return [w.op("NegativeLogLikelihoodLoss", w.value(x), w.value(target), *weights, ignore_index=ignored, reduction=_REDUCTIONS[reduction])]


ROWS |= {"aten._softmax.default": _along("Softmax"), "aten._log_softmax.default": _along("LogSoftmax")}


@row_of("native_layer_norm.default")
def _layer_norm(w: Writer, x: fx.Node, shape: Sequence[Any], weight: Any, bias: Any, eps: float) -> list[str]:
    """The first result alone."""
    dtype = w.fake(x).dtype_
    scale = w.value(weight, dtype) if weight is not None else w.op("Expand", w.scalar(1, dtype), w.sizes(shape))
    more = () if bias is None else (w.value(bias, dtype),)
    return [w.op("LayerNormalization", w.value(x), scale, *more, axis=-len(shape), epsilon=eps)]


# ---- products
@row_of("mm.default", "bmm.default")
def _matmul(w: Writer, a: fx.Node, b: fx.Node) -> str:
    return w.op("MatMul", w.value(a), w.value(b))


@row_of("addmm.default")
def _addmm(w: Writer, bias: fx.Node, a: fx.Node, b: fx.Node, beta: Any = 1, alpha: Any = 1) -> str:
    if beta != 1 or alpha != 1:
        raise w.refused("`addmm` with factors")
    return w.op("Add", w.op("MatMul", w.value(a), w.value(b)), w.value(bias))


@row_of("baddbmm.default")
def _baddbmm(w: Writer, bias: fx.Node, a: fx.Node, b: fx.Node, beta: Any = 1, alpha: Any = 1) -> str:
    """With the factor 0, what is added is not read."""
    dtype, found = w.result.dtype_, w.op("MatMul", w.value(a), w.value(b))
    if alpha != 1:
        found = w.op("Mul", found, w.scalar(alpha, dtype))
    if beta == 0:
        return found
    added = w.value(bias) if beta == 1 else w.op("Mul", w.value(bias), w.scalar(beta, dtype))
    return w.op("Add", found, added)
