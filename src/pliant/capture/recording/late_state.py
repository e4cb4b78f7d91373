"""What a hook, or the backward of an own function, finds when it runs, after the trace: what it found when it was traced.

In:     the function, and what it is given to keep; what was made in the trace is behind them.
Out:    a break where the body reads what the trace itself stored outside, or changes what was made; a trace that starts again
        and breaks before the operation, where the trace changes that later, or gives it to the program.
Holds:  what comes from outside is not looked into: `regions.read_later` sees each read of it.
"""

from __future__ import annotations

import collections
import functools
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pliant.capture.graph_breaks import BreakBefore, GraphBreak
from pliant.capture.reconstruct.instances import slots_of
from pliant.capture.recording.regions import read_later, without_effects
from pliant.capture.signatures import Tracer
from pliant.capture.structures import reached
from pliant.capture.trace import BreakReason
from pliant.capture.value_kinds import ByKind, is_cell, is_mutable_container, is_symbolic, own_dict


@contextmanager
def runs_later(t: Tracer, what: str, roots: Iterable[Any]) -> Iterator[None]:
    """A block in which such a body is traced, of a function that the `roots` lead to."""
    state = LateState(t, what, roots)
    reads = t.world.changed_reads
    with without_effects(t, what, later=True), read_later(t, what):
        yield
    if state.is_changed():
        raise GraphBreak("side-effect-call", f"{what} has side effects")
    if t.world.changed_reads != reads:
        raise GraphBreak("read-later", f"{what} reads what was stored before")
    t.late_states.append(state)


class LateState:
    """What was made in the trace and may change, as it is now; and where the trace breaks if it does not stay so."""

    __slots__ = ("_held", "_step", "_why")

    def __init__(self, t: Tracer, what: str, roots: Iterable[Any]) -> None:
        found = [one for root in roots for one in reached(root, functools.partial(_behind, t))]
        made = {id(one): one for one in found if _may_change(one) and not t.world.is_foreign(one)}
        self._held = [(one, [*_behind(t, one)]) for one in made.values()]
        self._why = BreakReason("read-later", f"{what} may read what changes before it runs", t.location())
        self._step = t.step_to_cut()
        if self._held and self._step is None:
            raise GraphBreak("read-later", self._why.detail)

    def is_changed(self) -> bool:
        return not all(_are_same(before, [*_BEHIND.of(one)(one)]) for one, before in self._held)

    def check(self, times_reached: Callable[[Any], int]) -> None:
        """Start again where the body may find something else."""
        if self.is_changed() or any(times_reached(one) for one, _ in self._held):
            assert self._step is not None
            raise BreakBefore(self._why, self._step)


def check_late_states(t: Tracer, times_reached: Callable[[Any], int]) -> None:
    """At the end of the trace, which gives back what is reached."""
    for one in t.late_states:
        one.check(times_reached)


def _behind(t: Tracer, one: Any) -> Iterable[Any]:
    return () if t.world.is_foreign(one) else _BEHIND.of(one)(one)


def _are_same(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))


def _may_change(one: Any) -> bool:
    return is_cell(one) or is_mutable_container(one) or _BEHIND.of(one) is _fields and bool(_spaces(one))


def _spaces(one: Any) -> list[dict[str, Any]]:
    """Where an object has its fields. What stands for one in the trace has none, since it leads to the trace."""
    if type(one).__module__.startswith("pliant.") or is_symbolic(one):
        return []
    own, slots = own_dict(one), dict(slots_of(one))
    return [space for space in (own, slots) if space is not None and (space or space is own)]


def _fields(one: Any) -> Iterable[Any]:
    return [part for space in _spaces(one) for part in (*space, *space.values())]


def _of_function(function: types.FunctionType) -> Iterable[Any]:
    return *(function.__closure__ or ()), *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()


_BEHIND: ByKind[Callable[[Any], Iterable[Any]]] = ByKind(
    _fields,
    {
        types.FunctionType: _of_function,
        types.MethodType: lambda one: (one.__func__, one.__self__),
        **dict.fromkeys((staticmethod, classmethod), lambda one: (one.__func__,)),
        types.CellType: lambda cell: _contents(cell),
    },
    {
        **dict.fromkeys((torch.Tensor, type, types.ModuleType), lambda one: ()),
        **dict.fromkeys((list, tuple, set, frozenset, collections.deque), tuple),
        dict: lambda one: (*dict.keys(one), *dict.values(one)),
        functools.partial: lambda one: (one.func, *one.args, *one.keywords.values()),
    },
)


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()
