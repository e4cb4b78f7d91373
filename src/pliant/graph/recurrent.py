"""Recurrent layers over lengths that are not fixed: one operator, where PyTorch's own would be unrolled step by step.

In:     calls of `torch.lstm`, `torch.gru`, `torch.rnn_tanh` or `torch.rnn_relu` on fakes with symbolic sizes.
Out:    its results, by the operator of `control_flow`, which eager PyTorch's kernels serve for any length.
Holds:  the derivative computes the layer once more, with gradients recorded, so that nothing of it is saved. Layers
        with dropout between them are not described: they would need the same random numbers twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pliant.graph.control_flow import Program, Tensors, Values, run

_KINDS: dict[str, Any] = {"lstm": torch.lstm, "gru": torch.gru, "rnn_tanh": torch.rnn_tanh, "rnn_relu": torch.rnn_relu}
NAMES = {function: name for name, function in _KINDS.items()}


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of a recurrent layer, or NotImplemented."""
    if kwargs or len(args) != 9 or all(type(n) is int for n in args[0].shape):
        return NotImplemented
    if isinstance(args[3], bool):
        given, hidden, weights, has_biases, layers, dropout, train, bidirectional, batch_first = args
        packed: tuple[Any, ...] = ()
    else:
        given, batch_sizes, hidden, weights, has_biases, layers, dropout, train, bidirectional = args
        packed, batch_first = (batch_sizes,), False
    if dropout and train and layers > 1:
        return NotImplemented
    states = [hidden] if isinstance(hidden, torch.Tensor) else list(hidden)
    layer = _layer(
        NAMES[function], bool(packed), (bool(has_biases), layers, 0.0, True, bool(bidirectional)), batch_first
    )
    return run(layer, [given, *packed, *states, *weights])


class _Layer(Program):
    """values: the input, the batch sizes if it is packed, the hidden states, the weights."""

    def __init__(self, kind: str, packed: bool, options: tuple[Any, ...], batch_first: bool) -> None:
        super().__init__()
        self.kind, self.packed, self.options, self.batch_first = kind, packed, options, batch_first
        self.first_weight = 1 + packed + (2 if kind == "lstm" else 1)

    def _hidden(self, values: Values) -> Values:
        return values[1 + self.packed : self.first_weight]

    def compute(self, values: Values) -> Tensors:
        hidden, weights = tuple(self._hidden(values)), list(values[self.first_weight :])
        states = hidden if self.kind == "lstm" else hidden[0]
        layout = () if self.packed else (self.batch_first,)
        return tuple(_KINDS[self.kind](*values[: 1 + self.packed], states, weights, *self.options, *layout))

    def described(self, values: Values) -> Tensors:
        given, hidden = values[0], self._hidden(values)
        width = hidden[0].shape[2] * (2 if self.options[-1] else 1)
        if self.batch_first:
            output = given.new_empty((given.shape[1], given.shape[0], width)).transpose(0, 1)
        else:
            output = given.new_empty((*given.shape[:-1], width))
        return (output, *(state.new_empty(state.shape) for state in hidden))


_layer = functools.cache(_Layer)
