"""Objects that an entry refers to: those of their names in another process.

In:     the table that `namer.Namer` made, the compiled callable.
Out:    `Finder.find(place)`: the object in this process.
Holds:  nothing of the program runs: modules are looked at as they are loaded, attributes read from `__dict__`s, sources by
        the code that guards read them with. An object that is found has the content that was written down.
        One that is not found, or is another, is `NotFound`.
"""

from __future__ import annotations

import abc
import enum
import importlib
import sys
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pliant.entries import constants
from pliant.entries.codes import at_place
from pliant.entries.constants import Json
from pliant.entries.content import ITERATORS, NotKept, digest
from pliant.guards.facts import CacheToken, own_reference
from pliant.guards.kinds import MISSING
from pliant.guards.sources import Source, value_of
from pliant.guards.standard import standard_module
from pliant.guards.state import READERS
from pliant.guards.steps import READ_ERRORS, lookup
from pliant.unpatched import standard

OURS = "pliant"


class NotFound(Exception):
    """Why an entry on disk is not for this process."""


# ---- paths: raw looks into modules and classes
def at_path(module: str, names: Sequence[str]) -> Any:
    """What the loaded module holds under these names, one in the other; NotFound."""
    found: Any = sys.modules.get(module, MISSING)
    if found is MISSING and _may_load(module):
        found = importlib.import_module(module)
    if found is MISSING:
        raise NotFound(f"module {module} is not loaded")
    for name in names:
        space = getattr(found, "__dict__", {})
        if name not in space:
            raise NotFound(f"{module} has no {'.'.join(names)}")
        found = space[name]
    return found


def _may_load(module: str) -> bool:
    """Whether loading the module changes nothing for the program: those of the program itself it loads when it wants."""
    top = module.partition(".")[0]
    return top in (OURS, "torch") or top in sys.stdlib_module_names


def member(cls: type, name: str) -> Any:
    """The member of an enumeration, or None."""
    return cls.__dict__.get("_member_map_", {}).get(name)


def space_of(owner: Any) -> dict[str, Any]:
    """The globals of a function, or of a module."""
    space: dict[str, Any] = vars(owner) if isinstance(owner, types.ModuleType) else owner.__globals__
    return space


def version_of(package: str) -> str:
    """What a loaded package says its version is; "" if it says nothing."""
    found = vars(sys.modules.get(package, object)).get("__version__", "")
    return found if isinstance(found, str) else ""


class Finder:
    """Objects of the table in this process. `args`, `kwargs`: the call that is looked at."""

    def __init__(self, table: Sequence[Json], root: Any, source_at: Callable[[int], Source]) -> None:
        self.table, self.root, self.source_at = table, root, source_at
        self.args: Sequence[Any] = ()
        self.kwargs: Mapping[str, Any] = {}
        self._found: dict[int, Any] = {}
        self._registrations = abc.get_cache_token()  # before what is registered is compared

    def find(self, place: int) -> Any:
        """The object. NotFound if there is none, or another."""
        if place in self._found:
            return self._found[place]
        word, *rest = self.table[place]
        found = _FIND[word](self, *rest)
        self._found[place] = found
        return found

    def checked(self, obj: Any, expected: str, what: str) -> Any:
        """The object, if its content is the one that was written down."""
        try:
            same = not expected or digest(obj) == expected
        except NotKept as refused:
            raise NotFound(f"{what}: {refused}") from None
        if not same:
            raise NotFound(f"{what} is another")
        return obj

    def value_at(self, source: Source) -> Any:
        """What the source leads to in this call."""
        try:
            return value_of(source, self.args, self.kwargs)
        except READ_ERRORS as error:
            raise NotFound(f"{source.describe()} is not there") from error

    def code(self, place: int, *inner: int) -> types.CodeType:
        """The code that lies there."""
        return at_place(self.find(place), inner)

    def _in(self, module: str, names: Sequence[str], expected: str) -> Any:
        return self.checked(at_path(module, names), expected, ".".join((module, *names)))

    def _asked(self, expected: str, *places: int) -> CacheToken:
        token = CacheToken(self._registrations, map(self.find, places))
        return self.checked(token, expected, "what is registered with abstract classes")  # type: ignore[no-any-return]

    def _namespace(self, module: str) -> Any:
        return vars(at_path(module, ()))

    def _globals_of(self, owner: int) -> Any:
        return space_of(self.find(owner))

    def _same_globals(self, space: int, owner: int) -> None:
        if space_of(self.find(owner)) is not self.find(space):
            raise NotFound(f"{self.find(owner).__name__} has other globals")

    def _looked_up(self, cls: int, name: str, expected: str) -> Any:
        found = lookup(self.find(cls), name)
        if found is MISSING:
            raise NotFound(f"{self.find(cls).__qualname__} has no {name}")
        return self.checked(found, expected, f"{self.find(cls).__qualname__}.{name}")

    def _inside(self, whole: int, part: str, expected: str) -> Any:
        return self.checked(getattr(self.find(whole), part), expected, f"the function in {self.find(whole)}")

    def _member(self, cls: int, name: str, expected: str) -> Any:
        found = member(self.find(cls), name)
        return self.checked(found, expected, f"{self.find(cls).__qualname__}.{name}")

    def _flags(self, cls: int, value: Json, expected: str) -> Any:
        kind = self.find(cls)
        found = kind.__dict__.get("_value2member_map_", {}).get(constants.read(value))
        if found is None and type(kind) is enum.EnumMeta and standard_module(getattr(lookup(kind, "_missing_"), "__module__", "")):
            found = kind(constants.read(value))  # which keeps it for whoever asks next
        return self.checked(found, expected, f"flags of {kind.__qualname__}")

    def _at(self, source: int, expected: str) -> Any:
        where = self.source_at(source)
        return self.checked(self.value_at(where), expected, where.describe())

    def _type_at(self, source: int, expected: str) -> Any:
        where = self.source_at(source)
        return self.checked(type(self.value_at(where)), expected, f"the class of {where.describe()}")

    def _function_of_root(self, expected: str) -> Any:
        return self.checked(self.root.__func__, expected, "the method's function")

    def _class_of(self, place: int, expected: str) -> Any:
        return self.checked(type(self.find(place)), expected, "the class of what is called")


_FIND: dict[str, Callable[..., Any]] = {
    "root": lambda finder: finder.root,
    "function of root": Finder._function_of_root,
    "self of root": lambda finder: finder.root.__self__,
    "class of": Finder._class_of,
    "missing": lambda finder: MISSING,
    "value": lambda finder, json: sys.intern(json) if type(json) is str else constants.read(json),
    "reader": lambda finder, name: READERS[name].read,
    "modules": lambda finder: sys.modules,
    "iterator": lambda finder, number: ITERATORS[number],
    "registrations": Finder._asked,
    "in": Finder._in,
    "namespace": Finder._namespace,
    "standard": lambda finder, name: standard(name),
    "tuple": lambda finder, *places: tuple(map(finder.find, places)),
    "weak reference": lambda finder, target: weakref.ref(finder.find(target)),
    "own reference": lambda finder, target: own_reference(finder.find(target)),
    "code": Finder.code,
    "globals of": Finder._globals_of,
    "same globals": Finder._same_globals,
    "looked up": Finder._looked_up,
    "operators": lambda finder, namespace: vars(getattr(torch.ops, namespace)),
    "mro": lambda finder, cls: finder.find(cls).__mro__,
    "members": lambda finder, cls: finder.find(cls).__dict__,
    "flags": Finder._flags,
    "inside": Finder._inside,
    "member": Finder._member,
    "at": Finder._at,
    "type at": Finder._type_at,
}
