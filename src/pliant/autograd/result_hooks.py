"""Hooks that the caller registers on results of a compiled graph, which share one function of autograd's graph.

In:     a result.
Out:    the same tensor; where it gets hooks, they are called only with a gradient that is wanted.
Holds:  in eager a result that no gradient gets to has its hooks left alone, and so has one whose gradient leads to nothing
        that was asked for; the engine, which goes through the shared function for another result, or comes from a later
        graph's for one that needs nothing of this, calls the hooks of that function, maybe with None.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from pliant.autograd.wanted import is_wanted
from pliant.autograd_torch_adapter import register_hooks_of, register_hooks_with, tell_missing

_HOOKED = "_pliant_hooked_results"  # of a function of autograd's graph


class Spared:
    """A hook that is not called without a gradient; one of several tensors learns that there is none."""

    def __init__(self, hook: Callable[[Any], Any]) -> None:
        self.hook = hook

    def __call__(self, gradient: Any) -> Any:
        return self.without() if gradient is None else self.hook(gradient)

    def without(self) -> None:
        tell_missing(self.hook)


class _OfResult(Spared):
    """A hook on a result, which is not called for a gradient that nobody wants either."""

    def __init__(self, hook: Callable[[Any], Any], function: Any, number: int) -> None:
        super().__init__(hook)
        self.function, self.number = weakref.ref(function), number

    def __call__(self, gradient: Any) -> Any:
        function = self.function()
        return super().__call__(gradient) if function is None or is_wanted(function, self.number) else self.without()


def _spared(hook: Callable[[Any], Any], tensor: torch.Tensor | None) -> Spared:
    if tensor is None or not isinstance(tensor.grad_fn, BackwardCFunction):  # by now it is another function's
        return Spared(hook)
    return _OfResult(hook, tensor.grad_fn, tensor.output_nr)


class _ResultHooks(dict[int, Any]):
    """What a result with hooks has for its dict of them. The engine knows of it from the first hook on."""

    __slots__ = ("__weakref__", "known", "tensor")  # set by `spare_hooks`
    tensor: weakref.ref[torch.Tensor]
    known: bool

    def __setitem__(self, key: int, hook: Callable[[Any], Any]) -> None:
        tensor = self.tensor()
        super().__setitem__(key, _spared(hook, tensor))
        if not self.known and tensor is not None:
            self.known = True
            register_hooks_of(tensor)
            _note(tensor, self)

    def called(self, gradient: Any) -> Any:
        """The gradient after all hooks, which are called where the engine does not know of them."""
        for spared in list(self.values()):
            changed = spared.hook(gradient)
            gradient = gradient if changed is None else changed
        return gradient


def _note(tensor: torch.Tensor, hooks: _ResultHooks) -> None:
    function: Any = tensor.grad_fn
    if isinstance(function, BackwardCFunction):
        setattr(function, _HOOKED, {**getattr(function, _HOOKED, {}), tensor.output_nr: weakref.ref(hooks)})


def hooks_on_results(function: Any) -> dict[int, Callable[[Any], Any]]:
    """By its results' numbers what calls the hooks that they have."""
    found: dict[int, weakref.ref[_ResultHooks]] = getattr(function, _HOOKED, {})
    known = {number: reference() for number, reference in found.items()}  # the engine keeps them
    return {number: hooks.called for number, hooks in known.items() if hooks}


def spare_hooks(tensor: torch.Tensor) -> None:
    """From now on the tensor, a result, calls its hooks only with a gradient."""
    hooks = _ResultHooks()
    hooks.tensor, hooks.known = weakref.ref(tensor), False
    tensor._backward_hooks = hooks


def register_first(function: Any, tensor: torch.Tensor) -> None:
    """What `register_hook` calls of a compiled graph's function, once the tensor has a dict for its first hook."""
    if type(tensor._backward_hooks) is _ResultHooks:
        register_hooks_with(function, tensor)
    else:
        spare_hooks(tensor)  # the hook goes there, and the engine learns of it then
