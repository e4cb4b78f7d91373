"""`torch.utils.checkpoint`: the region is part of the program; its nodes say that they are to run again in the backward.

In:     the function, its arguments and the options of `checkpoint`.
Out:    the function's result; nodes with `meta["recompute"]`, the number of the innermost region they belong to.
Holds:  one pass over the function: what is random in it is drawn once. A function that changes the world, which eager
        does once more in the backward, breaks where gradients are recorded. Whether values are kept or computed again
        is the partitioner's choice, which follows the marks.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.regions import grad_recorded, tensors_in, versions, without_effects
from pliant.capture.recording.stand_ins import Checkpointed
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.trace import CallEffect
from pliant.graph.fake_tensor import FakeTensor

ROWS = Rows()
handles = ROWS.handles

_numbers = itertools.count(1)
_OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")


@handles(torch.utils.checkpoint.checkpoint)
def _checkpoint(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    function, *given = args
    options = {name: kwargs[name] for name in _OPTIONS if name in kwargs}
    rest = {name: value for name, value in kwargs.items() if name not in options}
    if not _known_policy(t, options.get("context_fn")):
        raise GraphBreak("unknown-call", "checkpoint with a context_fn of its own")
    reentrant = options.get("use_reentrant")
    if reentrant is None:
        t.world.effects_in_order.append(CallEffect(_warn_of_reentrancy, (), {}))
    same_numbers = bool(options.get("preserve_rng_state", True))
    marks, t.recorder.marks = t.recorder.marks, {**t.recorder.marks, "recompute": next(_numbers)}
    try:
        with _as_eager_runs_it(t, reentrant is None or reentrant, given, rest, same_numbers):
            found = t.call(function, tuple(given), rest)
        _note(t, marks.get("recompute"), tensors_in(found))
        return found
    finally:
        t.recorder.marks = marks


def _note(t: Tracer, outer: int | None, results: list[FakeTensor]) -> None:
    end = next(iter(reversed(t.recorder.graph.nodes)), None)
    if end is not None and results:
        number = t.recorder.marks["recompute"]
        t.recorder.checkpointed.append(Checkpointed(number, outer, results, end))


@contextmanager
def _twice(t: Tracer, same_numbers: bool) -> Iterator[None]:
    """Break at what eager would do once more in the backward. `same_numbers`: random draws give what they gave."""
    graph, before = t.recorder.graph, versions((t.recorder.graph,))
    known = set(graph.nodes)
    drawn, t.mode.draws = t.mode.draws, False
    try:
        with without_effects(t, "a checkpointed function", later=True):
            yield
        if t.mode.draws and not same_numbers:
            raise GraphBreak("random-state", "a checkpointed function draws other numbers in the backward")
    finally:
        t.mode.draws |= drawn
    seen = [node.meta.get("val") for node in graph.nodes if node in known or node.op == "placeholder"]
    if any(one.writes_ != before.get(id(one), 0) for one in tensors_in(seen)):
        raise GraphBreak("side-effect-call", "a checkpointed function writes a tensor from outside")


def _warn_of_reentrancy() -> None:
    checkpoint = torch.utils.checkpoint.checkpoint
    with torch.enable_grad():
        checkpoint(torch.neg, torch.zeros((), requires_grad=True), preserve_rng_state=False)


def _known_policy(t: Tracer, context: Any) -> bool:
    """Policies choose what is kept: that changes no values."""
    if context is None or context is torch.utils.checkpoint.noop_context_fn:
        return True
    match context:
        case functools.partial():
            return t.get_attr(context, "func") is create_selective_checkpoint_contexts
        case types.FunctionType() if create_selective_checkpoint_contexts.__name__ in _names(context):
            return all(isinstance(one, _SELECTIVE) for one in t.native(context))
    return False


_SELECTIVE = tuple(map(type, create_selective_checkpoint_contexts([])))  # type: ignore[no-untyped-call]


def _names(function: types.FunctionType) -> tuple[str, ...]:
    return function.__code__.co_names + function.__code__.co_freevars


def _as_eager_runs_it(
    t: Tracer, reentrant: bool, args: list[Any], kwargs: Kwargs, same_numbers: bool
) -> AbstractContextManager[None]:
    """Of a reentrant one eager makes one node of autograd, which needs a gradient only if an argument does."""
    if reentrant and kwargs:
        raise GraphBreak("bad-call", "a reentrant checkpoint takes no keyword arguments")
    if not torch.is_grad_enabled():
        return nullcontext()
    needs = any(one.requires_grad for one in tensors_in(args))
    if reentrant and needs and t.recorder.marks.get("inference"):
        raise GraphBreak("unsupported-operator", "a reentrant checkpoint in inference mode records a gradient")
    if not reentrant or needs:
        return _twice(t, same_numbers)
    t.world.effects_in_order.append(CallEffect(torch.utils.checkpoint.check_backward_validity, ((),), {}))
    return grad_recorded(t, False)
