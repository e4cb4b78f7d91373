"""Which dimension of a tensor is which axis of attention, through views.

In:     a node of an ATen graph whose dimensions have labels.
Out:    the labels of what it is a view of, or of a view of it; None where a view mixes axes.
Holds:  labels are "0", "1"... for the parts of the axis of batch and heads, in order; letters for others; "" for a size of 1.
        `N` is that axis as a whole: a view may take it apart once, and put it together again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import fx

from pliant.graph.tensor_spec import key_of, product, same_known

_aten = torch.ops.aten
Labels: TypeAlias = tuple[str, ...]
WHOLE, UNIT = "N", ""

_RESHAPING = frozenset(
    (_aten.view.default, _aten._unsafe_view.default, _aten.unsqueeze.default, _aten.squeeze.dim, _aten.squeeze.dims, _aten.squeeze.default)
)  # fmt: skip
_SAME = frozenset((_aten.clone.default, _aten.expand.default))
_PERMUTING = frozenset((_aten.permute.default, _aten.transpose.int, _aten.t.default))


def is_view(node: fx.Node) -> bool:
    """Whether the node gives the elements of its first argument, in another shape."""
    if node.op != "call_function":
        return False
    if node.target is _aten.expand.default:
        return same_known(_sizes(node), _sizes(node.args[0]))
    return node.target in _RESHAPING or node.target in _PERMUTING or node.target in _SAME


def before(node: fx.Node, labels: Labels) -> Labels | None:
    """The labels of the argument of a view with these labels."""
    if node.target in _RESHAPING:
        return reshaped(labels, _sizes(node), _sizes(node.args[0]))
    if node.target in _PERMUTING:
        order = _order(node)
        return tuple([labels[order.index(d)] for d in range(len(order))])
    return labels


def after(node: fx.Node, labels: Labels) -> Labels | None:
    """The labels of a view, of its argument's."""
    if node.target in _RESHAPING:
        return reshaped(labels, _sizes(node.args[0]), _sizes(node))
    return tuple([labels[d] for d in _order(node)]) if node.target in _PERMUTING else labels


def reshaped(labels: Labels, sizes: Sequence[Any], other: Sequence[Any]) -> Labels | None:
    """The labels of the same elements in another shape."""
    left = [(label, size) for label, size in zip(labels, sizes) if key_of(size) != 1]
    found: list[str] = []
    for place, size in enumerate(other):
        if key_of(size) == 1:
            found.append(UNIT)
            continue
        if not left:
            return None
        label, own = left[0]
        if key_of(own) == key_of(size):
            found.append(label)
            left.pop(0)
        elif label == WHOLE:
            parts = _parts(other[place:], own)
            return None if parts is None else _joined(found, parts, reshaped(_names(left[1:]), _of(left[1:]), other[place + len(parts) :]))
        else:
            together = [name for name, _ in left if name.isdigit()]
            if label != "0" or left[: len(together)] != [one for one in left if one[0].isdigit()]:
                return None
            if together != [str(n) for n in range(len(together))] or key_of(product(_of(left[: len(together)]))) != key_of(size):
                return None
            found.append(WHOLE)
            del left[: len(together)]
    return None if left else tuple(found)


def _parts(sizes: Sequence[Any], whole: Any) -> list[str] | None:
    """Labels of the first of these sizes, whose product is the whole."""
    so_far: Any = 1
    names: list[str] = []
    number = 0
    for size in sizes:
        names.append(UNIT if key_of(size) == 1 else str(number))
        number += key_of(size) != 1
        so_far = so_far * size
        if key_of(so_far) == key_of(whole):
            return names
    return None


def _joined(found: list[str], parts: list[str], rest: Labels | None) -> Labels | None:
    return None if rest is None else (*found, *parts, *rest)


def _names(pairs: Sequence[tuple[str, Any]]) -> Labels:
    return tuple([name for name, _ in pairs])


def _of(pairs: Sequence[tuple[str, Any]]) -> list[Any]:
    return [size for _, size in pairs]


def _sizes(node: Any) -> tuple[Any, ...]:
    sizes: tuple[Any, ...] = node.meta["val"].size_
    return sizes


def _order(node: fx.Node) -> list[int]:
    """Where each dimension of a permuted tensor comes from."""
    rank = len(_sizes(node))
    order = list(range(rank))
    if node.target is _aten.permute.default:
        dims: Any = node.args[1]
        return [d % rank for d in dims]
    if rank > 1:
        one, other = (int(d) % rank for d in node.args[1:3]) if node.target is _aten.transpose.int else (0, 1)  # type: ignore[arg-type]
        order[one], order[other] = order[other], order[one]
    return order
