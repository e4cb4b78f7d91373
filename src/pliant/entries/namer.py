"""Names of objects that an entry refers to, in the process that made it.

In:     the compiled callable, the entry's guards; objects.
Out:    `Namer.reference(obj)`: a place in `Namer.table`, whose rows are JSON; `path_of(obj)`: where modules have it.
Holds:  nothing of the program runs. An object without a name is `NotKept`.
"""

from __future__ import annotations

import contextlib
import enum
import gc
import itertools
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from pliant.entries import constants
from pliant.entries.codes import codes_of, places_of
from pliant.entries.constants import Json
from pliant.entries.content import (
    ITERATORS,
    PARTS,
    NotKept,
    home_of,
    homeless_parts,
    is_homeless,
    is_of_numpy,
    module_of,
)
from pliant.entries.objects import OURS, NotFound, at_path, member, space_of, version_of
from pliant.entries.taken import Taken
from pliant.guards.facts import CacheToken, is_own_reference
from pliant.guards.kinds import MISSING, Guard, Kind
from pliant.guards.sources import Source
from pliant.guards.state import READERS
from pliant.unpatched import is_as_it_was

_FILES_OF_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MUTABLE = (list, dict, set)
_MANY = (str, bytes, tuple, frozenset, range, slice, torch.Size)  # equal values may be several objects
_READERS = {id(reader.read): name for name, reader in READERS.items()}

def path_of(obj: Any) -> tuple[str, list[str]] | None:
    """A module and names that lead to the object, as it says itself."""
    for module, names in _said_paths(obj):
        try:
            if isinstance(module, str) and at_path(module, names) is obj:
                return module, names
        except NotFound:
            continue
    return None


def found_as(function: Any) -> Any:
    """What lies where the function says it is; None if nothing does."""
    with contextlib.suppress(NotFound, AttributeError):
        return at_path(function.__module__, function.__qualname__.split("."))
    return None

_IN_CLASSES = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
# Classes of the interpreter's own objects, which say that they are builtins.
_OF_TYPES = {value: name for name in dir(types) if isinstance(value := getattr(types, name), type)}
_WITH_NAMES = (types.FunctionType, types.BuiltinFunctionType, type)

def _said_paths(obj: Any) -> Iterable[tuple[Any, list[str]]]:
    """Of classes that say where they are; others may run code when they are asked."""
    if isinstance(obj, _IN_CLASSES):
        yield obj.__objclass__.__module__, [*obj.__objclass__.__qualname__.split("."), obj.__name__]
    if is_of_numpy(obj):
        yield home_of(obj), [obj.__name__]
    if not isinstance(obj, _WITH_NAMES):
        return
    for known in (obj.__qualname__, obj.__name__):
        yield obj.__module__ or "builtins", known.split(".")
    if isinstance(obj, type) and obj in _OF_TYPES:
        yield types.__name__, [_OF_TYPES[obj]]
    if isinstance(obj, types.BuiltinFunctionType) and isinstance(obj.__self__, types.ModuleType):
        yield obj.__self__.__name__, [obj.__name__]


def _path_in_ours(obj: Any) -> tuple[str, list[str]] | None:
    """Where a module of Pliant's own holds one of its objects, which say nothing of that."""
    if type(obj) not in _OURS_ARE:
        return None
    for module, held in list(sys.modules.items()):
        if module.partition(".")[0] == OURS:
            for name, value in vars(held).items():
                if value is obj:
                    return module, [name]
    return None

_OURS_ARE = (object, types.TracebackType)  # what stands for itself

def _operators_in(space: dict[str, Any]) -> str:
    """Of which of PyTorch's namespaces of operators this is the `__dict__`; "" if of none."""
    name = space.get("name")
    known = vars(torch.ops).get(name) if isinstance(name, str) else None
    return str(name) if known is not None and vars(known) is space else ""


def _is_unknown_module(value: Any) -> bool:
    """Whether it is a module that is not loaded under its name."""
    return type(value) is types.ModuleType and vars(sys.modules.get(value.__name__, object)) is not vars(value)


class Namer:
    """Names in one entry. `spell`: how a source is written down; `taken`: what objects were when it was made."""

    def __init__(self, root: Any, guards: Iterable[Guard], spell: Callable[[Source], int], taken: Taken) -> None:
        self.table: list[Json] = []
        self.packages: dict[str, str] = {}
        self._spell = spell
        self._digest = taken.digest
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # so that addresses stay theirs
        self._looked_up: dict[int, tuple[type, str]] = {}
        self._inside: dict[int, tuple[Any, str]] = {}
        self._sources: dict[int, tuple[str, Source]] = {}
        self._metaclasses: dict[int, type] = {}  # by id: a class of each
        self._classes_of: dict[int, type] = {}  # by id of their dictionaries
        self._looked_through = 0  # how many of those kept
        self._spaces: dict[int, Any] = {}  # by id of globals that no loaded module has: who has them
        self._codes: dict[int, tuple[Any, tuple[int, ...]]] = {}
        self._searched = 0  # how many of those kept
        self._guarded: list[types.CodeType] = []  # which guards name, in the order of the guards
        self._add(root, ["root"])
        self._add_parts(root)
        for guard in guards:
            self._note(guard)

    def _add_parts(self, root: Any) -> None:
        if isinstance(root, types.MethodType):
            self._add(root.__func__, ["function of root", self._digest(root.__func__)])
            self._add(root.__self__, ["self of root"])
            self._add(type(root.__self__), ["class of", self.reference(root.__self__), self._digest(type(root.__self__))])
        elif not isinstance(root, (types.FunctionType, types.CodeType, type)):
            self._add(type(root), ["class of", self.reference(root), self._digest(type(root))])

    def _note(self, guard: Guard) -> None:
        """Where guards find objects."""
        self._note_space(guard.expected)
        match guard.kind:
            case Kind.TYPE_LOOKUP:
                name, value = guard.expected
                cls = guard.source.held.value if hasattr(guard.source, "held") else None
                self._note_metaclass(cls)
                if isinstance(cls, type) and value is not MISSING:
                    self._looked_up.setdefault(id(value), (cls, name))
                    self._note_space(value)
                    for part in PARTS.get(type(value), ()):
                        self._note_space(getattr(value, part))
                        self._inside.setdefault(id(getattr(value, part)), (value, part))
            case Kind.IDENTITY | Kind.UNSET:
                self._note_metaclass(guard.expected)
                self._sources.setdefault(id(guard.expected), ("at", guard.source))
                if type(guard.expected) is types.CodeType:
                    self._guarded.append(guard.expected)
            case Kind.TYPE:
                self._sources.setdefault(id(guard.expected), ("type at", guard.source))

    def _note_metaclass(self, cls: Any) -> None:
        if issubclass(type(cls), type) and type(cls) is not type:
            self._metaclasses.setdefault(id(type(cls)), cls)

    def _note_space(self, value: Any) -> None:
        if is_homeless(value):
            self._spaces.setdefault(id(value.__globals__), value)
        elif _is_unknown_module(value):
            self._spaces[id(vars(value))] = value

    @property
    def objects(self) -> Sequence[Any]:
        """All that have names."""
        return self._kept

    def _add(self, obj: Any, row: Json) -> int:
        place = self._places[id(obj)] = len(self.table)
        self.table.append(row)
        self._kept.append(obj)
        if is_homeless(obj) or _is_unknown_module(obj):
            self._add_space(space_of(obj), place)
        for name, part in homeless_parts(obj):
            self._inside.setdefault(id(part), (obj, name))
            self.reference(part)
        return place

    def _add_space(self, namespace: dict[str, Any], owner: int) -> None:
        """Globals that no loaded module has, as those of functions made by `exec` may be: the owner's alone, or another's as well."""
        known = self._places.get(id(namespace))
        if known is None:
            self._add(namespace, ["globals of", owner])
        else:
            self.table.append(["same globals", known, owner])

    def reference(self, obj: Any) -> int:
        """The place of the object's name in the table. NotKept."""
        if id(obj) not in self._places and type(obj) is dict and (owner := self._spaces.pop(id(obj), None)) is not None:
            self.reference(owner)
        place = self._places.get(id(obj))
        if place is None:
            row = self._row(obj)
            place = self._add(obj, row)
        return place

    def _row(self, obj: Any) -> Json:
        if obj is MISSING:
            return ["missing"]
        if isinstance(type(obj).__getattribute__, types.FunctionType):
            raise NotKept("no-name", f"a {type(obj).__qualname__}, which looks up its attributes in its own way")
        if type(obj) is CacheToken:
            return ["registrations", self._digest(obj), *map(self.reference, obj.asked)]
        found_by_guard = id(obj) in self._looked_up or id(obj) in self._sources
        if type(obj) not in _MUTABLE and not (found_by_guard and type(obj) in _MANY):
            spelled = constants.spelled(obj)
            if spelled is not None or obj is None:
                return ["value", spelled]
        if id(obj) in self._looked_up:
            cls, name = self._looked_up[id(obj)]
            return ["looked up", self.reference(cls), name, self._digest(obj)]
        if isinstance(obj, types.ModuleType) and sys.modules.get(obj.__name__) is obj:
            self._note_package(obj.__name__)
            return ["in", obj.__name__, [], ""]
        if isinstance(obj, types.ModuleType) and is_as_it_was(obj):
            return ["standard", obj.__name__]
        if type(obj) is dict and (module := module_of(obj)) is not None:
            self._note_package(module)
            return ["namespace", module]
        if type(obj) is dict and (namespace := _operators_in(obj)):
            return ["operators", namespace]
        found = path_of(obj) or _path_in_ours(obj)
        if found is not None:
            self._note_package(found[0])
            ours = found[0].partition(".")[0] == OURS
            return ["in", *found, "" if ours else self._digest(obj)]
        return self._by_use(obj)

    def _by_use(self, obj: Any) -> Json:
        """Of what no module holds: what it is to another object."""
        if id(obj) in _READERS:
            return ["reader", _READERS[id(obj)]]
        if type(obj) is tuple and obj and isinstance(obj[0], type) and obj[0].__mro__ is obj:
            return ["mro", self.reference(obj[0])]
        if type(obj) is types.MappingProxyType:
            return ["members", self.reference(self._class_of(obj))]
        if obj is sys.modules:
            return ["modules"]
        if isinstance(obj, type) and obj in ITERATORS:
            return ["iterator", ITERATORS.index(obj)]
        if isinstance(obj, enum.Enum) and member(type(obj), obj._name_) is obj:
            return ["member", self.reference(type(obj)), obj._name_, self._digest(obj)]
        if isinstance(obj, enum.Flag) and (value := constants.spelled(obj._value_)) is not None:
            return ["flags", self.reference(type(obj)), value, self._digest(obj)]
        if id(obj) in self._inside:
            whole, part = self._inside[id(obj)]
            return ["inside", self.reference(whole), part, self._digest(obj)]
        if id(obj) in self._metaclasses:
            return ["class of", self.reference(self._metaclasses[id(obj)]), self._digest(obj)]
        if id(obj) in self._sources:
            how, source = self._sources[id(obj)]
            return [how, self._spell(source), self._digest(obj)]
        if type(obj) is tuple:
            return ["tuple", *map(self.reference, obj)]
        if type(obj) is weakref.ref and (target := obj()) is not None:  # equal to any other
            return ["own reference" if is_own_reference(obj) else "weak reference", self.reference(target)]
        if isinstance(obj, types.CodeType):
            return ["code", *self.code(obj)]
        raise NotKept("no-name", f"{type(obj).__module__}.{type(obj).__qualname__} {getattr(obj, '__qualname__', '')}")

    def _class_of(self, members: Any) -> type:
        """The class of which this is the `__dict__`."""
        wanted = id(gc.get_referents(members)[0])
        if wanted not in self._classes_of:
            new, self._looked_through = self._kept[self._looked_through :], len(self._kept)
            bases = {base for one in new if isinstance(one, type) for base in one.__mro__}
            self._classes_of |= {id(gc.get_referents(base.__dict__)[0]): base for base in bases}
        if wanted not in self._classes_of:
            raise NotKept("no-name", "the members of a class")
        return self._classes_of[wanted]

    def code(self, code: types.CodeType) -> Json:
        """Where the code lies in an object that has a name. NotKept."""
        new, self._searched = self._kept[self._searched :], len(self._kept)
        for obj in itertools.chain(new, self._guarded):
            for one, place in places_of(obj):
                self._codes.setdefault(id(one), (obj, place))
        self._guarded = []
        if id(code) not in self._codes:
            self._add_function_of_ours(code)
        obj, found = self._codes[id(code)]
        return [self.reference(obj), *found]

    def _add_function_of_ours(self, code: types.CodeType) -> None:
        """Polyfills have no guards: they are the same in every process of the key. NotKept."""
        if code.co_filename.startswith(_FILES_OF_OURS):
            parts = code.co_filename.removeprefix(_FILES_OF_OURS).removesuffix(".py").split(os.sep)
            with contextlib.suppress(NotFound):
                function = at_path(".".join((OURS, *parts)), code.co_qualname.split("."))
                if code in codes_of(function):
                    self._codes[id(code)] = function, (0,)
                    return
        raise NotKept("no-name", f"the code of {code.co_qualname}")

    def _note_package(self, module: str) -> None:
        top = module.partition(".")[0]
        if top not in sys.stdlib_module_names:
            self.packages[top] = version_of(top)
