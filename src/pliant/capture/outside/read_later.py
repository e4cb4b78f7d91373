"""What code reads from outside that may be another value at another time.

In:     values as they are read, while such code is traced: a backward or a hook, which runs when a gradient is asked for.
Out:    a break where the value may be another by then.
"""

from __future__ import annotations

import functools
import sys
from contextlib import AbstractContextManager
from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import is_str, is_tensor
from pliant.guards.sources import Source


def read_later(t: Tracer, what: str) -> AbstractContextManager[None]:
    """Break where what runs inside reads values from outside: it is to run when these may be others."""
    return t.world.reads_seen_by(functools.partial(_refuse, what))


def asks_grad_mode(t: Tracer, answer: bool, source: Source) -> None:
    """The program asked whether gradients are recorded. Where they are not: while a backward runs they are, if
    `create_graph` is given. Contexts of PyTorch's own that set the mode keep the answer to set it back."""
    asked = bool(t.frames) and t.frames[-1].is_the_users
    if not answer and asked and t.world.look is not None:
        t.world.look(answer, source)


def _refuse(reader: str, value: Any, source: Source) -> None:
    if may_be_another(value, source):
        raise GraphBreak("read-later", f"{reader} reads `{source}`")


def may_be_another(value: Any, source: Source) -> bool:
    """Whether it is a value that programs put in the place of another, and no part of the program itself."""
    return _varies(value) and not _is_of_function(value, source) and not _is_constant(value, source)


_WITH_CONSTANTS = ("math", "cmath", "torch", "numpy")


def _is_constant(value: Any, source: Any) -> bool:
    """Whether it is a number that such a module names, as `math.pi`."""
    held = getattr(getattr(source, "parent", None), "held", None)
    if held is None or type(value) not in (float, complex):
        return False
    modules = filter(None, map(sys.modules.get, _WITH_CONSTANTS))
    return any(held.value is vars(module) for module in modules)


def _varies(value: Any) -> bool:
    return type(value) in (type(None), bool, int, float, complex, str) or is_tensor(value)


def _is_of_function(value: Any, source: Any) -> bool:
    """Whether it leads to what a function was defined with: defaults, and texts in closures, by which decorators are told
    devices and modes (`torch.amp.custom_bwd`)."""
    names = ("__defaults__", "__kwdefaults__", *(("__closure__",) if is_str(value) else ()))
    while source is not None and getattr(source, "name", "") not in names:
        source = getattr(source, "parent", None)
    return source is not None
