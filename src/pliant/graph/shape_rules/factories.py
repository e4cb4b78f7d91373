"""Fresh tensors: factories, copies, casts and memory formats.

Holds:  a device left out is the default device; a dtype left out is the default dtype, or the one ATen infers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from pliant import torch_adapter
from pliant.graph.layouts import format_strides, preserved_strides, strides_of_format
from pliant.graph.shape_rules.like_operand import fits
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import Dim, TensorSpec, require, row_major_strides
from pliant.graph.unsupported import UnsupportedOperator

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten


def number_dtype(*values: Any) -> torch.dtype:
    """The dtype that factories give to these Python numbers together."""
    if any(isinstance(value, complex) for value in values):
        return torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
    if any(isinstance(value, (float, torch.SymFloat)) for value in values):
        return torch.get_default_dtype()
    if all(isinstance(value, (bool, torch.SymBool)) for value in values):
        return torch.bool
    return torch.int64


def fresh(size: Sequence[Dim], options: dict[str, Any], dtype: torch.dtype | None = None) -> TensorSpec:
    """A row-major tensor as factory options describe it."""
    layout = options.get("layout")
    if layout is not None and layout is not torch.strided:
        raise UnsupportedOperator(f"layout {layout}", kind="layout")
    found = options.get("dtype") or dtype or torch.get_default_dtype()
    for extent in size:
        require(extent >= 0, "trying to create a tensor with a negative dimension")
    size = tuple(size)
    return TensorSpec(size, row_major_strides(size), found, options.get("device") or torch.get_default_device())


@rule(_aten.empty.memory_format)
def empty(size: Sequence[Dim], *, memory_format: Any = None, **options: Any) -> TensorSpec:
    found = fresh(size, options)
    return found if memory_format is None else found.like(stride=strides_of_format(found.size, memory_format))


@rule(_aten.zeros.default, _aten._efficientzerotensor.default, _aten.ones.default, _aten.rand.default, _aten.randn.default, _aten.rand.generator,
      _aten.randn.generator)  # fmt: skip
def filled(size: Sequence[Dim], *, generator: Any = None, **options: Any) -> TensorSpec:
    return fresh(size, options)


@rule(_aten.full.default)
def full(size: Sequence[Dim], fill_value: Any, **options: Any) -> TensorSpec:
    return fresh(size, options, number_dtype(fill_value))


@rule(_aten.empty_strided.default)
def empty_strided(size: Sequence[Dim], stride: Sequence[Dim], **options: Any) -> TensorSpec:
    found = fresh(size, options)
    return found.view(found.size, tuple(stride))


@rule(_aten.scalar_tensor.default)
def scalar_tensor(value: Any, **options: Any) -> TensorSpec:
    return fresh((), options)


@rule(_aten.arange.default)
def arange(end: Any, **options: Any) -> TensorSpec:
    return arange_step(0, end, **options)


@rule(_aten.arange.start_step, _aten.arange.start)
def arange_step(start: Any, end: Any, step: Any = 1, **options: Any) -> TensorSpec:
    dtype = options.get("dtype")
    whole = all(isinstance(value, (int, torch.SymInt)) for value in (start, end, step))
    if dtype is None and not whole:
        dtype = torch.get_default_dtype()
    if dtype is torch.bool and (device := torch.device(options.get("device") or torch.get_default_device())).type != "meta":
        raise NotImplementedError(f"\"arange_{device.type}\" not implemented for 'Bool'")
    require(step != 0, "step must be nonzero")
    if whole:
        up = step > 0 if type(step) is int else bool(step > 0)
        require(end >= start if up else end <= start, "upper bound and lower bound inconsistent with step sign")
        length = -((start - end) // step) if type(step) is not int or step != 1 else end - start
    elif all(isinstance(value, (int, float)) for value in (start, end, step)):
        length = _float_length(start, end, step, dtype)
    elif any(isinstance(value, torch.SymFloat) for value in (start, end, step)):
        length = _symbolic_length(start, end, step, dtype)
    else:
        length = _stepped_length(_as_whole(start), _as_whole(end), step, dtype)
    return fresh((length,), {**options, "dtype": dtype}, torch.int64)


def _float_length(start: float, end: float, step: float, dtype: torch.dtype | None) -> int:
    with torch_adapter.below_python_dispatch():
        return torch.arange(start, end, step, dtype=dtype, device="meta").shape[0]


def _as_whole(value: Any) -> Any:
    """An integer of either kind for a number that is one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (int, torch.SymInt)):
        return value
    raise UnsupportedOperator("arange of symbolic bounds from a fraction", kind="symbolic-float-size")


def _symbolic_length(start: Any, end: Any, step: Any, dtype: torch.dtype | None) -> Dim:
    """The kernel's own arithmetic: on whole numbers for int64, for all other types on doubles."""
    if dtype is torch.int64:
        return arange_step(*map(math.trunc, (start, end, step))).size[0]
    first, last, by = (start, end, step) if dtype is None or dtype.is_floating_point else map(math.trunc, (start, end, step))
    require(by != 0, "step must be nonzero")
    require(last >= first if by > 0 else last <= first, "upper bound and lower bound inconsistent with step sign")
    length: Dim = math.ceil((end - start) / step)
    return length


def _stepped_length(start: Any, end: Any, step: Any, dtype: torch.dtype | None) -> Dim:
    """ceil((end - start) / step) in integers, for a float step p / q; the kernel's double division rounds to the same
    as long as p is small: what is no integer is 1 / p away from one."""
    if not isinstance(step, (int, float)) or dtype is not None and not dtype.is_floating_point and int(step) != step:
        raise UnsupportedOperator("arange by a step that is no plain number of its type", kind="symbolic-float-size")
    p, q = float(step).as_integer_ratio()
    if max(abs(p), q) > 1 << 16:
        raise UnsupportedOperator("arange of symbolic bounds by an uneven step", kind="symbolic-float-size")
    require(end >= start if p > 0 else end <= start, "upper bound and lower bound inconsistent with step sign")
    return -(((start - end) * q) // p)


@rule(_aten.linspace.default, _aten.logspace.default)
def linspace(start: Any, end: Any, steps: Dim, base: Any = 10.0, **options: Any) -> TensorSpec:
    require(steps >= 0, "number of steps must be non-negative")
    dtype = number_dtype(start, end) if isinstance(start, complex) or isinstance(end, complex) else None
    return fresh((steps,), options, dtype)


@rule(_aten.eye.default, _aten.eye.m)
def eye(n: Dim, m: Dim | None = None, **options: Any) -> TensorSpec:
    return fresh((n, n if m is None else m), options)


@rule(_aten.randint.default, _aten.randint.generator)
def randint(high: Any, size: Sequence[Dim], *, generator: Any = None, **options: Any) -> TensorSpec:
    return fresh(size, options, torch.int64)


@rule(_aten.randint.low, _aten.randint.low_generator)
def randint_low(low: Any, high: Any, size: Sequence[Dim], *, generator: Any = None, **options: Any) -> TensorSpec:
    return fresh(size, options, torch.int64)


@rule(_aten.randperm.default, _aten.randperm.generator)
def randperm(n: Dim, *, generator: Any = None, **options: Any) -> TensorSpec:
    return fresh((n,), options, torch.int64)


def _triangle_indices(function: Any, rows: Dim, columns: Dim, offset: Dim, options: dict[str, Any]) -> TensorSpec:
    if any(type(value) is not int for value in (rows, columns, offset)):
        raise UnsupportedOperator("triangle indices of symbolic sizes", kind="no-shape-rule")
    with torch_adapter.below_python_dispatch():
        many = function(rows, columns, offset, device="meta").shape[1]
    return fresh((2, many), options, torch.int64)


@rule(_aten.tril_indices.default)
def tril_indices(rows: Dim, columns: Dim, offset: int = 0, **options: Any) -> TensorSpec:
    return _triangle_indices(torch.tril_indices, rows, columns, offset, options)


@rule(_aten.triu_indices.default)
def triu_indices(rows: Dim, columns: Dim, offset: int = 0, **options: Any) -> TensorSpec:
    return _triangle_indices(torch.triu_indices, rows, columns, offset, options)


@rule(_aten.empty_permuted.default)
def empty_permuted(size: Sequence[Dim], physical_layout: Sequence[int], **options: Any) -> TensorSpec:
    found = fresh(size, options)
    inside = row_major_strides([size[d] for d in physical_layout])
    stride = [inside[physical_layout.index(d)] for d in range(len(size))]
    return found.view(found.size, tuple(stride))


# -- like another tensor ----------------------------------------------------------------------------------------------
@rule(_aten.empty_like.default, _aten.zeros_like.default, _aten.ones_like.default, _aten.rand_like.default,
      _aten.randn_like.default)  # fmt: skip
def empty_like(x: TensorSpec, *, memory_format: Any = None, **options: Any) -> TensorSpec:
    layout = options.get("layout")
    if layout is not None and layout is not torch.strided:
        raise UnsupportedOperator(f"layout {layout}", kind="layout")
    stride = format_strides(x, memory_format)
    return TensorSpec(x.size, stride, options.get("dtype") or x.dtype, options.get("device") or x.device)


@rule(_aten.full_like.default, _aten.randint_like.default, _aten.randint_like.low_dtype)
def full_like(x: TensorSpec, *values: Any, **options: Any) -> TensorSpec:
    return empty_like(x, **options)


@rule(_aten.new_empty.default, _aten.new_zeros.default, _aten.new_ones.default)
def new_empty(x: TensorSpec, size: Sequence[Dim], **options: Any) -> TensorSpec:
    return fresh(size, {**options, "device": options.get("device") or x.device}, x.dtype)


@rule(_aten.new_full.default)
def new_full(x: TensorSpec, size: Sequence[Dim], value: Any, **options: Any) -> TensorSpec:
    return new_empty(x, size, **options)


@rule(_aten.new_empty_strided.default)
def new_empty_strided(x: TensorSpec, size: Sequence[Dim], stride: Sequence[Dim], **options: Any) -> TensorSpec:
    found = new_empty(x, size, **options)
    return found.view(found.size, tuple(stride))


@rule(_aten._new_zeros_with_same_feature_meta.default)
def zeros_for_tangent(x: TensorSpec, other: TensorSpec, *, self_num_batch_dims: int = 0) -> TensorSpec:
    """In memory laid out as `other`'s, one such behind another for each of the leading dimensions of `x`."""
    step: Dim = other.storage_bytes() // other.dtype.itemsize
    strides: list[Dim] = []
    for extent in reversed(x.size[:self_num_batch_dims]):
        strides.insert(0, step)
        step = step * extent
    size = (*x.size[:self_num_batch_dims], *other.size)
    return TensorSpec(size, (*strides, *other.stride), x.dtype, x.device, other.offset)


# -- copies -----------------------------------------------------------------------------------------------------------
@rule(_aten.clone.default)
def clone(x: TensorSpec, *, memory_format: Any = None) -> TensorSpec:
    return TensorSpec(x.size, format_strides(x, memory_format), x.dtype, x.device)


@rule(_aten._to_copy.default)
def to_copy(x: TensorSpec, *, memory_format: Any = None, **options: Any) -> TensorSpec:
    return empty_like(x, memory_format=memory_format, **options)


@rule(_aten.copy.default)
def copy(x: TensorSpec, source: TensorSpec, non_blocking: bool = False) -> TensorSpec:
    fits(x, source.size)
    return TensorSpec(x.size, preserved_strides(x), x.dtype, x.device)


@rule(_aten.fill_.Tensor)
def fill_tensor(x: TensorSpec, value: TensorSpec) -> TensorSpec:
    require(not value.size, "fill_ only supports 0-dimension value tensors")
    return x


@rule(_aten.normal.float_float)
def normal_of_size(
    mean: float, std: float, size: Sequence[Dim], *, generator: Any = None, **options: Any
) -> TensorSpec:
    return fresh(size, options)


@rule(_aten.native_dropout.default)
def native_dropout(x: TensorSpec, p: float, train: bool | None) -> tuple[TensorSpec, TensorSpec]:
    stride = preserved_strides(x)
    if train is False or p == 0:  # the kernel makes the mask of ones row-major then
        return TensorSpec(x.size, stride, x.dtype, x.device), x.like(dtype=torch.bool)
    return TensorSpec(x.size, stride, x.dtype, x.device), TensorSpec(x.size, stride, torch.bool, x.device)
