"""Matrix products. Results are row-major, but for `addr`."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.layouts import elementwise_strides
from pliant.graph.shape_rules.pointwise import common_device
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import Sizes, TensorSpec, broadcast, key_of, require, require_same, row_major_strides

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten


def _product(size: Sizes, *operands: TensorSpec, dtype: torch.dtype | None = None) -> TensorSpec:
    first = operands[0]
    for other in operands[1:]:
        if other.dtype is not first.dtype:
            raise RuntimeError(f"expected operands of one dtype, but got {first.dtype} and {other.dtype}")
    return TensorSpec(size, row_major_strides(size), dtype or first.dtype, common_device(operands))


def _ranks(wanted: tuple[int, ...], *operands: TensorSpec) -> None:
    for rank, operand in zip(wanted, operands):
        if operand.ndim != rank:
            raise RuntimeError(f"expected a tensor with {rank} dimensions, but got {operand.ndim}")


@rule(_aten.mm.default)
def mm(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    _ranks((2, 2), a, b)
    require_same(a.size[1:], b.size[:1], f"cannot multiply {list(a.size)} and {list(b.size)}")
    return _product((a.size[0], b.size[1]), a, b)


@rule(_aten.bmm.default)
def bmm(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    _ranks((3, 3), a, b)
    require_same((a.size[0], a.size[2]), b.size[:2], f"cannot multiply {list(a.size)} and {list(b.size)}")
    return _product((a.size[0], a.size[1], b.size[2]), a, b)


def _added(bias: TensorSpec, product: TensorSpec) -> TensorSpec:
    require_same(broadcast(bias.size, product.size), product.size, "the added tensor does not broadcast to the product")
    return _product(product.size, product, bias)


@rule(_aten.addmm.default, _aten._addmm_activation.default)
def addmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, **_: Any) -> TensorSpec:
    return _added(bias, mm(a, b))


@rule(_aten.baddbmm.default)
def baddbmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, **_: Any) -> TensorSpec:
    return _added(bias, bmm(a, b))


@rule(_aten.addbmm.default)
def addbmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, **_: Any) -> TensorSpec:
    product = bmm(a, b)
    return _added(bias, product.like(product.size[1:]))


@rule(_aten.mv.default)
def mv(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    _ranks((2, 1), a, b)
    require_same(a.size[1:], b.size, f"cannot multiply {list(a.size)} and {list(b.size)}")
    return _product(a.size[:1], a, b)


@rule(_aten.addmv.default)
def addmv(bias: TensorSpec, a: TensorSpec, b: TensorSpec, **_: Any) -> TensorSpec:
    return _added(bias, mv(a, b))


@rule(_aten.dot.default, _aten.vdot.default)
def dot(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    _ranks((1, 1), a, b)
    require_same(a.size, b.size, "dot: inconsistent tensor size")
    return _product((), a, b)


@rule(_aten.addr.default)
def addr(bias: TensorSpec, a: TensorSpec, b: TensorSpec, **_: Any) -> TensorSpec:
    """Elementwise: laid out as such results are."""
    _ranks((1, 1), a, b)
    size = (a.size[0], b.size[0])
    require_same(broadcast(bias.size, size), size, "addr: sizes do not match")
    dtype = torch.promote_types(bias.dtype, torch.promote_types(a.dtype, b.dtype))
    column = a.view((a.size[0], 1), (a.stride[0], 1))
    return a.like(size, elementwise_strides(size, (bias, column, b)), dtype)


_GROUPED = (torch.float32, torch.bfloat16, torch.float16)
_ALIGNED = 16  # bytes from row to row


@rule(_aten._grouped_mm.default)
def grouped_mm(a: TensorSpec, b: TensorSpec, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> TensorSpec:
    """Groups are rows of `a`, columns of `b`, or what is summed; or each has a product of its own. Rows begin aligned."""
    if a.dtype not in _GROUPED or b.dtype is not a.dtype or out_dtype not in (None, a.dtype) or bias is not None:
        raise RuntimeError("grouped products are of float32, bfloat16 or float16 without a bias")
    if a.ndim not in (2, 3) or b.ndim not in (2, 3) or (offs is None) != (a.ndim == b.ndim == 3):
        raise RuntimeError("grouped products are of matrices, and need offsets where one is not of groups")
    for one in (a, b):
        outer = -2 if key_of(one.stride[-1]) == 1 else -1
        require(one.stride[outer] * one.dtype.itemsize % _ALIGNED == 0, "strides should be multiple of 16 bytes")
    if a.ndim == 2 or b.ndim == 3:
        require_same(a.size[-1:], b.size[-2:-1], "contraction dimension of mat_a and mat_b must match")
    groups: tuple[Any, ...] = ()
    if a.ndim == b.ndim:
        groups = (offs.size[0],) if a.ndim == 2 else (a.size[0],)
    size = (*groups, a.size[-2], b.size[-1])
    unit = _ALIGNED // a.dtype.itemsize
    row = (size[-1] + unit - 1) // unit * unit
    return a.like(size, (*([size[-2] * row] if groups else []), row, 1))
