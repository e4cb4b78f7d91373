"""Iterators of loops, and generators, carried across a graph break so that the code behind it goes on with them.

In:     iterators on a loop's place of the stack, and the program's generators in locals, that nothing else alive refers
        to.
Out:    `Carried` objects, which the entry puts there in their place; `bring` makes traced iterators of them again.
Holds:  only the loop sees a `Carried` (`with_generators` where a local's is to be used). Its state is read through
        `__reduce__` and never changed by a trace: what goes on behind the next break is a new one. Items are read one
        at a time, by their distance from the current one, so that one entry serves every turn of a loop.
"""

from __future__ import annotations

import collections
import itertools
import types
import weakref
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pliant.capture import spelled_out
from pliant.capture.bytecode.resume import ResumePoint, generator_code
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.value_kinds import concrete
from pliant.guards.kinds import Kind
from pliant.guards.sources import ChainedSource, ItemSource, IteratorSource, Source, source_class

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

# Iterators over the items of one container.
PLAIN_ITERATORS: tuple[type, ...] = (
    type(iter([])),
    type(iter(())),
    type(iter(range(0))),
    type(iter(range(1 << 70))),
    type(iter({})),
    type(iter({}.values())),
    type(iter({}.items())),
    type(iter(set())),
    type(iter("")),
    type(iter("é")),
    type(iter(b"")),
    type(reversed([])),
    reversed,
)
_SEQUENCES = (list, tuple, range, str, bytes)
END = object()


class Carried:
    """A loop's iterator. `real` is one of Python's own, or a `Suspended`. `turns`: see `CarriedItems`."""

    __slots__ = ("real", "turns")

    def __init__(self, real: Any, turns: int | None = None) -> None:
        self.real = real
        self.turns = turns

    def __iter__(self) -> Carried:
        return self

    def __next__(self) -> Any:
        return next(self.real)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A `yield` in a generator function at which a generator of the program may stand."""

    point: ResumePoint
    globals: dict[str, Any]
    name: str


class Suspended:
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

    def __iter__(self) -> Suspended:
        return self

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
        make = types.FunctionType(generator_code(place.point), place.globals, place.name, None, self.cells or None)
        self.generator = made = make(*with_generators(self.values))
        next(made)  # the `yield` that the traced program has done
        self.values = ()
        return made  # type: ignore[no-any-return]

    def become(self, now: Any) -> None:
        """Take over the state of a `Suspended`, or a generator."""
        if isinstance(now, Suspended) and now.generator is None:
            now.live = False
            self.place, self.cells, self.values, self.generator = now.place, now.cells, now.values, None
        else:
            self.generator = now.generator if isinstance(now, Suspended) else now


_STATES: weakref.WeakKeyDictionary[Generator[Any, Any, Any], Suspended] = weakref.WeakKeyDictionary()


def revive(state: Suspended) -> Generator[Any, Any, Any]:
    """A generator object that stands for the state, for all who refer to it."""
    made: Any = spelled_out.revived(state)
    next(made)
    made.__name__ = made.__qualname__ = state.place.name.rpartition(".")[2] if state.place is not None else "generator"
    _STATES[made] = state
    return made  # type: ignore[no-any-return]


def state_of(generator: Any) -> Suspended | None:
    """What `revive` made the generator of."""
    return _STATES.get(generator)


def put(generator: Any, now: Any) -> None:
    """What has become of a revived generator: a `Carried` or generator where it stands, or None at its end."""
    _STATES[generator].become(now.real if type(now) is Carried else now or finished())


def running(generator: Any) -> None:
    """A break is in the body of the revived generator: it runs."""
    _STATES[generator].become(Suspended())


def with_generators(values: Iterable[Any]) -> list[Any]:
    """The values for code that runs eagerly: carried generators as what they are."""
    return [v.real.start() if type(v) is Carried and type(v.real) is Suspended else v for v in values]


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
        found = step()
    except StopIteration as error:
        raise RuntimeError("generator raised StopIteration") from error
    finally:
        if generator is not None:
            put(generator, found[1] if found is not None and len(found) == 2 else None)
    if len(found) == 1:
        raise end_of(found[0])
    return found[0], generator or found[1]


_places: dict[tuple[Any, ...], Place] = {}


def place_of(point: ResumePoint, globals_: dict[str, Any], name: str) -> Place:
    """The one object for the place, which guards can compare."""
    key = (id(point.code), point.offset, point.stack, point.locals, id(globals_), name)
    found = _places.get(key)
    if found is None:
        found = _places[key] = Place(point, globals_, name)
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

    value: Any
    is_next: bool = False


# ---- what generated code calls
def _place(iterator: Any) -> tuple[Any, int, int]:
    """(sequence, index of the next item, step)"""
    made = iterator.__reduce__()
    if len(made) == 2:  # at its end, or a copy of what is left
        return made[1][0], 0, 1
    return made[1][0], made[2] or 0, -1 if made[0] is reversed else 1


def peek(iterator: Any, distance: int) -> Any:
    """The item that so many steps from now will give, or END."""
    items, index, step = _place(iterator)
    index += distance * step
    if isinstance(items, list):
        return list.__getitem__(items, index) if 0 <= index < list.__len__(items) else END
    return items[index] if 0 <= index < len(items) else END


def advanced(iterator: Any, count: int) -> Any:
    """A copy of the iterator, so many steps further."""
    made = iterator.__reduce__()
    copy = made[0](*made[1])
    if len(made) > 2 and made[2] is not None:
        copy.__setstate__(made[2])
    collections.deque(itertools.islice(copy, count), maxlen=0)
    return copy


@source_class
class ReducedSource(ChainedSource):
    """parent.__reduce__() of one of Python's own iterators."""

    text = "{parent}.__reduce__()"
    words = "{parent}"


@source_class
class PeekSource(ChainedSource):
    """The item of the iterator `parent` that is `distance` steps away."""

    distance: int
    text = "{function}({parent}, {self.distance})"
    words = "item {self.distance} of {parent}"
    function = peek


@source_class
class StateSource(ChainedSource):
    """The state of the revived generator `parent`."""

    text = "{function}({parent})"
    words = "{parent}"
    function = state_of


# ---- traced forms
class CarriedItems:
    """An iterator from outside over a container's items, which are read as they are needed.

    `turns`: how many items the trace may take yet, since the number of items varies; the graph breaks before the next.
    """

    def __init__(self, t: Tracer, real: Any, source: Source, turns: int | None = None) -> None:
        self.turns = turns
        self.tracer = t
        self.world = t.world
        self.real = real
        self.source = source
        self.steps = 0

    def __iter__(self) -> CarriedItems:
        return self

    def __next__(self) -> Any:
        found = self._item(self.steps)  # if this breaks, nothing was advanced
        self.steps += 1
        self.tracer.steps += 1  # if the operation breaks later, it did not break before it did anything
        if found is END:
            raise StopIteration
        return found

    def _item(self, distance: int) -> Any:
        """The item that many steps away, under guards, or END."""
        world = self.world
        items, index, step = _place(self.real)
        if isinstance(items, list) and (world.is_adopted(items) or world.has_changes(items)):
            return self._known_item(items, index + distance * step)
        found = peek(self.real, distance)
        if found is END:
            world.guard(PeekSource(self.source, distance), Kind.IDENTITY, END)
            return END
        return world.resolve(world.bring(found, PeekSource(self.source, distance)))

    def _known_item(self, items: list[Any], index: int) -> Any:
        """From a list that the trace read as a whole, or has changed."""
        world, reduced = self.world, ReducedSource(self.source)
        world.guard(ItemSource(reduced, 2), Kind.EQUALS, self.real.__reduce__()[2])
        items = world.adopt(world.bring(items, ItemSource(ItemSource(reduced, 1), 0)))
        return items[index] if 0 <= index < len(items) else END


class Numbered:
    """`enumerate` whose count may be symbolic."""

    def __init__(self, items: Any, count: Any) -> None:
        self.items = items
        self.count = count

    def __iter__(self) -> Numbered:
        return self

    def __next__(self) -> Any:
        item = next(self.items)
        count, self.count = self.count, self.count + 1
        return count, item


class CountedTurns:
    """`range(start, stop, step)` for a loop whose number of turns varies: a trace takes one, and breaks before the next."""

    turns = 1

    def __init__(self, start: Any, stop: Any, step: int) -> None:
        self.start, self.stop, self.step = start, stop, step
        self.steps = 0

    def __iter__(self) -> CountedTurns:
        return self

    def __next__(self) -> Any:
        if not concrete(self.start < self.stop if self.step > 0 else self.start > self.stop):
            raise StopIteration
        self.steps += 1
        return self.start


TRACED = (CarriedItems, Numbered, CountedTurns)
BY_TURN = (CarriedItems, CountedTurns)


def items_by_turn(t: Tracer, items: list[Any]) -> CarriedItems:
    """What a loop over a list iterates whose length varies."""
    source = t.world.source_of(items)
    assert source is not None
    return CarriedItems(t, iter(items), IteratorSource(source), turns=1)


def has_had_its_turn(iterator: Any) -> bool:
    return type(iterator) in BY_TURN and iterator.turns == iterator.steps


def turns_left(carry: Carry) -> int | None:
    """What code behind the break may take: nothing where the break itself takes an item."""
    by_turn = type(carry.value) in BY_TURN and carry.value.turns is not None
    return int(not carry.is_next) if by_turn else None


def bring_back(t: Tracer, value: Carried, source: Source) -> Any:
    """The traced form of what was carried over a break; `source` is that of its iterator."""
    iterator = bring(t, value.real, source)
    if type(iterator) is CarriedItems:
        iterator.turns = 1 if value.turns is None and _is_one_of_many(t, iterator) else value.turns
    return iterator


def _is_one_of_many(t: Tracer, iterator: CarriedItems) -> bool:
    """Whether the number of items that are left has often been another one here."""
    items, index, step = _place(iterator.real)
    left = len(items) - index if step > 0 else index + 1
    policy = t.world.inputs.policy
    return isinstance(items, list) and bool(policy.length_varies(iterator.source, left))


def bring(t: Tracer, real: Any, source: Source) -> Any:
    """The traced form of an iterator that a loop owns."""
    world, cls = t.world, type(real)
    world.guard(source, Kind.TYPE, cls)
    make = BRING.get(cls)
    if make is None:
        raise GraphBreak("unknown-object", f"an iterator from outside ({cls.__name__}) is advanced")
    return make(t, real, source)


def _part(t: Tracer, real: Any, source: Source, index: int) -> Any:
    part = real.__reduce__()[1][index]
    place = ItemSource(ItemSource(ReducedSource(source), 1), index)
    return bring(t, part, place) if type(part) in BRING else t.world.bring(part, place)


def _all_parts(t: Tracer, real: Any, source: Source) -> list[Any]:
    reduced = real.__reduce__()
    t.world.guard(ReducedSource(source), Kind.LENGTH, len(reduced))
    t.world.guard(ItemSource(ReducedSource(source), 1), Kind.LENGTH, len(reduced[1]))
    return [_part(t, real, source, i) for i in range(len(reduced[1]))]


def _numbered(t: Tracer, real: Any, source: Source) -> Any:
    return Numbered(_part(t, real, source, 0), _part(t, real, source, 1))


def _zipped(t: Tracer, real: Any, source: Source) -> Any:
    return zip(*_all_parts(t, real, source), strict=len(real.__reduce__()) > 2)


def _mapped(t: Tracer, real: Any, source: Source) -> Any:
    function, *items = _all_parts(t, real, source)
    return map(t.reentrant(function), *items)


def _filtered(t: Tracer, real: Any, source: Source) -> Any:
    function, items = _all_parts(t, real, source)
    return filter(function if function is None else t.reentrant(function, truth=True), items)


# How each type of iterator is brought; `generators` adds a row.
BRING: dict[type, Callable[[Tracer, Any, Source], Any]] = {
    **dict.fromkeys(PLAIN_ITERATORS, CarriedItems),
    enumerate: _numbered,
    zip: _zipped,
    map: _mapped,
    filter: _filtered,
}
_COMPOSITES = frozenset((enumerate, zip, map, filter))


def can_be_carried(value: Any, times_reached: Callable[[Any], int]) -> bool:
    """Whether only the loop refers to the iterator and to those that it is made of."""
    cls = type(value)
    if cls not in BRING and cls not in TRACED or times_reached(value) != 1:
        return False
    if cls is Numbered:
        return can_be_carried(value.items, times_reached)
    if cls in _COMPOSITES:
        first = cls in (map, filter)
        parts = value.__reduce__()[1]
        return all(can_be_carried(p, times_reached) for p in (parts[:1] if cls is enumerate else parts[first:]))
    return cls in BY_TURN or type(_place(value)[0]) in _SEQUENCES
