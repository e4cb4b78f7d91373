"""Recurrent layers as one operator: over lengths that are not fixed, where PyTorch's own would be unrolled step by step,
over packed sequences, and on GPUs, where the memory of real weights decides how the library is called.

In:     calls of `torch.lstm`, `torch.gru`, `torch.rnn_tanh` or `torch.rnn_relu` on fakes.
Out:    its results, by the operator of `control_flow`, which eager PyTorch's kernels serve for any length.
Holds:  the derivative is eager's, by the graph that autograd recorded in the forward; one that is differentiated itself
        computes the layer once more. Layers with dropout between them are an operator each, since dropout must not draw
        again. On a GPU the library draws, with a state of its own: there they are one operator, with eager's derivative
        alone. What autocast asks of the library on a GPU is part of the operator.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant.graph.control_flow import Gradient, Program, Tensors, Values, program_of, run
from pliant.graph.kept_graphs import TOKEN, KeptGradient, compute_and_keep
from pliant.graph.unsupported import UnsupportedOperator
from pliant.torch_adapter import is_transformed

_KINDS: dict[str, Any] = {"lstm": torch.lstm, "gru": torch.gru, "rnn_tanh": torch.rnn_tanh, "rnn_relu": torch.rnn_relu}
NAMES = {function: name for name, function in _KINDS.items()}
LAYERS = frozenset(_KINDS)


_PADDED = ("input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
_PACKED = ("data", "batch_sizes", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional")


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of a recurrent layer, or NotImplemented."""
    if len(args) + len(kwargs) != len(_PADDED):
        return NotImplemented
    packs = "batch_sizes" in kwargs or len(args) > 3 and not isinstance(args[3], bool)
    given = dict(zip(_PACKED if packs else _PADDED, args)) | kwargs
    values = [given["data"], given["batch_sizes"]] if packs else [given["input"]]
    kind, hidden, weights = NAMES[function], given["hx"], given["params"]
    states = [hidden] if isinstance(hidden, torch.Tensor) else list(hidden)
    everything = [*values, *states, *weights]
    on_gpu = values[0].is_cuda
    if not packs and not on_gpu and all(type(n) is int for n in values[0].shape):
        return NotImplemented
    layers, bidirectional = given["num_layers"], bool(given["bidirectional"])
    layout = bool(given.get("batch_first"))
    dropout = given["dropout"] if given["train"] and layers > 1 else 0.0
    if dropout and not on_gpu:
        options = (bool(given["has_biases"]), 1, 0.0, True, bidirectional)
        one = functools.partial(_run, kind, packs, options, False)
        return _with_dropout(one, values, states, weights, layers, dropout, layout)
    if dropout and not _wanted(everything):
        what = "dropout between recurrent layers, which the library of a GPU draws by itself, without gradients"
        raise UnsupportedOperator(what, kind="library-dropout")
    options = (bool(given["has_biases"]), layers, dropout, True, bidirectional)
    return _run(kind, packs, options, layout, everything)


def _wanted(tensors: list[Any]) -> tuple[int, ...]:
    """Places of those whose gradients may be asked for, if they are eager's: none below a transform, which differentiates again."""
    if not torch.is_grad_enabled() or any(map(is_transformed, tensors)):
        return ()
    return tuple(place for place, t in enumerate(tensors) if t.requires_grad)


def _run(kind: str, packs: bool, options: tuple[Any, ...], layout: bool, values: list[Any]) -> tuple[Any, ...]:
    layer, wanted = _layer(kind, packs, options, layout, _cast(values[0])), _wanted(values)
    return run(_kept(layer, wanted) if wanted else layer, values)


def _cast(tensor: Any) -> torch.dtype | None:
    """What the library casts to there, under autocast."""
    casts = tensor.is_cuda and tensor.dtype is not torch.float64 and torch.is_autocast_enabled("cuda")
    return torch.get_autocast_dtype("cuda") if casts else None


def _with_dropout(
    one: Callable[[list[Any]], tuple[Any, ...]], values: list[Any], states: list[Any], weights: Any, layers: int, dropout: float, batch_first: bool
) -> tuple[Any, ...]:
    """The layers one by one (`one`), each over what a dropout leaves of the one before: it draws where eager's does."""
    steps, *packed = values
    steps = steps.transpose(0, 1) if batch_first else steps
    ends: list[list[Any]] = [[] for _ in states]
    for number, (hidden, own) in enumerate(zip(zip(*[one.chunk(layers) for one in states]), _parts(weights, layers))):
        if number:
            steps = torch.dropout(steps, dropout, True)
        steps, *found = one([steps, *packed, *hidden, *own])
        for end, state in zip(ends, found):
            end.append(state)
    return (steps.transpose(0, 1) if batch_first else steps, *map(torch.cat, ends))


def _parts(weights: Any, layers: int) -> list[list[Any]]:
    count = len(weights) // layers
    return [list(weights[i * count : (i + 1) * count]) for i in range(layers)]


class Layer(Program):
    """values: the input, the batch sizes if it is packed, the hidden states, the weights. cast: the dtype of autocast on a
    GPU."""

    FIELDS = ("kind", "packed", "options", "batch_first", "cast")

    def __init__(
        self, kind: str, packed: bool, options: tuple[Any, ...], batch_first: bool, cast: torch.dtype | None
    ) -> None:
        super().__init__()
        self.kind, self.packed, self.options, self.batch_first, self.cast = kind, packed, options, batch_first, cast

    @property
    def first_weight(self) -> int:
        return 1 + self.packed + (2 if self.kind == "lstm" else 1)

    def _hidden(self, values: Values) -> Values:
        return values[1 + self.packed : self.first_weight]

    def compute(self, values: Values) -> Tensors:
        hidden, weights = tuple(self._hidden(values)), list(values[self.first_weight :])
        states = hidden if self.kind == "lstm" else hidden[0]
        layout = () if self.packed else (self.batch_first,)
        with torch.autocast("cuda", self.cast) if self.cast else contextlib.nullcontext():
            return tuple(_KINDS[self.kind](*values[: 1 + self.packed], states, weights, *self.options, *layout))

    def described(self, values: Values) -> Tensors:
        given, hidden = values[0], self._hidden(values)
        width = hidden[0].shape[2] * (2 if self.options[-1] else 1)
        dtype = self.cast or given.dtype
        if self.batch_first:
            output = given.new_empty((given.shape[1], given.shape[0], width), dtype=dtype).transpose(0, 1)
        else:
            output = given.new_empty((*given.shape[:-1], width), dtype=dtype)
        return (output, *(state.new_empty(state.shape, dtype=dtype) for state in hidden))


class KeptLayer(Program):
    """A layer whose gradients are eager's: the places of the values that they may be `wanted` of."""

    FIELDS = ("layer", "wanted")
    keeps = True

    def __init__(self, layer: Layer, wanted: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.wanted = layer, wanted

    def compute(self, values: Values) -> Tensors:
        return compute_and_keep(self.layer.compute, values, self.wanted)

    def described(self, values: Values) -> Tensors:
        return (*self.layer.described(values), torch.empty(TOKEN, dtype=torch.uint8))

    def derivative(self, wanted: tuple[int, ...], given: tuple[int, ...], again: bool) -> Program:
        computed = None if self.layer.options[2] else Gradient(self.layer, wanted, given)  # with the same dropout
        if not again:
            return KeptGradient(computed, wanted, given)
        if computed is None:
            raise UnsupportedOperator("the derivative of a derivative of dropout that the library of a GPU draws")
        return computed


_layer = functools.cache(Layer)
_kept = functools.cache(KeptLayer)


def layer_of(node: fx.Node) -> Callable[..., Tensors] | None:
    """What computes the results of an operator that is a recurrent layer, by PyTorch's own function: of the operator's
    tensors, numbers and places. None of other nodes."""
    program = program_of(node)
    return (lambda tensors, _, places: program.compute([tensors[p] for p in places])) if isinstance(program, Layer) else None
