"""What runs an entry's graph written as the calls that made it, in the process that made it.

In:     a callable made by functions that are `@remade`.
Out:    `ProgramWriter.written(run)`: JSON, which `programs.ProgramReader` makes the callable of again.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import importlib
import sys
import types
import weakref
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pliant.entries import constants
from pliant.entries.constants import Json
from pliant.entries.content import NotKept, digest_of
from pliant.entries.namer import path_of
from pliant.entries.operators import content_of
from pliant.entries.programs import CONTROL, GRADIENT, MODULES, OURS, OWN_OPERATORS, RECORDS, named, parts_of
from pliant.graph.control_bodies import Text, text_of
from pliant.torch_adapter import RUNS_AS, OpOverload
from pliant.wrappers import generated_code
from pliant.wrappers.remade import MakingCall, call_that_made

if TYPE_CHECKING:
    from pliant.autograd.higher_order import GradientProgram
    from pliant.autograd.training import Backwards
    from pliant.graph.control_flow import Program

_LARGEST = 1 << 16  # bytes of a constant tensor

class ProgramWriter:
    """Writes what runs a graph, and keeps none of it alive. `backwards`: those of the graph that live, which are compiled when
    they are first asked for, each with its row, which `fill` makes up to date. `known`: operators that say themselves what they
    do, to whoever reads. `generators`: addresses of those of random numbers that the entry names."""

    def __init__(self, known: Collection[OpOverload[..., Any]] = (), generators: Sequence[int] = ()) -> None:
        self.known, self.generators = known, generators
        self._backwards: list[tuple[weakref.ref[Backwards], list[Json]]] = []
        self.operators: dict[str, str] = {}  # the program's own, with digests
        self.code: dict[str, types.CodeType] = {}  # of the texts that are part of it

    def note(self, operator: OpOverload[..., Any]) -> None:
        """Write down what an operator of the program's would do, or the one that ours stands for. NotKept."""
        if (origin := _origin_of(operator)) is not None:
            operator = origin[1]
        self.operators[name_of(operator)] = digest_of(content_of(operator))

    def fill(self) -> None:
        """Write down what of the backwards is compiled by now."""
        for backwards, row in self.backwards:
            runs = dict(backwards.found)
            row[1:] = [[missing, self.written(run)] for missing, run in sorted(runs.items()) if run is not None]

    @property
    def backwards(self) -> list[tuple[Backwards, list[Json]]]:
        return [(found, row) for one, row in self._backwards if (found := one()) is not None]

    def is_whole(self) -> bool:
        """Whether each backward is compiled."""
        return all(any(run is not None for run in list(one.found.values())) for one, _ in self.backwards)

    def grows(self) -> bool:
        """Whether a backward is being compiled."""
        return any(one.lock.locked() for one, _ in self.backwards)

    def written(self, value: Any) -> Json:
        """The value as JSON. NotKept."""
        spelled = constants.spelled(value)
        if spelled is not None or value is None:
            return ["c", spelled]
        call = call_that_made(value)
        if call is not None:
            self.code |= generated_code.code_behind(value)
            return self.called(call)
        if type(value).__name__ in RECORDS and type(value) is named(RECORDS, type(value).__name__):
            return ["row", type(value).__name__, *(self.written(getattr(value, f.name)) for f in dataclasses.fields(value))]
        if getattr(type(value), "is_compiled_on_demand", False):
            return self._backward(value)
        if type(value).__name__ in CONTROL and type(value) is named(CONTROL, type(value).__name__):
            return self._control(value)
        if type(value) is named(GRADIENT, "GradientProgram"):
            return self._gradient(value)
        match value:
            case list() | tuple():
                return [type(value).__name__, *map(self.written, value)]
            case dict():
                return ["dict", *([self.written(k), self.written(v)] for k, v in value.items())]
            case OpOverload():
                return self._operator(value)
            case torch.Tensor():
                return _tensor(value)
            case torch.Generator():
                return self._generator(value)
            case types.ModuleType():
                return ["at", value.__name__, []]
            case torch.fx.GraphModule():
                return ["text", *self._text(value)]
            case torch.nn.Module() if type(value).__name__ in MODULES:
                return self._module(value)
        if (operator := _run_by().get(value)) is not None:
            return ["runs as", *parts_of(name_of(operator))]
        if (found := path_of(value)) is not None:
            return ["at", *found]
        what = value.__qualname__ if isinstance(value, types.FunctionType) else type(value).__qualname__
        raise NotKept("no-form", f"{what} in what runs the graph")

    def called(self, call: MakingCall) -> Json:
        """What a maker makes. NotKept."""
        return ["made", call.maker, *map(self.written, call.args)]

    def _generator(self, generator: torch.Generator) -> Json:
        """Which of those it is: the graph may hold another object of it. NotKept."""
        if (address := address_of(generator)) not in self.generators:
            raise NotKept("no-name", "a generator of random numbers")
        return ["generator", self.generators.index(address)]

    def _operator(self, operator: OpOverload[..., Any]) -> Json:
        if (origin := _origin_of(operator)) is not None:
            self.note(operator)
            return [origin[0], *parts_of(name_of(origin[1]))]
        if operator.namespace not in ("aten", "prims") and operator not in self.known and not is_ours(operator):
            self.note(operator)
        return ["operator", *parts_of(name_of(operator))]

    def _backward(self, backwards: Backwards) -> Json:
        row: list[Json] = ["backward"]
        self._backwards.append((weakref.ref(backwards), row))
        return row

    def _gradient(self, program: GradientProgram) -> Json:
        """The program as text, which runs where gradients of its gradients are asked for."""
        where = (program.roots, program.written, program.late, program.records, program.casts)
        facts = [program.name, program.count, *map(self.written, where)]
        return ["gradient", *self._text(program.module), *facts]

    def _text(self, module: Any) -> list[Json]:
        """A graph module as text, the globals of the text, and what the module holds. NotKept."""
        return self._parts(text_of(module))

    def _parts(self, text: Text) -> list[Json]:
        return [text.source, *({name: self.written(one) for name, one in values.items()} for values in text[1:])]

    def _control(self, program: Program) -> Json:
        """A branch or loop with its bodies. NotKept."""
        texts = [one.text for one in program.bodies]
        bodies = [[*self._parts(one[0]), one[1]] for one in texts if one is not None]
        if None in texts:
            raise NotKept("no-form", "a branch or loop of an exported program")
        fields = [self.written(getattr(program, name)) for name in program.FIELDS]
        return ["control", type(program).__name__, program.random, fields, bodies]

    def _module(self, module: torch.nn.Module) -> Json:
        """One of ours that captured graphs call. NotKept."""
        name = type(module).__name__
        place, attributes = MODULES[name]
        if type(module) is not named({name: place}, name):
            raise NotKept("no-form", f"{name} in what runs the graph")
        given = [self.written(getattr(module, one)) for one in attributes if one != "options"]
        options = getattr(module, "options", {}) if "options" in attributes else {}
        return ["module", name, {key: self.written(value) for key, value in options.items()}, *given]


def address_of(generator: torch.Generator) -> int:
    """Of the generator itself, for which several Python objects may stand."""
    return int(generator._cdata)  # type: ignore[attr-defined]  # no stub has it


@functools.cache
def _run_by() -> dict[Any, OpOverload[..., Any]]:
    """Of functions that compiled code calls in place of operators: which."""
    return {function: operator for operator, function in RUNS_AS.items()}


def name_of(operator: OpOverload[..., Any]) -> str:
    """Its schema's name with that of the overload."""
    schema = operator._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def _tensor(value: torch.Tensor) -> Json:
    plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type in ("cpu", "cuda")
    if not plain or value.requires_grad or value.is_quantized or value.is_conj() or value.is_neg():
        raise NotKept("tensor", "a constant tensor of a special kind")
    facts = [constants.spelled(one) for one in (tuple(value.shape), value.stride(), value.dtype, value.device)]
    if value.untyped_storage().nbytes() == 0 and value.numel():
        return ["without memory", *facts]
    if value.nbytes > _LARGEST:
        raise NotKept("tensor", f"a constant tensor of {value.nbytes} bytes")
    if not value.is_contiguous():
        raise NotKept("tensor", "a constant tensor with gaps")
    content = bytes(value.reshape(-1).view(torch.uint8).tolist()) if value.numel() else b""
    return ["tensor", *facts, base64.b64encode(content).decode()]


def is_ours(operator: OpOverload[..., Any]) -> bool:
    """Whether it is registered wherever a program is made."""
    return operator.namespace == OURS and operator is _ours(operator._opname)


def _ours(name: str) -> Any:
    if name not in OWN_OPERATORS:
        return None
    return getattr(importlib.import_module(f"pliant.{OWN_OPERATORS[name]}"), name)


def _origin_of(operator: OpOverload[..., Any]) -> tuple[str, Any] | None:
    """Of an operator that the graph's or the joint stage made of a program's: how, and of which."""
    pure = sys.modules.get("pliant.graph.custom_ops")
    if pure is not None and (writes := pure.written_by(operator)) is not None:
        return "pure form", writes
    opaque = sys.modules.get("pliant.graph.opaque_derivatives")
    return opaque.origin_of(operator) if opaque is not None else None
