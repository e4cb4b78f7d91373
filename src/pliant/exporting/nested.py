"""Bodies of branches and loops as ATen graphs: programs of their own inside an exported one.

In:     the graph of an exported program, in which capture left branches and loops on tensors and recurrent layers.
Out:    the same graph: bodies are graphs of operators as it is one itself, and take the symbols that they use.
Holds:  a body that makes sizes, checks facts or holds tensors stays as it was captured: such a program runs, and says why
        where it is to be saved.
Reads on: `control_form.py` (files).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.autograd.joint import JointGraph, trace_joint
from pliant.autograd.places import FromResult
from pliant.errors import Unsupported
from pliant.exporting.control_form import KINDS, control_of, values_of
from pliant.exporting.program import described
from pliant.exporting.writing import numbered
from pliant.exporting.written_back import copied
from pliant.graph.body_graph import BodyGraph
from pliant.graph.contracts import AtenGraph, CapturedGraph, GraphInput
from pliant.graph.control_flow import Program, program_of
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.late_module import LateModule
from pliant.graph.passes.cse import cse
from pliant.graph.passes.dce import dce
from pliant.graph.unbacked import CHECKS, unlearnt
from pliant.symbolic.expr import Symbol
from pliant.symbolic.shape_env import ShapeEnv
from pliant.torch_adapter import append_node

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_clone = torch.ops.aten.clone.default


class _Kept(Exception):
    """Why a body stays as it was captured."""


def nest(graph: fx.Graph, env: ShapeEnv) -> None:
    """Give the branches and loops of a graph bodies that are graphs."""
    for node in list(graph.nodes):
        program = program_of(node) if node.op == "call_function" else None
        if program is None:
            continue
        try:
            if type(program) not in KINDS.values():
                raise _Kept("the derivative of a branch or loop")
            _nest(node, program, env)
        except (_Kept, Unsupported) as reason:
            node.meta["kept"] = str(reason).splitlines()[0]


def _nest(node: fx.Node, program: Program, env: ShapeEnv) -> None:
    values = list(map(described, values_of(node)))
    mode = next(value.fake_mode for value in values if isinstance(value, FakeTensor))
    with mode.shape_only():
        given = program.first_given(values)
    graphs = [_traced(body.module, one, env) for body, one in zip(program.bodies, given, strict=True)]
    symbols = sorted({s for graph in graphs for one in graph.nodes for s in _symbols(one)}, key=str)
    added = [env.as_written(symbol) for symbol in symbols]
    bodies = [BodyGraph(AtenGraph(_taking(graph, symbols, added), env, "body")) for graph in graphs]
    fields = {name: getattr(program, name) for name in type(program).FIELDS}
    if "reads" in fields:
        first = len(values) - (fields.get("count", 1))
        fields["reads"] = tuple([*reads, *range(first, first + len(added))] for reads in fields["reads"])
    made = type(program).of_fields(fields, lambda _: bodies)
    _, tensors, numbers, places = cast(tuple[Any, ...], node.args)
    node.args = (0, tensors, [*numbers, *added], [*places, *(-1 - len(numbers) - i for i in range(len(added)))])
    if program.random and not made.random:  # of a body that is a module it was taken for granted
        node.meta["val"] = node.meta["val"][:-1]
    numbered(node, made)


def change_bodies(graph: fx.Graph, change: Callable[[fx.Graph], object], more: str = "") -> None:
    """Have the bodies of a graph changed, and those in them. Programs of the same content are one, so each is copied first.
    `more`: of what their numbers tell, beside their content."""
    for node in list(graph.nodes):
        program = control_of(node)
        if program is None or not program.bodies or not all(isinstance(one.module, BodyGraph) for one in program.bodies):
            continue
        bodies = [_changed(cast(BodyGraph, one.module).aten, change, more) for one in program.bodies]
        fields = {name: getattr(program, name) for name in type(program).FIELDS}
        numbered(node, type(program).of_fields(fields, lambda _: bodies), more)  # noqa: B023


def _changed(aten: AtenGraph, change: Callable[[fx.Graph], object], more: str) -> BodyGraph:
    graph, _, results = copied(aten.graph)
    graph.output(results)
    change(graph)
    change_bodies(graph, change, more)
    return BodyGraph(AtenGraph(graph, aten.shape_env, aten.name))


# ---- one body
def _traced(module: Any, given: Sequence[Any], env: ShapeEnv) -> fx.Graph:
    """The graph of a body that is given such fakes and numbers."""
    inputs = [
        GraphInput(f"x{i}", "tensor" if isinstance(one, FakeTensor) else "symbol", one, None, one)
        for i, one in enumerate(given)
    ]
    captured = CapturedGraph(_copying(module), inputs, env, "body", grad_enabled=False, attributes={"whole": True})
    joint = trace_joint(captured)
    assert isinstance(joint, JointGraph)
    graph, places = joint.graph, joint.plan.outputs
    if joint.constants:
        raise _Kept("a body that holds tensors")
    if not all(isinstance(one, FromResult) for one in places) or any(n.target is torch.ops.aten.copy_.default for n in graph.nodes):
        raise _Kept("a body that writes")
    output = next(iter(graph.find_nodes(op="output")))
    output.args = (tuple(_uncopied(joint.results[one.position]) for one in places),)  # type: ignore[union-attr]
    cse(graph)
    dce(graph)
    for node in graph.nodes:
        if node.target in CHECKS or node.meta.get("binds"):
            raise _Kept("a body that checks facts or makes sizes of elements")
        node.meta = {k: v for k, v in node.meta.items() if k in ("val", "stage")}
    nest(graph, env)
    return graph


def _copying(module: fx.GraphModule) -> fx.GraphModule:
    """The module with results in memory of their own, so that each is a value of its graph."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    returned: Any = graph.graph_copy(module.graph, copies)
    graph.output(tuple(graph.call_function(torch.clone, (one,)) for one in returned))
    return LateModule(module, graph)


def _uncopied(result: Any) -> Any:
    """What the copy is of, if it lies alike: the operator keeps results apart itself."""
    if isinstance(result, fx.Node) and result.target is _clone and not result.kwargs:
        source: Any = result.args[0]
        one, other = (n.meta["val"].spec for n in (result, source))
        return source if one.size_key == other.size_key and one.stride_key == other.stride_key else result
    return result


def _symbols(node: fx.Node) -> Iterator[Symbol]:
    """Those whose values a call of the node, or the layout of what it makes, may need."""
    parts: Iterable[Any] = pytree.tree_leaves((node.args, node.kwargs, node.meta.get("val")))
    for part in parts:
        numbers = (*part.size_, *part.stride_, part.offset_) if isinstance(part, FakeTensor) else (part,)
        for number in numbers:
            if isinstance(number, _SYMBOLIC):
                yield from unlearnt(number).free | number.node.expr.free


def _taking(graph: fx.Graph, symbols: Sequence[Symbol], numbers: Sequence[Any]) -> fx.Graph:
    """The graph with these symbols as further inputs."""
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for symbol, number in zip(symbols, numbers):
        with graph.inserting_before(first):
            node = append_node(graph, "placeholder", f"number_{symbol.name}", (), {}, f"number_{symbol.name}")
        node.target = node.name
        node.meta.update(val=number, stage="forward")
    return graph
