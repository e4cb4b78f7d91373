"""What `pliant.export` gives: a program, and what can be done with it.

In:     a `Program`.
Out:    `Exported`: called, compiled, saved, printed, transformed, compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx

from pliant.exporting.differences import difference
from pliant.exporting.program import Program
from pliant.exporting.running import Caller, compiled, interpreted
from pliant.exporting.text import program_text
from pliant.exporting.writing import save
from pliant.exporting.written_back import writing_graph
from pliant.records import dataclass
from pliant.torch_adapter import OpOverload

if TYPE_CHECKING:
    from pliant.debug.cost import Cost

Pass: TypeAlias = "Callable[[Exported], object]"


@dataclass(slots=True, eq=False)
class Exported(Program):
    """One whole graph that says all."""

    _caller: Caller | None = field(default=None, repr=False)

    @classmethod
    def of(cls, program: Program) -> Exported:
        return cls(**{one.name: getattr(program, one.name) for one in fields(Program)})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph operator by operator; gradients are not recorded."""
        if self._caller is None:
            self._caller = interpreted(self)
        return self._caller(*args, **kwargs)

    def compile(self, **options: object) -> Caller:
        """What runs it as compiled code, for every size in range. `options`: as in `pliant.compile(options=...)`."""
        return compiled(self, options)

    def load_state_dict(self, state: Mapping[str, torch.Tensor], *, strict: bool = True) -> None:
        """Have calls use copies of these parameters and buffers, which have the dtypes and sizes of those before. `strict`:
        these are all, and there are no others. Code that `compile` has made before keeps those that it had."""
        from pliant.exporting.weights import take_weights

        take_weights(self, state, strict)
        if self._caller is not None:
            self._caller.take_state()

    def save(self, path: Any) -> None:
        """Write it to one file, which `pliant.load` reads."""
        save(self, path)

    def to_onnx(self, path: Any) -> None:
        """Write it as an ONNX model of opset 18; weights of 2 GB and more lie beside it, in `path` with `.data`.

        Raises `ExportError` for what has no form in ONNX, with the line of the model. Needs the package onnx.
        """
        from pliant.exporting.onnx_form.writer import write_onnx

        write_onnx(self, path)

    def to_exported_program(self) -> Any:
        """PyTorch's own `torch.export.ExportedProgram` of it, with the model's names, arguments and results.

        Raises `ExportError` for what PyTorch's programs cannot say.
        """
        from pliant.exporting.torch_form.converter import torch_program

        return torch_program(self)

    # ---- the graph
    def transform(self, *passes: str | Pass) -> Exported:
        """A new program after these passes, each followed by a check of the whole graph. A pass is a name
        (`"dead_code"`, `"common_subexpressions"`, `"fold_constants"`, `"decompose"`) or a function that edits the
        `graph` of the program it is given."""
        from pliant.exporting.transforms import transformed

        return transformed(self, passes, Exported.of)

    def decompose(self, *operators: str) -> Exported:
        """A new program without these operators; without names, without those that are not of PyTorch's core set."""
        from pliant.exporting.decompositions import decomposing

        return self.transform(decomposing(operators))

    def constant(self, name: str, tensor: torch.Tensor) -> fx.Node:
        """For passes: another constant of the graph."""
        from pliant.exporting.transforms import add_constant

        return add_constant(self, name, tensor)

    def operators(self) -> dict[str, int]:
        """How many calls of each operator the graph has, by name."""
        return dict(Counter(str(n.target) for n in self.graph.nodes if isinstance(n.target, OpOverload)))

    def cost(self) -> Cost:
        """Operations and bytes of a call of the compiled program, as formulas in its symbols."""
        from pliant.debug.cost import graph_cost

        return graph_cost(writing_graph(self, optimized=True), self.names)

    def unflatten(self) -> torch.nn.Module:
        """A module with parameters and buffers at the model's own names, whose call runs the graph with them."""
        from pliant.exporting.hierarchy import Unflattened

        return Unflattened(self)

    def diff(self, other: Program) -> str:
        """How the other program differs, line by line; empty where it does not."""
        return difference(self, other)

    def __str__(self) -> str:
        return program_text(self)

    __repr__ = __str__
