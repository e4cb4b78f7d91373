"""A program as C++ text that calls PyTorch's operators one after the other.

In:     an `Exported`.
Out:    the text of `program.cpp`; `NoForm` for what it cannot say.
Holds:  numbers are C expressions of the inputs' sizes; every argument of an operator is passed, in its schema's order;
        a value is dropped behind its last use.

    p_value(f, 3); p_int(f, 1); p_int(f, s0); p_list(f, P_INTS, 2); p_call(f, 0, 7);  // aten::view
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from pliant.autograd.places import FromInput, FromResult, Literal, Output, SameAs
from pliant.exporting.c_interface.control import lines_of_control
from pliant.exporting.checking import facts_of, homes_of, written_apart
from pliant.exporting.control_form import control_of
from pliant.exporting.program import Program
from pliant.exporting.written_back import writing_graph
from pliant.graph.effects import TORCH
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of
from pliant.graph.unbacked import check
from pliant.symbolic.expr import Expr, lit
from pliant.symbolic.printer import to_c, to_python
from pliant.torch_adapter import OpOverload

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool)  # fmt: skip
_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3}
_LISTS = (("Optional[Tensor]", "P_OPTIONAL_TENSORS"), ("Tensor", "P_TENSORS"), ("int", "P_INTS"), ("Sym", "P_INTS"),
          ("float", "P_FLOATS"), ("bool", "P_BOOLS"), ("number", "P_NUMBERS"))  # fmt: skip
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)

class NoForm(Exception):
    """What the text cannot say."""


class ProgramText:
    """The text of one program. `at`: where each weight begins among the weights' bytes."""

    def __init__(self, program: Program, at: Sequence[int], size: int) -> None:
        self.program, self.at, self.size = program, at, size
        self.graph = writing_graph(program).graph
        self.slots: dict[fx.Node, int] = {}
        self.taken = 0
        self.operators: dict[OpOverload, int] = {}
        self.first = sum(one.leaf is None for one in program.inputs)

    def text(self) -> str:
        body = [*self._inputs(), *self.nodes(self.graph), *self._results()]
        lines = "\n".join(f"  {line}" for line in body)
        return f'#include "frame.h"\n{self._tables()}\nvoid p_run(Frame *f) {{\n{lines}\n}}\n'

    def _tables(self) -> str:
        weights = ", ".join(self._weight(i) for i in range(self.first)) or "{}"
        operators = ", ".join(f'{{"{op.namespace}::{op._schema.name.partition("::")[2]}", "{_overload(op)}"}}' for op in self.operators)
        writes = any(one.mutated for one in self.program.inputs[: self.first])
        return "\n".join([
            *(_array(f"z{i}", node.meta["val"].size_) for i, node in enumerate(self._placeholders()[: self.first])),
            *(_array(f"t{i}", node.meta["val"].stride_) for i, node in enumerate(self._placeholders()[: self.first])),
            f"const Weight p_weights[] = {{{weights}}};", f"const Operator p_operators[] = {{{operators or '{}'}}};",
            f"const int p_weight_count = {self.first}, p_operator_count = {len(self.operators)}, p_slot_count = {self.taken + 1};",
            f"const int p_input_count = {len(self.program.inputs) - self.first};",
            f"const int64_t p_weight_bytes = {self.size};", f"const bool p_writes_state = {str(writes).lower()};",
        ])  # fmt: skip

    def _weight(self, i: int) -> str:
        fake: FakeTensor = self._placeholders()[i].meta["val"]
        return f"{{{self.at[i]}, {_dtype(fake.dtype_)}, {len(fake.size_)}, z{i}, t{i}}}"

    def _placeholders(self) -> list[fx.Node]:
        return list(self.graph.find_nodes(op="placeholder"))

    # ---- inputs
    def _inputs(self) -> Iterator[str]:
        nodes = self._placeholders()
        for node in nodes:
            self.slot(node)
        given = nodes[self.first :]
        for symbol, (place, dim) in homes_of([node.meta["val"].spec for node in given]).items():
            yield f"const int64_t {symbol} = p_size(f, {place}, {dim});"
        for i, (node, one) in enumerate(zip(given, self.program.inputs[self.first :], strict=True)):
            yield from self._input(i, node, one.mutated)
        for i, others in written_apart(self.program):
            yield from (f"p_apart(f, {i}, {other});" for other in others)
        for fact in facts_of(self.program.shape_env):
            said = to_python(fact, self.program.names)
            yield f"p_fact(f, {_number(fact)}, {json.dumps(said + ' does not hold')});"

    def _input(self, i: int, node: fx.Node, mutated: bool) -> Iterator[str]:
        fake: FakeTensor = node.meta["val"]
        if fake.device_.type != "cpu":
            raise NoForm("an input of another device")
        rank = len(fake.size_)
        yield _local(f"size{i}", [_number(lit(n)) for n in keys_of(fake.size_)])
        yield _local(f"stride{i}", [_number(lit(n)) for n in keys_of(fake.stride_)])
        yield f"p_input(f, {i}, {self.slots[node]}, {_dtype(fake.dtype_)}, {rank}, size{i}, stride{i}, {str(mutated).lower()});"

    # ---- nodes
    def nodes(self, graph: fx.Graph) -> Iterator[str]:
        """The lines of a graph whose inputs are in their slots."""
        kept = {*graph.find_nodes(op="placeholder"), *next(iter(graph.find_nodes(op="output"))).all_input_nodes}
        nodes = [node for node in graph.nodes if node.op == "call_function"]
        last = {used: node for node in nodes for used in (*node.all_input_nodes, node)}
        for node in nodes:
            yield from self._node(node)
            for used in dict.fromkeys((*node.all_input_nodes, node)):
                if last[used] is node and used not in kept and used in self.slots:
                    yield f"p_drop(f, {self.slots[used]});"

    def _node(self, node: fx.Node) -> Iterator[str]:
        program = control_of(node)
        if program is not None:
            yield from lines_of_control(self, node, program)
        elif node.target is check:
            yield f"p_fact(f, {self.number(_expr(node.args[0]))}, {json.dumps(str(node.args[2]))});"
        elif isinstance(node.target, OpOverload):
            if node.target.namespace not in TORCH:
                raise NoForm(f"`{node.target}`, which is no operator of PyTorch itself")
            if node.meta.get("binds"):
                raise NoForm(f"`{node.target}` makes sizes that only its run tells")
            yield self.call(node.target, node.args, node.kwargs, self.slot(node))
        elif len(node.args) == 2 and type(node.args[1]) is int and isinstance(node.args[0], fx.Node):
            yield f"p_item(f, {self.slots[node.args[0]]}, {node.args[1]}, {self.slot(node)});"
        else:
            raise NoForm(f"a call of `{node.target}`")

    def call(self, target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], slot: int) -> str:
        number = self.operators.setdefault(target, len(self.operators))
        return " ".join([*self._arguments(target, args, kwargs), f"p_call(f, {number}, {slot});"]) + f"  // {target}"

    def slot(self, node: fx.Node) -> int:
        if node not in self.slots:
            self.slots[node] = self.new_slot()
        return self.slots[node]

    def new_slot(self) -> int:
        self.taken += 1
        return self.taken - 1

    @staticmethod
    def no_form(what: str) -> NoForm:
        return NoForm(what)

    @staticmethod
    def number(e: Expr) -> str:
        """The number as C."""
        return _number(e)

    def _arguments(self, target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
        given = list(args)
        for place, one in enumerate(target._schema.arguments):
            at_place = place < len(given) and not one.kwarg_only
            value = given[place] if at_place else kwargs.get(one.name, one.default_value)
            yield from self._value(value, str(one.type))

    def _value(self, value: Any, kind: str) -> Iterator[str]:
        if isinstance(value, (list, tuple)):
            inner = kind.partition("List[")[2] or kind
            found = next((name for part, name in _LISTS if part in inner), None)
            if found is None:
                raise NoForm(f"a list for {kind}")
            for one in value:
                yield from self._value(one, inner)
            yield f"p_list(f, {found}, {len(value)});"
        elif "List[" in kind and value is not None:  # one number stands for all
            yield from self._value([value], kind)
        else:
            yield self._scalar(value, kind)

    def _scalar(self, value: Any, kind: str) -> str:
        match value:
            case None:
                return "p_none(f);"
            case fx.Node():
                return f"p_value(f, {self.slots[value]});"
            case torch.dtype():
                return f"p_dtype(f, {_dtype(value)});"
            case torch.device(type="cpu"):
                return "p_cpu(f);"
            case torch.memory_format():
                return f"p_int(f, {_FORMATS[value]});"
            case torch.layout() if value is torch.strided:
                return "p_int(f, 0);"
            case str():
                return f"p_text(f, {json.dumps(value)});"
            case bool() | int() | float() | torch.SymInt() | torch.SymFloat() | torch.SymBool():
                return f"{_pushed(_expr(value), kind)};" + (" p_wrapped(f);" if "Tensor" in kind else "")
        raise NoForm(f"the argument `{value}`")

    # ---- results
    def _results(self) -> Iterator[str]:
        returned: Any = next(iter(self.graph.find_nodes(op="output"))).args[0]
        for one in self.program.outputs:
            yield from self._result(one, list(returned))

    def _result(self, one: Output, returned: list[Any]) -> Iterator[str]:
        match one:
            case FromResult(position=place):
                yield f"{self._scalar(returned[place], '')} p_result(f);"
            case FromInput(input=place) if place >= self.first:
                yield f"p_input_result(f, {place - self.first});"
            case Literal(value=value):
                yield f"{self._scalar(value, '')} p_result(f);"
            case SameAs(output=place):
                yield from self._result(self.program.outputs[place], returned)
            case _:
                raise NoForm("a result that is a view of an argument, or of the state")


def _overload(op: OpOverload) -> str:
    return str(op._schema.overload_name)


def _expr(value: Any) -> Expr:
    return value.node.expr if isinstance(value, _NUMBERS) else lit(value)


def _pushed(e: Expr, kind: str) -> str:
    called = "p_float" if "float" in kind or e.kind is float else "p_bool" if e.kind is bool else "p_int"
    return f"{called}(f, {_number(e)})"


def _number(e: Expr) -> str:
    try:
        return to_c(e)
    except NotImplementedError:
        raise NoForm(f"the number `{e}`") from None


def _dtype(dtype: torch.dtype) -> int:
    if dtype not in DTYPES:
        raise NoForm(f"a tensor of {dtype}")
    return DTYPES.index(dtype)


def _array(name: str, numbers: Sequence[Any]) -> str:
    return f"static const int64_t {name}[] = {{{', '.join(map(str, numbers)) or '0'}}};"


def _local(name: str, numbers: Sequence[str]) -> str:
    return f"const int64_t {name}[] = {{{', '.join(numbers) or '0'}}};"
