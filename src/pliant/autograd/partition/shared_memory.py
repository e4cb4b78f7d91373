"""Save a value that was also written into memory that is saved anyway as a view of that memory.

In:     what the forward saves beside its results; what the backward runs.
Out:    `places(...)`: for some of the saved values the view that holds the same elements.
Holds:  a view is chosen only where no operator of the backward makes views of the value: its strides may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import memory_root
from pliant.records import dataclass
from pliant.torch_adapter import append_node

_aten = torch.ops.aten
_VIEWS = {_aten.slice_scatter.default: _aten.slice.Tensor, _aten.select_scatter.default: _aten.select.int}


@dataclass(frozen=True, slots=True)
class Place:
    """A view of what `base` computes: `target(base, *arguments)`, which is described by `fake`."""

    base: fx.Node
    target: Any
    arguments: tuple[Any, ...]
    fake: FakeTensor

    def emit(self, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> fx.Node:
        view = append_node(graph, "call_function", self.target, (copies[self.base], *self.arguments), {}, "view")
        view.meta.update(val=self.fake, stage="forward")
        return view


def places(
    extra: Iterable[fx.Node], body: Iterable[fx.Node], movable: Callable[[fx.Node], bool]
) -> dict[fx.Node, Place]:
    """The views. `movable`: whether nobody but the backward holds a value's memory."""
    extra, inside = list(extra), set(body)
    roots = {root for root in map(memory_root, extra) if movable(root)}
    found = {}
    for node in extra:
        if memory_root(node) is node and not any(u in inside and memory_root(u) is not u for u in node.users):
            written = next((u for u in node.users if u.target in _VIEWS and u.args[1] is node), None)
            base = None if written is None else _last(written, roots)
            if written is not None and base is not None:
                found[node] = _place(written, base)
    return found


def _place(written: fx.Node, base: fx.Node) -> Place:
    target, arguments = _VIEWS[written.target], written.args[2:]  # type: ignore[index]
    val = base.meta["val"]
    return Place(base, target, arguments, val.fake_mode.compute(target, [val, *arguments], {}))


def _last(written: fx.Node, roots: set[fx.Node]) -> fx.Node | None:
    """The saved one among the values that hold what was written: later writes are of other elements."""
    base: fx.Node | None = written
    while base is not None and base not in roots:
        base = next((u for u in base.users if u.args[0] is base and _apart(u, written)), None)
    return base


def _apart(one: fx.Node, other: fx.Node) -> bool:
    """Whether two writes are known to be of different elements."""
    spans = [_span(write) for write in (one, other)]
    if one.target is not other.target or None in spans or one.args[2] != other.args[2]:
        return False
    (start, stop), (other_start, other_stop) = spans  # type: ignore[misc]
    return stop <= other_start or other_stop <= start


def _span(write: fx.Node) -> tuple[int, int] | None:
    """The first position written along the dimension and the one behind the last, if known."""
    given: list[Any] = list(write.args[3:5])
    if write.target is _aten.select_scatter.default:
        given.append(given[0] + 1)
    known = len(given) == 2 and all(type(n) is int and n >= 0 for n in given)
    return (given[0], given[1]) if known else None
