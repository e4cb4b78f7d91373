"""Functions written in C that compare what they are given, or change it: Python versions, mostly the library's own, are interpreted.

Holds:  so comparisons of the program run in the interpreter, and numbers in a list stay symbolic.
"""

from __future__ import annotations

import collections
import functools
import heapq
import importlib.util
import sys
import types
from typing import Any

from pliant.capture.handlers.c_functions import call_native
from pliant.capture.handlers.table import Rows
from pliant.capture.protocols.subscripts import as_index
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import is_builtin, is_dict, is_text_or_bytes
from pliant.polyfills import heaps

ROWS = Rows()
handles, TABLE = ROWS.handles, ROWS.callables


_count: Any = collections._count_elements  # type: ignore[attr-defined]


@functools.cache
def _in_python(name: str) -> types.ModuleType:
    """The module of the standard library as it is where its part in C is missing."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    part = f"_{name}"
    in_c = sys.modules.get(part)
    sys.modules[part] = None  # type: ignore[assignment]
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[part]
        if in_c is not None:
            sys.modules[part] = in_c
    return module


def _twin(module: str, name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return t.call(vars(_in_python(module))[name], args, kwargs)


def _bisect(name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Of the bounds C code makes numbers first, the Python version compares them as they are."""
    bounds = [bound if bound is None else as_index(t, bound) for bound in args[2:4]]
    named = {key: as_index(t, v) if key in ("lo", "hi") and v is not None else v for key, v in kwargs.items()}
    return _twin("bisect", name, t, (*args[:2], *bounds, *args[4:]), named)


@handles(_count)
def _count_elements(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Of texts by C code. Other items may be symbolic numbers, or a subclass reads and stores them by methods of its own."""
    in_c = is_dict(args[0]) and is_text_or_bytes(args[1])
    return call_native(t, _count, args, kwargs) if in_c else _twin("collections", "_count_elements", t, args, kwargs)


for _module, _names in (
    ("heapq", [name for name in vars(importlib.import_module("_heapq")) if name.endswith("_max")]),  # others: `polyfills/heaps.py`
    ("bisect", vars(importlib.import_module("_bisect"))),
    ("operator", ("countOf", "indexOf", "length_hint")),  # the others have rows of their own
):
    for _name in _names:
        _function = getattr(importlib.import_module(f"_{_module}"), _name)
        if is_builtin(_function):
            by_twin = functools.partial(_twin, _module)
            TABLE[_function] = functools.partial(_bisect if _module == "bisect" else by_twin, _name)


def _interpreted(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return t.call(function, args, kwargs)


for _function in (heaps.heappush, heaps.heappop, heaps.heapreplace, heaps.heappushpop, heaps.heapify):
    TABLE[getattr(heapq, _function.__name__)] = functools.partial(_interpreted, _function)
