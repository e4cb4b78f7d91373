"""Saved inputs that are given other data before the backward: `tensor.data = other`, which no version tells.

In:     a program's inputs, which of them are saved.
Out:    `InOwnMemory`: whether saved tensors lie as the backward was compiled for; `as_they_lay`: those whose sizes vary, as the
        call has noted (`lying_now`).
Holds:  the backward reads no memory but the tensors' own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pliant.autograd.tangent_layouts import relaid
from pliant.guards.alike import KnownTensors

if TYPE_CHECKING:
    from pliant.autograd.places import Saved
    from pliant.graph.contracts import GraphInput

Lying = tuple[tuple[int, ...], tuple[int, ...]]  # sizes, strides


def lying_inputs(inputs: Sequence[GraphInput], saved: Sequence[Saved]) -> dict[int, Lying | None]:
    """Of the saved tensors that are inputs, by place, how they lie; None where that varies."""
    found: dict[int, Lying | None] = {}
    for place, one in enumerate(saved):
        fake = inputs[one.position].fake if one.is_input and one.position < len(inputs) else None
        if isinstance(fake, torch.Tensor):
            lying = tuple(fake.shape), tuple(fake.stride())
            found[place] = lying if all(type(n) is int for part in lying for n in part) else None
    return found


def lying_now(saved: Sequence[torch.Tensor], places: Sequence[int]) -> list[tuple[int, Any, Any]]:
    """Place, sizes and strides of these."""
    return [(place, saved[place].shape, saved[place].stride()) for place in places]


def as_they_lay(saved: Sequence[Any], noted: Sequence[tuple[int, Any, Any]]) -> Sequence[Any]:
    """The saved tensors, copied where strides are others than noted. RuntimeError where sizes are: in eager the operators that
    read such a tensor fail, or give what has another size."""
    found = saved
    for place, size, stride in noted:
        one = saved[place]
        if one is None or one.shape == size and one.stride() == stride:
            continue
        if one.shape != size:
            raise RuntimeError(
                f"an input of a compiled function was given data of size {list(one.shape)} after the call (`.data =`): its "
                f"gradient needs that of size {list(size)}"
            )
        found = list(found) if found is saved else found
        found[place] = relaid(one, stride)  # type: ignore[index]
    return found


class InOwnMemory:
    """Whether saved inputs lie as they did: `seen.known(inputs(saved))` asks natively, `as_traced` one by one."""

    def __init__(self, lying: dict[int, Lying]) -> None:
        self.lying, self.seen = lying, KnownTensors()
        places = list(lying)
        first = places[0]
        self.inputs: Callable[[Sequence[Any]], tuple[Any, ...]]
        self.inputs = operator.itemgetter(*places) if len(places) > 1 else operator.itemgetter(slice(first, first + 1))

    def as_traced(self, saved: Sequence[Any]) -> Sequence[Any]:
        """`as_they_lay`."""
        found = as_they_lay(saved, [(place, *lying) for place, lying in self.lying.items()])
        if found is saved and self.seen.learns:
            inputs = self.inputs(saved)
            if all(one is not None for one in inputs):
                self.seen.learn(inputs)
        return found
