"""Recurrent layers over lengths that are not fixed: one operator, where PyTorch's own would be unrolled step by step.

In:     calls of `torch.lstm`, `torch.gru`, `torch.rnn_tanh` or `torch.rnn_relu` on fakes with symbolic sizes.
Out:    its results, by the operator `pliant_recurrent::run`, which eager PyTorch's kernels serve for any length.
Holds:  the derivative computes the layer once more, with gradients recorded, so that nothing of it is saved. Layers
        with dropout between them are not described: they would need the same random numbers twice.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from pliant.torch_adapter import recording

_KINDS: dict[str, Any] = {"lstm": torch.lstm, "gru": torch.gru, "rnn_tanh": torch.rnn_tanh, "rnn_relu": torch.rnn_relu}
NAMES = {function: name for name, function in _KINDS.items()}
_GIVEN = (
    "str kind, Tensor input, Tensor? batch_sizes, Tensor[] hidden, Tensor[] weights, bool has_biases, int num_layers, "
    "bool bidirectional, bool batch_first"
)


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of a recurrent layer, or NotImplemented."""
    if kwargs or len(args) != 9 or all(type(n) is int for n in args[0].shape):
        return NotImplemented
    if isinstance(args[3], bool):
        given, hidden, weights, has_biases, layers, dropout, train, bidirectional, batch_first = args
        batch_sizes = None
    else:
        given, batch_sizes, hidden, weights, has_biases, layers, dropout, train, bidirectional = args
        batch_first = False
    if dropout and train and layers > 1:
        return NotImplemented
    states = [hidden] if isinstance(hidden, torch.Tensor) else list(hidden)
    options = (has_biases, layers, bidirectional, batch_first)
    return tuple(_operator()(NAMES[function], given, batch_sizes, states, list(weights), *options))


def _operator() -> Any:
    """The operator, defined at first use."""
    with _defining:
        return _defined()


_defining = threading.Lock()


@functools.cache
def _defined() -> Any:
    library: Any = torch.library.Library("pliant_recurrent", "DEF")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    library.define(f"run({_GIVEN}) -> Tensor[]")
    library.define(f"derivative({_GIVEN}, Tensor[] tangents) -> Tensor[]")
    library.impl("run", _run, "CompositeExplicitAutograd")
    library.impl("derivative", _derivative, "CompositeExplicitAutograd")
    torch.library.register_fake("pliant_recurrent::run", _describe, lib=library)
    torch.library.register_fake("pliant_recurrent::derivative", _describe_derivative, lib=library)
    torch.library.register_autograd("pliant_recurrent::run", _backward, setup_context=_save, lib=library)
    return torch.ops.pliant_recurrent.run.default


_libraries: list[Any] = []  # live as long as the process


def _layer(
    kind: str, given: Any, batch_sizes: Any, hidden: Any, weights: Any, has_biases: bool, layers: int,
    bidirectional: bool, batch_first: bool,
) -> list[torch.Tensor]:  # fmt: skip
    states = tuple(hidden) if kind == "lstm" else hidden[0]
    options = (has_biases, layers, 0.0, True, bidirectional)
    if batch_sizes is None:
        return list(_KINDS[kind](given, states, weights, *options, batch_first))
    return list(_KINDS[kind](given, batch_sizes, states, weights, *options))


def _run(*arguments: Any) -> list[torch.Tensor]:
    with torch.no_grad():
        return _layer(*arguments)


def _derivative(kind: str, given: Any, batch_sizes: Any, hidden: Any, weights: Any, *rest: Any) -> list[torch.Tensor]:
    *options, tangents = rest
    with recording():
        first, states, parameters = _leaf(given), [_leaf(t) for t in hidden], [_leaf(t) for t in weights]
        results = _layer(kind, first, batch_sizes, states, parameters, *options)
        wanted = [first, *states, *parameters]
        found = torch.autograd.grad(results, wanted, tangents, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g.clone() for t, g in zip(wanted, found, strict=True)]


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_()


def _describe(
    kind: str, given: Any, batch_sizes: Any, hidden: Any, weights: Any, has_biases: bool, layers: int,
    bidirectional: bool, batch_first: bool,
) -> list[torch.Tensor]:  # fmt: skip
    width = hidden[0].shape[2] * (2 if bidirectional else 1)
    if batch_first:
        output = given.new_empty((given.shape[1], given.shape[0], width)).transpose(0, 1)
    else:
        output = given.new_empty((*given.shape[:-1], width))
    return [output, *(state.new_empty(state.shape) for state in hidden)]


def _describe_derivative(kind: str, given: Any, batch_sizes: Any, hidden: Any, weights: Any, *_: Any) -> list[Any]:
    return [t.new_empty(t.shape) for t in (given, *hidden, *weights)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    kind, given, batch_sizes, hidden, weights, *options = inputs
    ctx.kind, ctx.options, ctx.states = kind, options, len(hidden)
    ctx.packed = batch_sizes is not None
    ctx.save_for_backward(given, *hidden, *weights, *((batch_sizes,) if ctx.packed else ()))


def _backward(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
    tensors = list(ctx.saved_tensors)
    batch_sizes = tensors.pop() if ctx.packed else None
    given, hidden, weights = tensors[0], tensors[1 : 1 + ctx.states], tensors[1 + ctx.states :]
    derivative = torch.ops.pliant_recurrent.derivative.default
    found = derivative(ctx.kind, given, batch_sizes, hidden, weights, *ctx.options, list(tangents[0]))
    states, parameters = found[1 : 1 + ctx.states], found[1 + ctx.states :]
    return (None, found[0], None, states, parameters, *(None,) * len(ctx.options))
