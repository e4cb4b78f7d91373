"""Pliant: a just-in-time compiler for PyTorch programs, in readable Python.

The names below are loaded at first use, so that importing a part (the bytecode toolkit, say) does not load PyTorch.
"""

from typing import Any

from pliant.own_modules import find_quickly

find_quickly(__spec__)

from pliant.gc_pause import GcPause  # noqa: E402
from pliant.unpatched import standard  # noqa: E402

__version__ = "0.1.0"

_load = standard("importlib").import_module

_FROM_API = (
    "allow_in_graph", "aot_compile", "assume_constant_result", "compile", "compile_", "cost",
    "disable", "disallow_in_graph", "explain", "export", "graph_break", "is_compiling",
    "list_backends", "lookup_backend", "mark_dynamic", "mark_static", "mark_unbacked", "maybe_mark_dynamic", "reset", "set_stance",
    "stats", "substitute_in_graph", "wait",
)  # fmt: skip
# What needs no compiler comes from where it is.
_ELSEWHERE = {
    "AUTO": "exporting.dims", "Dim": "exporting.dims", "STATIC": "exporting.dims", "load": "exporting.loading",
    "keeps_saved_values": "saved_hooks",
}  # fmt: skip
_FROM_ERRORS = ("PliantError", "PliantWarning")
_MODULES = ("cache", "config", "debug", "errors", "patterns", "report")

__all__ = [*_FROM_API, *_ELSEWHERE, *_FROM_ERRORS, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _FROM_API:
        with GcPause():
            from pliant import api as module
    elif name in _ELSEWHERE:
        with GcPause():
            module = _load(f"pliant.{_ELSEWHERE[name]}")
    elif name in _MODULES:
        return _load(f"pliant.{name}")
    elif name in _FROM_ERRORS:
        from pliant import errors as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module 'pliant' has no attribute {name!r}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
