"""What code that shows output sees of the program, and may change: the state of a logger's handlers and filters, of a stream.

In:     the logger or the stream, before its call is put off to the end of the entry.
Out:    `reached(...)`: the objects that it leads to, and whether code of the program's is among what runs.
Holds:  nothing of the program's runs: objects are looked into through their namespaces, functions through their closures and
        the globals that they name.
"""

from __future__ import annotations

import collections
import dis
import functools
import gc
import logging
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

import torch

from pliant.records import dataclass
from pliant.tables import ByKind

_LIMIT = 5_000
_STORES_GLOBAL = frozenset((dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]))
_PLAIN = frozenset((int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device))
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)


@dataclass(slots=True, eq=False)
class Reached:
    """`objects`: by id. `names`: of these, globals that functions read, by id, and whether one of them stores into them.
    `runs_program`: whether functions or classes of the program's are among them."""

    objects: dict[int, Any] = field(default_factory=dict)
    names: dict[int, bool] = field(default_factory=dict)
    runs_program: bool = False

    def has(self, value: Any) -> bool:
        return id(value) in self.objects or len(self.objects) > _LIMIT

    def forget_kept(self, shown_by: Any) -> None:
        """What showing a record leaves as it is: globals that are only read, and what loggers know of levels."""
        kept = [id(shown_by), *(key for key, stores in self.names.items() if not stores)]
        for logger in [one for one in self.objects.values() if isinstance(one, logging.Logger)]:
            kept += map(id, (logger, vars(logger), vars(logger).get("_cache")))
        for key in kept:
            self.objects.pop(key, None)


def reached(roots: Iterable[Any]) -> Reached:
    """All that the objects lead to; of more than the limit it may be anything."""
    found, waiting = Reached(), list(roots)
    while waiting and len(found.objects) <= _LIMIT:
        one = waiting.pop()
        if id(one) not in found.objects and type(one) not in _PLAIN:
            found.objects[id(one)] = one
            waiting += _PARTS.of(one)(found, one)
    return found


def _function(found: Reached, function: types.FunctionType) -> list[Any]:
    if _is_standard(function.__globals__.get("__name__", "")):
        return []
    found.runs_program = True
    names = function.__globals__
    found.objects[id(names)] = names
    stores = not _STORES_GLOBAL.isdisjoint(function.__code__.co_code[::2])
    found.names[id(names)] = stores or found.names.get(id(names), False)
    parts = [names[name] for name in function.__code__.co_names if name in names]
    return [*parts, *(function.__closure__ or ()), *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _logger(found: Reached, logger: logging.Logger) -> list[Any]:
    """It passes records on to its parent. Other loggers of its manager are not asked."""
    parts = _instance(found, logger)
    found.objects[id(logger.manager)] = logger.manager
    return [one for one in parts if one is not logger.manager]


def _instance(found: Reached, obj: Any) -> list[Any]:
    own = [base for base in type(obj).__mro__ if not _is_standard(base.__module__)]
    parts = [one for base in own for one in vars(base).values() if type(one) is types.FunctionType]
    try:
        names = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return parts
    found.objects[id(names)] = names
    return [*parts, *names.values()]


def _is_standard(module: Any) -> bool:
    return str(module).split(".")[0] in sys.stdlib_module_names


_PARTS: ByKind[Callable[[Reached, Any], list[Any]]] = ByKind(
    _instance,
    {
        types.FunctionType: _function,
        types.CellType: lambda found, cell: gc.get_referents(cell),  # none of an empty one
        types.MethodType: lambda found, one: [one.__func__, one.__self__],
    },
    {
        **dict.fromkeys((types.ModuleType, type, torch.Tensor), lambda found, one: []),
        **dict.fromkeys(_CONTAINERS, lambda found, one: list(one)),
        dict: lambda found, one: list(dict.values(one)),
        functools.partial: lambda found, one: [one.func, *one.args, *one.keywords.values()],
        logging.Logger: _logger,
    },
)
