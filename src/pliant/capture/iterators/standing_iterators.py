"""Python's own iterators as they stand: what they will give, and how they get where a trace has brought them.

In:     real iterators over lists, dicts, sets, tuples, ranges and texts.
Out:    what guards and entries call: `peek`, `container_of`, `step`, `at_left`.
Holds:  reading one changes nothing, so a guard may do it. An iterator over a list stands at an index, whatever becomes of
        the list; one over a dict or set is of no use once the size has changed.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from pliant.capture.value_kinds import ByKind, by_kind, is_tuple
from pliant.guards.sources import ChainedSource, source_class


def _without_warning(call: Callable[[], Any]) -> Any:
    """From Python 3.12 on those of `itertools` warn that they will not be copied by Python 3.14. The filter is of this module
    alone, and stays: a block that puts the filters back would put back those of other threads."""
    first = warnings.filters[0] if warnings.filters else ()
    if getattr((*first, None, None, None, None)[3], "pattern", None) != _HERE:
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=_HERE)
    return call()


_HERE = __name__.replace(".", "[.]") + "$"


def reduced(iterator: Any) -> Any:
    """iterator.__reduce__() of one of Python's own: (function, args[, state])"""
    return _without_warning(iterator.__reduce__) if _warns(iterator) else iterator.__reduce__()


def set_state(iterator: Any, state: Any) -> None:
    """iterator.__setstate__(state)"""
    _without_warning(lambda: iterator.__setstate__(state)) if _warns(iterator) else iterator.__setstate__(state)


def _warns(iterator: Any) -> bool:
    return sys.version_info >= (3, 12) and type(iterator).__module__ == "itertools"


class ItsOwnIterator:
    """No abstract class: asking for one looks at the `__class__` of the program's objects."""

    __slots__ = ()

    def __iter__(self) -> Self:
        return self


def _ways_over(cls: Any) -> tuple[Callable[[Any], Any], ...]:
    """How iterators over a dict of the class are made."""
    return (
        cls.__iter__,
        lambda d: iter(cls.values(d)),
        lambda d: iter(cls.items(d)),
        cls.__reversed__,
        lambda d: reversed(cls.values(d)),
        lambda d: reversed(cls.items(d)),
    )


OF_DICTS: dict[type, Callable[[dict[Any, Any]], Any]] = {type(make({})): make for make in _ways_over(dict)}
# Those of an ordered dict are of one class, however they are made.
OF_ORDERED: type = type(iter(collections.OrderedDict()))
_WAYS: ByKind[tuple[Callable[[Any], Any], ...]] = ByKind(
    tuple(OF_DICTS.values()), families={collections.OrderedDict: _ways_over(collections.OrderedDict)}
)
OF_SETS: type = type(iter(set()))
OF_LISTS: tuple[type, ...] = (type(iter([])), type(reversed([])))
# Iterators over the items of one container, which can be read without being advanced.
PLAIN_ITERATORS: tuple[type, ...] = (
    *OF_LISTS,
    *OF_DICTS,
    OF_ORDERED,
    OF_SETS,
    type(iter(())),
    type(iter(range(0))),
    type(iter(range(1 << 70))),
    type(iter("")),
    type(iter("é")),
    type(iter(b"")),
    reversed,
)
END = object()
CHANGED = object()  # the dict or set has another size than when the loop began


def place(iterator: Any) -> tuple[Any, int, int]:
    """(sequence, index of the next item, step)"""
    made = iterator.__reduce__()
    if len(made) == 2:  # at its end, or a copy of what is left
        return made[1][0], 0, 1
    return made[1][0], made[2] or 0, -1 if made[0] is reversed else 1


def peek(iterator: Any, distance: int) -> Any:
    """The item that so many steps from now will give, END or CHANGED."""
    try:
        items, index, step = place(iterator)
    except RuntimeError:
        return CHANGED
    index += distance * step
    if not 0 <= index < _length(items):
        return END
    return _ITEM_OF.of(items)(items, index)


def left_of(iterator: Any) -> int:
    """How many items are left."""
    items, index, step = place(iterator)
    return max(0, _length(items) - index if step > 0 else index + 1)


_INDEXED: tuple[Any, ...] = (list, tuple, str, bytes, bytearray)
# As iterators see it, whatever `__len__` a class of the program's has.
_length: Callable[[Any], int] = by_kind(len, families={cls: cls.__len__ for cls in _INDEXED})
_ITEM_OF: ByKind[Callable[[Any, int], Any]] = ByKind(operator.getitem, families={cls: cls.__getitem__ for cls in _INDEXED})


def container_of(iterator: Any) -> Any:
    """The list, dict or set whose items it gives; None of one at its end, or of another kind."""
    return next((one for one in gc.get_referents(iterator) if isinstance(one, (list, dict, set))), None)


def step(iterator: Any, count: int) -> None:
    """Advance so far, even if a list does not hold the items any more."""
    items: Any = []
    last = -1
    if type(iterator) in OF_LISTS:
        items, index, direction = place(iterator)
        last = index + count - 1 if direction > 0 else index
    with _reaching(items, last):
        collections.deque(itertools.islice(iterator, count), maxlen=0)


@contextlib.contextmanager
def _reaching(items: Any, last: int) -> Iterator[None]:
    """A block in which a list has an item at the place."""
    missing = last + 1 - _length(items)
    if missing <= 0:
        yield
        return
    list.extend(items, itertools.repeat(None, missing))  # by none of the program's methods
    yield
    list.__delitem__(items, slice(_length(items) - missing, None))


def use_up(iterator: Any) -> None:
    """Advance it past its end."""
    collections.deque(iterator, maxlen=0)


def put_at(iterator: Any, index: int) -> None:
    """Let a new iterator over a list stand at the index; it takes none that lies behind the end."""
    with _reaching(container_of(iterator), index):
        iterator.__setstate__(index)


def way_over(iterator: Any, container: dict[Any, Any]) -> int | None:
    """Of an iterator over a dict or ordered dict: how it was made, by what it has left. None if that is not seen."""
    rest = iterator.__reduce__()[1][0]
    made = [way(container) for way in _WAYS.of(container)]
    alike = [n for n, one in enumerate(made) if type(one) is type(iterator)]
    found = [n for n in alike if same_objects(rest, [*made[n]][len(container) - len(rest) :])]
    # Of one item both directions are alike, but a key that is its own value may be another later.
    return found[0] if found and (not rest or len({n % 3 for n in found}) == 1) else None


def same_objects(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether both hold the same objects, or pairs of them."""
    pairs = list(zip(left, right, strict=False))
    return len(left) == len(right) and all(
        a is b or is_tuple(a) and is_tuple(b) and same_objects(a, b) for a, b in pairs
    )


def over_dict(way: int, container: dict[Any, Any], left: int) -> Iterator[Any]:
    """An iterator over a dict, made that way, with so many items left."""
    made: Iterator[Any] = _WAYS.of(container)[way](container)
    collections.deque(itertools.islice(made, len(container) - left), maxlen=0)
    return made


def at_left(container: Any, left: int, rest: list[Any] | None = None) -> Iterator[Any]:
    """An iterator over the set or deque, with so many items left, which are `rest`."""
    made: Any = iter(container)
    collections.deque(itertools.islice(made, len(container) - left), maxlen=0)
    if rest is not None and made.__reduce__()[1][0] != rest:  # the order of a set depends on its past
        return iter(rest)
    return made  # type: ignore[no-any-return]


@source_class
class ReducedSource(ChainedSource):
    """What one of Python's own iterators, `parent`, is made of."""

    text = "{function}({parent})"
    words = "{parent}"
    function = reduced


@source_class
class PeekSource(ChainedSource):
    """The item of the iterator `parent` that is `distance` steps away."""

    distance: int
    text = "{function}({parent}, {self.distance})"
    words = "item {self.distance} of {parent}"
    function = peek


@source_class
class ContainerSource(ChainedSource):
    """The container whose items the iterator `parent` gives."""

    text = "{function}({parent})"
    words = "what {parent} iterates over"
    function = container_of


@source_class
class LeftSource(ChainedSource):
    """How many items of the iterator `parent` are left."""

    text = "{function}({parent})"
    words = "the number of items left in {parent}"
    function = left_of
