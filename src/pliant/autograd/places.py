"""Where a tensor, or another output, of a compiled program comes from; where what its backward needs lies: plain values.

`aliasing` and `partition` find them out, `outputs` and `function` go by them at each call.
"""

from __future__ import annotations

from typing import Any

from pliant.autograd.views import ViewStep
from pliant.records import dataclass


@dataclass(frozen=True, slots=True)
class FromInput:
    """The input itself, the same object."""

    input: int


@dataclass(frozen=True, slots=True)
class FromResult:
    """A tensor, number or symbol that the graph returns. `leaf`: it is to require grad, though nothing led to it."""

    position: int
    leaf: bool = False


@dataclass(frozen=True, slots=True)
class Literal:
    """None, a number or another constant."""

    value: Any


@dataclass(frozen=True, slots=True)
class SameAs:
    """The object that an earlier output is."""

    output: int


@dataclass(frozen=True, slots=True)
class ViewOf:
    """Views applied one after the other to an input, a result or an output with fewer views. Arguments that are symbols
    are `FromResult`s in the steps. `around`: gradients go to what an input is itself a view of, and not by way of the input.
    """

    source: FromInput | FromResult | SameAs
    steps: tuple[ViewStep, ...]
    leaf: bool = False
    around: bool = False


Output = FromInput | FromResult | Literal | ViewOf | SameAs


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved tensor: input `position` (constants after the captured inputs), or forward output `position`."""

    is_input: bool
    position: int


def result_of(output: Output) -> int | None:
    """The place of the result that an output is, or is a view of."""
    source = output.source if isinstance(output, ViewOf) else output
    return source.position if isinstance(source, FromResult) else None


def changed_in_place(output: Output) -> int:
    """How often the result that an output is has its shape changed in place."""
    return sum(step.func._schema.is_mutable for step in output.steps) if isinstance(output, ViewOf) else 0
