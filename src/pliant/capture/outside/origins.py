"""What a trace knows of objects from outside: the source of each, its guards, and which of them are told apart.

In:     raw objects, the sources they were read through, facts that the trace relies on.
Out:    `guards`, `origins`; at the end the guards that what was written is not reached by another way.
Holds:  a guard is added once; what the entry holds itself needs none for which object it is.
"""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.outside.identity import Twins
from pliant.capture.value_kinds import exactly, function_of, is_module
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards.kinds import Guard, Kind
from pliant.guards.sources import DrawSource, ReferentSource, Source, held
from pliant.guards.standard import can_change
from pliant.source import SourceLocation

# Kinds of which one value may have several guards.
_SEVERAL = frozenset((Kind.HAS_KEY, Kind.NO_KEY, Kind.DISTINCT, Kind.UNSET, Kind.SEPARATE, Kind.KEPT))
_FIXED_IF_HELD = frozenset((Kind.IDENTITY, Kind.EQUALS, Kind.RANGE))


class Asked(NamedTuple):
    """What a trace asked of the outside. `what`: a value that it read, and what that became; the `__dict__` of an object; a
    container that it took a copy of; a fact that it relied on, of which value and result are `expected` and the guard's kind; or
    "unlike", which is none of these."""

    what: Literal["value", "dict", "whole", "guard", "unlike"]
    source: Source | None
    value: Any
    result: Any
    where: SourceLocation | None


def _is_fixed(kind: Kind, expected: Any) -> bool:
    """Whether the fact holds for ever of an object that the entry holds: one of a program's class may change its class."""
    return kind in _FIXED_IF_HELD or kind is Kind.TYPE and not can_change(expected)


class Origins(abc.ABC):
    """Sources and guards of one capture; `World` is the whole."""

    def __init__(self, inputs: Any, location: Callable[[], SourceLocation | None]) -> None:
        self.inputs = inputs
        self.location = location
        self.guards: list[Guard] = []
        self.guarded = inputs.policy.guarded
        self.origins: dict[int, tuple[Any, Source]] = {}
        self._guarded: set[tuple[Any, ...]] = set()
        self._memo: dict[Source, Any] = {}
        self._stands: dict[int, tuple[Any, Any]] = {}  # an object, and what stands for it wherever it is met
        self._told_apart: dict[int, Any] = {}  # by id: objects of which it matters which ones they are
        self.twins = Twins(lambda: self.inputs.policy)
        self._differentiated: dict[int, FakeTensor] = {}  # by id: inputs whose gradients the trace computes
        self.known_by_parts: dict[int, Any] = {}  # functions and partials
        self.made: dict[int, Any] = {}  # classes and objects of C types that the trace itself made
        # Functions that the trace defined, and what their cells hold, end when the program lets go of them.
        self.functions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        # What is asked of the outside, in order, where somebody wants to know: (source, what became of it, ...).
        self.log: list[Asked] | None = None

    @property
    def is_asked(self) -> bool:
        """Whether somebody wants to know what is asked of the outside: later calls, or who keeps it."""
        return self.guarded or self.log is not None

    @abc.abstractmethod
    def bring(self, value: Any, source: Source) -> Any:
        """The traced form of `value`, which was just read through `source`."""

    def stand_for(self, value: Any, shadow: Any) -> None:
        """Wherever `value` is met, `shadow` stands for it."""
        self._stands[id(value)] = (value, shadow)

    def resolve(self, value: Any) -> Any:
        """What stands for an object from outside, as the copy of a container does; anything else is itself."""
        found = self._stands.get(id(value))
        if found is None:
            return value
        self.log_unlike(value)
        return found[1]

    def real_object(self, obj: Any) -> Any:
        """The object from outside that it stands for; itself, if it stands for none."""
        if is_fake(obj):
            found = self.inputs.example_of(obj)
            return obj if found is None else found
        return next((real for real, copy in self._stands.values() if copy is obj and real is not obj), obj)

    def log_unlike(self, value: Any = None) -> None:
        """Something was asked that no guard of its own tells: what the trace itself knows or did, or has of a container."""
        if self.log is not None:
            self.log.append(Asked("unlike", None, value, None, None))

    @contextmanager
    def asked_within(self) -> Iterator[list[Asked]]:
        """A list that has what was asked of the outside, once it is left."""
        found: list[Asked] = []
        outer = self.log
        log = self.log = [] if outer is None else outer
        start = len(log)
        try:
            yield found
        finally:
            self.log = outer
            found += log[start:]

    def log_again(self, *asked: Asked) -> None:
        """What a call asked is asked by another one, which is not followed."""
        if self.log is not None:
            self.log += asked

    # ---- guards
    def guard(self, source: Source | None, kind: Kind, expected: Any = None) -> None:
        """Add a guard once. Facts about held objects themselves are constant and skipped."""
        if self.log is not None:
            self.log.append(Asked("guard", source, expected, kind, self.location()))
        if not self.guarded and kind is not Kind.IDENTITY:
            return
        if source is not None and source.is_held and _is_fixed(kind, expected):
            return
        if kind is Kind.IDENTITY:
            self.twins.check(expected)
        if not self.guarded:
            return
        key = (source, kind, expected if kind in _SEVERAL else None)
        if kind is Kind.TYPE_LOOKUP:
            key = (source, kind, expected[0])
        if key in self._guarded:
            return
        self._guarded.add(key)
        self.guards.append(Guard(source, kind, expected, self.location()))

    def guard_distinct(self, left: Any, right: Any) -> None:
        """Two objects from outside were found to be different ones."""
        self.twins.check_different(left, right)
        a, b = self.source_of(left), self.source_of(right)
        if a is not None and b is not None and a != b:
            self.guard(a, Kind.DISTINCT, ((a, b), ()))
        self.inputs.same_if_shared(left, right)

    def guard_references(self, left: Any, right: Any) -> None:
        """Python has one plain reference to an object: one from outside is what the program makes anew of what it leads to."""
        known = self.source_of(left)
        if (known is None) is not (self.source_of(right) is None):
            raise GraphBreak("unknown-object", "whether two weak references are one")
        if left is right and known is not None and (place := self.source_of(left())) is not None:
            self.guard(ReferentSource(known), Kind.SAME_AS, place)

    def note_identity(self, value: Any) -> None:
        """The trace tells the object from others by which one it is: by its `id`, as a key, by a weak reference."""
        self.log_unlike()
        value = self.resolve(value)
        if id(value) in self.origins:
            self.twins.check(value)
            for other in () if self.guarded else self._told_apart.values():
                if other is not value:
                    self.inputs.same_if_shared(value, other)
            self._told_apart[id(value)] = value
            self.inputs.one_if_shared(value)

    def note_differentiated(self, tensor: FakeTensor) -> None:
        """The trace asks for the gradient of a tensor: all that flows into it, by whichever way it came in."""
        if id(tensor) in self.origins:
            self._differentiated[id(tensor)] = tensor
            self.inputs.one_if_shared(tensor)

    def guard_aliases(self, advanced: list[Any]) -> None:
        """What the trace wrote, or advanced, is not also reached as another object: at the end."""
        written = self._all_written() + advanced
        self.twins.check(*written)
        self._guard_apart(written, [obj for obj, s in self.origins.values() if not s.is_namespace])
        self._guard_apart(list(self._told_apart.values()), [])
        if self._differentiated:
            tensors = [obj for obj, _ in self.origins.values() if is_fake(obj) and obj.requires_grad]
            self._guard_apart(list(self._differentiated.values()), tensors)
        self.inputs.guard_memory()

    def check_shared(self) -> None:
        """What the trace wrote, and read by several ways, was taken for one object."""
        self.twins.check(*self._all_written())
        self.inputs.check_shared()

    @abc.abstractmethod
    def written(self) -> list[Any]:
        """What came from outside and the trace has written."""

    def _all_written(self) -> list[Any]:
        """Also the modules whose tables of members were written: such a table is not told from others, they are."""
        written = self.written()
        owners = {s.base for obj in written if (s := self.source_of(obj)) is not None and s.is_members}
        return written + ([obj for obj, source in self.origins.values() if source in owners] if owners else [])

    def _guard_apart(self, mine: list[Any], others: list[Any]) -> None:
        """Of each class: no object of the first is another of the first, or one of the others. What the entry draws is new."""
        for cls in dict.fromkeys(map(type, mine)) if self.guarded else ():
            first, second = (
                dict.fromkeys(
                    s for obj in objs if type(obj) is cls and (s := self.source_of(obj)) is not None and not is_drawn(s)
                )
                for objs in (mine, others)
            )
            rest = tuple(s for s in second if s not in first)
            if first and len(first) + len(rest) > 1:
                self.guard(next(iter(first)), Kind.DISTINCT, (tuple(first), rest))

    def source_of(self, value: Any) -> Source | None:
        found = self.origins.get(id(value))
        return found[1] if found is not None else None

    def place_of(self, value: Any) -> Source:
        """The same of an object that is known to come from outside."""
        return self.origins[id(value)][1]

    def is_foreign(self, value: Any) -> bool:
        return id(value) in self.origins

    def set_origin(self, value: Any, source: Source) -> None:
        if id(value) not in self.origins and not self.is_made(value):
            self.origins[id(value)] = value, source

    def hold(self, value: Any, name: str = "") -> Any:
        """The value, which the entry holds and reaches as itself; `name`: what texts call it."""
        self.set_origin(value, held(value, name))
        return value

    # ---- objects
    def is_made(self, value: Any) -> bool:
        """Whether the trace itself defined the function or class."""
        number = id(value)
        return number in self.made or number in self.functions

    def note_made_class(self, made: Any) -> Any:
        """The class, which the trace made, and with it the methods that C code wrote for it and the members of an
        enumeration: what these hold is the trace's as it is, and is not read from outside.
        """
        self.made[id(made)] = made
        inherited = {id(function_of(value)) for base in made.__mro__[1:] for value in vars(base).values()}
        for value in vars(made).values():
            own = function_of(value) or (value if type(value) is made else None)
            if own is not None and id(own) not in inherited and not self.is_foreign(own):
                self.made[id(own)] = own
        return made

    def is_of_module(self, source: Source) -> bool:
        """Whether a module, or what it holds, leads there."""
        base = source.base
        while base is not None:
            source, base = base, base.base
            if is_module(self._memo.get(source)):
                return True
        return False

    def pin(self, value: Any) -> None:
        """The identity of a function or a partial matters, not only what it does."""
        if id(value) in self.known_by_parts:
            self.guard(self.source_of(value), Kind.IDENTITY, value)

    def second_way(self, value: Any, source: Source, known: Source) -> Any:
        """An object that was met before: itself, under a guard that it is, or a new twin of it."""
        twin = self.twins.of(value) if self.twins.may_be_apart(source, known) else None
        if twin is None:
            self.guard(source, Kind.SAME_AS, known)
            self.twins.note_same(source, known)
            return value
        self.set_origin(twin, source)
        return twin


is_drawn = exactly(DrawSource)  # behind the guards
