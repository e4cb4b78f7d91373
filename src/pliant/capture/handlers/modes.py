"""Blocks of `torch.inference_mode`.

In:     the object in C that such a block enters and leaves.
Out:    a block that changes whether gradients are recorded, which is a node of the graph.
Holds:  tensors made in the block require no gradient. They are ordinary tensors, not inference tensors: the graph may
        use them later where eager refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import CLASSES, Args, Kwargs, handles

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer


class InferenceBlock:
    """Stands for a `torch._C._InferenceMode`; behind a break inside the block, the entry makes it again."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.before = True

    def __enter__(self) -> None:
        self.before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(not self.mode)

    def __exit__(self, *error: Any) -> None:
        torch._C._set_grad_enabled(self.before)


def _construct(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return InferenceBlock(bool(t.truth(args[0])))


CLASSES[torch._C._InferenceMode] = _construct


@handles(InferenceBlock.__enter__)
def _enter(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    block = args[0]
    t.inference.append(block.mode)
    block.before = torch.is_grad_enabled()
    t.call(torch._C._set_grad_enabled, (not block.mode,), {})


@handles(InferenceBlock.__exit__)
def _exit(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    if t.inference:
        t.inference.pop()
    t.call(torch._C._set_grad_enabled, (t.get_attr(args[0], "before"),), {})


@handles(torch.is_inference_mode_enabled)
def _is_enabled(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    if t.inference:
        return t.inference[-1]
    return torch.is_inference_mode_enabled()  # which every entry depends on


@handles(torch.Tensor.is_inference, torch.is_inference)
def _is_inference(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    example = t.inputs.example_of(args[0])
    if example is None and t.inference:
        raise GraphBreak("unsupported-tensor", "whether a tensor of this block is an inference tensor")
    return torch.is_inference_mode_enabled() if example is None else example.is_inference()
