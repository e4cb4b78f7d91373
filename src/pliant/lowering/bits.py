"""Which operators' loops have each bit of eager's results, for the option `numerics="eager-bitwise"`.

In:     a call, and its rule in the registry.
Out:    the rule that gives eager's bits, or None: the call is then eager's own operator.
Holds:  `ROWS` is the whole list: an operator without a row is called. It speaks of CPUs; on other devices all are called.
        NaNs are NaNs: their payloads are not looked at. Values of half precision are rounded behind each operator, as
        eager rounds them.
Source: `tests/ops/test_eager_bits.py` runs each row over special and random values and compares bits. What has no row differs
        there, in its last bits (`exp`; eager's `sqrt` of float32 is a vector library's, and not the nearest), in the order of
        additions (sums), or where eager's result depends on where an element lies (the sign of zeros of `maximum`, halves of
        `sigmoid_backward`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from pliant.ir.scalar import Scalar, apply, as_dtype, where
from pliant.lowering import formulas, pointwise, views
from pliant.lowering.context import Lowering
from pliant.lowering.pointwise import elements, number
from pliant.lowering.promotion import common_dtype
from pliant.lowering.tensors import HALF, Tensor, opmath
from pliant.symbolic.expr import Expr

aten = torch.ops.aten
Rule = Callable[..., Any]
WHY = "no loops of it have eager's bits, which `numerics` asks for"
_FUSES = torch.backends.cpu.get_cpu_capability() != "DEFAULT"  # eager's kernels are built to add products in one rounding


class Call(NamedTuple):
    """A call's arguments, and the dtype that it computes on."""

    dtype: torch.dtype
    args: Sequence[Any]
    kwargs: dict[str, Any]


class Row(NamedTuple):
    """serves: for which calls; rule: loops for this mode alone; rounds: eager rounds numbers to the tensors' dtype first."""

    serves: Callable[[Call], bool]
    rule: Rule | None = None
    rounds: bool = False


def rule_for(target: Any, rule: Rule, out: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Rule | None:
    """What makes the call's results with eager's bits; None: nothing but the operator."""
    row = ROWS.get(target)
    if row is None or _device(out) != "cpu":
        return None
    tensors = [a for a in args if isinstance(a, Tensor)]
    dtype = common_dtype(args) if tensors and target in _PROMOTES else _dtype(out)
    if target in _PROMOTES and dtype in HALF and not all(_fits(a, dtype, row.rounds) for a in args):
        return None
    if not row.serves(Call(dtype, args, kwargs)):
        return None
    made = row.rule or rule
    return _with_rounded_numbers(made, dtype) if row.rounds and dtype in HALF else made


def _fits(value: Any, dtype: torch.dtype, rounds: bool) -> bool:
    """Whether an operand is what eager computes with: one of another dtype it rounds first, or not, as the operator is."""
    if isinstance(value, Tensor):
        return value.dtype in (dtype, torch.bool)
    return not (rounds and isinstance(value, Expr))


def _with_rounded_numbers(rule: Rule, dtype: torch.dtype) -> Rule:
    def rounding(value: Any) -> Any:
        return as_dtype(value, dtype) if type(value) in (int, float) else value

    return lambda low, out, *args, **kwargs: rule(
        low, out, *map(rounding, args), **{name: rounding(value) for name, value in kwargs.items()}
    )


def rounded(made: Any) -> Any:
    """What a rule made, with each element of half precision rounded as eager's operator rounds it."""
    if isinstance(made, (list, tuple)):
        return [rounded(one) for one in made]
    if isinstance(made, Tensor) and made.dtype in HALF and made.view is None:
        made.round_elements()
    return made


def _dtype(out: Any) -> torch.dtype:
    first = next(one for one in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(one, torch.Tensor))
    return first.dtype


def _device(out: Any) -> str:
    first = next((one for one in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(one, torch.Tensor)), None)
    return "" if first is None else first.device.type


# -- for which calls --------------------------------------------------------------------------------------------------
def _always(call: Call) -> bool:
    return True


def _integers(call: Call) -> bool:
    return not call.dtype.is_floating_point


def _no_halves(call: Call) -> bool:
    return call.dtype not in HALF


def _halves(call: Call) -> bool:
    return call.dtype in HALF


def _products(call: Call) -> bool:
    """Sums of products, which eager's kernels round once."""
    return _FUSES or _integers(call)


def _sums(call: Call) -> bool:
    """x + alpha y; of halves eager rounds the product where an element lies outside of vectors."""
    alpha = call.kwargs.get("alpha", 1)
    return not isinstance(alpha, Expr) and (alpha == 1 or call.dtype not in HALF and _products(call))


def _power(call: Call) -> bool:
    exponent = call.args[1]
    if isinstance(exponent, (Tensor, Expr)) or isinstance(call.args[0], (int, float, Expr)):
        return False
    return exponent in ((0, 1, 2, -1) if call.dtype in HALF else (0, 1, 2, 3, -1, -2, -0.5)) or _integers(call)


def _rounds_down(call: Call) -> bool:
    """Division: of halves only the plain one."""
    mode = call.kwargs.get("rounding_mode", call.args[2] if len(call.args) > 2 else None)
    return mode is None or call.dtype not in HALF


def _plain_bounds(call: Call) -> bool:
    """Bounds that are numbers, and none of them NaN."""
    bounds = (*call.args[1:], *call.kwargs.values())
    return all(bound is None or type(bound) in (int, float) and bound == bound for bound in bounds)


def _of_elements(place: int) -> Callable[[Call], bool]:
    """A loss of each element, not of all; the argument that says so."""
    return lambda call: call.dtype not in HALF and tuple(call.args[place : place + 1]) == (0,)


def _to_floats(call: Call) -> bool:
    """Conversions: what an integer makes of an infinity depends on the processor's vectors."""
    return call.dtype.is_floating_point or call.dtype is torch.bool or not call.args[0].dtype.is_floating_point


# -- loops of this mode alone -----------------------------------------------------------------------------------------
def _added(target: Any, sign: int = 1, reverse: bool = False) -> Rule:
    """x + alpha y, x - alpha y, y - alpha x: of floats the product is not rounded."""
    plain = pointwise.RULES[target]

    def rule(low: Lowering, out: torch.Tensor, x: Any, y: Any, alpha: Any = 1) -> Tensor:
        if alpha == 1 or not out.dtype.is_floating_point:
            made: Tensor = plain(low, out, x, y, alpha)
            return made
        factor = number(low, sign * alpha, opmath(out.dtype))
        first, second = (y, x) if reverse else (x, y)
        return elements(low, out, (first, second), factor.dtype, lambda a, b: apply("fma", b, factor, a), 2)

    return rule


def _clamped(low: Lowering, out: torch.Tensor, x: Tensor, minimum: Any = None, maximum: Any = None) -> Tensor:
    """A bound takes the place of what lies beyond it, not of a zero of another sign."""

    def formula(a: Scalar, lo: Scalar | None, hi: Scalar | None) -> Scalar:
        a = a if lo is None else where(apply("lt", a, lo), lo, a)
        return a if hi is None else where(apply("gt", a, hi), hi, a)

    return elements(low, out, (x, minimum, maximum), opmath(out.dtype), formula, 2)


def _clamped_max(low: Lowering, out: torch.Tensor, x: Tensor, maximum: Any) -> Tensor:
    return _clamped(low, out, x, None, maximum)


def _relu(low: Lowering, out: torch.Tensor, x: Tensor) -> Tensor:
    return _clamped(low, out, x, 0)


def _addcmul(low: Lowering, out: torch.Tensor, x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
    factor = number(low, value, opmath(out.dtype))
    return elements(
        low, out, (x, a, b), factor.dtype, lambda p, q, r: apply("fma", apply("mul", factor, q), r, p), 6
    )  # fmt: skip


def _lerp(low: Lowering, out: torch.Tensor, start: Tensor, end: Tensor, weight: Any) -> Tensor:
    def formula(a: Scalar, b: Scalar, w: Scalar) -> Scalar:
        difference = formulas.sub(b, a)
        far = apply("fma", difference, formulas.sub(w, formulas.lit(w, 1)), b)
        return where(apply("lt", apply("abs", w), formulas.lit(w, 0.5)), apply("fma", w, difference, a), far)

    return elements(low, out, (start, end, weight), opmath(out.dtype), formula, 5)


# -- the table --------------------------------------------------------------------------------------------------------
def _overloads(names: str) -> list[Any]:
    """The overloads of operators, all of them unless one is named."""
    found: list[Any] = []
    for name in names.split():
        base, _, overload = name.partition(".")
        packet = getattr(aten, base, None)
        if packet is not None:
            found += [getattr(packet, one) for one in ([overload] if overload else packet.overloads())]
    return found


def _rows(names: str, serves: Callable[[Call], bool] = _always, rule: Rule | None = None, rounds: bool = False) -> dict[Any, Row]:
    return dict.fromkeys(_overloads(names), Row(serves, rule, rounds))


# These convert their operands to one dtype first.
_PROMOTES = frozenset(
    _overloads(
        "add sub rsub mul div true_divide eq ne lt le gt ge copysign minimum maximum fmin fmax remainder fmod floor_divide "
        "addcmul addcdiv lerp clamp clip clamp_min clamp_max pow _prelu_kernel nextafter where masked_fill"
    )
)
_MOVES = (
    "tril triu eye zeros zeros_like new_zeros ones ones_like new_ones empty empty_like new_empty full full_like new_full "
    "fill scalar_tensor clone lift_fresh_copy copy where masked_fill cat stack constant_pad_nd slice_scatter select_scatter "
    "select_backward slice_backward repeat flip roll embedding index _unsafe_index index_select gather pixel_shuffle "
    "pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d searchsorted bucketize any all _is_any_true _is_all_true count_nonzero argmax argmin"
)
ROWS: dict[Any, Row] = {
    **dict.fromkeys(views.RULES, Row(_always)),
    **_rows(_MOVES),
    **_rows("_to_copy", _to_floats),
    **_rows("logical_not logical_and logical_or logical_xor bitwise_and __and__ bitwise_or __or__ bitwise_xor __xor__ bitwise_not"),
    **_rows("isnan isinf isfinite eq ne lt le gt ge", rounds=True),
    **_rows("add", _sums, _added(aten.add.Tensor), rounds=True),
    **_rows("sub", _sums, _added(aten.sub.Tensor, -1), rounds=True),
    **_rows("rsub", _sums, _added(aten.rsub.Scalar, -1, reverse=True), rounds=True),
    **_rows("mul copysign neg abs square sign sgn floor ceil trunc round frac reciprocal"),
    **_rows("div true_divide", _rounds_down),
    **_rows("rsqrt floor_divide nextafter", _no_halves),
    **_rows("sqrt", _halves),
    **_rows("pow", _power),
    **_rows("minimum maximum fmin fmax remainder fmod amax amin max min sum prod arange", _integers),
    **_rows("addcmul", _products, _addcmul),
    **_rows("addcdiv"),
    **_rows("lerp.Scalar", _products, _lerp),
    **_rows("relu", _always, _relu),
    **_rows("clamp clip clamp_min hardtanh", _plain_bounds, _clamped),
    **_rows("clamp_max", _plain_bounds, _clamped_max),
    **_rows("leaky_relu hardsigmoid hardswish threshold hardshrink nan_to_num deg2rad rad2deg _prelu_kernel"),
    **_rows("threshold_backward leaky_relu_backward native_dropout_backward _prelu_kernel_backward"),
    **_rows("sigmoid_backward", _no_halves),
    **_rows("mse_loss smooth_l1_loss", _of_elements(2)),
    **_rows("mse_loss_backward", _of_elements(3)),
    **_rows("cumsum cumprod"),
}
