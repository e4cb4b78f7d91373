"""Hooks on leaves to which a backward pass of a compiled graph brings no gradient.

In:     a function of autograd's graph that leads to a leaf.
Out:    the leaf's hooks are not called in this pass unless they get a gradient.
Holds:  eager would not get to such a leaf; the engine, which is given None for it, calls its hooks all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant import torch_adapter
from pliant.autograd.result_hooks import Spared
from pliant.autograd.views import version


class _SparedAfter:
    """A hook on a parameter whose gradient was added to, which is not called if it was not."""

    def __init__(self, hook: Callable[[Any], Any], parameter: torch.Tensor) -> None:
        self.hook, self.before = hook, self.state(parameter)

    @staticmethod
    def state(parameter: torch.Tensor) -> Any:
        return parameter.grad, None if parameter.grad is None else version(parameter.grad)

    def __call__(self, parameter: torch.Tensor) -> None:
        grad, count = self.before
        now, found = self.state(parameter)
        if now is not grad or found != count:
            self.hook(parameter)


def spare_hooks_of_leaf(function: Any) -> None:
    """Until the end of this backward pass the hooks of the leaf behind this function of autograd's graph are not called
    without a gradient: eager would not get there."""
    while function is not None and not hasattr(function, "variable") and len(function.next_functions) == 1:
        function = function.next_functions[0][0]
    leaf: Any = getattr(function, "variable", None)
    _replace_for_now(getattr(leaf, "_backward_hooks", None), Spared)
    _replace_for_now(getattr(leaf, "_post_accumulate_grad_hooks", None), lambda hook: _SparedAfter(hook, leaf))


def _replace_for_now(hooks: dict[int, Any] | None, by: Callable[[Any], Any]) -> None:
    """Replace hooks until the end of this backward pass."""
    if not hooks:
        return
    before = dict(hooks)
    made = {key: by(hook) for key, hook in before.items()}
    hooks.update(made)

    def restore() -> None:
        hooks.update({key: before[key] for key, one in made.items() if hooks.get(key) is one})

    torch_adapter.after_backward(restore)
