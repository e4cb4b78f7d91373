"""Packed sequences: packing, padding and recurrent layers over them.

In:     calls of the functions in C that `torch.nn.utils.rnn` and the recurrent modules are made of.
Out:    recorded calls of ordinary operators. Where the lengths are known, those of each step; else masks say what belongs to a
        sequence, and a recurrent layer is one operator, as it is with dropout between its layers.
Holds:  lengths that only running tells are assumed to be such as can be packed.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.data_dependent import take_for_granted
from pliant.capture.handlers.table import Rows
from pliant.capture.numbers.elements import FIRST
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import concrete, is_list
from pliant.graph.fake_tensor import FakeTensor
from pliant.polyfills import sequences
from pliant.torch_adapter import VARIABLE_FUNCTIONS, DisableTorchFunction, below_python_dispatch, packed_layers

ROWS = Rows()
handles, TABLE = ROWS.handles, ROWS.callables

_C = VARIABLE_FUNCTIONS


def _numbers(t: Tracer, tensor: FakeTensor) -> list[int] | None:
    if (known := t.recorder.elements.constants.of(tensor)) is None:
        return None
    with DisableTorchFunction(), below_python_dispatch():
        return known.tolist()


def _refuse_unknown(t: Tracer, tensor: FakeTensor) -> None:
    """Break where numbers that only running tells may not be read in the graph."""
    if not t.mode.allow_unbacked or tensor.device_.type != "cpu" or tensor.dtype_ is not torch.int64 or tensor.dim() != 1:
        raise GraphBreak("data-dependent", "the lengths of packed sequences")


@handles(_C._pack_padded_sequence)
def _pack(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    padded, lengths, batch_first = args
    numbers = _numbers(t, lengths)
    if numbers is None:
        return _pack_unknown(t, padded, lengths, batch_first)
    if not numbers or min(numbers) < 1 or numbers != sorted(numbers, reverse=True):  # eager words it
        raise GraphBreak("tensor-error", "sequences of these lengths cannot be packed")
    return t.call(sequences.packed, (padded, numbers, batch_first), {})


def _pack_unknown(t: Tracer, padded: FakeTensor, lengths: FakeTensor, batch_first: bool) -> Any:
    _refuse_unknown(t, lengths)
    count = padded.size_[0 if batch_first else 1] if padded.dim() > 1 else 0
    if not concrete(count == lengths.size_[0]) or not concrete(count > 0):  # eager words it
        raise GraphBreak("tensor-error", "as many lengths as sequences are needed")
    fits, data, sizes = t.call(sequences.packed_by_mask, (padded, lengths, batch_first), {})
    take_for_granted(t, fits, "tensor-error", "sequences of these lengths cannot be packed")
    sizes.node.meta[FIRST] = count
    return data, sizes


@handles(_C._pad_packed_sequence)
def _pad(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    data, sizes, *rest = args
    if (numbers := _numbers(t, sizes)) is not None:
        return t.call(sequences.padded, (data, numbers, *rest), {})
    _refuse_unknown(t, sizes)
    return t.call(sequences.padded_by_mask, (data, sizes, *rest), {})


def _layers(name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`lstm(data, batch_sizes, hx, weights, ...)`; without batch sizes the weights come third."""
    if len(args) < 4 or not is_list(args[3]):
        return call_torch(t, getattr(_C, name), args, kwargs)
    drops = len(args) > 7 and args[6] and args[7]
    if not drops and (numbers := _numbers(t, args[1])) is not None:
        return t.call(packed_layers(name), (args[0], numbers, *args[2:]), kwargs)
    return call_torch(t, getattr(_C, name), args, kwargs)


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    TABLE[getattr(_C, _name)] = functools.partial(_layers, _name)
