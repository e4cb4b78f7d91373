"""What a program told PyTorch's own compiler, through its public functions, that this one is to honour.

In:     names of state in modules of that compiler.
Out:    registered backends, marks on functions, the stance, whether breaks are errors, whether it compiles autograd.
Holds:  that compiler is neither loaded nor called: its state is read where the program has loaded it, and is else as if
        nothing had been said.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

EVAL_FRAME = "torch._dynamo.eval_frame"


def _state(module: str, name: str, default: Any = None) -> Any:
    return getattr(sys.modules.get(module), name, default)


def backends() -> Mapping[str, Any]:
    """Backends by the names under which `torch._dynamo.register_backend` put them."""
    found = _state("torch._dynamo.backends.registry", "_COMPILER_FNS", {})
    return {name: backend for name, backend in found.items() if not str(backend.__module__).startswith("torch.")}


def is_in(table: str, function: Any) -> bool:
    """Whether the function is in one of the two tables of `allow_in_graph` and `disallow_in_graph`."""
    ids = getattr(_state("torch._dynamo.trace_rules", f"_{table}_callable_ids"), "function_ids", None)
    return ids is not None and id(function) in ids


def stance() -> Any:
    """The state that `torch.compiler.set_stance` sets: `stance`, `backend`, `skip_guard_eval_unsafe`. None: not loaded."""
    return _state(EVAL_FRAME, "_stance")


def breaks_are_errors() -> bool:
    """Whether the call is in a block of `torch._dynamo.error_on_graph_break`."""
    return _state("torch._dynamo.utils", "_error_on_graph_break") is True


def compiles_autograd() -> bool:
    """Whether the engine of autograd hands its work to that compiler."""
    return _state("torch._dynamo.compiled_autograd", "compiled_autograd_enabled") is True
