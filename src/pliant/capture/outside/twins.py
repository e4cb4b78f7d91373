"""Objects that two arguments lead to in one call and not in another: traced as if they were different ones.

In:     an object that a trace has met already, met again by another way.
Out:    its twin, of the same class and contents, which stands for it behind that way: one entry then serves calls with
        one object and calls with several. No guard says that they are one, nor that they are not.
Holds:  only where an earlier capture saw one object and a later one two. A twin is never written, compared, nor held by a
        guard: where it matters which object it is, the trace starts again and takes one object for one from then on.
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Callable
from typing import Any

from pliant.capture.graph_breaks import StartAgain
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.guards.parts import root_of
from pliant.guards.sources import Source


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
