"""Which operators may be dropped, merged or run again.

In:     a node of a functional ATen graph.
Out:    facts from its operator's schema and tags.
Holds:  an operator that is not known to be pure is kept where it is.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from pliant.graph.effects import acts
from pliant.graph.failing import kernel_may_lack
from pliant.torch_adapter import OpOverload

_aten = torch.ops.aten
# Calls that look at memory by positions in it, and which of their arguments is the first of these.
BY_POSITION: dict[Any, int] = {_aten.as_strided.default: 3, _aten.as_strided_scatter.default: 4}
# They raise where their data is not as they need: an index out of range, a division by zero, no convergence.
_INDEXING = frozenset(
    f"aten::{name}"
    for name in """index_select embedding gather index take scatter scatter_add
    scatter_reduce index_add index_copy index_fill index_put index_reduce put nll_loss_forward nll_loss2d_forward
    multi_margin_loss multilabel_margin_loss_forward _embedding_bag _embedding_bag_forward_only max_unpool2d max_unpool3d
    searchsorted histc _linalg_svd _linalg_eigh linalg_eig _linalg_eigvals linalg_lstsq""".split()
)
_DIVISIONS = frozenset(("aten::floor_divide", "aten::remainder", "aten::fmod", "aten::div"))  # of integers


@functools.cache
def is_random(target: Any) -> bool:
    """Whether a call reads or moves the state of a random generator."""
    return isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def draws_numbers(node: fx.Node) -> bool:
    """Whether this call does: attention without dropout draws none."""
    return node.op == "call_function" and is_random(node.target) and draws(node.target, node.args, node.kwargs)


def draws(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of a random operator with these arguments draws."""
    for position, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            given = args[position] if position < len(args) else kwargs.get("dropout_p", 0.0)
            return not isinstance(given, float) or given != 0.0
    return True


@functools.cache
def has_effect(target: Any) -> bool:
    """Whether a call does more than return its result: a write, a random draw, a check, a message to other
    processes.
    """
    if not isinstance(target, OpOverload):
        return target is not operator.getitem
    return acts(target)


def may_raise(node: fx.Node) -> bool:
    """Whether the call raises for some data, or may have no kernel for its type, and so is the program's to make though
    nothing reads its result."""
    if _kernel_may_lack(node):
        return True
    name = node.target._schema.name if isinstance(node.target, OpOverload) else ""
    if name in _DIVISIONS:
        dtype, divisor = node.meta["val"].dtype, node.args[1]
        told = isinstance(divisor, (int, float)) and divisor % 2 ** (8 * dtype.itemsize) != 0  # also where the type wraps it
        return not (told or dtype.is_floating_point or dtype.is_complex)
    return name in _INDEXING


def _kernel_may_lack(node: fx.Node) -> bool:
    given: Any = node.all_input_nodes[0].meta.get("val") if node.all_input_nodes else None
    is_known = isinstance(given, torch.Tensor) and isinstance(node.target, OpOverload) and node.target.namespace == "aten"
    return is_known and kernel_may_lack(node.target, given.dtype)


def binds_symbols(node: fx.Node) -> bool:
    """Whether the node gives unbacked symbols their values, so that others need it without being its users."""
    return bool(node.meta.get("binds"))


@functools.cache
def is_view(target: Any) -> bool:
    """Whether the result shares the first argument's memory, said by its schema or not."""
    if not isinstance(target, OpOverload) or target._schema.is_mutable:
        return False
    return target is _aten._unsafe_view.default or any(r.alias_info is not None for r in target._schema.returns)


def memory_root(node: fx.Node) -> fx.Node:
    """The node whose memory this node's tensor lies in."""
    while node.op == "call_function":
        if is_view(node.target) or (node.target is operator.getitem and is_view(node.args[0].target)):  # type: ignore[union-attr]
            node = node.args[0]  # type: ignore[assignment]
        else:
            break
    return node
