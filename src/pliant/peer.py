"""What a program told PyTorch's own compiler, through its public functions, that this one is to honour.

In:     names of state in modules of that compiler.
Out:    registered backends, marks on functions, the stance, whether breaks are errors, whether it compiles autograd; which
        weak references are its own.
Holds:  that compiler is neither loaded nor called: its state is read where the program has loaded it, and is else as if
        nothing had been said.
"""

from __future__ import annotations

import operator
import sys
import types
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from pliant.torch_adapter import PEER

EVAL_FRAME = f"{PEER}.eval_frame"
_RULES = f"{PEER}.trace_rules"
_IDS = operator.attrgetter(*(f"_{table}_callable_ids.function_ids" for table in ("allowed", "disallowed")))
_COMPILED_AUTOGRAD = f"{PEER}.compiled_autograd"


def _state(module: str, name: str, default: Any = None) -> Any:
    return getattr(sys.modules.get(module), name, default)


def backends() -> Mapping[str, Any]:
    """Backends by the names under which its `register_backend` put them."""
    found = _state(f"{PEER}.backends.registry", "_COMPILER_FNS", {})
    return {name: backend for name, backend in found.items() if not str(backend.__module__).startswith("torch.")}


def tables_with(function: Any) -> Sequence[str]:
    """Which of the two tables of `allow_in_graph` and `disallow_in_graph` have the function."""
    rules = sys.modules.get(_RULES)  # asked of each function that a capture calls
    if rules is None:
        return ()
    try:
        allowed, disallowed = _IDS(rules)
    except AttributeError:  # it is being loaded
        return ()
    number = id(function)
    return [name for name, ids in (("allowed", allowed), ("disallowed", disallowed)) if ids and number in ids]


def stance() -> Any:
    """The state that `torch.compiler.set_stance` sets: `stance`, `backend`, `skip_guard_eval_unsafe`. None: not loaded."""
    return _state(EVAL_FRAME, "_stance")


def breaks_are_errors() -> bool:
    """Whether the call is in a block of its `error_on_graph_break`."""
    return _state(f"{PEER}.utils", "_error_on_graph_break") is True


def compiles_autograd() -> bool:
    """Whether the engine of autograd hands its work to that compiler."""
    return _state(_COMPILED_AUTOGRAD, "compiled_autograd_enabled") is True


def is_its_own(reference: Any) -> bool:
    """Whether it keeps the weak reference itself: once used, it notes which modules are made. A proxy is the program's."""
    if not issubclass(type(reference), weakref.ref):  # whose attributes are those of what it refers to
        return False
    callback = reference.__callback__
    return isinstance(callback, types.FunctionType) and str(callback.__module__).startswith(PEER)
