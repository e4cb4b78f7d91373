"""Which object it is: numbers that stand for objects of the trace, which the entry makes anew (what `id()` gives, keys of hooks), and
objects that two arguments lead to in one call and not in another, traced as if they were different ones.

In:     the object; one that a trace has met already, met again by another way.
Out:    an integer that compares and hashes as such within the trace; outside it is `id()` of the object that was made. The twin of an
        object, of the same class and contents, which stands for it behind that way: one entry then serves calls with
        one object and calls with several. No guard says that they are one, nor that they are not.
Holds:  the number itself is never used: arithmetic with it, its order and its text are graph breaks.
        Twins are only where an earlier capture saw one object and a later one two. A twin is never written, compared, nor held by a
        guard: where it matters which object it is, the trace starts again and takes one object for one from then on.
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Callable
from typing import Any, NoReturn

from torch.utils.hooks import RemovableHandle

from pliant.capture.graph_breaks import GraphBreak, StartAgain
from pliant.capture.value_kinds import exactly
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.guards.parts import root_of
from pliant.guards.sources import Source


class TracedId(int):
    """`id(obj)`. Of an object from outside it is the number of now, and compared with other numbers under a guard that says so."""

    obj: Any
    settle: Callable[[TracedId], Any]  # guards that it is this object

    @staticmethod
    def of(obj: Any, now: Any, settle: Callable[[TracedId], Any]) -> TracedId:
        """`now`: the object itself, for which `obj` stands in the trace."""
        made = TracedId(id(now))
        made.obj, made.settle = obj, settle
        return made

    def __eq__(self, other: object) -> Any:
        if type(other) is not TracedId:
            self.settle(self)
        return int.__eq__(self, other)

    def __ne__(self, other: object) -> Any:
        if type(other) is not TracedId:
            self.settle(self)
        return int.__ne__(self, other)

    __hash__ = int.__hash__


class HookId(int):
    """The key of a hook that the trace registers: a number that differs from call to call."""


is_hook_id = exactly(HookId)


def take_hook_id() -> int:
    """A key for a hook; in a trace a `HookId`."""
    taken: int = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    return taken


def _refuse(self: TracedId, *others: Any) -> NoReturn:
    raise GraphBreak("unknown-call", f"the address of a {type(self.obj).__name__} made here is used as a number")


_USES = """add radd sub rsub mul rmul floordiv rfloordiv truediv rtruediv mod rmod divmod rdivmod pow rpow lshift rlshift
rshift rrshift and rand or ror xor rxor neg pos abs invert lt le gt ge str repr format float trunc round""".split()
for _name in _USES:
    setattr(TracedId, f"__{_name}__", _refuse)


class Twins:
    """The twins of one trace."""

    def __init__(self, policy: Callable[[], DynamicPolicy]) -> None:
        self._policy = policy
        self._real: dict[int, tuple[Any, Any]] = {}  # by the twin's id: the twin, what it stands for
        self._doubled: dict[int, Any] = {}  # by id: what has twins

    def may_be_apart(self, source: Source, first: Source) -> bool:
        """Whether what two sources lead to is to be taken for two. What the entry holds anyway is one."""
        return self._policy().objects_apart and not (root_of(source).is_held and root_of(first).is_held)

    def of(self, value: Any) -> Any:
        """A new twin; None where there can be none."""
        made = _copied(value)
        return None if made is None else self._stand(made, value)

    def _stand(self, made: Any, value: Any) -> Any:
        """Note what it stands for; the tables in an object's dictionary count as the object's own."""
        if type(made) not in _BARE:
            table = object.__getattribute__(made, "__dict__")
            for name, held in table.items():
                if type(held) in _CONTAINERS:
                    copied = _copied(held)
                    if copied is None:
                        return None
                    table[name] = self._stand(copied, held)
            self._note(table, object.__getattribute__(value, "__dict__"))
        return self._note(made, value)

    def _note(self, made: Any, value: Any) -> Any:
        self._real[id(made)] = made, value
        self._doubled[id(value)] = value
        return made

    def note_same(self, source: Source, first: Source) -> None:
        """The object was met before, and a guard says so. If it was another one's, such guards only multiply entries."""
        if self._policy().note_same(source, first):
            raise StartAgain

    def note_own(self, source: Source) -> None:
        """The object was not met before. The same, if an earlier capture met it."""
        if self._policy().note_own(source):
            raise StartAgain

    def check(self, *values: Any) -> None:
        """It matters which of all objects these are."""
        if self._real and any(id(one) in self._real or id(one) in self._doubled for one in values):
            self._policy().note_objects_matter()
            raise StartAgain

    def check_different(self, left: Any, right: Any) -> None:
        """The two were found to be different ones."""
        real = [self._real.get(id(one), (one, one))[1] for one in (left, right)]
        if real[0] is real[1]:
            self.check(left, right)

    def forget(self) -> None:
        """Let go of the program's objects."""
        self._real.clear()
        self._doubled.clear()


_CONTAINERS = (list, dict, collections.OrderedDict)
_BARE = (*_CONTAINERS, types.CellType)


class _Plain:
    """An object that is its dictionary."""


def _copied(value: Any) -> Any:
    """The same contents in an object of the same class, made without running code of the program's."""
    cls = type(value)
    if cls is list:
        return list(value)
    if cls in _CONTAINERS:
        return cls(value) if {str, int}.issuperset(map(type, value)) else None
    if cls is types.CellType:
        return types.CellType(*gc.get_referents(value))
    if cls.__basicsize__ != _Plain.__basicsize__ or any("__del__" in base.__dict__ for base in cls.__mro__):
        return None
    try:
        made = object.__new__(cls)
        mine, theirs = (object.__getattribute__(one, "__dict__") for one in (made, value))
    except (AttributeError, TypeError):  # a class of C's
        return None
    if {type(mine), type(theirs)} != {dict}:  # of a property of the program's
        return None
    mine.update(theirs)
    return made
