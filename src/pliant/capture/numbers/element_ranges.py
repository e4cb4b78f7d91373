"""The largest and the smallest element of a range of any length, which need not be written out.

In:     the node of such a reduction, over all elements of what views and copies make of an `arange`.
Out:    the element as a number of the range's ends; None where the reduction is of something else.
Holds:  a guard says that the range is not empty.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from pliant.capture.structures import argument, as_tuple
from pliant.capture.value_kinds import concrete, plain_class
from pliant.graph.contracts import name_of_target
from pliant.graph.fake_tensor import is_fake

_ENDS = {"max": True, "amax": True, "min": False, "amin": False}
# They keep each element, at least once.
_KEEPING = frozenset(
    """view reshape unsqueeze squeeze flatten expand repeat tile permute transpose t clone contiguous detach to long
    broadcast_to view_as expand_as reshape_as""".split()
)


def end_of_range(node: fx.Node) -> Any:
    """The number; None where it is not one of a range."""
    largest = _ENDS.get(name_of_target(node))
    if largest is None or len(node.args) != 1 or node.kwargs or not is_fake(argument(node.args[0])):
        return None
    ends = _ends(node.args[0])
    if ends is None:
        return None
    start, end = ends
    return (end - 1 if largest else start) if concrete(math.prod(argument(node.args[0]).size_) > 0) else None


def is_end_of_range(node: fx.Node) -> bool:
    return name_of_target(node) in _ENDS and len(node.args) == 1 and not node.kwargs and bool(_ends(node.args[0]))


def _ends(node: Any) -> tuple[Any, Any] | None:
    """Where the range starts and ends that a node holds the elements of."""
    while isinstance(node, fx.Node) and node.op in ("call_function", "call_method"):
        value = node.meta.get("val")
        if not is_fake(value) or value.dtype_ is not torch.int64 or value._version > 0:
            return None
        if name_of_target(node) == "arange":
            return _ends_of_arange(node)
        if name_of_target(node) not in _KEEPING and not _adds_dimensions(node):
            return None
        node = node.args[0]
    return None


def _ends_of_arange(node: fx.Node) -> tuple[Any, Any] | None:
    given = list(map(argument, node.args))
    if not 1 <= len(given) <= 2 or not {*node.kwargs} <= {"dtype", "device"}:
        return None
    if not {int}.issuperset(map(plain_class, given)):
        return None
    return (0, given[0]) if len(given) == 1 else (given[0], given[1])


def _adds_dimensions(node: fx.Node) -> bool:
    """Whether a subscript takes all: `x[None, :]`."""
    if name_of_target(node) not in ("getitem", "__getitem__"):
        return False
    return all(one is None or one is Ellipsis or one == slice(None) for one in as_tuple(node.args[1]))
