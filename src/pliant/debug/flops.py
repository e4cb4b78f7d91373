"""Floating-point operations of matrix products, convolutions and attention, over symbolic sizes.

In:     an `AtenGraph`.
Out:    an expression: two operations a multiplication with its addition.
Holds:  all other operators count nothing, as in `torch.utils.flop_counter`, with which the numbers agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from pliant.graph.contracts import AtenGraph
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.packed_weights import packed_convolution
from pliant.graph.tensor_spec import Dim, product
from pliant.symbolic.expr import ZERO, Expr

_aten = torch.ops.aten
Formula = Callable[..., Dim]


def flops(aten: AtenGraph) -> Expr:
    """The operations of a graph."""
    total: Expr = ZERO
    for each in flops_by_node(aten).values():
        total = total + each
    return total


def flops_by_node(aten: AtenGraph) -> dict[str, Expr]:
    """The operations of each node that has any."""
    env, found = aten.shape_env, {}
    for node in aten.graph.nodes:
        formula = _FORMULAS.get(node.target) if node.op == "call_function" else None
        if formula is not None:
            found[node.name] = env.simplify(env.expr_of(formula(node.meta["val"], *_specs(node.args), **node.kwargs)))
    return found


def _specs(args: Any) -> Any:
    """Arguments with the sizes of tensors in place of them."""
    return [_size(a.meta["val"]) if isinstance(a, fx.Node) else a for a in args]


def _size(value: Any) -> Any:
    return value.size_ if isinstance(value, FakeTensor) else value


def _product(_: Any, a: Sequence[Dim], b: Sequence[Dim], **__: Any) -> Dim:
    """[..., m, k] x [..., k, n]"""
    return 2 * product(a) * (b[-1] if len(b) > 1 else 1)


def _added_product(out: Any, bias: Any, a: Sequence[Dim], b: Sequence[Dim], **__: Any) -> Dim:
    return _product(out, a, b)


def _convolution(
    out: Any, x: Sequence[Dim], weight: Sequence[Dim], bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, *_: Any,
) -> Dim:  # fmt: skip
    points = x[2:] if transposed else _size(out)[2:]
    return 2 * x[0] * product(points) * product(weight)


def _packed_convolution(out: Any, x: Sequence[Dim], weight: Sequence[Dim], *_: Any) -> Dim:
    return 2 * x[0] * product(_size(out)[2:]) * product(weight)


def _convolution_backward(
    out: Any, grad: Sequence[Dim], x: Sequence[Dim], weight: Sequence[Dim], bias: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: Any, mask: Sequence[bool],
) -> Dim:  # fmt: skip
    points = x[2:] if transposed else grad[2:]
    return 2 * x[0] * product(points) * product(weight) * (mask[0] + mask[1])


def _attention(out: Any, query: Sequence[Dim], key: Sequence[Dim], value: Sequence[Dim], *_: Any, **__: Any) -> Dim:
    # scores = q k^T; result = scores v
    pairs = product(query[:-1]) * key[-2]
    return 2 * pairs * query[-1] + 2 * pairs * value[-1]


def _attention_backward(
    out: Any, grad: Any, query: Sequence[Dim], key: Sequence[Dim], value: Any, *_: Any, **__: Any
) -> Dim:
    # scores again; d scores = d out v^T, d v = scores^T d out; d q = d scores k, d k = d scores^T q
    pairs = product(query[:-1]) * key[-2]
    return 2 * pairs * (3 * query[-1] + 2 * value[-1])


_FORMULAS: dict[Any, Formula] = {
    **dict.fromkeys((_aten.mm.default, _aten.bmm.default, _aten.mv.default, _aten.dot.default), _product),
    **dict.fromkeys((_aten.addmm.default, _aten.baddbmm.default, _aten.addmv.default), _added_product),
    _aten.convolution.default: _convolution,
    packed_convolution: _packed_convolution,
    _aten.convolution_backward.default: _convolution_backward,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
}
