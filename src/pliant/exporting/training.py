"""A model's call together with the gradients of its loss, as a function that is exported in its place.

In:     a module whose result is a loss, has one by the name `loss`, or as the first of several results.
Out:    a function with the module's arguments: `(result, {parameter: gradient})`. Parameters that require no gradient are
        left out; None for one that the loss does not depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.errors import ExportError

NO_LOSS = "the model returns no loss, a tensor of one number: as its result, by the name `loss`, or as the first of several"


def training_step(model: Callable[..., Any]) -> Callable[..., Any]:
    """The function. `ExportError` where nothing can be trained."""
    named = dict(model.named_parameters()) if isinstance(model, torch.nn.Module) else {}
    names = tuple(name for name, one in named.items() if one.requires_grad)
    parameters = [named[name] for name in names]
    if not parameters:
        raise ExportError(
            "there is no parameter to compute a gradient of", kind="training", do="pass a module whose parameters require gradients",
            why="the model is no module" if not isinstance(model, torch.nn.Module) else "none of the model's requires one",
        )  # fmt: skip

    def step(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad():
            result = model(*args, **kwargs)
            gradients = torch.autograd.grad(loss_of(result), parameters, allow_unused=True)
        return pytree.tree_map(without_history, result), dict(zip(names, gradients))

    return step


def no_loss() -> ExportError:
    return ExportError(
        NO_LOSS, kind="training", why="gradients are those of a loss", do="export a module that computes the loss of the model's result",
        doc="docs/export.md#training",
    )  # fmt: skip


def without_history(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def loss_of(result: Any) -> Any:
    """The loss among a model's results."""
    if isinstance(result, torch.Tensor):
        loss: Any = result
    elif isinstance(result, Mapping):
        loss = result.get("loss")
    elif isinstance(result, (tuple, list)):
        loss = result[0] if result else None
    else:
        loss = getattr(result, "loss", None)
    if not isinstance(loss, torch.Tensor) or loss.dim():
        raise ValueError(NO_LOSS)
    return loss
