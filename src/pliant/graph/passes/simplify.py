"""Remove calls that return their argument unchanged.

In:     a functional ATen graph.
Out:    the same graph, each such call replaced by its argument; how many went.
Holds:  values, sizes and strides of what is left are unchanged. In a functional graph a copy is its source, but that of a
        part which is returned; results that must not share memory are kept apart by `separate.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant.background import give_way
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import BY_POSITION, is_view, memory_root
from pliant.graph.tensor_spec import key_of, same_known

_aten = torch.ops.aten


def simplify(graph: fx.Graph) -> int:
    """Remove no-ops and join views of views, in one walk. What the graph returns is written once, at the end: a large backward
    returns thousands of views, and each change of a node's arguments goes through all of them."""
    removed, returned = 0, dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        give_way()
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        found = rule(node) if rule is not None else None
        if found is not None and not _is_read_in_place(node, found) and not _is_copied_out(node, found):
            node.replace_all_uses_with(found, delete_user_cb=lambda user: user.op != "output")
            if node.users:
                returned[node] = found
            else:
                graph.erase_node(node)
            removed += 1
    if returned:
        _return_others(graph, returned)
    return removed


def _return_others(graph: fx.Graph, others: dict[fx.Node, fx.Node]) -> None:
    """Have the graph return others in place of these nodes, which go."""
    (end,) = graph.find_nodes(op="output")
    end.args = fx.map_arg(end.args, lambda one: others.get(one, one))
    for node in others:
        graph.erase_node(node)


def same_layout(one: Any, other: Any) -> bool:
    """Whether two descriptions agree in everything, as far as can be seen without a guard."""
    if type(one) is not FakeTensor or type(other) is not FakeTensor:
        return False
    if one.dtype_ != other.dtype_ or one.device_ != other.device_:
        return False
    return same_known(one.size_, other.size_) and same_known(one.stride_, other.stride_)


def _is_read_in_place(node: fx.Node, source: fx.Node) -> bool:
    """Whether something reads the node's memory by positions in it, and the source begins elsewhere in its own."""
    if BY_POSITION.keys().isdisjoint(user.target for user in node.users):
        return False
    return not same_known((node.meta["val"].offset_,), (source.meta["val"].offset_,))


def _is_copied_out(node: fx.Node, source: fx.Node) -> bool:
    """Whether the program copies a part of a tensor to return it without the rest: a view would keep all of its memory."""
    if node.target not in _COPIES or not _is_returned(node):
        return False
    whole, part = memory_root(source).meta.get("val"), source.meta["val"]
    return type(whole) is FakeTensor and not same_known((math.prod(whole.size_),), (math.prod(part.size_),))


def _is_returned(node: fx.Node) -> bool:
    """Whether the graph returns it, or a view of it."""
    return any(user.op == "output" or (is_view(user.target) or user.target is operator.getitem) and _is_returned(user) for user in node.users)


_COPIES = frozenset({_aten.clone.default, _aten._to_copy.default, _aten.copy.default})
Rule = Callable[[fx.Node], fx.Node | None]


def _unchanged(node: fx.Node) -> fx.Node | None:
    """The first argument, if the result looks the same in every respect."""
    source = node.args[0]
    if isinstance(source, fx.Node) and same_layout(node.meta["val"], source.meta["val"]):
        return source
    return None


def _of_same(func: Any) -> Rule:
    """The argument's own argument, if the two calls undo each other: `t(t(x))`, `permute` and its inverse."""

    def rule(node: fx.Node) -> fx.Node | None:
        inner = node.args[0]
        assert isinstance(inner, fx.Node)
        if inner.op == "call_function" and inner.target is func and _inverse(node, inner):
            source = inner.args[0]
            assert isinstance(source, fx.Node)
            return source if same_layout(source.meta["val"], node.meta["val"]) else None
        return None

    return rule


def _inverse(outer: fx.Node, inner: fx.Node) -> bool:
    if outer.target is _aten.t.default:
        return True
    rank = len(outer.meta["val"].size_)
    if outer.target is _aten.transpose.int:
        return {d % rank for d in outer.args[1:3]} == {d % rank for d in inner.args[1:3]}  # type: ignore[operator]
    first, second = _dims(inner, rank), _dims(outer, rank)
    return [first[d] for d in second] == list(range(rank))


def _dims(node: fx.Node, rank: int) -> list[int]:
    dims: Any = node.args[1]
    return [int(d) % rank for d in dims]


def _permuted(node: fx.Node) -> fx.Node | None:
    dims: Any = node.args[1]
    rank = len(dims)
    if [d % rank for d in dims] == list(range(rank)):
        return _unchanged(node)
    return _of_same(_aten.permute.default)(node)


def _transposed(node: fx.Node) -> fx.Node | None:
    return _of_same(_aten.transpose.int)(node)


def _cloned(node: fx.Node) -> fx.Node | None:
    """A copy of a copy, between which only dimensions change places, copies the source."""
    same = _unchanged(node)
    if same is not None:
        return same
    turned: Any = node.args[0]
    inner = turned.args[0] if turned.target in _TURNS and len(turned.users) == 1 else None
    if not isinstance(inner, fx.Node) or inner.target is not _aten.clone.default or len(inner.users) != 1:
        return None
    source: Any = inner.args[0]
    fake, own = turned.meta["val"], source.meta["val"]
    if node.kwargs.get("memory_format") is not torch.contiguous_format or fake.dtype_ != own.dtype_:
        return None
    order = _places(turned)
    turned.args = (source, *turned.args[1:])
    strides = [own.stride_[d] for d in order]
    turned.meta["val"] = fake.fake_mode.new(fake.size_, strides, fake.dtype_, fake.device_, fake.requires_grad, own.offset_)
    return _unchanged(node)


_TURNS = frozenset({_aten.permute.default, _aten.transpose.int})


def _places(turned: fx.Node) -> list[int]:
    """Which of its argument's dimensions each of a turned tensor's is."""
    rank = len(turned.meta["val"].size_)
    if turned.target is _aten.permute.default:
        return _dims(turned, rank)
    order = list(range(rank))
    one, other = (int(d) % rank for d in turned.args[1:3])  # type: ignore[arg-type]
    order[one], order[other] = order[other], order[one]
    return order


def _viewed(node: fx.Node) -> fx.Node | None:
    """A view of a view looks at the source; a view back to the source's shape is the source."""
    same = _unchanged(node)
    if same is not None:
        return same
    inner: Any = node.args[0]
    if inner.op == "call_function" and inner.target in _RESHAPES:
        source: Any = inner.args[0]
        if same_layout(source.meta["val"], node.meta["val"]):
            return source  # type: ignore[no-any-return]
        if _is_dense(source.meta["val"]):
            node.args = (source, *node.args[1:])
    return None


_RESHAPES = frozenset({_aten.view.default, _aten._unsafe_view.default})


def _is_dense(fake: FakeTensor) -> bool:
    """Row-major without gaps, seen without a guard."""
    expected: Any = 1
    for size, stride in zip(reversed(fake.size_), reversed(fake.stride_)):
        if key_of(stride) != key_of(expected):
            return False
        expected = expected * size
    return True


def _copied(node: fx.Node) -> fx.Node | None:
    """`copy(room, source)`: the source, if it is laid out like the room."""
    source = node.args[1]
    if isinstance(source, fx.Node) and same_layout(node.meta["val"], source.meta["val"]):
        return source
    return None


_RULES: dict[Any, Rule] = {
    _aten.view.default: _viewed,
    _aten._unsafe_view.default: _viewed,
    _aten.expand.default: _unchanged,
    _aten._to_copy.default: _unchanged,
    _aten.clone.default: _cloned,
    _aten.slice.Tensor: _unchanged,
    _aten.alias.default: _unchanged,
    _aten.detach.default: _unchanged,
    _aten.lift_fresh_copy.default: _unchanged,
    _aten.t.default: _of_same(_aten.t.default),
    _aten.transpose.int: _transposed,
    _aten.permute.default: _permuted,
    _aten.copy.default: _copied,
}
