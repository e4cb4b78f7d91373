"""Modules of the standard library, and the builtins, as they were when Pliant was imported.

Programs put their own in their place, as for a `print` of one rank alone, a `time.time` that stands still, or a class of their own for
`collections.deque`. What the compiler computes does not change by that, nothing of the program's runs in it, and what its
tables know of a function holds of that function alone.

In:     names of modules.
Out:    `BUILTINS`; `standard(name)`: a module that has the callables and the constants which the one of that name had, and reads
        everything else from it when it is asked; `IN_CODE`: the builtins of the package's own modules, whose import
        statements get those (`own_modules`).
Holds:  what was made in C, and replaced before Pliant was imported, is had from where it is made.
        Modules that are state rather than functions are themselves: what a program puts there is meant for all.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["BUILTINS", "IN_CODE", "is_as_it_was", "standard"]

_import_now = builtins.__import__
BUILTINS = types.SimpleNamespace(**vars(builtins))
IN_CODE = {**vars(builtins)}  # which nobody changes
__builtins__ = IN_CODE  # type: ignore[assignment]  # for the functions below, too, which run at any time

_STATE = frozenset(("builtins", "sys", "warnings"))
_STANDARD = sys.stdlib_module_names - _STATE
_MADE_IN_C = {"collections": "_collections", "functools": "_functools"}
_CONSTANTS = (int, float, complex, str, bytes, tuple, frozenset, type(None))


class _Known(dict[str, bool]):
    """Of modules by name, whether they are the standard library's: each statement that imports asks, thousands at a start."""

    def __missing__(self, name: str) -> bool:
        found = self[name] = name.partition(".")[0] in _STANDARD
        return found


_is_standard = _Known().__getitem__


# What the package uses; PyTorch loads all of it. Modules that are loaded later are taken as they are when the package asks for them.
USED = """
    abc ast atexit base64 bisect collections contextlib contextvars copy copyreg ctypes dataclasses datetime difflib dis enum errno
    functools gc hashlib heapq importlib.machinery importlib.metadata importlib.util inspect io itertools json keyword linecache logging marshal
    math mmap numbers opcode operator os pathlib pickle pkgutil platform random re reprlib shutil signal stat struct subprocess
    tarfile tempfile textwrap threading time traceback types typing weakref zipfile zlib
""".split()
for _name in USED:
    importlib.import_module(_name)
_AT_FIRST = {n: dict(vars(module)) for n, module in [*sys.modules.items()] if n.partition(".")[0] in _STANDARD and module is not None}
_kept: dict[str, Any] = {}
_load = importlib.import_module


def standard(name: str) -> Any:
    """The module of this name, as it was."""
    found = _kept.get(name)
    if found is None:
        found = _kept.setdefault(name, _as_it_was(_load(name)))
    return found


def is_as_it_was(module: types.ModuleType) -> bool:
    """Whether `standard` gave it."""
    return _kept.get(module.__name__) is module


def _as_it_was(module: types.ModuleType) -> types.ModuleType:
    """What it had is put there name by name, when it is asked for: of most modules few names are."""
    kept, before = types.ModuleType(module.__name__, module.__doc__), _first_of(module)
    in_c = _first_of(_load(_MADE_IN_C[module.__name__])) if module.__name__ in _MADE_IN_C else {}
    space = vars(kept)

    def __getattr__(name: str) -> Any:
        value = before.get(name, module)
        if callable(value) or isinstance(value, _CONSTANTS):
            value = space[name] = in_c[name] if callable(in_c.get(name)) else value
            return value
        value = getattr(module, name)
        if type(value) is types.ModuleType and _is_standard(value.__name__):
            value = space[name] = standard(value.__name__)
        return value

    space.update(__getattr__=__getattr__, __dir__=lambda: [*before])
    for name in _OF_ANY_MODULE & before.keys():  # `operator.__eq__`: the class of modules has such a name, so nobody asks
        __getattr__(name)
    return kept


_OF_ANY_MODULE = frozenset(dir(types.ModuleType))


def _first_of(module: types.ModuleType) -> dict[str, Any]:
    return _AT_FIRST.get(module.__name__) or dict(vars(module))


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """`__import__` of modules of the package."""
    if level == 0 and _is_standard(name):
        found = standard(name)
        return found if fromlist or "." not in name else standard(name.partition(".")[0])
    return _import_now(name, globals, locals, fromlist, level)


IN_CODE["__import__"] = _import
