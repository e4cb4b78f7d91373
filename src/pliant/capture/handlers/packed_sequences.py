"""Packed sequences whose lengths are known: packing, padding and recurrent layers over them, step by step.

In:     calls of the functions in C that `torch.nn.utils.rnn` and the recurrent modules are made of.
Out:    recorded calls of ordinary operators.
Holds:  lengths that only running tells are a break: they decide how many steps there are.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import is_list
from pliant.graph.fake_tensor import FakeTensor
from pliant.torch_adapter import VARIABLE_FUNCTIONS, DisableTorchFunction, below_python_dispatch, packed_layers

ROWS = Rows()
handles, TABLE = ROWS.handles, ROWS.callables

_C = VARIABLE_FUNCTIONS


def _numbers(t: Tracer, tensor: FakeTensor) -> list[int]:
    if (known := t.recorder.elements.constants.of(tensor)) is None:
        raise GraphBreak("data-dependent", "the lengths of packed sequences")
    with DisableTorchFunction(), below_python_dispatch():
        return known.tolist()


@handles(_C._pack_padded_sequence)
def _pack(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    padded, lengths, batch_first = args
    numbers = _numbers(t, lengths)
    if not numbers or min(numbers) < 1 or numbers != sorted(numbers, reverse=True):  # eager words it
        raise GraphBreak("tensor-error", "sequences of these lengths cannot be packed")
    return t.call(_packed, (padded, numbers, batch_first), {})


def _packed(padded: Any, lengths: list[int], batch_first: bool) -> Any:
    steps = padded.transpose(0, 1) if batch_first else padded
    sizes = [sum([n > step for n in lengths]) for step in range(lengths[0])]
    return torch.cat([steps[step, :size] for step, size in enumerate(sizes)]), torch.tensor(sizes)


@handles(_C._pad_packed_sequence)
def _pad(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    data, sizes, *rest = args
    return t.call(_padded, (data, _numbers(t, sizes), *rest), {})


def _padded(data: Any, sizes: list[int], batch_first: bool, value: float, total: int) -> Any:
    rest = [0, 0] * (data.dim() - 1)
    steps = [
        torch.nn.functional.pad(step, [*rest, 0, sizes[0] - size], value=value)
        for step, size in zip(data.split(sizes), sizes)
    ]
    steps += [torch.full_like(steps[0], value)] * (total - len(steps))
    made = torch.stack(steps)
    lengths = torch.tensor([sum([size > i for size in sizes]) for i in range(sizes[0])])
    return made.transpose(0, 1) if batch_first else made, lengths


def _layers(name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`lstm(data, batch_sizes, hx, weights, ...)`; without batch sizes the weights come third."""
    if len(args) < 4 or not is_list(args[3]):
        return call_torch(t, getattr(_C, name), args, kwargs)
    if len(args) > 7 and args[6] and args[7]:
        raise GraphBreak("random-state", "dropout between recurrent layers over packed sequences")
    return t.call(packed_layers(name), (args[0], _numbers(t, args[1]), *args[2:]), kwargs)


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    TABLE[getattr(_C, _name)] = functools.partial(_layers, _name)
