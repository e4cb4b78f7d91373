"""An exported program as an ONNX model.

In:     a `Program`, a path.
Out:    a file for any runtime of opset 18; weights lie beside it where they are too large for one message.
Holds:  each operator is a row of the table, or the program is refused with the user's line. Sizes are computed from the
        shapes of inputs and of what is selected, so they vary as the program's do; facts about them are not checked.
        ONNX has no state that calls change: what the program writes is a result, and a buffer that it writes an input that
        may be left out.
Source: the ONNX operator specification, opset 18 (onnx.ai/onnx/operators).
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from pliant.autograd.places import FromInput, FromResult, Literal, Output
from pliant.errors import ConfigError, ExportError
from pliant.exporting.checking import facts_of, homes_of
from pliant.exporting.decompositions import decomposing
from pliant.exporting.onnx_form import formulas, images, measures, places, selections, windows  # noqa: F401  # rows of the table
from pliant.exporting.onnx_form.control import written_control
from pliant.exporting.onnx_form.operators import EXPANDED, ROWS
from pliant.exporting.program import USER, Program
from pliant.exporting.transforms import transformed
from pliant.graph.control_flow import program_of
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of
from pliant.graph.unbacked import CHECKS, unlearnt
from pliant.symbolic.expr import Expr, lit
from pliant.symbolic.printer import to_python
from pliant.torch_adapter import RUNS_AS, OpOverload

OPSET, IR_VERSION = 18, 8
LARGEST = (1 << 31) - (1 << 20)  # bytes of one message, less what is no weight

# Numbers of `TensorProto.DataType`.
TYPES = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7, torch.bool: 9,
    torch.float16: 10, torch.float64: 11, torch.bfloat16: 16,
}  # fmt: skip


def write_onnx(program: Program, path: Any, largest: int = LARGEST) -> None:
    """Write the model. `largest`: weights of more bytes go to a file beside it, `path` with `.data` behind it."""
    onnx = _installed()
    program.form.refuse_one()
    model = Writer(_expanded(program), onnx).model()
    if sum(len(one.raw_data) for one in model.graph.initializer) <= largest:
        onnx.save_model(model, str(path))
        return
    beside = Path(f"{path}.data")
    beside.unlink(missing_ok=True)  # data are appended to a file that is there
    onnx.save_model(model, str(path), save_as_external_data=True, location=beside.name, size_threshold=1024)


def _installed() -> Any:
    try:
        return importlib.import_module("onnx")
    except ImportError:
        raise ConfigError(
            "ONNX models need the package onnx", kind="missing-package", why="it is not installed", do="pip install onnx"
        ) from None


def _expanded(program: Program) -> Program:
    return transformed(program, ("decompose", decomposing(EXPANDED), "dead_code"), lambda made: made)


class Writer:
    """Collects nodes and weights. What rows get: `op` makes a node, others make its inputs."""

    def __init__(self, program: Program, onnx: Any) -> None:
        self.program, self.onnx = program, onnx
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.values: dict[fx.Node, str | list[str]] = {}
        self.computed: dict[Any, str] = {}
        self.told: dict[str, str] = {}  # numbers that only running tells, by symbol
        self.taken = 0
        self.given = {one.name for one in program.inputs}
        self.written = dict(zip(program.mutated, program.new_values, strict=True))
        self.node: fx.Node | None = None

    # ---- the whole
    def model(self) -> Any:
        program, helper = self.program, self.onnx.helper
        inputs = []
        for one, node in zip(program.inputs, program.placeholders, strict=True):
            self.values[node] = one.name
            if one.kind == USER or one.mutated:
                inputs.append(self.described(one.name, node.meta["val"]))
            if one.kind != USER:
                self.weights.append(self.tensor(one.name, program.state[one.target]))
        self.homes = homes_of([node.meta["val"].spec for node in program.placeholders])
        self.by_name = {symbol.name: symbol for symbol in self.homes}
        self.follow(program.graph)
        self.node = None
        outputs = [made for place, one in enumerate(program.outputs) if (made := self.output(place, one)) is not None]
        outputs += [self.result_of(f"new_{program.inputs[place].name}", node) for place, node in self.written.items()]
        graph = helper.make_graph(self.nodes, program.name, inputs, outputs, self.weights)
        graph.doc_string = "\n".join(f"where {to_python(fact, program.names)}" for fact in facts_of(program.shape_env))
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="pliant"
        )

    def follow(self, graph: fx.Graph) -> None:
        """Write the operators of a graph whose inputs are known."""
        for node in graph.nodes:
            if node.op == "call_function" and node.target not in CHECKS:
                self.node = node
                self.values[node] = self.converted(node)
                self.bind(node)

    def described(self, name: str, fake: FakeTensor) -> Any:
        sizes = [lit(size) for size in keys_of(fake.size_)]
        dims = [int(text) if (text := to_python(size, self.program.names)).isdigit() else text for size in sizes]
        return self.onnx.helper.make_tensor_value_info(name, self.type(fake.dtype_), dims)

    def output(self, place: int, one: Output) -> Any:
        """A result of the model; constants are none."""
        match one:
            case Literal():
                return None
            case FromInput(position):
                node = self.written.get(position, self.program.placeholders[position])
            case FromResult(position):
                node = self.program.results[position]
            case _:
                raise self.refused("a result that is a view of an argument", "return a copy of it: .clone()")
        return self.result_of(f"result_{place}", node)

    def result_of(self, name: str, node: Any) -> Any:
        """A result of the graph, by this name."""
        if name in self.given:
            raise self.refused(f"an argument of the name {name}, which a result has", "name it otherwise")
        if isinstance(node, fx.Node):
            self.named(name, self.value(node))
            return self.described(name, node.meta["val"])
        self.named(name, self.scalar(node, torch.int64))
        return self.onnx.helper.make_tensor_value_info(name, self.type(torch.int64), [])

    def named(self, name: str, value: str) -> None:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))

    def converted(self, node: fx.Node) -> str | list[str]:
        target: Any = node.target
        if getattr(target, "__name__", "") == "getitem":
            return self.item(node)
        program = program_of(node)
        if program is not None:
            return written_control(self, node, program)
        row: Callable[..., str | list[str]] | None = ROWS.get(str(target)) or ROWS.get(str(RUNS_AS.get(target)))
        if row is None:
            name = str(target) if isinstance(target, OpOverload) else getattr(target, "__qualname__", str(target))
            raise self.refused(f"the operator `{name}`", "compute it with other operators, or leave it out of the export")
        return row(self, *node.args, **node.kwargs)

    def bind(self, node: fx.Node) -> None:
        """The numbers that the node tells: of its elements, or sizes of its results."""
        for one in node.meta.get("binds", ()):
            made = self.values[node]
            name = made if isinstance(made, str) else made[one.item or 0] if (one.item or 0) < len(made) else None
            if name is not None and one.symbol.kind is int:
                at = self.constant(torch.tensor(one.dim or 0))
                self.told[one.symbol.name] = name if one.dim is None else self.op("Gather", self.op("Shape", name), at)

    def item(self, node: fx.Node) -> str:
        parts, place = self.values[node.args[0]], node.args[1]  # type: ignore[index]
        if not isinstance(parts, list) or not isinstance(place, int) or place >= len(parts):
            raise self.refused(f"result {place} of `{node.args[0].target}`", "use its first result")  # type: ignore[union-attr]
        return parts[place]

    def refused(self, what: str, do: str = "write it in another way") -> ExportError:
        where = None if self.node is None else self.node.meta.get("where")
        return ExportError(f"ONNX has no form here for {what}", kind="onnx", where=where,
                           why="there is no row for it in exporting/onnx_form/operators.py", do=do, doc="docs/export.md#onnx")  # fmt: skip

    # ---- what rows use
    @property
    def result(self) -> Any:
        """What the node makes: a fake tensor, or several."""
        assert self.node is not None
        return self.node.meta["val"]

    def fake(self, value: Any) -> FakeTensor:
        fake = value.meta["val"]
        assert isinstance(fake, FakeTensor)
        return fake

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A node with so many results."""
        names = [self.fresh() for _ in range(count)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def fresh(self) -> str:
        """A name that neither arguments nor weights have."""
        while True:
            self.taken += 1
            if (name := f"v{self.taken}") not in self.given:
                return name

    def value(self, value: Any, dtype: torch.dtype | None = None) -> str:
        """A node's tensor, or a number as one; in this dtype."""
        if not isinstance(value, fx.Node):
            return self.scalar(value, dtype or torch.int64)
        name = self.values[value]
        if not isinstance(name, str):
            raise self.refused("several results in one")
        own = self.fake(value).dtype_
        return name if dtype in (None, own) else self.op("Cast", name, to=self.type(dtype))

    def scalar(self, value: Any, dtype: torch.dtype) -> str:
        if isinstance(value, torch.SymInt):
            made = self.expression(unlearnt(value))
            return made if dtype is torch.int64 else self.op("Cast", made, to=self.type(dtype))
        if not isinstance(value, (bool, int, float)):
            raise self.refused(f"a {type(value).__name__} as a number")
        return self.constant(torch.tensor(value, dtype=dtype))

    def sizes(self, sizes: Sequence[Any]) -> str:
        """Numbers as one vector."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(torch.tensor(list(sizes), dtype=torch.int64))
        axis = self.constant(torch.tensor([0]))
        return self.op("Concat", *(self.op("Unsqueeze", self.scalar(size, torch.int64), axis) for size in sizes), axis=0)

    def constant(self, tensor: torch.Tensor) -> str:
        key = (tensor.dtype, tuple(tensor.shape), self.bytes(tensor))
        if key not in self.computed:
            self.computed[key] = self.fresh()
            self.weights.append(self.tensor(self.computed[key], tensor))
        return self.computed[key]

    def tensor(self, name: str, tensor: torch.Tensor) -> Any:
        made = self.onnx.TensorProto(name=name, data_type=self.type(tensor.dtype), dims=list(tensor.shape))
        made.raw_data = self.bytes(tensor)
        return made

    @staticmethod
    def bytes(tensor: torch.Tensor) -> bytes:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().tobytes()

    def type(self, dtype: torch.dtype | None) -> int:
        if dtype not in TYPES:
            raise self.refused(f"the dtype {dtype}")
        return TYPES[dtype]

    # ---- sizes
    def expression(self, e: Expr) -> str:
        """The number that an expression is, from the shapes of inputs."""
        return self.part(ast.parse(to_python(e), mode="eval").body)

    def part(self, tree: ast.expr) -> str:
        key = ast.dump(tree)
        if key not in self.computed:
            self.computed[key] = self.made_part(tree)
        return self.computed[key]

    def made_part(self, tree: ast.expr) -> str:
        match tree:
            case ast.Constant(int(number)):
                return self.constant(torch.tensor(number))
            case ast.Name(name) if name in self.by_name:
                place, dim = self.homes[self.by_name[name]]
                shape = self.op("Shape", self.program.inputs[place].name)
                return self.op("Gather", shape, self.constant(torch.tensor(dim)))
            case ast.Name(name) if name in self.told:
                return self.told[name]
            case ast.UnaryOp(ast.USub(), one):
                return self.op("Neg", self.part(one))
            case ast.BinOp(one, operator, other):
                return self.arithmetic(operator, self.part(one), self.part(other))
            case ast.Call(ast.Name("min" | "max" as name), args):
                return self.op(name.capitalize(), *map(self.part, args))
        raise self.refused(f"the size `{ast.unparse(tree)}`")

    def arithmetic(self, operator: ast.operator, one: str, other: str) -> str:
        match operator:
            case ast.Add():
                return self.op("Add", one, other)
            case ast.Sub():
                return self.op("Sub", one, other)
            case ast.Mult():
                return self.op("Mul", one, other)
            case ast.Mod():
                return self.op("Mod", one, other)
            case ast.FloorDiv():  # ONNX divides towards 0; `Mod` has Python's sign
                return self.op("Div", self.op("Sub", one, self.op("Mod", one, other)), other)
        raise self.refused(f"`{type(operator).__name__}` of sizes")
