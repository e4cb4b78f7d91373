"""Hooks that a program registers on tensors it computes.

In:     `tensor.register_hook(function)` and its relatives, modules with backward hooks.
Out:    a node that registers the function's graph, if the function only computes; else a graph break, behind which the hook is
        registered on the real tensor and runs when the engine gets there.
Holds:  a hook whose handle is used, or whose tensor comes from outside, is registered for real.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.hooks import BackwardHook

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.regions import Region, grad_kept, record_module, without_effects
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.graph.fake_tensor import is_fake
from pliant.graph.tensor_hook import TensorHook

ROWS = Rows()
handles = ROWS.handles


@handles(torch.Tensor.register_hook)
def _register_hook(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    tensor, function = (*args, *kwargs.values())
    if t.inputs.example_of(tensor) is not None:
        raise GraphBreak("backward-hook", "a hook on a tensor from outside")
    if not tensor.requires_grad:
        raise GraphBreak("tensor-error", "a hook on a tensor that requires no gradient")
    if not _result_is_dropped(t):
        raise GraphBreak("backward-hook", "a hook whose handle is used")
    region = Region(t.recorder)
    with region.active(), without_effects(t, "a tensor hook"), t.world.read_later("a tensor hook"):
        with grad_kept(False):
            found = t.call(function, (region.fresh(tensor),), {})
        if found is None:
            return None
        if not is_fake(found):
            raise GraphBreak("tensor-error", "a tensor hook returned something other than a tensor")
        body = region.close([found], "TensorHook")
    record_module(t, TensorHook(body), [tensor, *region.lifted[1:]], "hook")
    return None


def _result_is_dropped(t: Tracer) -> bool:
    """Whether the statement that called does nothing with the result."""
    frame = t.frames[-1]
    return frame.program.ops[frame.ip].name == "POP_TOP"


ROWS.refuses(
    (torch.Tensor.register_post_accumulate_grad_hook,), "backward-hook", "a hook behind the accumulation of a gradient"
)


def _tie(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A module's inputs and outputs become those of a function of autograd's graph, which calls its hooks."""
    raise GraphBreak("backward-hook", f"a {type(args[0].module).__name__} with backward hooks")


for _method in (BackwardHook.setup_input_hook, BackwardHook.setup_output_hook):
    handles(_method)(_tie)
