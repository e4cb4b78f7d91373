"""An exported program: one functional ATen graph and all that a call of it needs.

In:     `capture.py` (from a model), `reading.py` (from a file).
Out:    `Program`, data; `exported.py` says what can be done with it.
Holds:  the graph's placeholders are `inputs` in order: parameters, buffers, constants, then the tensors of the call. Its
        output is the results and then, in the order of `inputs`, the new values of those that are mutated; it writes
        nothing. Nothing of the model is needed any more; parameters are the model's own tensors.
Reads on: `running.py` (a call), `text.py` (what it prints as), `docs/export.md`.

    inputs   p_l_weight: parameter l.weight    b_n: buffer n, mutated    x: argument x
    outputs  result 0    input x
    symbols  batch = s0: 1 <= batch <= 512
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.autograd.places import Output
from pliant.errors import ExportError
from pliant.graph.contracts import returned
from pliant.records import dataclass
from pliant.symbolic.expr import Symbol
from pliant.symbolic.shape_env import ShapeEnv

PARAMETER, BUFFER, CONSTANT, USER = "parameter", "buffer", "constant", "argument"


@dataclass(frozen=True, slots=True)
class Input:
    """One placeholder. `target`: its name in the state; of a user's tensor, what its argument is called. `leaf`: where it
    is among the leaves of the call's arguments. `mutated`: a call leaves a new value in it."""

    name: str
    kind: str
    target: str
    leaf: int | None = None
    mutated: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.kind} {self.target}" + (", mutated" if self.mutated else "")


@dataclass(frozen=True, slots=True)
class CallForm:
    """How the program is called. `arguments`, `result`: the trees of `(args, kwargs)` and of what comes back; `names`: of
    the positional arguments; `constants`: the leaves that are no tensors, by place; `objects`: classes of the result's objects
    that their attributes tell. `one`: leaves that must be one tensor, `apart`: pairs that must be two, where the model asked
    which they are."""

    arguments: pytree.TreeSpec
    result: pytree.TreeSpec
    names: tuple[str, ...]
    constants: Mapping[int, Any]
    objects: tuple[type, ...] = ()
    one: tuple[tuple[int, ...], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()

    def refuse_one(self) -> None:
        """For forms in which a tensor is not told from another of equal elements."""
        if self.one:
            raise ExportError(
                "the program takes one tensor as several arguments", kind="unsaved", why="only Python tells whether they are one",
                do="export it with different tensors", doc="docs/export.md#calling",
            )  # fmt: skip


@dataclass(slots=True, eq=False)
class Program:
    """`outputs`: what each leaf of the result is. `state`: parameters, buffers and constants by name. `names`: what the
    symbols are called. `notes`: what the program fixed that was left to it (AUTO sizes, wished specializations)."""

    name: str
    graph: fx.Graph
    shape_env: ShapeEnv
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    state: dict[str, torch.Tensor]
    form: CallForm
    names: Mapping[Symbol, str]
    notes: tuple[str, ...] = ()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by the model's names."""
        kept = {one.target for one in self.inputs if one.kind in (PARAMETER, BUFFER)}
        return {name: tensor for name, tensor in self.state.items() if name in kept}

    @property
    def placeholders(self) -> list[fx.Node]:
        return list(self.graph.find_nodes(op="placeholder"))

    @property
    def results(self) -> list[Any]:
        """What the graph returns, without the new values."""
        values = returned(self.graph)
        return values[: len(values) - len(self.mutated)]

    @property
    def new_values(self) -> list[Any]:
        """Those of the mutated inputs."""
        values = returned(self.graph)
        return values[len(values) - len(self.mutated) :]

    @property
    def mutated(self) -> list[int]:
        """Places of the inputs that a call leaves a new value in."""
        return [i for i, one in enumerate(self.inputs) if one.mutated]

    def user_inputs(self) -> Iterable[tuple[int, Input]]:
        return ((i, one) for i, one in enumerate(self.inputs) if one.kind == USER)


def described(value: Any) -> Any:
    """What the nodes among arguments make, in plain lists, as shape rules take them."""
    if isinstance(value, fx.Node):
        return value.meta["val"]
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(map(described, value))
    return value
