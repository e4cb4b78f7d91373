"""An exported program as Python: a function of tensors that can be run, behind comments that say what they are.

In:     a `Program`.
Out:    text; with `torch` in its scope, `forward` takes the inputs in order and returns the results and the new values.
Holds:  sizes have the names that users gave; a comment ends each line with what it makes and the model's line, where a
        new one begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx

from pliant.autograd.places import FromInput, FromResult, Literal, Output, SameAs, ViewOf
from pliant.exporting.checking import facts_of, homes_of
from pliant.exporting.control_form import control_of
from pliant.exporting.program import Program
from pliant.graph.body_graph import BodyGraph
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of
from pliant.graph.unbacked import CHECKS, unlearnt
from pliant.symbolic.expr import Symbol, lit
from pliant.symbolic.printer import to_python
from pliant.torch_adapter import OpOverload

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
    torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip


def program_text(program: Program) -> str:
    """The whole program."""
    return "\n".join(_Writer(program).lines())


class _Writer:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.names: Mapping[Symbol, str] = program.names
        self.where: Any = None

    def lines(self) -> Iterator[str]:
        program = self.program
        yield f"# {program.name}: exported by Pliant"
        for fact in facts_of(program.shape_env):
            yield f"# where {to_python(fact, self.names)}"
        yield from (f"# note: {note}".replace("\n", " ") for note in program.notes)
        yield "aten = torch.ops.aten"
        yield ""
        yield ""
        nodes = program.placeholders
        yield f"def forward({', '.join(node.name for node in nodes)}):"
        for one, node in zip(program.inputs, nodes, strict=True):
            note = ", mutated" if one.mutated else ""
            yield f"    # {one.name}: {self.kind(node.meta['val'])}, {one.kind} {one.target}{note}"
        specs = [node.meta["val"].spec for node in nodes]
        for symbol, (place, dim) in homes_of(specs).items():
            yield f"    {self.name(symbol)} = {nodes[place].name}.size({dim})"
        for node in program.graph.nodes:
            if node.op == "call_function":
                yield from (f"    {line}" for line in self.control(node))
                yield f"    {self.statement(node)}"
                yield from self.bindings(node)
        yield f"    return {self.returned()}"
        yield from (f"# {line}" for line in self.results())

    def name(self, symbol: Symbol) -> str:
        return self.names.get(symbol, symbol.name)

    # ---- nodes
    def statement(self, node: fx.Node) -> str:
        if node.target in CHECKS:
            condition: Any = node.args[0]
            return f"assert {to_python(unlearnt(condition), self.names)}, {node.args[2]!r}"
        target: Any = node.target
        arguments = [self.value(a) for a in node.args] + [f"{k}={self.value(v)}" for k, v in node.kwargs.items()]
        call = f"{_function(target)}({', '.join(arguments)})"
        if getattr(target, "__name__", "") == "getitem":
            call = f"{self.value(node.args[0])}[{node.args[1]}]"
        where = node.meta.get("where")
        told = f"  # {self.kind(node.meta.get('val'))}"
        if where is not None and where != self.where:
            told += f"    {str(where).splitlines()[0]}"
            self.where = where
        return f"{node.name} = {call}{told}"

    def control(self, node: fx.Node) -> Iterator[str]:
        """What a branch, a loop or a recurrent layer runs: its bodies as functions."""
        program = control_of(node)
        if program is None:
            return
        fields = [f"{name} {getattr(program, name)}" for name in program.FIELDS]
        yield f"# {node.name} runs: {', '.join([type(program).__name__.lower(), *fields])}"
        for place, body in enumerate(body.module for body in program.bodies):
            if isinstance(body, BodyGraph):
                yield from self.body(f"{node.name}_body_{place}", body)

    def body(self, name: str, body: BodyGraph) -> Iterator[str]:
        yield f"def {name}({', '.join(node.name for node in body.graph.find_nodes(op='placeholder'))}):"
        for node in body.graph.nodes:
            if node.op == "call_function":
                yield from (f"    {line}" for line in self.control(node))
                yield f"    {self.statement(node)}"
        yield f"    return ({''.join(f'{self.value(one)}, ' for one in body.results).rstrip(' ')})"

    def bindings(self, node: fx.Node) -> Iterator[str]:
        for one in node.meta.get("binds", ()):
            yield f"    {self.name(one.symbol)} = {one.text(node.name)}"

    def value(self, value: Any) -> str:
        match value:
            case fx.Node():
                return value.name
            case list() | tuple():
                return "[" + ", ".join(map(self.value, value)) + "]"
            case torch.SymInt() | torch.SymFloat() | torch.SymBool():
                return to_python(value.node.expr, self.names)
            case torch.device():
                return f"torch.device({str(value)!r})"
            case float():
                return repr(value) if value - value == 0 else f"float({str(value)!r})"
            case _:
                return repr(value)

    def kind(self, value: Any) -> str:
        if isinstance(value, FakeTensor):
            sizes = ", ".join(to_python(lit(size), self.names) for size in keys_of(value.size_))
            return f"{_SHORT.get(value.dtype_, str(value.dtype_))}[{sizes}]"
        if isinstance(value, (tuple, list)):
            return "(" + ", ".join(self.kind(one) for one in value) + ")"
        return "" if value is None else type(value).__name__.removeprefix("Sym").lower()

    # ---- results
    def returned(self) -> str:
        values = [*self.program.results, *self.program.new_values]
        return "(" + "".join(f"{self.value(one)}, " for one in values).rstrip(" ") + ")"

    def results(self) -> Iterator[str]:
        """What each leaf of the model's result is."""
        for place, output in enumerate(self.program.outputs):
            yield f"result {place}: {self.output(output)}"
        for value, place in zip(self.program.new_values, self.program.mutated, strict=True):
            yield f"new value of {self.program.inputs[place].target}: {self.value(value)}"

    def output(self, output: Output) -> str:
        match output:
            case FromInput(position):
                return f"{self.program.inputs[position].name} itself"
            case FromResult(position):
                return self.value(self.program.results[position])
            case Literal(value):
                return repr(value)
            case SameAs(place):
                return f"result {place} itself"
            case ViewOf(source, steps):
                calls = [f"{_function(s.func)}(..., {', '.join(map(self.argument, s.args))})" for s in steps]
                return f"a view of {self.output(source)} by {', then '.join(calls)}"
            case _:
                return str(output)

    def argument(self, value: Any) -> str:
        if isinstance(value, FromResult):
            return self.output(value)
        return "[" + ", ".join(map(self.argument, value)) + "]" if isinstance(value, list) else self.value(value)


def _function(target: Any) -> str:
    if isinstance(target, OpOverload):
        return str(target) if target.namespace == "aten" else f"torch.ops.{target}"
    return str(getattr(target, "__qualname__", target))
