"""`torch.utils.checkpoint`: the region is part of the program; its nodes say that they are to run again in the backward.

In:     the function, its arguments and the options of `checkpoint`.
Out:    the function's result; nodes with `meta["recompute"]`, the number of the innermost region they belong to.
Holds:  one pass over the function: what is random in it is drawn once, and Python in it runs once (eager runs it again in the
        backward). Whether values are kept or computed again is the partitioner's choice, which follows the marks.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers import handles
from pliant.capture.regions import tensors_in

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

_numbers = itertools.count(1)
_OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")


@handles(torch.utils.checkpoint.checkpoint)
def _checkpoint(t: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    function, *given = args
    options = {name: kwargs[name] for name in _OPTIONS if name in kwargs}
    rest = {name: value for name, value in kwargs.items() if name not in options}
    if not _known_policy(options.get("context_fn")):
        raise GraphBreak("unknown-call", "checkpoint with a context_fn of its own")
    if options.get("use_reentrant") is None and "use_reentrant" in options or "use_reentrant" not in options:
        raise GraphBreak("side-effect-call", "checkpoint without use_reentrant, which warns")
    marks, t.recorder.marks = t.recorder.marks, {**t.recorder.marks, "recompute": next(_numbers)}
    try:
        if options["use_reentrant"]:
            return _reentrant(t, function, tuple(given), rest)
        return t.call(function, tuple(given), rest)
    finally:
        t.recorder.marks = marks


def _known_policy(context: Any) -> bool:
    """Policies choose what is kept: that changes no values."""
    if context is None or context is torch.utils.checkpoint.noop_context_fn:
        return True
    return (
        isinstance(context, functools.partial)
        and context.func is torch.utils.checkpoint.create_selective_checkpoint_contexts
    )


def _reentrant(t: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Eager makes one node of autograd, which needs a gradient only if an argument does."""
    if kwargs:
        raise GraphBreak("bad-call", "a reentrant checkpoint takes no keyword arguments")
    if not torch.is_grad_enabled() or any(one.requires_grad for a in args for one in tensors_in(a)):
        return t.call(function, args, kwargs)
    raise GraphBreak("side-effect-call", "a reentrant checkpoint of arguments without gradients, which warns")
