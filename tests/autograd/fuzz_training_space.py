"""What random training programs may name: custom functions, hooks, and what their drivers do with results.

`space()` is a fresh namespace; its `LOG` receives what hooks see.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import pliant

Function = torch.autograd.Function


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


class Saves(Function):
    """Saves an input, the output and what is between them."""

    @staticmethod
    def forward(ctx, x):
        between = x.sin()
        out = between * 2
        ctx.save_for_backward(x, between, out)
        return out

    @staticmethod
    def backward(ctx, g):
        x, between, out = ctx.saved_tensors
        return g * x.cos() * 2 + g * 0 * (between + out)


class Dirty(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, g):
        return g * 3


class DirtyAndMore(Function):
    @staticmethod
    def forward(ctx, x, y):
        x.add_(y)
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        return x, x * y

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return g + h * y, g + h


class NonDifferentiable(Function):
    @staticmethod
    def forward(ctx, x):
        mask, out = x > 0.5, x * 2
        ctx.mark_non_differentiable(mask)
        return out, mask

    @staticmethod
    def backward(ctx, g, _):
        return g * 2


class MaybeNone(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        dx = dy = None
        if g is not None:
            dx, dy = g * y, g * x
        if h is not None:
            dx, dy = (h if dx is None else dx + h), (h if dy is None else dy + h)
        return dx, dy


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (1 - x.tanh() ** 2)


class AsIs(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, y * 2

    @staticmethod
    def backward(ctx, g, h):
        return g * 3, h * 2


class AsView(Function):
    @staticmethod
    def forward(ctx, x):
        return x.transpose(0, -1)

    @staticmethod
    def backward(ctx, g):
        return g.transpose(0, -1) * 2


class Several(Function):
    @staticmethod
    def forward(ctx, x):
        doubled = x * 2
        return doubled, doubled.sum(0), x.view_as(x)

    @staticmethod
    def backward(ctx, g, h, k):
        return g * 2 + h * 2 + k


class Needs(Function):
    @staticmethod
    def forward(ctx, x, y, flag=True):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[1] else None, None


class SetUp(Function):
    @staticmethod
    def forward(x, power):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, output = ctx.saved_tensors
        return g * ctx.power * x ** (ctx.power - 1) + 0 * output, None


class Nested(Function):
    """Its backward calls another function, and asks for gradients itself."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(inner.sin().sum(), inner)
        return Scale.apply(g, 1.0) * slope


FUNCTIONS = {
    one.__name__: one
    for one in (
        Scale, Saves, Dirty, DirtyAndMore, NonDifferentiable, MaybeNone, Once, AsIs, AsView, Several, Needs, SetUp, Nested
    )
}  # fmt: skip


def flat(value: Any) -> list[Any]:
    """The leaves of nested containers."""
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in flat(one)]
    return [leaf for one in value for leaf in flat(one)] if isinstance(value, (list, tuple)) else [value]


def call(f: Any, world: dict[str, Any], **other: Any) -> list[Any]:
    torch.manual_seed(1)
    w = {**world, **other}
    return flat(f(w["x"], w["y"], w["p"], w["b"], w["c"]))


def tangent(t: torch.Tensor, *batch: int) -> torch.Tensor:
    count = torch.arange(t.numel() * (batch[0] if batch else 1), dtype=torch.float64)
    return (count.sin() + 1.5).reshape(*batch, *t.shape).to(t.dtype)


# How gradients of results lie in memory, otherwise than the results.
LIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda t: t,
    "gaps": lambda t: torch.stack([t, t], -1)[..., 0],
    "reversed": lambda t: t.permute(*reversed(range(t.dim()))).contiguous().permute(*reversed(range(t.dim()))),
    "expanded": lambda t: t.reshape(-1)[:1].reshape([1] * t.dim()).expand(t.shape) if t.numel() else t,
    "columns": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]] if t.dim() else t,
}


def chosen(outputs: list[Any], places: list[int]) -> list[torch.Tensor]:
    return [outputs[i] for i in places if i < len(outputs) and isinstance(outputs[i], torch.Tensor)]


def backward(outputs: list[Any], places: list[int], lies: str = "plain", **options: Any) -> None:
    roots = chosen(outputs, places)
    torch.autograd.backward(roots, [LIES[lies](tangent(t)) for t in roots], **options)


def grads(
    outputs: list[Any], places: list[int], wanted: list[torch.Tensor], lies: str = "plain", **options: Any
) -> list[Any]:
    roots = chosen(outputs, places)
    tangents = [LIES[lies](tangent(t)) for t in roots]
    return list(torch.autograd.grad(roots, wanted, tangents, allow_unused=True, **options))


def batched(outputs: list[Any], place: int, wanted: list[torch.Tensor], **options: Any) -> list[Any]:
    (root,) = chosen(outputs, [place])
    return list(
        torch.autograd.grad(root, wanted, tangent(root, 2), is_grads_batched=True, allow_unused=True, **options)
    )


def double(g: torch.Tensor | None) -> torch.Tensor | None:
    return None if g is None else g * 2


def differentiating(result: torch.Tensor, leaf: torch.Tensor) -> Any:
    """A hook that asks for a gradient of what was computed before: nothing that the hooked tensor's own leads through."""

    def hook(g: torch.Tensor | None) -> torch.Tensor | None:
        if g is None:
            return None
        return g + torch.autograd.grad(result, leaf, torch.ones_like(result), retain_graph=True)[0].sum()

    return hook


def space() -> dict[str, Any]:
    log: list[Any] = []

    def noting(name: str) -> Any:
        return lambda g: None if g is None else log.append((name, g.detach().clone()))

    def noting_and_scaling(name: str) -> Any:
        def hook(g: torch.Tensor | None) -> torch.Tensor | None:
            if g is None:  # of a result: all results share one function of autograd's graph
                return None
            log.append((name, g.detach().clone()))
            return g * 2

        return hook

    def noting_sum(name: str) -> Any:
        return lambda t: log.append((name, t.grad.sum().item()))

    def noting_node(name: str) -> Any:
        return lambda *given: log.append((name, None))

    @contextlib.contextmanager
    def packing() -> Any:
        with torch.autograd.graph.saved_tensors_hooks(pliant.keeps_saved_values(lambda t: (t.clone(),)), lambda t: t[0]):
            yield

    def selective() -> Any:
        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            keep = op is torch.ops.aten.sin.default
            return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    names = {
        "torch": torch, "F": torch.nn.functional, "pliant": pliant, "checkpoint": checkpoint, "LOG": log, "double": double, "noting": noting, "selective": selective,
        "differentiating": differentiating,
        "noting_and_scaling": noting_and_scaling, "noting_sum": noting_sum, "noting_node": noting_node, "packing": packing, "call": call, "backward": backward,
        "checkpoint_sequential": checkpoint_sequential, "grads": grads, "batched": batched, "flat": flat, "tangent": tangent,
        "save_on_cpu": torch.autograd.graph.save_on_cpu,
    }  # fmt: skip
    return names | FUNCTIONS
