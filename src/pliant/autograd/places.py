"""Where a tensor, or another output, of a compiled program comes from; where what its backward needs lies: plain values.

`aliasing` and `partition` find them out, `outputs` and `function` go by them at each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pliant.records import dataclass

if TYPE_CHECKING:
    from pliant.autograd.aliasing import OutputPlan
    from pliant.autograd.views import ViewStep


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


@dataclass(frozen=True, slots=True)
class MadeOutputs:
    """What of a plan says how outputs are made: of how many results, which inputs are written by which results and how
    often more than once, which results are to be inference tensors, which outputs are made before inputs are written, and
    which before the program runs."""

    outputs: list[Output]
    results: int
    copies: list[tuple[int, int, int]]
    inference: list[int]
    early: list[int]
    first: list[int]

    @classmethod
    def of(cls, plan: OutputPlan) -> MadeOutputs:
        copies = [(w.input, w.position, w.counted - 1) for w in plan.writes if not w.in_graph]
        return cls(plan.outputs, len(plan.results), copies, plan.inference, plan.early, plan.first)

    @property
    def is_plain(self) -> bool:
        """Whether the results are the outputs."""
        return not self.copies and not self.inference and self.outputs == [FromResult(i) for i in range(self.results)]

    @property
    def changed(self) -> set[int | None]:
        """The results whose shape is changed in place."""
        return {result_of(output) for output in self.outputs if changed_in_place(output)}


def result_of(output: Output) -> int | None:
    """The place of the result that an output is, or is a view of."""
    source = output.source if isinstance(output, ViewOf) else output
    return source.position if isinstance(source, FromResult) else None


def changed_in_place(output: Output) -> int:
    """How often the result that an output is has its shape changed in place."""
    return sum(step.func._schema.is_mutable for step in output.steps) if isinstance(output, ViewOf) else 0
