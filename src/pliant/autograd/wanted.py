"""Whether a gradient gets to what the running backward pass is asked for.

In:     where gradients go on to: functions of autograd's graph, and as which of their results' gradients.
Out:    `gets_somewhere(edges)`, `is_wanted(function, number)`.
Holds:  the results of a compiled program share one function, so the engine goes on from a gradient of one to inputs that
        only others lead to. Eager's would not get there: nothing runs for such a gradient, fails or calls hooks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pliant.autograd.kept_inputs import HALVES
from pliant.autograd_torch_adapter import asks_for_leaves, edges_asked_for, engine_needs, results_asked_for

Edge = tuple[Any, int]


def gets_somewhere(edges: Iterable[Edge]) -> bool:
    """Whether one of these gradients is wanted, or leads to one that is."""
    stack, seen, asked = list(edges), set[Edge](), edges_asked_for() or ()
    while stack:
        edge = stack.pop()
        function, number = edge
        if edge in asked:  # the pass may go on from there for another result's sake
            return True
        if function is None or edge in seen or not engine_needs(function):
            continue
        seen.add(edge)
        behind = _behind(function, number)
        if behind is None:
            return True
        stack += behind
    return False


def is_wanted(function: Any, number: int) -> bool:
    """The same of a gradient that the pass has come to, and whose function may be asked for itself."""
    if number in (results_asked_for(function) or ()):
        return True
    behind = _behind(function, number)
    return behind is None or gets_somewhere(behind)


def _behind(function: Any, number: int) -> Iterable[Edge] | None:
    """What this gradient leads to; None where the pass goes no further: a leaf, or what was asked for itself."""
    following = function.next_functions
    halves = getattr(function, HALVES, None)
    if not any(after is not None and engine_needs(after) for after, _ in following):
        asked = None if halves is None else results_asked_for(function)
        return () if asked and number not in asked else None
    edges: list[Edge] = list(following) if halves is None else halves.edges_behind(following, number)
    if all(after is None for after, _ in edges) and _runs_all(following):
        return None  # eager's function would be the last, and run
    return edges


def _runs_all(following: Iterable[Edge]) -> bool:
    """Whether the pass goes on to all of these, as one does that is asked for no gradients in particular."""
    return all(after is None or engine_needs(after) for after, _ in following) and not asks_for_leaves()
