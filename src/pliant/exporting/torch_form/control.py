"""Branches and loops by the operators that PyTorch has for them in public: `torch.cond` and `torch.while_loop`.

In:     the node of a branch or loop.
Out:    a module that takes its tensors and numbers, and returns its results; an `ExportError` for what has no form.
Holds:  bodies are modules of plain operators, since PyTorch follows them as it follows a user's. They return memory of their
        own, as PyTorch asks. Scans are loops that write what each step makes to its place: PyTorch has no public operator of scans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from pliant.exporting.control_form import apart, control_of, values_of
from pliant.exporting.torch_form.numbers import Values, number
from pliant.exporting.torch_form.refusal import refused
from pliant.graph.body_graph import BodyGraph
from pliant.graph.control_bodies import Body
from pliant.graph.control_flow import AssociativeScan, Branch, Program, Scan, While
from pliant.symbolic.expr import Symbol

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_clone = torch.ops.aten.clone.default


def check_control(node: fx.Node, check: Callable[[fx.Node], None]) -> bool:
    """Whether the node is a branch or loop that can be said; an `ExportError` if it is one that cannot. `check`: of the nodes
    of its bodies."""
    program, where = control_of(node), node.meta.get("where")
    if program is None or not program.bodies:
        return False
    if type(program) not in _MODULES:
        raise refused("the derivative of a branch or loop", "its body is no graph of operators", where=where)
    if program.random:
        raise refused("a branch or loop draws random numbers", "PyTorch's programs do not say in which order", where=where)
    for body in program.bodies:
        if not isinstance(body.module, BodyGraph):
            raise refused("a branch or loop is no graph of operators", node.meta.get("kept", ""), where=where)
        for one in body.module.graph.nodes:
            if one.op != "call_function":
                continue
            if control_of(one) is not None and not control_of(one).bodies:  # type: ignore[union-attr]
                raise refused("a recurrent layer in a branch or loop", "PyTorch does not follow it there", where=where)
            check(one)
    return True


def module_of_control(program: Program, instead: Callable[[Any], Any]) -> nn.Module:
    """The module. `instead`: the operator that stands for one."""
    return _MODULES[type(program)](program, [_module(body, instead) for body in program.bodies])


class _Cond(nn.Module):
    def __init__(self, program: Any, bodies: Sequence[fx.GraphModule]) -> None:
        super().__init__()
        self.reads: tuple[list[int], list[int]] = program.reads
        self.one, self.other = bodies

    def forward(self, chosen: torch.Tensor, *values: Any) -> tuple[torch.Tensor, ...]:
        def then() -> Any:
            return self.one(*[values[i] for i in self.reads[0]])

        def otherwise() -> Any:
            return self.other(*[values[i] for i in self.reads[1]])

        return tuple(torch.cond((chosen != 0).reshape(()), then, otherwise, ()))


class _Loop(nn.Module):
    def __init__(self, program: Any, bodies: Sequence[fx.GraphModule]) -> None:
        super().__init__()
        self.reads: tuple[list[int], list[int]] = program.reads
        self.count: int = program.count
        self.condition, self.body = bodies

    def forward(self, *values: Any) -> tuple[torch.Tensor, ...]:
        closed = values[self.count :]

        def goes_on(*carried: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.condition(*carried, *[closed[i] for i in self.reads[0]])[0]
            return (found != 0).reshape(())

        def step(*carried: torch.Tensor) -> Any:
            return self.body(*carried, *[closed[i] for i in self.reads[1]])

        found: Any = torch.while_loop(goes_on, step, tuple(values[: self.count]))  # type: ignore[no-untyped-call]
        return tuple(found)


class _Scan(nn.Module):
    """The first step is run before the loop, which tells what steps make."""

    def __init__(self, program: Any, bodies: Sequence[fx.GraphModule]) -> None:
        super().__init__()
        self.count: int = program.n_carried
        self.scanned: int = program.n_scanned
        self.dim: int = program.dim
        self.reverse: bool = program.reverse
        self.chains = isinstance(program, AssociativeScan)
        (self.body,) = bodies

    def forward(self, *values: Any) -> tuple[torch.Tensor, ...]:
        start = 0 if self.chains else self.count
        scanned, closed = values[start : start + self.scanned], values[start + self.scanned :]
        length, dim = scanned[0].shape[self.dim], self.dim if self.chains else 0

        def at(step: torch.Tensor) -> list[torch.Tensor]:
            return [one.index_select(self.dim, step).squeeze(self.dim) for one in scanned]

        def made(carried: Sequence[torch.Tensor], slices: Sequence[torch.Tensor]) -> Any:
            found = self.body(*carried, *slices, *closed)
            return (found, found) if self.chains else (found[: self.count], found[self.count :])

        first = torch.full((1,), length - 1 if self.reverse else 0, dtype=torch.int64)
        slices = at(first)
        carried, parts = (slices, slices) if self.chains else made(values[:start], slices)
        rooms = [one.unsqueeze(dim).repeat_interleave(length, dim) for one in parts]
        count = len(carried)

        def goes_on(taken: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
            left: torch.Tensor = (taken < length).reshape(())
            return left

        def step(taken: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            place = length - 1 - taken if self.reverse else taken + 0
            carried, parts = made(given[:count], at(place))
            pairs = zip(given[count:], parts)
            written = [room.index_copy(dim, place, one.unsqueeze(dim)) for room, one in pairs]
            return (taken + 1, *[one.clone() for one in carried], *written)

        begin = (torch.ones((1,), dtype=torch.int64), *[one.clone() for one in carried], *rooms)
        found: Any = torch.while_loop(goes_on, step, begin)  # type: ignore[no-untyped-call]
        return tuple(found[1 + count :]) if self.chains else tuple(found[1:])


_MODULES: Mapping[type[Program], Callable[..., nn.Module]] = {
    Branch: _Cond, While: _Loop, Scan: _Scan, AssociativeScan: _Scan,
}  # fmt: skip


# ---- bodies
def _module(body: Body, instead: Callable[[Any], Any]) -> fx.GraphModule:
    """A body as a module whose sizes are computed from its numbers."""
    graph, root = fx.Graph(), nn.Module()
    nodes: dict[fx.Node, fx.Node] = {}
    numbers: Values = {}

    def of(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return nodes[value]
        if isinstance(value, (list, tuple)):
            return [of(one) for one in value]
        found = number(value.node.expr, numbers) if isinstance(value, _SYMBOLIC) else value
        return found.node if isinstance(found, fx.Proxy) else found

    source: Any = body.module
    for node in source.graph.nodes:
        if node.op == "placeholder":
            nodes[node] = graph.placeholder(node.name)
            symbol = node.meta["val"].node.expr if isinstance(node.meta["val"], _SYMBOLIC) else None
            if isinstance(symbol, Symbol):
                numbers[symbol.name] = fx.Proxy(nodes[node])
        elif node.op == "output":
            graph.output(tuple(_owned(graph, source.results, of)))
        elif (program := control_of(node)) is not None:
            root.add_module(node.name, module_of_control(program, instead))
            nodes[node] = graph.call_module(node.name, tuple(of(values_of(node))))
        else:
            named = {key: of(one) for key, one in node.kwargs.items()}
            nodes[node] = graph.call_function(instead(node.target), tuple(of(list(node.args))), named)
    return fx.GraphModule(root, graph)


def _owned(graph: fx.Graph, results: Sequence[fx.Node], of: Callable[[Any], Any]) -> list[fx.Node]:
    """Results in memory of their own."""
    pairs = zip(results, apart(results), strict=True)
    return [of(one) if own else graph.call_function(_clone, (of(one),)) for one, own in pairs]
