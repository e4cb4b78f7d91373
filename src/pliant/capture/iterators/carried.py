"""Iterators of loops as a trace sees them, carried across a graph break so that the code behind it goes on with them.

In:     iterators on a loop's place of the stack that nothing else alive refers to.
Out:    `can_be_carried`; `bring` makes traced iterators again of what was (`suspended.Carried`).
Holds:  iterators over one container are read and advanced as `standing_iterators` says, so others may refer to them; those
        that are made of such are made again behind the next break. Items are read one at a time, by their distance from the
        current one, so that one entry serves every turn of a loop. A graph that has all turns of a loop that varies serves one
        number of them: it breaks before the loop, or before its next turn, and the turns are a graph of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from pliant.capture.graph_breaks import GraphBreak, StartAgain
from pliant.capture.iterators.standing_iterators import (
    CHANGED,
    END,
    OF_DICTS,
    OF_ORDERED,
    OF_SETS,
    PLAIN_ITERATORS,
    ContainerSource,
    ItsOwnIterator,
    LeftSource,
    PeekSource,
    ReducedSource,
    container_of,
    left_of,
    peek,
    place,
    reduced,
    set_state,
)
from pliant.capture.iterators.suspended import Carried, Carry
from pliant.capture.signatures import Frame, Tracer
from pliant.capture.value_kinds import concrete, exactly, is_list, is_symbolic, is_tensor
from pliant.graph.fake_tensor import is_fake
from pliant.graph.unbacked import is_unbacked
from pliant.guards.kinds import Kind
from pliant.guards.sources import ItemSource, IteratorSource, LengthSource, Source, held
from pliant.records import dataclass

_SEQUENCES = (list, tuple, range, str, bytes)


class CarriedItems(ItsOwnIterator):
    """An iterator from outside over a container's items, which are read as they are needed. An effect of the trace lets
    the real one stand where the trace has left it.

    `turns`: how many items the trace may take yet, since the number of items varies; the graph breaks before the next.
    `is_new`: no such iterator exists yet; `source` says how it is made.
    """

    def __init__(self, t: Tracer, real: Any, source: Source, turns: int | None = None, is_new: bool = False) -> None:
        self.turns = turns
        self.tracer = t
        self.world = t.world
        self.real = real
        self.source = source
        self.is_new = is_new
        self.steps = 0
        self.ended = False
        self.container: Any = container_of(real) if is_new else None  # where it is known from the start

    def __next__(self) -> Any:
        if self.ended:
            raise StopIteration
        found = self._item(self.steps)  # if this breaks, nothing was advanced
        self.tracer.steps += 1  # if the operation breaks later, it did not break before it did anything
        if found is END:
            self.ended = True
            raise StopIteration
        if found is CHANGED:
            raise RuntimeError(_CHANGED_SIZE.get(type(self.real), _DICT_CHANGED))
        self.steps += 1
        return found

    def _item(self, distance: int) -> Any:
        """The item that many steps away, under guards, END or CHANGED."""
        world = self.world
        if self.container is None:
            self.container = self._known_container()
        if self.container is not None and world.has_changes(self.container):
            return self._known_item(distance)
        if self.is_new and not is_list(self.container):  # by its own places, which the program may read, too
            world.guard(LeftSource(self.source), Kind.EQUALS, left_of(self.real))
            left = distance < left_of(self.real)
            return self.tracer.call(list.__getitem__, (self.container, self.index_of(distance)), {}) if left else END
        found = peek(self.real, distance)
        if found is END or found is CHANGED:
            world.guard(PeekSource(self.source, distance), Kind.IDENTITY, found)
            return found
        item = PeekSource(self.source, distance)
        if is_counted(self):
            world.inputs.policy.note_varies(item, int)
        return world.resolve(world.bring(found, item))

    def index_of(self, distance: int) -> int:
        _, index, step = place(self.real)
        return index + distance * step

    def _known_container(self) -> Any:
        """What the trace may change, or has changed, meanwhile."""
        container = container_of(self.real)
        if container is not None:
            self.world.bring(container, ContainerSource(self.source))
        return container

    def _known_item(self, distance: int) -> Any:
        """From a container that the trace has read as a whole, or has changed."""
        world, real = self.world, self.container
        added = world.unread_additions(real)
        left = left_of(self.real)
        if added and type(self.real) is _FORWARD and distance < left:
            return world.resolve(world.bring(peek(self.real, distance), PeekSource(self.source, distance)))
        world.guard(LeftSource(self.source), Kind.EQUALS, left)
        if (now := world.contents(real)) is None:
            now = world.adopt(real)
        if isinstance(real, list):
            index = self.index_of(distance)
            world.guard(LengthSource(ContainerSource(self.source)), Kind.EQUALS, len(place(self.real)[0]))
            return now[index] if 0 <= index < len(now) else END
        if len(now) != len(real):
            return CHANGED
        if any(a is not b for a, b in zip(now, real, strict=True)):
            raise GraphBreak("unknown-object", f"the keys of a {type(real).__name__} change while it is iterated over")
        made = _MADE_AGAIN[type(self.real)](now)
        return next(itertools.islice(made, len(real) - left + distance, None), END)


def _over_changed(container: Any) -> NoReturn:
    raise GraphBreak("unknown-object", "an ordered dict changes while it is iterated over")


# An iterator of the class, over other contents.
_MADE_AGAIN: dict[type, Callable[[Any], Iterator[Any]]] = {**OF_DICTS, OF_SETS: iter, OF_ORDERED: _over_changed}
_FORWARD: type = type(iter([]))
_COUNTING: type = type(iter(range(0)))
_DICT_CHANGED = "dictionary changed size during iteration"
_CHANGED_SIZE = {OF_SETS: "Set changed size during iteration", OF_ORDERED: "OrderedDict mutated during iteration"}


@dataclass(eq=False)
class Numbered(ItsOwnIterator):
    """`enumerate` whose count may be symbolic."""

    items: Any
    count: Any

    def __next__(self) -> Any:
        item = next(self.items)
        count, self.count = self.count, self.count + 1
        return count, item


@dataclass(eq=False)
class CountedTurns(ItsOwnIterator):
    """`range(start, stop, step)` for a loop whose number of turns varies: it is asked at each turn whether there is one more.
    A trace takes `turns`, and breaks before the next; None: as many as it comes to before it breaks elsewhere."""

    start: Any
    stop: Any
    step: int
    steps: int = 0
    turns: int | None = 1
    is_new: bool = True

    def __next__(self) -> Any:
        number = self.start + self.steps * self.step
        if not concrete(number < self.stop if self.step > 0 else number > self.stop):
            raise StopIteration
        self.steps += 1
        return number


class DequeItems(ItsOwnIterator):
    """An iterator over a deque of the trace's. Whether the deque was changed meanwhile, only the real one knows."""

    def __init__(self, container: Any) -> None:
        self.container = container
        self.real = iter(container)
        self.taken = 0

    def __next__(self) -> Any:
        item = next(self.real)
        self.taken += 1
        return item


TRACED = (CarriedItems, Numbered, CountedTurns, DequeItems)
BY_TURN = (CarriedItems, CountedTurns)


def own_items(t: Tracer, items: list[Any], turns: int | None = None, method: str = "__iter__") -> Any:
    """Iterates over a list from outside that the trace does not copy: one of a class of the program's, whatever its
    methods, or one whose length varies, in a loop that takes so many turns at a time."""
    source = t.world.source_of(items)
    assert source is not None
    if method == "__reversed__" and (held_here := t.world.changed_contents(items)) is not None:  # from its end, as it is now
        if t.world.python_function(type(items), method) is not None:
            raise GraphBreak("unknown-object", f"a changed {type(items).__name__} from outside is read backwards")
        return reversed(held_here)
    return CarriedItems(t, getattr(list, method)(items), IteratorSource(source, method), turns, is_new=True)


def is_counted(iterator: Any) -> bool:
    """Whether it gives the numbers of a range, each turn another one."""
    if _is_list_carried(iterator):
        return is_counted(iterator.real)
    return _is_counted(iterator)


def by_turn(iterator: Any) -> list[Any]:
    """Those of the iterators that a step advances whose steps may be counted."""
    if _is_by_turn(iterator):
        return [iterator]
    parts = parts_of(iterator) if _is_item_by_item(iterator) else ()
    return [one for part in parts for one in by_turn(part)]


# What iterators take their items from.
_TAKES_FROM: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Numbered: lambda iterator: (iterator.items,),
    zip: lambda iterator: iterator.__reduce__()[1],
    **dict.fromkeys((enumerate, itertools.groupby), lambda iterator: reduced(iterator)[1][:1]),
    **dict.fromkeys((map, filter), lambda iterator: iterator.__reduce__()[1][1:]),
}
_is_item_by_item = exactly(Numbered, zip, enumerate, map)  # one of each for one of theirs
_is_by_turn = exactly(*BY_TURN)
_is_list_carried = exactly(CarriedItems, Carry)
_is_counted = exactly(CountedTurns, _COUNTING)


def parts_of(iterator: Any) -> tuple[Any, ...]:
    """What it takes its items from."""
    return _TAKES_FROM.get(type(iterator), lambda iterator: ())(iterator)


def bring_back(t: Tracer, value: Carried, source: Source) -> Any:
    """The traced form of what was carried over a break; `source` is that of its iterator."""
    iterator = bring(t, value.real, source)
    for part in by_turn(iterator) if value.turns is not None else ():
        part.turns = value.turns
    return iterator


def bring(t: Tracer, real: Any, source: Source) -> Any:
    """The traced form of an iterator that a loop owns."""
    make = BRING.get(type(real))
    if make is None:
        raise GraphBreak("unknown-object", f"an iterator from outside ({type(real).__name__}) is advanced")
    t.world.guard(source, Kind.TYPE, type(real))
    return make(t, real, source)


def _plain(t: Tracer, real: Any, source: Source) -> Any:
    t.world.bring(real, source)
    return standing(t, real)


def standing(t: Tracer, real: Any) -> Any:
    """The traced form of an iterator over a container from outside."""
    known = t.standing.get(id(real))
    if known is None:
        source = t.world.source_of(real)
        assert source is not None
        known = t.standing[id(real)] = CarriedItems(t, real, source)
    return known


def shared(t: Tracer, real: Any) -> Any:
    """The traced form of an iterator from outside that others may refer to, too; itself if it has none."""
    source = t.world.source_of(real)
    if source is None or not _has_no_more_state(real):
        return real
    return BRING[type(real)](t, real, source)


def _has_no_more_state(real: Any) -> bool:
    """Whether the state of the iterator is that of plain ones that it is made of."""
    return type(real) in SHARED and all(map(_has_no_more_state, parts_of(real)))


def _place_of_part(source: Source, index: int) -> Source:
    return ItemSource(ItemSource(ReducedSource(source), 1), index)


def _part(t: Tracer, real: Any, source: Source, index: int) -> Any:
    part = reduced(real)[1][index]
    place = _place_of_part(source, index)
    if type(part) in BRING:
        return bring(t, part, place)
    brought = t.world.bring(part, place)
    return HELD_BY_OTHERS[type(part)].brought(t, brought) if type(part) in HELD_BY_OTHERS else brought


def _all_parts(t: Tracer, real: Any, source: Source) -> list[Any]:
    made = reduced(real)
    t.world.guard(ReducedSource(source), Kind.LENGTH, len(made))
    t.world.guard(ItemSource(ReducedSource(source), 1), Kind.LENGTH, len(made[1]))
    return [_part(t, real, source, i) for i in range(len(made[1]))]


def _numbered(t: Tracer, real: Any, source: Source) -> Any:
    t.inputs.policy.note_varies(_place_of_part(source, 1), int)
    return Numbered(_part(t, real, source, 0), _part(t, real, source, 1))


def _made_of_parts(t: Tracer, real: Any, source: Source) -> Any:
    """Of the class, made of what it takes its items from and calls."""
    parts, given = _all_parts(t, real, source), reduced(real)
    place, make = _CALLS.get(type(real), (0, _as_it_is))
    if parts[place] is not None:
        parts[place] = make(t, parts[place])
    if type(real) is zip:
        return zip(*parts, strict=len(given) > 2)
    made = type(real)(*parts)
    for state in given[2:]:  # it stands at a group
        place_of_state = ItemSource(ReducedSource(source), 2)
        set_state(made, tuple([t.world.bring(v, ItemSource(place_of_state, i)) for i, v in enumerate(state)]))
    return made


def _as_it_is(t: Tracer, part: Any) -> Any:
    return part


def _called(t: Tracer, function: Any) -> Any:
    return t.reentrant(function)


def _asked(t: Tracer, function: Any) -> Any:
    return t.reentrant(function, truth=True)


def _grouping(t: Tracer, function: Any) -> Any:
    return t.grouping(function)


# Where among its parts an iterator has what it calls, and what stands for that in the trace.
_CALLS: dict[type, tuple[int, Callable[[Tracer, Any], Any]]] = {map: (0, _called), filter: (0, _asked), itertools.groupby: (1, _grouping)}
# How each type of iterator is brought; `generators` adds a row.
BRING: dict[type, Callable[[Tracer, Any, Source], Any]] = {
    **dict.fromkeys(PLAIN_ITERATORS, _plain),
    enumerate: _numbered,
    **dict.fromkeys((zip, map, filter, itertools.groupby), _made_of_parts),
}
@dataclass(frozen=True, slots=True)
class Held:
    """Of a type of what such iterators take their items from, and others may refer to: whether the trace leaves one so that
    code behind a break can go on with it, and its traced form there."""

    can_go_on: Callable[[Any], bool]
    brought: Callable[[Tracer, Any], Any]


HELD_BY_OTHERS: dict[type, Held] = {}  # `generators` adds rows
# Those that have no state of their own beside that of their parts.
SHARED = frozenset((*PLAIN_ITERATORS, zip, map, filter))


def can_be_carried(value: Any, times_reached: Callable[[Any], int], is_next: bool = False) -> bool:
    """Whether only the loop refers to the iterator and to those that it is made of. `is_next`: the code at the break advances
    it, and what that gives refers to a `groupby`."""
    cls = type(value)
    if cls not in BRING and cls not in TRACED or times_reached(value) != 1 or is_next and cls is itertools.groupby:
        return False
    if cls in _TAKES_FROM:
        return all(_can_go_on(part) or can_be_carried(part, times_reached, is_next) for part in _TAKES_FROM[cls](value))
    return cls in BY_TURN or cls is not DequeItems and _is_over_sequence(value)


def _can_go_on(part: Any) -> bool:
    return type(part) in HELD_BY_OTHERS and HELD_BY_OTHERS[type(part)].can_go_on(part)


def _is_over_sequence(iterator: Any) -> bool:
    return type(iterator) in (*OF_DICTS, OF_ORDERED, OF_SETS) or type(place(iterator)[0]) in _SEQUENCES


# ---- loops that turn as often as something varies
# What stands between a comprehension's iterator and its first turn, from Python 3.12 on.
_PREPARING = frozenset(("LOAD_FAST_AND_CLEAR", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "SWAP"))
_FARTHEST = 24


def begins_next(frame: Frame, ahead: int = 0) -> bool:
    """Whether the next operations, or those that many behind them, let a loop begin that takes what is made now, or hand it to a
    comprehension."""
    first = frame.ip + ahead
    return _begins([op.name for op in frame.program.ops[first : first + _FARTHEST]])


def _begins(names: list[str]) -> bool:
    if names[:1] != ["GET_ITER"]:
        return False
    return next((name for name in names[1:] if name not in _PREPARING), None) in ("FOR_ITER", "CALL")


def all_turns(t: Tracer, numbers: Iterator[Any], place: Source) -> Iterator[Any]:
    """What a loop goes through whose number of turns is guarded: remembered, for a break in its body."""
    t.counted[id(numbers)] = numbers, place
    return numbers


def is_of_a_loop(t: Tracer, value: Any) -> bool:
    """Whether it was made for a loop alone."""
    return type(value) is CountedTurns or id(value) in t.counted


def count_by_turn(t: Tracer, frames: Iterable[Frame]) -> None:
    """Where the frames break inside loops that were taken to have so many turns, start again: behind the break the turns are
    counted one by one, so what comes before it need not say how many there are. So for loops over what cannot be carried."""
    made = t.counted | t.looped
    values = [one for frame in frames for value in frame.saved for one in (value, *parts_of(value))]
    broken = [made[id(value)][1] for value in values if id(value) in made]
    if broken and t.inputs.policy.may_break:
        loops = t.inputs.policy.broken_loops
        raise StartAgain(lambda: loops.update(broken))


def place_of(frame: Frame) -> Source:
    """What policies remember of a loop that is made here."""
    return held(frame.code, f"the loop at {frame.op.offset}")


def refuse_varying_rows(frame: Frame, *iterated: Any) -> None:
    """Break before a loop over a tensor whose number of rows has had several values."""
    if not _ends_in_a_loop(frame):
        return
    for rows in iterated:
        if is_fake(rows) and rows.dim() and is_symbolic(rows.size_[0]) and not is_unbacked(rows.size_[0]):
            turns = rows.size_[0].node.require_hint()
            if frame.tracer.inputs.policy.turns_vary(place_of(frame), turns):
                raise GraphBreak("varying-length", "a loop over the rows of a tensor whose number varies")


def by_turns(frame: Frame, value: Any) -> Any:
    """What a loop that begins next takes the items of: of a list from outside whose length varies, one at a turn."""
    world = frame.tracer.world
    if world.length_varies(value, is_long=True):
        value = world.adopt(value, looped=True)
    return own_items(frame.tracer, value, turns=1) if world.varies(value) else value


def in_turn(frame: Frame, value: Any) -> Any:
    """`by_turns`, for what takes its items where a loop over that begins next."""
    return by_turns(frame, value) if _ends_in_a_loop(frame) else value


def _ends_in_a_loop(frame: Frame) -> bool:
    """Whether a loop takes what is made now, or what takes its items, as zip and enumerate do."""
    names = [op.name for op in frame.program.ops[frame.ip - 1 : frame.ip + _FARTHEST]]
    called = next((i for i, name in enumerate(names) if name != "CALL"), len(names))
    return _begins(names[called:])


def has_had_its_turn(t: Tracer, iterator: Any) -> bool:
    """Whether the trace breaks before the next item, since the number of items varies."""
    parts = by_turn(iterator)
    for part in parts:
        if part.turns is None and not (part.steps or part.is_new):
            part.turns = 1 if _is_one_of_many(t, part) else None
    return any(part.turns == part.steps for part in parts)


def _is_one_of_many(t: Tracer, iterator: CarriedItems) -> bool:
    """Whether the number of items that are left has often been another one here."""
    if peek(iterator.real, 0) is CHANGED:
        return False
    items, _, _ = place(iterator.real)
    policy = t.world.inputs.policy
    if isinstance(items, list):
        return bool(policy.length_varies(iterator.source, left_of(iterator.real)))
    # Rows of a tensor: how many are left tells where the graph broke. Of few numbers of them each has its graph.
    rows = isinstance(items, tuple) and all(map(is_tensor, items))
    return rows and bool(policy.turns_vary(iterator.source, len(items)))


def turns_left(carry: Carry) -> int | None:
    """What code behind the break may take: nothing where the break itself takes an item."""
    counted = any(part.turns is not None for part in by_turn(carry.real))
    return int(not carry.is_next) if counted else None
