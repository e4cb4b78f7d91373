"""Which sizes and numbers of a compiled function become symbols.

In:     a source and the value seen there, asked by capture for each input of each capture; marks on tensors;
        configuration.
Out:    per dimension "static", "dynamic" or "marked", the last two also as (how, lo, hi); per number "static" or
        "dynamic".
Holds:  automatic mode starts static; what differs from an earlier capture is dynamic from then on, so a value that
        keeps changing costs one recompile; with a size that changes, the first size of its tensor is dynamic too.
        Sizes of parameters and buffers are constants until one is of another size.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.nn.parameter import is_lazy

from pliant import config
from pliant.dispatch.dim_marks import DimMark, marks_of
from pliant.errors import ConstraintError
from pliant.guards.kinds import ConstantItems, Guard, Kind
from pliant.guards.sources import ItemSource, Source
from pliant.records import dataclass

if TYPE_CHECKING:
    from pliant.source import SourceLocation
    from pliant.symbolic.expr import Expr
    from pliant.symbolic.shape_env import ShapeEnv

# "static" | "dynamic" | "marked" (must stay dynamic) | "unbacked", or the same with bounds; or what says the size itself
DimPolicy: TypeAlias = "str | tuple[str, int | None, int | None] | Callable[[ShapeEnv], Expr]"


Served = tuple[Source, tuple[int, ...] | int | float]  # an argument's sizes, or the number that it is


def served(arguments: Iterable[tuple[Source, Any]]) -> list[Served]:
    """What policies remember of a call's arguments."""
    found: list[Served] = []
    for source, value in arguments:
        if isinstance(value, torch.Tensor):
            if not value.is_nested and not is_lazy(value):  # those have no sizes, or none of their own
                found.append((source, tuple(value.shape)))
        elif type(value) in (int, float):
            found.append((source, value))
    return found


@dataclass(slots=True)
class _Seen:
    """Sizes of a tensor at the first capture, and at all so far; None where they differed."""

    first: tuple[int, ...]
    sizes: list[int | None]


@dataclass(slots=True)
class _Stride:
    """A stride at earlier captures, and how often it was the span of the sizes inside it; None where they differed."""

    value: int | None
    times: int | None
    captures: int = 0


@dataclass(slots=True)
class DynamicPolicy:
    """The decisions of one compiled function. `dynamic`: None automatic, True all, False none."""

    dynamic: bool | None = None
    may_break: bool = True  # whether the graph may be broken where lengths of lists vary
    guarded: bool = True  # whether later calls check what a trace relies on; an exported program has no such calls
    _tensors: dict[tuple[Source, int], _Seen] = field(default_factory=dict)
    _strides: dict[tuple[Source, int, int], _Stride] = field(default_factory=dict)
    _numbers: dict[tuple[Source, type], Any] = field(default_factory=dict)
    _elements: dict[Source, set[Any]] = field(default_factory=dict)
    _lengths: dict[Source, set[int]] = field(default_factory=dict)
    _one: set[Source] = field(default_factory=set)
    _same: dict[Source, Source] = field(default_factory=dict)
    objects_apart: bool = False  # whether what two ways led to was one object at one capture and two at another
    _objects_matter: bool = False
    _items: dict[Source, tuple[tuple[int | float | None, ...], set[int]]] = field(default_factory=dict)
    _classes: dict[Source, weakref.ref[type]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)  # what was assumed of numbers that data gives, and did not hold
    outcomes: set[str] = field(default_factory=set)  # branches of which another side was taken than was foreseen
    keys: dict[Source, set[Any]] = field(default_factory=dict)  # made of numbers that vary, of dicts from outside
    lasting: set[str] = field(default_factory=set)  # writes at which the graph breaks: eager could not undo them
    plain_places: set[Source] = field(default_factory=set)  # of ranges and lists whose items are looked at, of hooks
    broken_loops: set[Source] = field(default_factory=set)  # places of loops in whose bodies a graph broke
    _called: bool = False
    _unread: list[Callable[[], Iterable[Guard]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def breaks_at(self, places: frozenset[str]) -> bool:
        """Have the graph break at these writes; False where it does already, or may not."""
        with self._lock:
            known, self.lasting = self.lasting, self.lasting | places
            return self.may_break and known != self.lasting

    def note_call(self, arguments: Iterable[tuple[Source, Any]]) -> bool:
        """Remember sizes and numbers of the first call, which runs eagerly; False if there was one before."""
        if self._called:
            return False
        self._called = True
        self._note_served(served(arguments))
        return True

    def _note_served(self, arguments: Iterable[Served]) -> None:
        """Remember sizes and numbers of a call that is not captured."""
        for source, value in arguments:
            if isinstance(value, tuple):
                self._note_sizes(source, value)
            else:
                self.scalar(source, value)

    def note_found(self, arguments: Iterable[Served], guards: Callable[[], Iterable[Guard]]) -> None:
        """Remember a call that another process' entry serves, and what its guards fix of all that the call leads to."""
        self._note_served(arguments)
        self._unread.append(guards)

    def learn(self) -> None:
        """Read those guards. A capture begins: what it finds otherwise varies, as if this process had captured them."""
        for guards in self._unread:
            for guard in guards():
                if (note := _LEARNT.get(guard.kind)) is not None:
                    note(self, guard.source, guard.expected)
        self._unread.clear()

    def _learn_sizes(self, source: Source, sizes: tuple[int | None, ...]) -> None:
        symbols = frozenset(dim for dim, size in enumerate(sizes) if size is None)
        if symbols:
            self.note_dynamic(source, len(sizes), symbols)
        else:
            self._note_sizes(source, sizes)  # type: ignore[arg-type]

    def _learn_items(self, source: Source, items: ConstantItems) -> None:
        known = {items.place(k): value for k, value in enumerate(items.values)}
        self.varying_items(source, [known.get(place) for place in range(max(known, default=-1) + 1)])

    def tensor_dims(self, source: Source, tensor: torch.Tensor) -> tuple[DimPolicy, ...]:
        """How each dimension enters the graph; remembers the sizes."""
        sizes = tuple(tensor.shape)
        changed = self._note_sizes(source, sizes)
        marks = marks_of(tensor)
        named = self._named_dims(source, len(sizes))
        return tuple(self._dim(n, d in changed or d in named, marks.get(d)) for d, n in enumerate(sizes))

    def held_dims(self, source: Source, tensor: torch.Tensor) -> tuple[DimPolicy, ...]:
        """The same of a module's parameter or buffer: a constant until it is of another size, as a mask that grows, or
        as a module in the place of another.
        """
        changed = self._note_sizes(source, tuple(tensor.shape)) if self._mode() is not False else ()
        return tuple("dynamic" if d in changed and n > 1 else "static" for d, n in enumerate(tensor.shape))

    def _dim(self, size: int, changed: bool, mark: DimMark | None) -> DimPolicy:
        if mark is not None and mark.how != "maybe":
            if mark.how != "static" and not config.get().shapes.symbols:
                raise _marked_without_symbols()
            bounded = mark.lo is not None or mark.hi is not None
            return (mark.how, mark.lo, mark.hi) if bounded else mark.how
        mode = self._mode()
        if mode is False:
            return "static"
        wanted = changed or mode is True or mark is not None
        return "dynamic" if wanted and not (size < 2 and config.get().shapes.specialize_zero_one) else "static"

    def follows_sizes(self) -> bool:
        """Whether a size that changes becomes a symbol."""
        return self._mode() is not False

    def _mode(self) -> bool | None:
        if not config.get().shapes.symbols:
            return False
        if self.dynamic is not None:
            return self.dynamic
        return {"auto": None, "all": True, "off": False}[config.get().shapes.dynamic]

    def _note_sizes(self, source: Source, sizes: tuple[int, ...]) -> frozenset[int]:
        """Dimensions that were not always this size, and with them the first."""
        with self._lock:
            seen = self._tensors.setdefault((source, len(sizes)), _Seen(sizes, list(sizes)))
            seen.sizes = [_merged(old, new) for old, new in zip(seen.sizes, sizes, strict=True)]
            changed = frozenset(d for d, n in enumerate(seen.sizes) if n is None)
            return changed | {0} if changed else changed  # the outermost is a batch in most programs, and costs nothing

    def first_size(self, source: Source, rank: int, dim: int) -> int:
        """The size that the first capture saw, once a capture has."""
        return self._tensors[(source, rank)].first[dim]

    def note_dynamic(self, source: Source, rank: int, dims: frozenset[int]) -> bool:
        """Dimensions that are symbols where the value comes from (a graph before a break, or the call before); whether
        one of them was not known to be."""
        with self._lock:
            seen = self._tensors.setdefault((source, rank), _Seen((_UNSEEN,) * rank, [_UNSEEN] * rank))
            known, seen.sizes = seen.sizes, [None if d in dims else n for d, n in enumerate(seen.sizes)]
            return known != seen.sizes

    def stride(self, source: Source, place: tuple[int, int], value: int, times: int | None) -> str:
        """How a stride with a gap enters, of a tensor whose sizes inside it are symbols: `place` is rank and dimension,
        `times` how often it is what they span. "multiple", "static" or "varies" where earlier captures say so, else
        "dynamic".
        """
        with self._lock:
            seen = self._strides.setdefault((source, *place), _Stride(value, times))
            seen.captures += 1
            seen.value = value if seen.value == value else None
            seen.times = times if seen.times == times else None
            if seen.captures > 1 and seen.times is not None:
                return "multiple"
            if seen.captures > 1 and seen.value is None and self._mode() is not False:
                return "varies"
            return "static" if seen.captures > 1 and seen.value is not None else "dynamic"

    def _count(self, seen: dict[Source, set[Any]], source: Source, value: Any) -> int:
        """How many values captures have seen here, this one too."""
        with self._lock:
            values = seen.setdefault(source, set())
            values.add(value)
            return len(values)

    def length_varies(self, source: Source, length: int) -> bool:
        """Whether a list's length is no constant: it has had others often enough. Long loops are left as they are."""
        may_vary = self.may_break and self.follows_sizes() and length <= _LONGEST_BY_TURN
        return may_vary and self._count(self._lengths, source, length) > _FEW_LENGTHS

    def turns_vary(self, source: Source, turns: int) -> bool:
        """The same of a loop that counts up to a number: without a break in its body each number of turns is one graph."""
        return self.length_varies(source, turns) and self._count(self._lengths, source, turns) > _FEW_TURNS

    def long_varies(self, source: Source, length: int) -> bool:
        """Whether a long list that is used as a whole has had another length: no code is made for each."""
        return length > _LONGEST_BY_TURN and self.may_break and self.length(source, length)

    def length(self, source: Source, length: int) -> bool:
        """Whether the length alone, where the program asks for it, is a symbol."""
        few = _FEW_LENGTHS if length <= _LONGEST_BY_TURN else 1
        return self.follows_sizes() and self._count(self._lengths, source, length) > few

    def keys_vary(self, source: Source, numbers: tuple[Any, ...]) -> bool:
        """Whether a dict has been asked for many keys made of such numbers."""
        return self.may_break and self.follows_sizes() and self._count(self.keys, source, numbers) > _FEW_KEYS

    def class_varies(self, source: Source, cls: type) -> bool:
        """Whether earlier captures saw an object of another class here."""
        with self._lock:
            return self._classes.setdefault(source, weakref.ref(cls))() is not cls

    def varying_items(self, source: Source, values: Sequence[Any]) -> frozenset[int]:
        """Places of a list or tuple at which earlier captures saw other numbers."""
        if self._mode() is False:
            return frozenset()
        with self._lock:
            numbers = tuple(v if type(v) in (int, float) else None for v in values)
            first, places = self._items.setdefault(source, (numbers, set()))
            if first is not numbers:
                pairs = enumerate(zip(first, numbers, strict=False))
                places.update(i for i, (a, b) in pairs if a != b and type(a) is type(b))
            return frozenset(i for i in places if i < len(values))

    def share_lengths(self, source: Source, other: DynamicPolicy, there: Source) -> None:
        """A list that comes from another function's: what lengths it has had is known to both."""
        with self._lock:
            self._lengths[source] = other._lengths.setdefault(there, set())

    def is_one(self, source: Source) -> bool:
        """Whether it mattered at an earlier attempt that this and another source lead to one tensor."""
        return source in self._one

    def note_one(self, sources: Iterable[Source]) -> None:
        with self._lock:
            self._one.update(sources)

    def note_apart(self, left: torch.Tensor, right: torch.Tensor, where: SourceLocation | None) -> None:
        """The program asked whether two inputs are one tensor, and went on as they are not."""

    def note_same(self, source: Source, first: Source) -> bool:
        """An object was another way to one that the capture had met; whether it is the first that was once another's."""
        with self._lock:
            return self._same.setdefault(source, first) != first and self._now_apart()

    def note_own(self, source: Source) -> bool:
        """An object was met for the first time; the same."""
        return source in self._same and self._now_apart()

    def _now_apart(self) -> bool:
        if self.objects_apart or self._objects_matter:
            return False
        self.objects_apart = True
        return True

    def note_objects_matter(self) -> None:
        """It matters which objects are one: they are taken for what they are."""
        self.objects_apart, self._objects_matter = False, True

    def note_varies(self, source: Source, number: type) -> bool:
        """A number, or a text, that is symbolic where it comes from; whether it was not known to be."""
        with self._lock:
            known, self._numbers[(source, number)] = self._numbers.get((source, number)), _VARIES
            return known is not _VARIES

    def text_varies(self, source: Source, text: str) -> bool:
        """Whether earlier captures saw another text here, or it shows numbers that vary where it comes from."""
        with self._lock:
            if self._numbers.setdefault((source, str), text) != text:
                self._numbers[(source, str)] = _VARIES
            return self._numbers[(source, str)] is _VARIES and self._mode() is not False

    def _named_dims(self, source: Source, rank: int) -> frozenset[int]:
        """Dimensions that configuration names: by `x` all, by `x.size(0)` one."""
        names = config.get().shapes.dynamic_sources
        if not names:
            return frozenset()
        base = source.describe()
        return frozenset(range(rank) if _is_named(base) else [d for d in range(rank) if _is_named(f"{base}.size({d})")])

    def element(self, source: Source, value: int | float) -> bool:
        """Whether the element of a 0-d tensor is a number that guards may fix, as it has not often been another one."""
        return self.follows_sizes() and value == value and self._count(self._elements, source, value) <= _FEW_VALUES

    def elements(self, source: Source, values: tuple[Any, ...]) -> bool:
        """Whether the elements of a tensor of integers are numbers that guards may look at, as above."""
        return self.follows_sizes() and self._count(self._elements, source, values) <= _FEW_TENSORS

    def scalar(self, source: Source, value: int | float, configures: bool = False) -> str:
        """Whether a Python number is a constant of the graph or a symbol; remembers the value. `configures`: a module's
        own numbers are symbols only once they change.
        """
        shapes = config.get().shapes
        if shapes.specialize_int if isinstance(value, int) else shapes.specialize_float:
            return "static"
        with self._lock:
            key = (source, type(value))
            first = self._numbers.setdefault(key, value)
            if first is not _VARIES and not (first == value or (first != first and value != value)):
                self._numbers[key] = _VARIES
            varies = self._numbers[key] is _VARIES
        mode = self._mode()
        if mode is False:
            return "static"
        from pliant.guards.parts import root_of  # what finds its entry asks this of no number

        small = isinstance(value, int) and value in (0, 1) and shapes.specialize_zero_one
        from_start = (
            mode is True and not (small or configures) and root_of(source).is_given
        )
        named = bool(shapes.dynamic_sources) and _is_named(source.describe())
        return "dynamic" if varies or from_start or named or _is_of_steps(source) else "static"


def _marked_without_symbols() -> ConstraintError:
    return ConstraintError(
        "a dimension is marked dynamic, but no size may be a symbol",
        kind="no-symbols",
        why="the option `symbols` is off, or the backend does not say that its code serves other sizes than it is shown",
        do="drop the mark, or say so: `backend.takes_symbols = True`",
        doc="docs/debugging.md#backends",
    )


def _is_of_steps(source: Source) -> bool:
    """Whether it is an optimizer's learning rate, which schedulers change, or its count of steps."""
    if not (isinstance(source, ItemSource) and type(source.key) is str and source.key in ("lr", "step")):
        return False
    owner = source.parent.base
    return owner is not None and owner.describe().endswith((".param_groups", ".state"))


def _is_named(name: str) -> bool:
    """Whether configuration names an input: as recompile messages do, as `L['x']`, or by a regular expression."""
    return any(_matches(one, name) for one in config.get().shapes.dynamic_sources)


def _matches(wanted: str, name: str) -> bool:
    plain = wanted.replace("L['", "").replace("']", "", 1) if wanted.startswith("L['") else wanted
    try:
        return plain == name or re.fullmatch(plain, name) is not None
    except re.error:
        return False


_VARIES = object()
_UNSEEN = -1
_FEW_LENGTHS = 2
_FEW_TURNS = 4
_LONGEST_BY_TURN = 64  # each turn of a loop is a call inside the call before
_FEW_KEYS = 4
_FEW_VALUES = 3
_FEW_TENSORS = 4


def _merged(old: int | None, new: int) -> int | None:
    """What is known of a size after one more capture; None: it varies."""
    if old is None or old == _UNSEEN:
        return old and new
    return old if old == new else None


def _learn_constant(policy: DynamicPolicy, source: Source, value: Any) -> None:
    if type(value) in (int, float):
        policy.scalar(source, value)
    elif type(value) is str:
        policy.text_varies(source, value)


# What a guard of an entry says to the captures after it.
_LEARNT: dict[Kind, Callable[[DynamicPolicy, Source, Any], object]] = {
    Kind.TENSOR: lambda policy, source, facts: policy._learn_sizes(source, facts.sizes),
    Kind.LENGTH: DynamicPolicy.length,
    Kind.ITEMS: DynamicPolicy._learn_items,
    Kind.NUMBER_TYPE: DynamicPolicy.note_varies,
    Kind.EQUALS: lambda policy, source, value: _learn_constant(policy, source, value),
}
