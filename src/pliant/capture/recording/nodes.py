"""Nodes of the graph that is being captured: calls, checks of numbers, constants; what a traced value is in the graph.

In:     a call on traced values and its result; what the program, or an operator's rule, states of numbers.
Out:    nodes whose `meta["val"]` is the traced result and `meta["origin"]` the user's line.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from pliant.capture.graph_breaks import GraphBreak, needs_value
from pliant.capture.outside.inputs import Inputs
from pliant.capture.signatures import Args, Kwargs
from pliant.capture.structures import is_several, leaves
from pliant.capture.value_kinds import (
    SYMBOLIC_TYPES,
    ByKind,
    concrete,
    exactly,
    is_function,
    is_numpy_number,
    is_tensor,
)
from pliant.capture.varying_values import UNSETTLED
from pliant.errors import DataDependentError
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.symbol_nodes import SymbolNodes
from pliant.graph.unbacked import assume, bindings_of, written
from pliant.source import SourceLocation
from pliant.symbolic.runtime_asserts import RuntimeAssert
from pliant.torch_adapter import append_call

if TYPE_CHECKING:
    from pliant.capture.recording.regions import Region

Tensor = torch.Tensor
_is_method_in_c = exactly(types.MethodDescriptorType)


class Nodes:
    """The graph, or the innermost part of it that is traced by itself, and what is appended to it."""

    def __init__(self, graph: fx.Graph, inputs: Inputs, location: Callable[[], SourceLocation | None]) -> None:
        super().__init__()
        self.graph = graph
        self.inputs = inputs
        self.location = location
        self.count = 0
        self.constants: dict[str, Any] = {}
        self.symbols = SymbolNodes(graph, inputs)
        self.region: Region | None = None  # the innermost part that is traced into a graph of its own
        self.marks: dict[str, Any] = {}  # noted in the `meta` of every node that is recorded
        self._assumed: list[RuntimeAssert] = []

    def record(self, func: Any, args: Args, kwargs: Kwargs, result: Any) -> Any:
        """Append the call's node and attach nodes to the fake tensors of its result."""
        self.note_assumptions()
        node_args, node_kwargs = self.to_nodes(args), self.to_nodes(kwargs)
        name: str | None = getattr(func, "__name__", "")
        name = name if getattr(Tensor, name or "", None) is func else _RENAMED.get(func)
        if name is not None:
            node = append_call(self.graph, "call_method", name, node_args, node_kwargs)
        else:
            target = _called(func) if _is_method_in_c(func) else func
            node = append_call(self.graph, "call_function", target, node_args, node_kwargs)
        return self.append(node, result)

    def append(self, node: fx.Node, result: Any) -> Any:
        """Complete a new node, whose value is `result`."""
        made = self.inputs.shape_env.take_fresh()
        if made and self.region is not None:  # transforms run it on other values; the symbols are not known outside
            raise GraphBreak("data-dependent", "a number that data tells in a part that is traced by itself")
        if made:
            node.meta["made"] = tuple(made)
            node.meta["binds"] = bindings = bindings_of(made, result)
            self.symbols.bind(node, bindings)
        node.meta["val"] = result
        node.meta["origin"] = self.location()
        node.meta.update(self.marks)
        self.count += 1
        self._attach(node, result)
        self.note_assumptions()
        return result

    @property
    def assumes(self) -> bool:
        """Whether checks wait for their symbols."""
        return bool(self._assumed)

    def note_assumptions(self) -> None:
        """Record checks of what operators' rules took for granted, each as soon as its symbols have values."""
        self._assumed += [one for one in self.inputs.shape_env.take_asserts() if not one.stated]
        if not self._assumed:
            return
        ready = [one for one in self._assumed if self.symbols.knows(one.expr)]
        self._assumed = [one for one in self._assumed if one not in ready]
        for one in ready:
            self.check(assume, self.inputs.shape_env.as_written(one.expr), str(one), str(one.origin))

    def state(self, target: Any, condition: Any, *rest: Any) -> None:
        """Record what the program states of numbers, and learn it."""
        env, expr = self.inputs.shape_env, written(condition)
        if env.statically_known(expr) is True:
            return
        if not env.expect_true(expr, stated=True):
            raise GraphBreak("tensor-error", f"`{expr}` cannot hold")
        self.note_assumptions()
        self.check(target, env.as_written(expr), *rest)

    def assume(self, condition: Any, name: str = "") -> bool:
        """Learn that a condition holds, and check it while running; False if it cannot hold. `name`: what messages call it."""
        env = self.inputs.shape_env
        try:
            holds = env.expect_true(written(condition), name)
        except DataDependentError as error:
            raise needs_value(error) from None
        self.note_assumptions()
        return holds

    def check(self, target: Any, condition: Any, *rest: Any) -> None:
        """Record a check; its condition is kept as it is, though it is known from now on."""
        node = self.graph.call_function(target, (self.symbols.written(written(condition)), *self.to_nodes(rest)))
        node.meta.update(self.marks, val=None, origin=self.location(), check=(condition, *rest))
        self.count += 1

    def submodule(self, module: torch.nn.Module, name: str) -> str:
        """The target of calls of a module, which becomes part of the graph module."""
        target = f"{name}_{len(self.constants)}"
        self.constants[target] = module
        return target

    def _has_node(self, fake: FakeTensor) -> bool:
        if fake.node is None:
            return False
        return fake.node.graph is self.graph or self.region is not None and fake.node.graph in self.region.readable

    def _attach(self, node: fx.Node, result: Any) -> None:
        """Of tuples of tensors, one getitem node for each that is new."""
        if is_fake(result):
            if not self._has_node(result):
                result.node = node
            return
        for i, item in enumerate(result if is_several(result) else ()):
            if not self._has_node(item) if is_fake(item) else is_several(item) and has_tensor(item):
                part = self.graph.call_function(operator.getitem, (node, i))
                part.meta["val"] = item
                self._attach(part, item)

    def to_nodes(self, value: Any) -> Any:
        """Arguments as fx wants them: nodes for tensors and symbolic numbers, constants as they are."""
        return _AS_NODES.of(value)(self, value)

    def _tuple_of_nodes(self, value: Any) -> Any:
        items = [self.to_nodes(v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)

    def _constant_or_name(self, value: Any) -> Any:
        if is_numpy_number(value):  # its text is no literal; torch takes it for the number that it holds
            if type(value).__name__ in ("bool_", "bool"):
                raise GraphBreak("unknown-call", "a truth of NumPy, which PyTorch takes for a float or a flag")
            return value.item()
        if isinstance(value, fx.node.base_types):
            return value
        return self.constant(value)

    def _refuse_real(self, value: Tensor) -> NoReturn:
        raise GraphBreak("unsupported-tensor", "a real tensor reached the graph without a source")

    def constant(self, value: Any) -> fx.Node:
        """An opaque constant (a generator, a process group, a callable...) as an attribute of the graph module."""
        for name, known in self.constants.items():
            if known is value:
                return self.graph.get_attr(name)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return self.graph.create_node("get_attr", name)

    def node_of(self, fake: FakeTensor) -> fx.Node:
        node = fake.node
        if node is not None and node.graph is self.graph:
            return node  # type: ignore[no-any-return]
        if self.region is not None:
            return self.region.lift(fake)
        raise GraphBreak("unsupported-tensor", "a tensor that was not made by a recorded call")


_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}  # as torch reads them
_KIND = type(torch.FloatTensor)  # of classes that name a dtype and a device; so does their name, as fx can write it


@functools.cache
def _called(method: Any) -> Any:
    """A function that calls PyTorch's method, in the place of which the program has put another: by its name that is called."""
    return functools.wraps(method, ("__name__", "__qualname__"))(lambda *args, **kwargs: method(*args, **kwargs))


# Methods whose function has another name: `Tensor.__pow__` wraps one called `pow`.
_RENAMED: dict[Any, str] = {
    method: name
    for name, method in vars(Tensor).items()
    if is_function(method) and method.__name__ != name
}
_AS_NODES: ByKind[Callable[[Nodes, Any], Any]] = ByKind(
    Nodes._constant_or_name,
    {
        **dict.fromkeys((int, float, bool, str, type(None), torch.dtype, torch.device), lambda nodes, value: value),
        **dict.fromkeys(SYMBOLIC_TYPES, lambda nodes, value: nodes.symbols.node(value)),
        list: lambda nodes, value: [nodes.to_nodes(v) for v in value],
        type: lambda nodes, value: _DTYPES.get(value) or nodes.constant(value),
        _KIND: lambda nodes, value: f"{value.__module__}.{value.__name__}",
        slice: lambda nodes, value: slice(*map(nodes.to_nodes, (value.start, value.stop, value.step))),
        **dict.fromkeys(UNSETTLED, lambda nodes, value: nodes.to_nodes(concrete(value))),
    },
    {
        FakeTensor: Nodes.node_of,
        tuple: Nodes._tuple_of_nodes,
        dict: lambda nodes, value: {k: nodes.to_nodes(v) for k, v in value.items()},
        Tensor: Nodes._refuse_real,
    },
)


def nodes_behind(last: fx.Node) -> Iterable[fx.Node]:
    """What was recorded since."""
    node = last.next
    while node.op != "root":
        yield node
        node = node.next


def has_tensor(value: Any) -> bool:
    """Whether a tensor is among the values in a structure."""
    return any(map(is_tensor, leaves(value)))
