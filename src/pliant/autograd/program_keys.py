"""What programs, and parts of programs, have in common that do the same to other tensors, as keys.

In:     nodes of captured graphs, and descriptions of what programs are given.
Out:    `argument_key`, `input_key`, and `program_key` of a whole program; `Unkeyed` of what cannot be told from another.
Holds:  programs of equal keys, of one capture, have equal joint graphs and equal code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import fx

from pliant.graph.contracts import CapturedGraph, GraphInput
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of


class Unkeyed(Exception):
    """There is no telling whether another does the same."""


def argument_key(value: Any, of_node: Callable[[fx.Node], Hashable]) -> Hashable:
    """Of an argument of a node, in which nodes count as `of_node` says."""
    if isinstance(value, fx.Node):
        return of_node(value)
    if isinstance(value, (list, tuple)):
        return type(value), tuple([argument_key(one, of_node) for one in value])
    if isinstance(value, slice):
        return slice, tuple([argument_key(one, of_node) for one in (value.start, value.stop, value.step)])
    if isinstance(value, float | complex):
        return repr(value)  # zeros have signs
    return type(value), value if type(value) in _COMPARED else id(value)


# What is alike if it is equal; objects of other classes, whose `__eq__` may be the program's, if they are the same.
_COMPARED = (int, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)


def input_key(one: GraphInput) -> Hashable:
    """Of what a program is given."""
    fake = one.fake
    if type(fake) is not FakeTensor:
        return one.kind, value_key(fake)
    described = one.example if isinstance(one.example, torch.Tensor) else fake
    flags = described.is_inference(), described.is_conj(), described.is_neg()
    history = described.requires_grad, described.is_leaf, described._is_view()
    return value_key(fake), fake.device_, fake.is_parameter_, one.static, flags, history


def value_key(value: Any) -> Hashable:
    """Of what a node gives: a tensor's sizes, layout and type, a number's expression."""
    if type(value) is FakeTensor:
        return keys_of(value.size_), keys_of(value.stride_), keys_of([value.offset_]), value.dtype_
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(value_key, value))
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return type(value), _hashable(value.node.expr)
    return type(value), _hashable(value)


def program_key(program: CapturedGraph) -> Hashable:
    """Of the whole program. Raises `Unkeyed`."""
    numbers: dict[fx.Node, int] = {}
    checkpoints: dict[Any, int] = {}
    attributes = [(name, frozenset(value)) for name, value in sorted(program.attributes.items())]
    items: list[Hashable] = [program.grad_enabled, *attributes, *map(input_key, program.inputs)]
    for node in program.module.graph.nodes:
        items.append(_node_key(node, numbers))
        checkpoint = node.meta.get("recompute")
        items.append(None if checkpoint is None else checkpoints.setdefault(checkpoint, len(checkpoints)))
        numbers[node] = len(numbers)
    return tuple(items)


# What nodes are noted to be that others are not known to be alike in.
_NOTED = ("binds", "check", "inference", "made")


def _node_key(node: fx.Node, numbers: dict[fx.Node, int]) -> Hashable:
    if node.op == "placeholder":
        return node.op
    if node.op == "call_module" or any(node.meta.get(name) is not None for name in _NOTED):
        raise Unkeyed(node.name)
    of_node = numbers.__getitem__
    named = tuple([(name, argument_key(value, of_node)) for name, value in node.kwargs.items()])
    return node.op, argument_key(node.target, of_node), argument_key(node.args, of_node), named, value_key(node.meta.get("val"))


def _hashable(value: object) -> Hashable:
    if not isinstance(value, Hashable):
        raise Unkeyed(type(value).__name__)
    try:
        hash(value)
    except TypeError:  # what holds something that has none
        raise Unkeyed(type(value).__name__) from None
    return value
