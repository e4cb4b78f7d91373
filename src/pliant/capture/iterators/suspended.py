"""What goes over a graph break of a loop's iterator, or of a generator that stands at a `yield`; its state behind the break.

In:     what the entry of a trace puts in the place of an iterator; generators of the program as they are advanced.
Out:    `Carried`, which only the loop sees (`with_generators` where a local's is to be used); `revive`: a generator that stands
        for a state, for all who refer to it. Python itself advances both; compiled code goes on from the state (`put`).
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from pliant.bytecode.resume import ResumePoint, generator_code
from pliant.capture.iterators.standing_iterators import ItsOwnIterator
from pliant.capture.protocols import polyfills
from pliant.capture.value_kinds import exactly
from pliant.guards.sources import ChainedSource, source_class
from pliant.records import dataclass


class Carried(ItsOwnIterator):
    """A loop's iterator. `real` is one of Python's own, or a `Suspended`. `turns`: see `CarriedItems`."""

    __slots__ = ("real", "turns")

    def __init__(self, real: Any, turns: int | None = None) -> None:
        self.real = real
        self.turns = turns

    def __next__(self) -> Any:
        return next(self.real)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A `yield` in a generator function at which a generator of the program may stand."""

    point: ResumePoint
    globals: dict[str, Any]
    names: tuple[str, str]  # of the generator: its name, its qualified name


class Suspended(ItsOwnIterator):
    """A generator of the program that stands at a `yield`: its state, until it is first advanced by Python itself.

    Where `revived` stands for it (`revive`), compiled code advances it by `become`.
    """

    __slots__ = ("cells", "generator", "live", "place", "values")

    def __init__(
        self, place: Place | None = None, cells: tuple[types.CellType, ...] = (), values: tuple[Any, ...] = ()
    ) -> None:
        self.place = place  # None: it is running
        self.cells = cells
        self.values = values
        self.generator: Generator[Any, Any, Any] | None = None
        self.live = True  # until an entry goes on from here

    def __del__(self) -> None:
        """A generator that is dropped is closed."""
        if self.live and self.generator is None and self.place is not None:
            self.start().close()

    def __next__(self) -> Any:
        return next(self.start())

    def send(self, value: Any) -> Any:
        return self.start().send(value)

    def throw(self, error: BaseException) -> Any:
        try:
            return self.start().throw(error)
        finally:  # a cycle of it, its traceback and this frame would keep what the generator holds
            del error

    def start(self) -> Generator[Any, Any, Any]:
        """The generator itself."""
        if self.generator is not None:
            return self.generator
        place = self.place
        if place is None:
            raise ValueError("generator already executing")
        make = types.FunctionType(generator_code(place.point), place.globals, place.names[0], None, self.cells or None)
        self.generator = made = make(*with_generators(self.values))
        next(made)  # the `yield` that the traced program has done
        self.values = ()
        return made  # type: ignore[no-any-return]

    def become(self, now: Suspended) -> None:
        """Take over the state of another."""
        now.live = False
        self.place, self.cells, self.values, self.generator = now.place, now.cells, now.values, now.generator


is_carried, _is_suspended = exactly(Carried), exactly(Suspended)
_STATES: weakref.WeakKeyDictionary[Generator[Any, Any, Any], Suspended] = weakref.WeakKeyDictionary()


def revive(state: Suspended, name: str, qualified_name: str) -> Generator[Any, Any, Any]:
    """A generator object that stands for the state, for all who refer to it."""
    made: Any = polyfills.revived(state)
    next(made)
    made.__name__, made.__qualname__ = name, qualified_name
    _STATES[made] = state
    return made  # type: ignore[no-any-return]


def state_of(generator: Any) -> Suspended | None:
    """What `revive` made the generator of."""
    return _STATES.get(generator)


def put(generator: Any, now: Any) -> None:
    """What has become of a revived generator: a `Carried` or generator where it stands, or None at its end."""
    if is_carried(now):
        _STATES[generator].become(now.real)
    else:
        _STATES[generator].generator = now or finished()


def running(generator: Any) -> None:
    """A break is in the body of the revived generator: it runs."""
    _STATES[generator].become(Suspended())


def with_generators(values: Iterable[Any]) -> list[Any]:
    """The values for code that runs eagerly: carried generators as what they are."""
    return [v.real.start() if is_carried(v) and _is_suspended(v.real) else v for v in values]


def end_of(value: Any) -> StopIteration:
    """What a generator that returns `value` raises: it has no argument for None."""
    return StopIteration() if value is None else StopIteration(value)


def one_step(generator: Generator[Any, Any, Any]) -> tuple[Any, ...]:
    """(what it yields, the generator), or (what it returns,)."""
    try:
        return next(generator), generator
    except StopIteration as stop:
        return (stop.value,)


def stepped(step: Callable[[], tuple[Any, ...]], generator: Any = None) -> tuple[Any, Any]:
    """(item, iterator) of a generator's frame that goes on behind a break; its end as StopIteration.

    `generator`: the revived one, if others refer to it."""
    found: tuple[Any, ...] | None = None
    try:
        found = next(_without_caller(step))
    finally:
        if generator is not None:
            put(generator, found[1] if found is not None and len(found) == 2 else None)
    if len(found) == 1:
        raise end_of(found[0])
    return found[0], generator or found[1]


def _without_caller(step: Callable[[], tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """What the step gives. A suspended generator's frame has no caller, and neither have those that it called: a traceback
    that the program's generator keeps would hold, through callers, the generator."""
    yield step()


_places: dict[tuple[Any, ...], Place] = {}


def place_of(point: ResumePoint, globals_: dict[str, Any], names: tuple[str, str]) -> Place:
    """The one object for the place, which guards can compare."""
    key = (id(point.code), point.offset, point.stack, point.locals, id(globals_), names)
    found = _places.get(key)
    if found is None:
        found = _places[key] = Place(point, globals_, names)
    return found


def finished() -> Generator[Any, Any, Any]:
    """A generator at its end."""
    nothing: tuple[Any, ...] = ()
    made = (value for value in nothing)
    next(made, None)
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Carry:
    """Marks a stack value of a trace that is to become a `Carried`. `is_next`: the break is before its next item."""

    real: Any
    is_next: bool = False


@source_class
class StateSource(ChainedSource):
    """The state of the revived generator `parent`."""

    text = "{function}({parent})"
    words = "{parent}"
    function = state_of
