"""Native functions that few graphs call: each is a unit of its own, so that no program waits for the compiler of one that it does
not call.

In:     the name of a unit of `wrappers.shared_text.AUXILIARY`.
Out:    `function(name)`: its function, built when it is first asked for; None where it cannot be: what would call it then does
        without. `build_beside(name)`: built while a graph is that may call it.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any

import torch

from pliant import background, config
from pliant.debug import events
from pliant.errors import CompileError
from pliant.interruptions import pass_on
from pliant.runtime.build import build, quick
from pliant.runtime.load import load, takes_tensors
from pliant.wrappers.shared_text import auxiliary_text

FINGERPRINT, BERNOULLI = "fingerprint", "bernoulli"
_lock = background.reentrant_lock()
_begun: set[str] = set()


def function(name: str) -> Callable[..., Any] | None:
    """The native function of the unit."""
    with _lock:
        return _function(name)


@functools.cache
def _function(name: str) -> Callable[..., Any] | None:
    try:
        path = build([auxiliary_text(name)], quick(config.get().build))
        return load(path, [f"pliant_{name}"])[0]
    except (CompileError, OSError) as error:
        pass_on(error)
        events.record("auxiliary", name=name, why=str(error).partition("\n")[0])
        return None


def build_beside(name: str) -> None:
    """Build it in a thread, once a process."""
    if name not in _begun:
        _begun.add(name)
        context = contextvars.copy_context()
        background.begin(lambda: context.run(function, name), "pliant-auxiliary")


@functools.cache
def fingerprint() -> Callable[[torch.Tensor, int], int] | None:
    """A function of a tensor and how many bytes it has, which lie without gaps: see `wrappers.fingerprint`."""
    native = function(FINGERPRINT)
    if native is None or takes_tensors():
        return native
    return lambda tensor, size: native(tensor.data_ptr(), size)
