"""Pointwise operators: each is a row (overload -> scalar expression).

In:     tensors and numbers.
Out:    a tensor whose element is a scalar expression of the arguments' elements.
Holds:  arguments are converted to one dtype as eager does, halves are computed in f32. Numbers are literals of that
        dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.ops import OPS
from pliant.ir.scalar import Scalar, apply, cast, const, where
from pliant.lowering import formulas
from pliant.lowering.context import Lowering
from pliant.lowering.promotion import common_dtype
from pliant.lowering.tensors import Index, Shape, Tensor, broadcast_index, opmath
from pliant.symbolic.expr import ONE, Expr

aten = torch.ops.aten
Formula = Callable[..., Scalar]


def elements(
    low: Lowering, out: torch.Tensor, inputs: Sequence[Any], compute: torch.dtype, formula: Formula, cost: int = 1,
    rounded: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """The tensor of `formula(*elements of inputs)`, where each element has dtype `compute`; None stays None. Inputs of other
    dtypes than `rounded` are converted to that first."""
    shape = low.shape_of(out)
    readers = [reader(low, x, compute, shape, rounded) for x in inputs]
    final = opmath(out.dtype)

    def at(index: Index) -> Scalar:
        return cast(formula(*[r(index) for r in readers]), final)

    weight = cost + sum([x.weight if x.view is None else 0 for x in inputs if isinstance(x, Tensor)])
    return low.pointwise(out.dtype, shape, at, weight)


def combined(
    low: Lowering, dtype: torch.dtype, shape: Shape, tensors: Sequence[Tensor | None], f: Formula, cost: int = 4
) -> Tensor:
    """f of the elements of tensors that broadcast to `shape` (dimensions aligned at the end), in `dtype`; None stays None."""
    readers = [reader(low, t, dtype, shape) for t in tensors]
    weight = cost + sum([t.weight for t in tensors if t is not None and t.view is None])
    return low.pointwise(dtype, shape, lambda i: f(*[r(i) for r in readers]), weight)


def reader(
    low: Lowering, x: Any, dtype: torch.dtype, out_shape: tuple[Expr, ...], rounded: torch.dtype | None = None
) -> Callable[[Index], Any]:
    """A function from the index of a result to the element of an argument, converted to `dtype`."""
    if isinstance(x, Tensor):
        tensor = low.for_broadcast(x, out_shape)
        between = dtype if rounded is None or x.dtype is rounded else rounded
        if tensor.shape == out_shape:
            return lambda index: cast(cast(tensor.at(index), between), dtype)
        return lambda index: cast(cast(tensor.at(broadcast_index(tensor.shape, out_shape, index)), between), dtype)
    if x is None:
        return lambda index: None
    literal = cast(number(low, x, rounded or dtype), dtype)
    return lambda index: literal


def number(low: Lowering, x: Any, dtype: torch.dtype) -> Scalar:
    """A Python number or a symbolic one as a scalar."""
    if isinstance(x, Expr):
        return cast(low.number(x, torch.int64 if x.kind is int else torch.float64), dtype)
    if isinstance(x, (bool, int, float)):
        return const(x, dtype)
    raise Unsupported(f"{type(x).__name__} is no number that scalars express")


def simple(op: str) -> Callable[..., Tensor]:
    """A rule for an operator of the table whose arguments have the result's dtype."""
    cost, arity = OPS[op].cost, OPS[op].arity

    def rule(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) != arity or kwargs:
            raise Unsupported(f"arguments of `{op}`")
        return elements(low, out, args, opmath(out.dtype), lambda *xs: apply(op, *xs), cost)

    return rule


def by_formula(formula: Formula, cost: int, tensors: int = 1) -> Callable[..., Tensor]:
    """A rule for `formula(*elements of the first tensors, *other arguments)`, all of the result's dtype."""

    def rule(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Tensor:
        rest = args[tensors:]
        return elements(low, out, args[:tensors], opmath(out.dtype), lambda *xs: formula(*xs, *rest, **kwargs), cost)

    return rule


def _gelu(low: Lowering, out: torch.Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    cost = 26 if approximate == "tanh" or out.dtype is torch.float64 else 16
    return elements(low, out, (x,), opmath(out.dtype), lambda e: formulas.gelu(e, approximate), cost)


def comparison(op: str) -> Callable[..., Tensor]:
    """Arguments are promoted among themselves, and rounded to that dtype; the result is bool."""

    def rule(low: Lowering, out: torch.Tensor, *args: Any) -> Tensor:
        common = common_dtype(args)
        return elements(low, out, args, opmath(common), lambda *xs: apply(op, *xs), OPS[op].cost, common)

    return rule


def logical(op: str) -> Callable[..., Tensor]:
    return lambda low, out, *args: elements(low, out, args, torch.bool, lambda *xs: apply(op, *xs))


def float_test(op: str, for_integers: bool = False) -> Callable[..., Tensor]:
    """isnan and the like: a constant for integers."""

    def rule(low: Lowering, out: torch.Tensor, x: Tensor) -> Tensor:
        if not x.dtype.is_floating_point:
            return elements(low, out, (), torch.bool, lambda: const(for_integers, torch.bool))
        return elements(low, out, (x,), opmath(x.dtype), formulas.TESTS[op], 2)

    return rule


def only_floats(rule: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The rule, for floating-point results; integers keep eager's kernel (which may raise)."""

    def checked(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not out.dtype.is_floating_point:
            raise Unsupported("an integer result")
        return rule(low, out, *args, **kwargs)

    return checked


def _full_floats(rule: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The rule, for f32 and f64 only: its formula depends on the limits of the dtype."""

    def checked(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if out.dtype not in (torch.float32, torch.float64):
            raise Unsupported("a half")
        return rule(low, out, *args, **kwargs)

    return checked


def identity_for_integers(rule: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """floor, ceil...: integers are themselves."""

    def checked(low: Lowering, out: torch.Tensor, x: Tensor, **kwargs: Any) -> Tensor:
        if out.dtype.is_floating_point:
            return rule(low, out, x, **kwargs)
        return elements(low, out, (x,), out.dtype, lambda a: a, 0)

    return checked


# -- rules with arguments of their own --------------------------------------------------------------------------------


def _add(op: str) -> Callable[..., Tensor]:
    """add, sub: the second argument times alpha."""

    def rule(low: Lowering, out: torch.Tensor, x: Any, y: Any, alpha: Any = 1) -> Tensor:
        dtype = opmath(out.dtype)
        if alpha == 1 and not isinstance(alpha, Expr):
            return elements(low, out, (x, y), dtype, _table(op, dtype))
        if dtype is torch.bool:
            raise Unsupported("alpha with booleans")
        factor = number(low, alpha, dtype)
        return elements(low, out, (x, y), dtype, lambda a, b: apply(op, a, apply("mul", b, factor)), 2)

    return rule


def _table(op: str, dtype: torch.dtype) -> Formula:
    """The operator; on booleans add is `or`, mul is `and`."""
    if dtype is torch.bool:
        op = {"add": "bit_or", "mul": "bit_and"}.get(op, op)
    return lambda *xs: apply(op, *xs)


def _rsub(low: Lowering, out: torch.Tensor, x: Any, y: Any, alpha: Any = 1) -> Tensor:
    factor = number(low, alpha, opmath(out.dtype))
    return elements(low, out, (x, y), factor.dtype, lambda a, b: apply("sub", b, apply("mul", a, factor)))


def _mul(low: Lowering, out: torch.Tensor, x: Any, y: Any) -> Tensor:
    return elements(low, out, (x, y), opmath(out.dtype), _table("mul", out.dtype))


def _divide(low: Lowering, out: torch.Tensor, x: Any, y: Any, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return elements(low, out, (x, y), opmath(out.dtype), lambda a, b: apply("div", a, b), 4)
    op = "truncdiv" if rounding_mode == "trunc" else "floordiv"
    _refuse_zero_divisor(out.dtype, y)
    dtype = opmath(out.dtype)
    halves, sole = dtype is not out.dtype, not isinstance(y, Tensor) or all(size is ONE for size in y.shape)
    exact = not halves or isinstance(x, Tensor) and x.dtype is out.dtype

    def formula(a: Scalar, b: Scalar) -> Scalar:  # as eager, which does not round a sole divisor, nor what comes of it
        a = a if exact else cast(cast(a, out.dtype), dtype)
        if halves and not sole and op == "truncdiv":
            return apply("trunc", cast(cast(apply("div", a, b), out.dtype), dtype))
        return apply(op, a, b)

    return elements(low, out, (x, y), dtype, formula, OPS[op].cost)


def _refuse_zero_divisor(dtype: torch.dtype, y: Any) -> None:
    """Integer division by a tensor may meet a zero, for which eager raises. So does a number that the type wraps to zero."""
    if not dtype.is_floating_point and (isinstance(y, (Tensor, Expr)) or const(y, dtype).value in (0, -1)):
        raise Unsupported("an integer division that may fail")


def _modulo(op: str) -> Callable[..., Tensor]:
    def rule(low: Lowering, out: torch.Tensor, x: Any, y: Any) -> Tensor:
        _refuse_zero_divisor(out.dtype, y)
        return elements(low, out, (x, y), opmath(out.dtype), lambda a, b: apply(op, a, b), OPS[op].cost, out.dtype)

    return rule


def _power(low: Lowering, out: torch.Tensor, x: Any, y: Any) -> Tensor:
    dtype = opmath(out.dtype)
    if not isinstance(y, (Tensor, Expr)):
        special = formulas.power_of(y, dtype)
        if special is not None:
            return elements(low, out, (x,), dtype, special, 3)
    if not dtype.is_floating_point:
        raise Unsupported("an integer power")
    return elements(low, out, (x, y), dtype, lambda a, b: apply("pow", a, b), 40)


def _where(low: Lowering, out: torch.Tensor, condition: Tensor, x: Any, y: Any) -> Tensor:
    shape = low.shape_of(out)
    dtype = opmath(out.dtype)
    chosen = reader(low, condition, torch.bool, shape)
    first, second = reader(low, x, dtype, shape), reader(low, y, dtype, shape)
    weight = 1 + sum(t.weight for t in (condition, x, y) if isinstance(t, Tensor) and t.view is None)
    return low.pointwise(out.dtype, shape, lambda i: where(chosen(i), first(i), second(i)), weight)


def _masked_fill(low: Lowering, out: torch.Tensor, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return _where(low, out, mask, value, x)


def _to_copy(low: Lowering, out: torch.Tensor, x: Tensor, **kwargs: Any) -> Tensor:
    if x.view is not None and x.view.buffer.device != out.device:
        raise Unsupported("a copy between devices")
    return convert(low, out, x)


def convert(low: Lowering, out: torch.Tensor, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """`x` as the result's dtype: rounded even if only a half's scalar would be."""
    shape = low.shape_of(out)
    rounded = x.dtype is not out.dtype
    weight = (x.weight if x.view is None else 0) + rounded

    def at(index: Index) -> Scalar:
        return cast(cast(x.at(index), out.dtype), opmath(out.dtype)) if rounded else x.at(index)

    t = low.pointwise(out.dtype, shape, at, weight)
    if not rounded and x.shape == shape:
        t.source = x
    return t


def _copy_values(low: Lowering, out: torch.Tensor, x: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """copy: the source's values in the first argument's dtype."""
    return elements(low, out, (source,), opmath(out.dtype), lambda a: a, 1)


def _clamp(low: Lowering, out: torch.Tensor, x: Tensor, minimum: Any = None, maximum: Any = None) -> Tensor:
    # NaN of x stays; NaN bounds win, as in eager
    def formula(a: Scalar, lo: Scalar | None, hi: Scalar | None) -> Scalar:
        a = a if lo is None else apply("maximum", a, lo)
        return a if hi is None else apply("minimum", a, hi)

    if isinstance(minimum, float) and minimum != minimum or isinstance(maximum, float) and maximum != maximum:
        raise Unsupported("a NaN bound")
    return elements(low, out, (x, minimum, maximum), opmath(out.dtype), formula, 2)


def _clamp_max(low: Lowering, out: torch.Tensor, x: Tensor, maximum: Any) -> Tensor:
    return _clamp(low, out, x, None, maximum)


def _addcmul(op: str) -> Callable[..., Tensor]:
    """x + value * (a op b)"""

    def rule(low: Lowering, out: torch.Tensor, x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
        if not out.dtype.is_floating_point:
            raise Unsupported("integers")
        factor = number(low, value, opmath(out.dtype))
        return elements(
            low, out, (x, a, b), factor.dtype,
            lambda p, q, r: apply("add", p, apply(op, apply("mul", factor, q), r)), 6,
        )  # fmt: skip

    return rule


def _abs(low: Lowering, out: torch.Tensor, x: Tensor) -> Tensor:
    unsigned = out.dtype in (torch.uint8, torch.bool)
    return elements(low, out, (x,), opmath(out.dtype), (lambda a: a) if unsigned else (lambda a: apply("abs", a)))


def _overloads(names: str, rule: Callable[..., Any], *overloads: str) -> dict[Any, Callable[..., Any]]:
    """One rule for several overloads of several operators, as far as this torch has them."""
    found = {}
    for name in names.split():
        packet = getattr(aten, name, None)
        for overload in overloads or ("default",):
            target = getattr(packet, overload, None)
            if target is not None:
                found[target] = rule
    return found


def _elu_backward(
    low: Lowering, out: torch.Tensor, grad: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Tensor
) -> Tensor:
    def formula(g: Scalar, a: Scalar) -> Scalar:
        return formulas.elu_backward(g, a, alpha, scale, input_scale, is_result)

    return elements(low, out, (grad, x), opmath(out.dtype), formula, 18)


def _prelu_backward(
    low: Lowering, out: Sequence[torch.Tensor], grad: Tensor, x: Tensor, weight: Tensor
) -> list[Tensor]:
    """Gradients of each element and of the slope at it."""
    dtype = opmath(out[0].dtype)
    return [
        elements(low, out[0], (grad, x, weight), dtype, formulas.prelu_backward, 2),
        elements(low, out[1], (grad, x), dtype, formulas.prelu_slope_backward, 2),
    ]


def _log_sigmoid(low: Lowering, out: Sequence[torch.Tensor], x: Tensor) -> list[Tensor]:
    """The result, and the buffer that eager's CPU kernel would save: the gradient here does not read it."""
    result = elements(low, out[0], (x,), opmath(out[0].dtype), formulas.log_sigmoid, 32)
    unused = Tensor(low, out[1].dtype, low.shape_of(out[1]), lambda i: const(0, opmath(out[1].dtype)))
    return [result, unused]


_BOTH = ("Tensor", "Scalar")
_OF_FLOATS = (
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc lgamma atan2 hypot"
)

RULES: dict[Any, Callable[..., Any]] = {
    **{k: v for op in _OF_FLOATS.split() for k, v in _overloads(op, only_floats(simple(op))).items()},
    **{
        k: v
        for op in ("floor", "ceil", "trunc", "round")
        for k, v in _overloads(op, identity_for_integers(simple(op))).items()
    },
    **{k: v for op in ("eq", "ne", "lt", "le", "gt", "ge") for k, v in _overloads(op, comparison(op), *_BOTH).items()},
    **{k: v for op in ("minimum", "maximum", "fmin", "fmax") for k, v in _overloads(op, simple(op)).items()},
    **_overloads("nextafter", _full_floats(simple("nextafter"))),
    **_overloads("copysign", only_floats(simple("copysign")), *_BOTH),
    **_overloads("add", _add("add"), *_BOTH),
    **_overloads("sub", _add("sub"), *_BOTH),
    **_overloads("rsub", _rsub, *_BOTH),
    **_overloads("mul", _mul, *_BOTH),
    **_overloads("div true_divide", _divide, "Tensor", "Scalar", "Tensor_mode", "Scalar_mode"),
    **_overloads("floor_divide", functools.partial(_divide, rounding_mode="floor"), "default", "Scalar"),
    **_overloads("remainder", _modulo("remainder"), *_BOTH),
    **_overloads("fmod", _modulo("fmod"), *_BOTH),
    **_overloads("pow", _power, "Tensor_Tensor", "Tensor_Scalar", "Scalar"),
    **_overloads("neg", simple("neg")),
    **_overloads("abs", _abs),
    **_overloads("reciprocal", by_formula(formulas.reciprocal, 4)),
    **_overloads("square", by_formula(formulas.square, 1)),
    **_overloads("sign sgn", by_formula(formulas.sign, 3)),
    **_overloads("frac", only_floats(by_formula(formulas.frac, 2))),
    **_overloads("logical_not", logical("bit_not")),
    **_overloads("logical_and", logical("bit_and")),
    **_overloads("logical_or", logical("bit_or")),
    **_overloads("logical_xor", logical("bit_xor")),
    **_overloads("bitwise_and __and__", simple("bit_and"), *_BOTH),
    **_overloads("bitwise_or __or__", simple("bit_or"), *_BOTH),
    **_overloads("bitwise_xor __xor__", simple("bit_xor"), *_BOTH),
    **_overloads("bitwise_not", simple("bit_not")),
    **_overloads("isnan", float_test("isnan")),
    **_overloads("isinf", float_test("isinf")),
    **_overloads("isfinite", float_test("isfinite", True)),
    **_overloads("where", _where, "self", "ScalarSelf", "ScalarOther", "Scalar"),
    **_overloads("masked_fill", _masked_fill, *_BOTH),
    **_overloads("_to_copy", _to_copy),
    **_overloads("clone lift_fresh_copy", convert),
    **_overloads("copy", _copy_values),
    **_overloads("clamp clip", _clamp, "default", "Tensor"),
    **_overloads("clamp_min", _clamp, "default", "Tensor"),
    **_overloads("clamp_max", _clamp_max, "default", "Tensor"),
    **_overloads("addcmul", _addcmul("mul")),
    **_overloads("addcdiv", _addcmul("div")),
    **_overloads("lerp", by_formula(formulas.lerp, 5, 3), *_BOTH),
    **_overloads("relu", by_formula(formulas.relu, 1)),
    **_overloads("gelu", _gelu),
    **_overloads("silu", by_formula(formulas.silu, 18)),
    **_overloads("mish", by_formula(formulas.mish, 50)),
    **_overloads("softplus", by_formula(formulas.softplus, 30)),
    **_overloads("elu", by_formula(formulas.elu, 18)),
    **_overloads("leaky_relu", by_formula(formulas.leaky_relu, 2)),
    **_overloads("_prelu_kernel", by_formula(formulas.prelu, 2, 2)),
    **_overloads("hardtanh", by_formula(formulas.hardtanh, 2)),
    **_overloads("hardsigmoid", by_formula(formulas.hardsigmoid, 4)),
    **_overloads("hardswish", by_formula(formulas.hardswish, 5)),
    **_overloads("threshold", by_formula(formulas.threshold, 2)),
    **_overloads("logit", only_floats(by_formula(formulas.logit, 20))),
    **_overloads("log_sigmoid_forward", _log_sigmoid),
    **_overloads("nan_to_num", _full_floats(by_formula(formulas.nan_to_num, 6))),
    # gradients: (grad, ...)
    **_overloads("threshold_backward", by_formula(formulas.threshold_backward, 2, 2)),
    **_overloads("gelu_backward", by_formula(formulas.gelu_backward, 30, 2)),
    **_overloads("silu_backward", by_formula(formulas.silu_backward, 22, 2)),
    **_overloads("sigmoid_backward", by_formula(formulas.sigmoid_backward, 3, 2)),
    **_overloads("tanh_backward", by_formula(formulas.tanh_backward, 3, 2)),
    **_overloads("elu_backward", _elu_backward),
    **_overloads("_prelu_kernel_backward", _prelu_backward),
    **_overloads("leaky_relu_backward", by_formula(formulas.leaky_relu_backward, 2, 2)),
    **_overloads("hardtanh_backward", by_formula(formulas.hardtanh_backward, 3, 2)),
    **_overloads("hardsigmoid_backward", by_formula(formulas.hardsigmoid_backward, 3, 2)),
    **_overloads("hardswish_backward", by_formula(formulas.hardswish_backward, 6, 2)),
    **_overloads("softplus_backward", by_formula(formulas.softplus_backward, 20, 2)),
    **_overloads(
        "log_sigmoid_backward",
        lambda low, out, grad, x, buffer: elements(
            low, out, (grad, x), opmath(out.dtype), formulas.log_sigmoid_backward, 20
        ),
    ),
    **_overloads(
        "native_dropout_backward",
        lambda low, out, grad, mask, scale: elements(
            low, out, (grad, mask, scale), opmath(out.dtype), lambda g, m, s: apply("mul", apply("mul", g, m), s), 2
        ),
    ),
}
