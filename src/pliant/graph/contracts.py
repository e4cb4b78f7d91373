"""Types that pass between capture, autograd and the compiler.

Holds:  `CapturedGraph.module` is torch-level and runnable; its placeholders are `inputs` in order. `AtenGraph.graph` is
        functional ATen, except for `aten.copy_` (and `set_`-free) epilogue nodes that write inputs back at its end.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from torch import fx

from pliant.records import dataclass
from pliant.torch_adapter import OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    from pliant.symbolic.shape_env import ShapeEnv


@dataclass(slots=True, eq=False)
class GraphInput:
    """One flat argument of a captured graph.

    kind: "tensor" or "symbol" (a number the caller passes: int or float of a symbolic size or scalar).
    fake: the FakeTensor, or the SymInt/SymFloat. `example`: the real value seen at capture (weak use only: metadata).
    static: True for parameters and buffers owned by a module (sizes never symbolic, address stable between calls).
    """

    name: str
    kind: str
    fake: Any
    source: Any
    example: Any
    static: bool = False


@dataclass(slots=True, eq=False)
class CapturedGraph:
    """What capture hands over: `module(*flat_inputs)` returns the tuple of output values."""

    module: fx.GraphModule
    inputs: list[GraphInput]
    shape_env: ShapeEnv
    name: str = "graph"
    grad_enabled: bool = True
    attributes: dict[str, Any] = field(default_factory=dict)

    def written_inputs(self) -> list[int]:
        """Which inputs the graph writes."""
        tensors = [(i, one.fake) for i, one in enumerate(self.inputs) if one.kind == "tensor"]
        return [i for i, fake in tensors if fake is not None and fake.writes_ > 0]

    def changed_inputs(self) -> list[int]:
        """The same, and those that calls write without counting it: through `data`, and statistics of batch norms."""
        nodes = self.module.graph.nodes
        if any(node.target is getattr and node.args[1] == "data" for node in nodes):
            return [i for i, one in enumerate(self.inputs) if one.kind == "tensor"]
        norms = [n for n in nodes if name_of_target(n).endswith("batch_norm") and n.kwargs.get("training", True)]
        kept = {given for node in norms for given in node.all_input_nodes if given is not node.args[0]}
        places = zip(self.module.graph.find_nodes(op="placeholder"), self.inputs)
        statistics = [node in kept and one.kind == "tensor" and not one.fake.requires_grad for node, one in places]
        found = {i for i, changes in enumerate(statistics) if changes}
        return sorted(found.union(self.written_inputs()))


@dataclass(slots=True, eq=False)
class AtenGraph:
    """A functional ATen graph with `node.meta["val"]` on every node.

    placeholders: tensors and symbols. The output node holds a flat tuple of nodes, SymInts, numbers or None.
    """

    graph: fx.Graph
    shape_env: ShapeEnv
    name: str = "graph"
    held_inputs: frozenset[int] = frozenset()  # placeholder positions of what the caller keeps after the call
    static_inputs: frozenset[int] = frozenset()  # of what lies where it lay at the last call: parameters, saved tensors
    private_outputs: frozenset[int] = frozenset()  # positions of outputs that are saved for the backward and not returned


# A compiled ATen graph: takes the flat inputs as a list (which it may clear, to free early) and returns the flat outputs.
Runnable = Callable[[list[Any]], list[Any]]
# A backend at the ATen level.
AtenCompiler = Callable[[AtenGraph], Runnable]


def name_of_target(node: fx.Node) -> str:
    """The name of the function or method that a node calls; "" if it has none. The program's own may have any."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def known_name(node: fx.Node) -> str:
    """The same for methods of tensors and functions of PyTorch and Python, whose names say what they do; else ""."""
    target: Any = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, types.FunctionType):
        is_known = target.__globals__["__name__"].partition(".")[0] in ("torch", "pliant")
    else:
        is_known = library_of(target) in ("", "aten")
    return getattr(target, "__name__", "") if is_known else ""


def library_of(target: Any) -> str:
    """The library that registered an operator; "" for what is none."""
    if isinstance(target, OpOverload):
        return str(target.namespace)
    return str(target._qualified_op_name.partition("::")[0]) if isinstance(target, OpOverloadPacket) else ""


def returned(graph: fx.Graph) -> list[Any]:
    """What a graph returns, as it is now: passes put other nodes in the place of those that were traced."""
    values: Any = next(iter(graph.find_nodes(op="output"))).args[0]
    return list(values)
