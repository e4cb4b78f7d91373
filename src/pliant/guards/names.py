"""Names in generated code: one namespace for held objects and local variables of an entry.

In:     objects that generated code refers to, and hints for variable names.
Out:    identifiers; `values` is the globals dictionary of the generated function.
Holds:  a name is given once; an object is held under one name. What generated code calls by a fixed name is reserved, or
        starts with `_`, as no name does that is given here: a parameter of the program may be called anything.
"""

from __future__ import annotations

import builtins
import keyword
import re
import types
from typing import Any

_RESERVED = (
    frozenset(keyword.kwlist)
    | frozenset(dir(builtins))
    | set("args kwargs check find probe entry prepare load held unchanged recheck math MISS READ_ERRORS".split())
    | set("alike alike_others learn_alike learn_alike_others".split())
)
_NOT_IDENTIFIER = r"\W+"


class Names:
    """Allocates identifiers and keeps held objects alive. Calling it holds an object (the `Namer` of sources)."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._held: dict[int, str] = {}
        self._taken: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """An unused identifier that resembles the hint."""
        base = re.sub(_NOT_IDENTIFIER, "_", hint).strip("_")[:60] or "v"
        if base[0].isdigit():
            base = "v" + base
        count = self._taken.get(base)
        if count is None and base not in _RESERVED:
            self._taken[base] = 1
            return base
        number = count or 1
        while f"{base}_{number}" in self._taken:
            number += 1
        self._taken[base] = number + 1
        self._taken[f"{base}_{number}"] = 1
        return f"{base}_{number}"

    def __call__(self, value: object, hint: str = "") -> str:
        if issubclass(type(value), type) and _is_builtin(value):  # type: ignore[arg-type]
            return value.__name__  # type: ignore[attr-defined,no-any-return]
        name = self._held.get(id(value))
        if name is None:
            name = self.fresh(hint or _hint(value))
            self._held[id(value)] = name
            self.values[name] = value
        return name

    def define(self, name: str, value: object) -> None:
        """Hold an object under a reserved name."""
        assert name in _RESERVED, name
        self.values[name] = value


def _is_builtin(cls: type) -> bool:
    found: object = builtins.__dict__.get(cls.__name__)
    return found is cls


def _hint(value: object) -> str:
    is_asked = isinstance(type(value).__getattribute__, types.FunctionType)  # by code of the program's
    name = getattr(value, "__name__", None) if callable(value) and not is_asked else None
    if isinstance(name, str):
        return name
    text = type(value).__name__
    if text in ("dtype", "device", "layout", "memory_format"):
        return str(value).removeprefix("torch.")
    return f"the_{text}"
