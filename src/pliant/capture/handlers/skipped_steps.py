"""Optimizers' steps that data may skip, as part of the graph: what gradient scalers do where gradients overflow.

In:     the functions behind optimizers, and the methods of `torch.amp.GradScaler` that call them.
Out:    the step, and for each tensor that it writes the choice between its new value and the old one.
Holds:  only for PyTorch's own optimizers without hooks, whose state is made and whose steps change tensors alone: a
        step that is not made has no effect. Others are called where data decides, behind a graph break.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, optim

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.rows import inline_by_rows
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.regions import tensors_of
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_several
from pliant.torch_adapter import check_and_unscale, optimizer_hooks, scaler_step

ROWS = Rows()
handles = ROWS.handles

_OURS = (
    optim.Adadelta, optim.Adagrad, optim.Adam, optim.Adamax, optim.AdamW, optim.ASGD, optim.NAdam, optim.RAdam,
    optim.RMSprop, optim.Rprop, optim.SGD,
)  # fmt: skip
_STEP: Any = scaler_step
_GRADIENTS = 1  # their place among the arguments of the functions behind optimizers


def may_skip(t: Tracer, skipped: Any, step: Callable[[], Any]) -> Any:
    """The step, which has no effect where `skipped` (None: never) holds."""
    before, t.skipped = t.skipped, t.skipped if skipped is None else skipped
    try:
        return step()
    finally:
        t.skipped = before


def step_by_rows(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interpret a function behind an optimizer."""
    if t.skipped is None:
        return inline_by_rows(t, function, args, kwargs)
    given = [
        a for place, a in enumerate((*args, *kwargs.values())) if is_several(a) and place != _GRADIENTS
    ]
    tensors = tensors_of(t.internalize(one) for a in given for one in t.sequence(a))
    if any(None in t.sequence(a) for a in given):
        raise GraphBreak("data-dependent", "a step that makes its optimizer's state may be skipped")
    before = [call_torch(t, Tensor.clone, (one,), {}) for one in tensors]
    inline_by_rows(t, function, args, kwargs)
    for one, old in zip(tensors, before):
        call_torch(t, Tensor.copy_, (one, call_torch(t, torch.where, (t.skipped, old, one), {})), {})
    return None


def unscale(t: Tracer, gradients: Any, scale: Any, skipped: Any) -> None:
    """What fused kernels do with gradients that are scaled."""
    for one in map(t.internalize, t.sequence(gradients)):
        value = call_torch(t, torch.div, (one, scale), {})
        value = value if skipped is None else call_torch(t, torch.where, (skipped, one, value), {})
        call_torch(t, Tensor.copy_, (one, value), {})


@handles(check_and_unscale)
def _check_and_unscale(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Operators on single gradients, which fuse with what follows."""
    gradients, found, inverse = args
    for one in map(t.internalize, t.sequence(gradients)):
        finite = call_torch(t, torch.all, (call_torch(t, torch.isfinite, (one,), {}),), {})
        call_torch(t, Tensor.copy_, (found, call_torch(t, torch.where, (finite, found, 1.0), {})), {})
        call_torch(t, Tensor.mul_, (one, inverse), {})


@handles(_STEP)
def _maybe_step(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    optimizer = args[1]
    kept = t.world.is_foreign(optimizer) and not t.world.has_changes(optimizer.state)
    if len(args) > 3 or kwargs or not kept or not _is_skippable(optimizer):
        return t.inline(_STEP, args, kwargs)
    per_device = t.subscript(args[2], "found_inf_per_device")
    found = t.sequence(t.call(t.get_attr(per_device, "values"), (), {}))
    total = functools.reduce(lambda a, b: t.call(operator.add, (a, b), {}), found)
    skipped = call_torch(t, torch.ne, (total, 0), {})
    return may_skip(t, skipped, lambda: t.call(t.get_attr(optimizer, "step"), (), {}))


def _is_skippable(optimizer: optim.Optimizer) -> bool:
    """Whether its steps change tensors alone: that its state is there is guarded where the step reads it."""
    hooks = (
        *optimizer_hooks(),
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
    )
    if type(optimizer) not in _OURS or any(hooks) or "step" in vars(optimizer) and not _is_tracked(optimizer):
        return False
    return all(not group["differentiable"] and _has_state(optimizer, group) for group in optimizer.param_groups)


def _is_tracked(optimizer: optim.Optimizer) -> bool:
    """Whether it is a scheduler that notes that a step was made, as it has been noted before."""
    return hasattr(optimizer.step, "_wrapped_by_lr_sched") and getattr(optimizer, "_opt_called", False)


def _has_state(optimizer: optim.Optimizer, group: dict[str, Any]) -> bool:
    stepped = [p for p in group["params"] if p.requires_grad]
    if type(optimizer) is optim.SGD:
        made = [optimizer.state.get(p, {}).get("momentum_buffer") is not None for p in stepped]
        return not group["momentum"] or all(made)
    return all(optimizer.state.get(p) for p in stepped)
