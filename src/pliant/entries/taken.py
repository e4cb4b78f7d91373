"""What the objects of an entry were when it was made, whatever becomes of them while it is written down.

In:     the compiled callable, an entry's guards, what its text names.
Out:    `Taken.digest(obj)`: the digest of what the object was then. NotKept.
Holds:  the call waits for a look at each object, not for names, tables and text. What was not looked at has no digest.
        Contents alone are held, by addresses that are the objects' as long as the entry lives, which holds them.
"""

from __future__ import annotations

import dataclasses
import enum
import gc
import operator
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant.entries import constants
from pliant.entries.content import Content, NotKept, content, digest_of, homeless_parts
from pliant.guards.kinds import MISSING, ConstantItems, Guard, NumberOf, TensorFacts
from pliant.guards.sources import Source, _Held

_PLAIN = constants.ITSELF | {float, complex, bytes, range, slice, torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format}
_PARTS = frozenset((NumberOf, TensorFacts, ConstantItems))


_readers: dict[Any, Callable[[Any], Iterable[Any]]] = {}  # of classes of ours alone: those of programs may go


def _fields_of(cls: Any) -> Callable[[Any], Iterable[Any]] | None:
    """What reads the fields of a part of a guard; None for other objects."""
    if cls not in _readers and (cls is _Held or cls in _PARTS or issubclass(cls, Source)):
        _readers[cls] = _reader(cls)
    return _readers.get(cls)


def _reader(cls: Any) -> Callable[[Any], Iterable[Any]]:
    names = ["value"] if cls is _Held else [f.name for f in dataclasses.fields(cls) if f.init]
    read = operator.attrgetter(*names) if names else lambda part: ()
    return (lambda part: (read(part),)) if len(names) == 1 else read


class Taken:
    """Contents of the objects that an entry may name."""

    def __init__(self, root: Any, guards: Iterable[Guard], sources: Iterable[Source], values: Iterable[Any]) -> None:
        self._contents: dict[int, Content | NotKept] = {}
        self._classes: weakref.WeakSet[type] = weakref.WeakSet()
        self._digests: dict[int, str] = {}
        self._parts: set[int] = set()
        self._members: set[int] = set()
        self._take(type(root))
        if isinstance(root, types.MethodType):
            self._take_parts((root.__func__, type(root.__self__)))
        for guard in guards:
            self._take_parts((guard.source, guard.expected))
        self._take_parts(sources)
        self._take_parts(values)
        self._take_bases()

    def digest(self, obj: Any) -> str:
        """The digest of what the object was. NotKept."""
        if id(obj) not in self._digests:
            self._digests[id(obj)] = digest_of(self._content(obj))
        return self._digests[id(obj)]

    def _content(self, obj: Any) -> Content:
        """The same as `content(obj)` was then."""
        if type(obj) in _PLAIN:
            return content(obj)
        if type(obj) is tuple:
            spelled = constants.spelled(obj)
            return [tuple.__name__, *map(self._content, obj)] if spelled is None else ["constant", spelled]
        found = self._contents.get(id(obj))
        if found is None:
            raise NotKept("not-taken", f"a {type(obj).__module__}.{type(obj).__qualname__} that nobody looked at in time")
        if isinstance(found, NotKept):
            raise found
        return found

    def _take_parts(self, values: Iterable[Any]) -> None:
        for value in values:
            cls: Any = type(value)
            if cls in _PLAIN:
                continue
            if (fields := _readers.get(cls) or _fields_of(cls)) is not None:
                if id(value) not in self._parts:
                    self._parts.add(id(value))
                    self._take_parts(fields(value))
            elif cls is tuple:
                self._take_parts(value)
            elif cls is types.MappingProxyType:
                self._members.add(id(gc.get_referents(value)[0]))
            elif value is not MISSING:
                self._take(value)

    def _take(self, obj: Any) -> None:
        if id(obj) in self._contents or type(obj) in _PLAIN:
            return
        try:
            found = content(obj)
        except NotKept as refused:
            found = refused
        self._contents[id(obj)] = found
        if issubclass(type(obj), type):  # `isinstance` may ask a `__getattribute__` of the program's for `__class__`
            self._classes.add(obj)
        for _, part in homeless_parts(obj):
            self._take(part)
        if issubclass(type(obj), enum.Enum):  # which is named after its class
            self._take(type(obj))

    def _take_bases(self) -> None:
        """Classes of which an entry has the members, which do not say whose they are."""
        for cls in list(self._classes) if self._members else ():
            for base in cls.__mro__:
                if id(gc.get_referents(base.__dict__)[0]) in self._members:
                    self._take(base)
