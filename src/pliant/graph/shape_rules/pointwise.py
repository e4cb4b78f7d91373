"""One rule for every operator tagged pointwise.

In:     tensors of any sizes, numbers.
Out:    the broadcast size, TensorIterator's strides, ATen's result dtype.

The dtype of a result depends on the operands' dtypes, on whether they have dimensions, and on the numbers' types: it is
asked of the operator's own kernel on tensors of one element, once per process and combination.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from pliant import torch_adapter
from pliant.graph.layouts import elementwise_strides, preserved_strides
from pliant.graph.shape_rules.registry import Rule, Rules
from pliant.graph.tensor_spec import TensorSpec, broadcast, require_floats, require_same, row_major_strides
from pliant.graph.unsupported import UnsupportedOperator

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten
_dtypes: dict[tuple[Any, ...], tuple[torch.dtype, ...] | torch.dtype] = {}


def common_device(specs: Sequence[TensorSpec]) -> torch.device:
    """The device of a result: the operands' own; numbers in 0-d tensors on the CPU follow the others."""
    if not specs:  # only numbers
        return torch.get_default_device()
    device = specs[0].device
    for spec in specs:
        if spec.device == device:
            continue
        if spec.device.type == "cpu" and not spec.size:
            continue
        if device.type == "cpu" and all(not one.size for one in specs if one.device == device):
            device = spec.device
            continue
        raise RuntimeError(f"expected all tensors on one device, but found {device} and {spec.device}")
    return device


def result_dtypes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The dtype, or the tuple of dtypes, that `func` returns for arguments of these kinds."""
    key = (func, torch.get_default_dtype(), *map(_kind, args), *[(k, _kind(v)) for k, v in kwargs.items()])
    found = _dtypes.get(key)
    if found is None:
        found = _dtypes[key] = _ask(func, args, kwargs)
    return found


def _kind(value: Any) -> Any:
    if type(value) is TensorSpec:
        return value.dtype, not value.size
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind, value))
    return value if isinstance(value, (str, torch.dtype)) else type(value)


def _ask(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch_adapter.below_python_dispatch():
        # Meta kernels written in Python load the peer when first called; the CPU's do not. Random ones must not draw.
        device = torch.device("meta" if torch.Tag.nondeterministic_seeded in func.tags else "cpu")
        tiny_args, tiny_kwargs = tree_map(lambda value: _tiny(value, device), (args, kwargs))
        try:
            out = func(*tiny_args, **tiny_kwargs)
        except NotImplementedError as error:
            raise UnsupportedOperator(f"`{func}` has no meta kernel", kind="no-meta-kernel") from error
    return tuple([one.dtype for one in out]) if isinstance(out, (tuple, list)) else out.dtype


def _tiny(value: Any, device: torch.device) -> Any:
    if type(value) is TensorSpec:
        return torch.ones([1] if value.size else [], dtype=value.dtype, device=device)
    for symbolic, number in ((torch.SymInt, 2), (torch.SymFloat, 2.0), (torch.SymBool, True)):
        if isinstance(value, symbolic):
            return number
    return device if isinstance(value, torch.device) else value


def pointwise_rule(func: Any) -> Rule:
    """The rule of one operator."""
    numbers, promoted = _operands_as_numbers(func), _first_promoted(func)

    def infer(*args: Any, **kwargs: Any) -> Any:
        specs = [v for v in (*args, *kwargs.values()) if type(v) is TensorSpec]
        dtypes = result_dtypes(func, args, kwargs)
        size = broadcast(*[spec.size for spec in specs]) if len(specs) > 1 else specs[0].size if specs else ()
        operands = specs
        small = any(type(n) is int and n < 2 for n in size)
        if specs and small and any(isinstance(one, _NUMBERS) for one in args[:numbers]):
            operands = [*specs, specs[0].like(())]  # a tensor without dimensions
        device = common_device(specs)
        if promoted is not None and device.type == "cpu":
            operands = [*operands[:promoted], *_as_computed(operands[promoted:], dtypes)]
        stride = elementwise_strides(size, operands) if specs else ()
        if type(dtypes) is tuple:
            return tuple([TensorSpec(size, stride, dtype, device) for dtype in dtypes])
        return TensorSpec(size, stride, dtypes, device)

    return infer


def _first_promoted(func: Any) -> int | None:
    """From which operand on all are computed in one dtype, whichever they have; None if the operator refuses several."""
    name = func._schema.name.removeprefix("aten::")
    if name == "where":
        return 1
    return 0 if any(a.name in ("other", "exponent", "tensor1", "min") for a in func._schema.arguments) else None


def _as_computed(specs: Sequence[TensorSpec], result: torch.dtype) -> list[TensorSpec]:
    """Operands in the dtype in which the CPU computes: casts are copies, which have no gaps and repeat nothing."""
    common = result
    if result is torch.bool:  # of a comparison
        common = functools.reduce(torch.promote_types, [spec.dtype for spec in specs])
    return [s if s.dtype is common or not s.ndim else TensorSpec(s.size, preserved_strides(s), common, s.device) for s in specs]


_NUMBERS = (int, float, bool, complex, torch.SymInt, torch.SymFloat, torch.SymBool)


def _operands_as_numbers(func: Any) -> int:
    """How many arguments TensorIterator sees as tensors though they may be numbers: if one is, sizes of one or none do
    not have the strides that they would have if all operands had one size.
    """
    arguments = func._schema.arguments
    kinds = {str(a.type) for a in arguments if a.name == "other"}
    binary = kinds == {"Tensor"} or (kinds == {"number"} and func._overloadname in ("Scalar", "Tensor_Scalar"))
    return 2 if binary or func._overloadname in _WITH_NUMBERS else 0


_WITH_NUMBERS = ("x_scalar", "n_scalar", "other_scalar", "Scalar_Other")  # overloads that make a tensor of a number


def in_place_rule(func: Any) -> Rule:
    """The rule of an in-place operator: its operands must broadcast to the first."""

    def infer(self: TensorSpec, *args: Any, **kwargs: Any) -> TensorSpec:
        specs = [v for v in (*args, *kwargs.values()) if type(v) is TensorSpec]
        result_dtypes(func, (self, *args), kwargs)  # raises for results that cannot be cast back
        size = broadcast(self.size, *[spec.size for spec in specs])
        if len(size) != self.ndim:
            raise RuntimeError(f"output with shape {list(self.size)} does not match the broadcast shape {list(size)}")
        require_same(size, self.size, "output shape does not match the broadcast shape")
        return self

    return infer


@rule(_aten.masked_fill.Scalar, _aten.masked_fill.Tensor)
def masked_fill(self: TensorSpec, mask: TensorSpec, value: Any) -> TensorSpec:
    _is_mask(mask, value)
    size = broadcast(self.size, mask.size)
    return TensorSpec(size, row_major_strides(size), self.dtype, self.device)


@rule(_aten.masked_fill_.Scalar, _aten.masked_fill_.Tensor)
def masked_fill_(self: TensorSpec, mask: TensorSpec, value: Any) -> TensorSpec:
    _is_mask(mask, value)
    require_same(broadcast(self.size, mask.size), self.size, "the mask does not broadcast to the output")
    return self


def _is_mask(mask: TensorSpec, value: Any) -> None:
    """What filling by a mask requires beside sizes."""
    if mask.dtype is not torch.bool:
        raise RuntimeError("masked_fill only supports boolean masks")
    if type(value) is TensorSpec and value.ndim:
        raise RuntimeError(f"masked_fill only supports a value without dimensions, not with {value.ndim}")


@rule(_aten.log_sigmoid_forward.default)
def log_sigmoid(self: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """The result, and what the CPU's kernel, which makes both anew in the order of positions, keeps for the derivative."""
    require_floats(self, "log_sigmoid")
    result = pointwise_rule(_aten.log_sigmoid_backward.default)(self, self, self)
    if self.device.type != "cpu":
        return result, self.like((0,))
    made = TensorSpec(self.size, row_major_strides(self.size), result.dtype, self.device)
    return made, made


@rule(_aten.log_sigmoid_backward.default)
def log_sigmoid_backward(grad: TensorSpec, self: TensorSpec, buffer: TensorSpec) -> TensorSpec:
    result: TensorSpec = pointwise_rule(_aten.log_sigmoid_backward.default)(grad, self, self)
    return result


@rule(_aten.pow.Scalar)
def power_of_number(base: Any, self: TensorSpec) -> TensorSpec:
    dtype = result_dtypes(_aten.pow.Scalar, (base, self), {})
    return TensorSpec(self.size, row_major_strides(self.size), dtype, self.device)


@rule(_aten.celu.default, _aten.celu_.default)
def celu(self: TensorSpec, alpha: Any = 1.0) -> TensorSpec:
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    result: TensorSpec = pointwise_rule(_aten.celu.default)(self, alpha)
    return result


@rule(_aten.softshrink.default)
def softshrink(self: TensorSpec, lambd: Any = 0.5) -> TensorSpec:
    largest = torch.finfo(self.dtype).max if self.dtype.is_floating_point else math.inf
    if not (lambd >= 0 and lambd <= largest):
        raise RuntimeError(f"lambda must be in range [0, {largest}], but found {lambd}")
    result: TensorSpec = pointwise_rule(_aten.softshrink.default)(self, lambd)
    return result


@rule(_aten.deg2rad.default, _aten.rad2deg.default)
def of_angles(self: TensorSpec) -> TensorSpec:
    """Made like the operand before anything is computed."""
    dtype = result_dtypes(_aten.deg2rad.default, (self,), {})
    return TensorSpec(self.size, preserved_strides(self), dtype, self.device)


@rule(_aten.frexp.Tensor)
def frexp(self: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """Both made like the operand."""
    mantissa, exponent = result_dtypes(_aten.frexp.Tensor, (self,), {})
    strides = preserved_strides(self)
    return TensorSpec(self.size, strides, mantissa, self.device), TensorSpec(self.size, strides, exponent, self.device)


@rule(_aten.isinf.default)
def isinf(self: TensorSpec) -> TensorSpec:
    """A comparison of its size with a number; of integers zeros like the operand."""
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        return TensorSpec(self.size, preserved_strides(self), torch.bool, self.device)
    if self.dtype.is_complex:
        return pointwise_rule(_aten.isinf.default)(self)  # type: ignore[no-any-return]
    result: TensorSpec = pointwise_rule(_aten.eq.Scalar)(pointwise_rule(_aten.abs.default)(self), math.inf)
    return result


@rule(_aten.threshold_backward.default)
def threshold_backward(grad: TensorSpec, self: TensorSpec, threshold: Any) -> TensorSpec:
    """The operand that was compared is asked first how the result lies."""
    result: TensorSpec = pointwise_rule(_aten.threshold_backward.default)(self, grad, threshold)
    return result


@rule(_aten.native_dropout_backward.default)
def native_dropout_backward(grad: TensorSpec, mask: TensorSpec, scale: Any) -> TensorSpec:
    """Row-major on a GPU."""
    result: TensorSpec = pointwise_rule(_aten.native_dropout_backward.default)(grad, mask, scale)
    return result.like() if result.device.type == "cuda" else result


@rule(_aten.rsub.Tensor)
def rsub(self: TensorSpec, other: TensorSpec, alpha: Any = 1) -> TensorSpec:
    """The second operand is the first of the difference."""
    result_dtypes(_aten.rsub.Tensor, (self, other), {"alpha": alpha})
    result: TensorSpec = pointwise_rule(_aten.sub.Tensor)(other, self, alpha=alpha)
    return result


@rule(_aten.angle.default)
def angle(self: TensorSpec) -> TensorSpec:
    """Of complex elements the real parts of a complex result, in a new order."""
    result: TensorSpec = pointwise_rule(_aten.angle.default)(self)
    if not self.dtype.is_complex:
        return result
    return TensorSpec(self.size, row_major_strides(self.size), result.dtype, self.device)


def out_rule(func: Any) -> Rule:
    """The rule of a variant that writes into `out`, which must have the result's size already."""

    def infer(*args: Any, **kwargs: Any) -> Any:
        outs = {name: kwargs.pop(name) for name in [a.name for a in func._schema.arguments if a.is_out]}
        size = broadcast(*[v.size for v in (*args, *kwargs.values()) if type(v) is TensorSpec])
        for out in outs.values():
            if len(out.size) != len(size):
                raise UnsupportedOperator(f"`{func}` resizes its output", kind="resize")
            require_same(size, out.size, "out has another size")
        return tuple(outs.values()) if len(outs) > 1 else next(iter(outs.values()))

    return infer


# TensorIterator operators that torch does not tag.
_UNTAGGED = frozenset(
    {
        "complex", "polar", "leaky_relu", "hardshrink_backward", "softshrink_backward", "elu_backward", "leaky_relu_backward",
        "hardtanh_backward", "hardswish", "hardswish_", "hardswish_backward", "hardsigmoid_backward",
        "softplus_backward", "mish_backward", "_conj_physical",
        "floor_divide", "floor_divide_", "rsub", "mse_loss_backward", "huber_loss_backward", "smooth_l1_loss_backward",
    }
)  # fmt: skip


def is_pointwise(func: torch_adapter.OpOverload) -> bool:
    """Whether each element of the result is computed from the elements at its place, all broadcast."""
    return torch.Tag.pointwise in func.tags or func._schema.name.removeprefix("aten::") in _UNTAGGED


# Reached by references that torch runs for symbolic sizes.
_PRIMS = frozenset(
    f"prims::{name}"
    for name in (
        "add", "sub", "mul", "div", "fmod", "pow", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum",
        "abs", "neg", "floor", "ceil", "round", "trunc", "sign", "signbit", "isfinite", "reciprocal", "where",
    )
)  # fmt: skip


def generic_rule(func: Any) -> Rule | None:
    """The rule that the tag `pointwise` gives an operator, if it has it."""
    name = func._schema.name.removeprefix("aten::")
    if name in _PRIMS:
        return pointwise_rule(func)
    if not is_pointwise(func):
        return None
    if any(str(value.type) != "Tensor" for value in func._schema.returns):
        return None  # `equal` carries the tag and returns a truth value
    arguments = func._schema.arguments
    if any(argument.is_out for argument in arguments):
        kinds = [str(argument.type) for argument in arguments if argument.is_out]
        return out_rule(func) if all(kind == "Tensor" for kind in kinds) else None
    in_place = name.endswith("_") and not name.endswith("__") or name.startswith("__i")
    return in_place_rule(func) if in_place else pointwise_rule(func)
