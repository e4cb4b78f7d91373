"""A part of the program traced into a graph of its own: bodies of custom functions, hooks, transforms and branches.

In:     a traced callable and its arguments; tensors and numbers of the graphs around it may be used freely.
Out:    `Region.close(values)`: a `GraphModule` of the lifted values that returns the values.
Holds:  a fake keeps the node of the graph that computed it; a region that uses it takes it as a parameter (`lifted`).
        Inside a region `Recorder.graph` is the region's graph; leaving it, by an exception too, restores the outer one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.outside.inputs import placeholder_behind
from pliant.capture.signatures import Tracer
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import is_str, is_symbolic, is_tensor
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.symbol_nodes import SymbolNodes
from pliant.guards.sources import Source
from pliant.records import dataclass
from pliant.symbolic.expr import Symbol
from pliant.torch_adapter import DisableTorchFunction, set_grad_enabled

if TYPE_CHECKING:
    from pliant.capture.recording.recorder import Recorder


@dataclass(slots=True, eq=False)
class Replay:
    """How what a region has recorded so far is run again, to see what transforms make of its values.

    `given`: the outer values that fresh parameters stand for. `transform`: the kind of transform that the region is the
    function of, if it is. `enter(values, run)`: calls `run` on the values as they are inside.
    """

    given: list[Any] = field(default_factory=list)
    transform: Literal["", "vmap", "derivative"] = ""
    enter: Callable[[list[Any], Callable[[list[Any]], Any]], Any] = lambda values, run: run(values)


class Region:
    """One graph inside another. `lifted`: the outer values that its placeholders stand for, in order."""

    def __init__(
        self,
        recorder: Recorder,
        beside: Iterable[Region] = (),
        differentiated: bool = False,
        replay: Replay | None = None,
        parent: Region | Literal["current"] | None = "current",
    ) -> None:
        self.recorder = recorder
        self.shape_env = recorder.inputs.shape_env
        self.graph = fx.Graph()
        self.constants: dict[str, Any] = {}
        self.symbols = SymbolNodes(self.graph, self)
        self.called_in = recorder.region
        self.parent = recorder.region if parent == "current" else parent
        self.replay = replay or Replay()
        around = self.parent.readable if self.parent is not None else frozenset((recorder.graph,))
        self.readable: frozenset[fx.Graph] = around | {self.graph} | {r.graph for r in beside}
        # Whether what runs here may be differentiated by a transform around it, whatever its tensors say.
        self.differentiated: bool = differentiated or (self.parent is not None and self.parent.differentiated)
        self.lifted: list[Any] = []
        self.fresh_parameters = 0
        self._nodes: dict[int, fx.Node] = {}
        self._last: fx.Node | None = None

    # ---- parameters
    def lift(self, value: Any) -> fx.Node:
        """The placeholder of a value from outside."""
        found = self._nodes.get(id(value))
        if found is not None:
            return found
        if is_fake(value) and (value.node is None or value.node.graph not in self.readable):
            raise GraphBreak("unsupported-tensor", "a tensor of another part of the program")
        return self.parameter(value)

    def parameter(self, value: Any) -> fx.Node:
        """A new placeholder, which stands for the value inside."""
        self._last = node = placeholder_behind(self._last, self.graph, f"arg{len(self.lifted)}", value)
        self.lifted.append(value)
        self._nodes[id(value)] = node
        return node

    def symbol_node(self, symbol: Symbol) -> fx.Node:
        """The placeholder of a symbolic size."""
        for value in self.lifted:
            if is_symbolic(value) and self.shape_env.expr_of(value) is symbol:
                return self._nodes[id(value)]
        return self.parameter(self.shape_env.wrap(symbol))

    # ---- entering and leaving
    @contextmanager
    def active(self) -> Iterator[Region]:
        recorder = self.recorder
        outer = recorder.graph, recorder.symbols, recorder.constants, recorder.region
        recorder.graph, recorder.symbols, recorder.constants, recorder.region = self.graph, self.symbols, self.constants, self
        try:
            yield self
        finally:
            recorder.graph, recorder.symbols, recorder.constants, recorder.region = outer

    def fresh(self, like: FakeTensor) -> FakeTensor:
        """A tensor described like another, as a parameter of the region."""
        fake = like.fake_mode.new(like.size_, like.stride_, like.dtype_, like.device_, offset=0)
        fake.node = self.parameter(fake)
        self.fresh_parameters += 1
        return fake

    def close(self, values: Iterable[Any], name: str) -> fx.GraphModule:
        """The module that computes the values (while the region is active)."""
        self.graph.output(tuple([self.recorder.to_nodes(value) for value in values]))
        return fx.GraphModule(self.constants, self.graph, name)


@contextmanager
def without_effects(t: Tracer, what: str, later: bool = False) -> Iterator[None]:
    """Break if what runs inside changes the world: it is to run at another time, or several times. What it stored for a
    while, and stored back, is no change, unless it runs later, when something else may be there."""
    before = t.world.changes()
    yield
    if not later and t.world.changes() != before:
        t.world.drop_restored()
    if t.world.changes() != before:
        raise GraphBreak("side-effect-call", f"{what} has side effects")


@contextmanager
def grad_recorded(t: Tracer, wanted: bool) -> Iterator[None]:
    """A block in which the program itself records gradients, or does not."""
    before = torch.is_grad_enabled()
    t.call(set_grad_enabled, (wanted,), {})
    try:
        yield
    finally:
        t.call(set_grad_enabled, (before,), {})


@contextmanager
def grad_kept(within: bool | None = None) -> Iterator[None]:
    """A block behind which gradients are recorded as before it. `within`: whether they are in it, where that is another matter."""
    before = torch.is_grad_enabled()
    if within is not None:
        set_grad_enabled(within)
    try:
        yield
    finally:
        set_grad_enabled(before)


def versions(graphs: Iterable[fx.Graph]) -> dict[int, int]:
    """How often each tensor of the graphs was written so far; those that enter later are new."""
    values = [node.meta.get("val") for graph in graphs for node in graph.nodes]
    return {id(one): one.writes_ for one in tensors_in(values)}


def tensors_in(value: Any) -> list[FakeTensor]:
    """The tensors in nested builtin containers."""
    return tensors_of(leaves(value))


def tensors_of(values: Iterable[Any]) -> list[FakeTensor]:
    """Those of the values that are tensors."""
    return list(filter(is_fake, values))


def are_tensors(values: Iterable[Any]) -> bool:
    return all(map(is_fake, values))


def flat(t: Tracer, value: Any) -> tuple[list[Any], Any]:
    """The leaves of a structure of the program, and how they are put together."""
    return tree_flatten(t.internalize(value))


def refilled(leaves: list[Any], tensors: Iterable[Any], spec: Any) -> Any:
    """The structure with its tensors replaced in order."""
    given = iter(tensors)
    return tree_unflatten([next(given) if is_fake(one) else one for one in leaves], spec)


def record_module(t: Tracer, module: torch.nn.Module, values: Iterable[Any], name: str) -> Any:
    """A node that calls a module on values of the current graph, and what it returns on fakes."""
    values = list(values)
    recorder = t.recorder
    nodes = tuple(recorder.to_nodes(value) for value in values)
    with DisableTorchFunction():
        result = t.native(module, *values)
    target = recorder.submodule(module, name)
    recorder.append(recorder.graph.call_module(target, nodes), result)
    return result


# ---- what code reads that runs later: a backward or a hook, when a gradient is asked for
def read_later(t: Tracer, what: str) -> AbstractContextManager[None]:
    """Break where what runs inside reads values from outside: it is to run when these may be others."""
    return t.world.reads_seen_by(functools.partial(_refuse, what))


def asks_grad_mode(t: Tracer, answer: bool, source: Source) -> None:
    """The program asked whether gradients are recorded. Where they are not: while a backward runs they are, if
    `create_graph` is given. Contexts of PyTorch's own that set the mode keep the answer to set it back."""
    asked = bool(t.frames) and t.frames[-1].is_the_users
    if not answer and asked and t.world.look is not None:
        t.world.look(answer, source)


def _refuse(reader: str, value: Any, source: Source) -> None:
    if may_be_another(value, source):
        raise GraphBreak("read-later", f"{reader} reads `{source}`")


def may_be_another(value: Any, source: Source) -> bool:
    """Whether it is a value that programs put in the place of another, and no part of the program itself."""
    return _varies(value) and not _is_of_function(value, source) and not _is_constant(value, source)


_WITH_CONSTANTS = ("math", "cmath", "torch", "numpy")


def _is_constant(value: Any, source: Any) -> bool:
    """Whether it is a number that such a module names, as `math.pi`."""
    held = getattr(getattr(source, "parent", None), "held", None)
    if held is None or type(value) not in (float, complex):
        return False
    modules = filter(None, map(sys.modules.get, _WITH_CONSTANTS))
    return any(held.value is vars(module) for module in modules)


def _varies(value: Any) -> bool:
    return type(value) in (type(None), bool, int, float, complex, str) or is_tensor(value)


def _is_of_function(value: Any, source: Any) -> bool:
    """Whether it leads to what a function was defined with: defaults, and texts in closures, by which decorators are told
    devices and modes (`torch.amp.custom_bwd`)."""
    names = ("__defaults__", "__kwdefaults__", *(("__closure__",) if is_str(value) else ()))
    while source is not None and getattr(source, "name", "") not in names:
        source = getattr(source, "parent", None)
    return source is not None
