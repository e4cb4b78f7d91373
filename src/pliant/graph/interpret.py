"""Run an ATen graph eagerly, node by node: the meaning that compiled code must have.

In:     an `AtenGraph` and real inputs (tensors and numbers) in the order of its placeholders.
Out:    its outputs.
Holds:  nothing is compiled or fused; values are freed after their last use. Symbols take their values from the inputs'
        sizes and from nodes that return numbers. Random operators draw from the generators in graph order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import torch
from torch import fx

from pliant.graph.contracts import AtenGraph, Runnable
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import BY_POSITION, is_random
from pliant.graph.unbacked import CHECKS, unlearnt, written
from pliant.symbolic.expr import Symbol
from pliant.symbolic.traverse import evaluate
from pliant.torch_adapter import RUNS_AS, TRANSFORMED, is_transformed, set_grad_enabled

_clone = torch.ops.aten.clone.default
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
Values = dict[Symbol, Any]


def bind_symbols(described: Any, value: Any, values: Values) -> None:
    """Note what a real value says about the symbols of its description."""
    if isinstance(described, _SYMBOLIC):
        _bind(described, value, values)
    elif type(described) is FakeTensor:
        if value is None:  # a workspace that was not wanted
            return
        for size, real in zip(described.size_, value.shape):
            _bind(size, real, values)
        for stride, real in zip(described.stride_, value.stride()):
            _bind(stride, real, values)
        _bind(described.offset_, value.storage_offset(), values)


def tells_symbols(described: Any) -> bool:
    """Whether a real value says anything about symbols."""
    if type(described) is FakeTensor:
        return any(isinstance(one, _SYMBOLIC) for one in (*described.size_, *described.stride_, described.offset_))
    return isinstance(described, _SYMBOLIC)


def _bind(described: Any, real: Any, values: Values) -> None:
    if isinstance(described, _SYMBOLIC):
        for expr in (described.node.expr, written(described)):  # one may be known to equal another, which the graph checks
            if isinstance(expr, Symbol):
                values.setdefault(expr, real)


def number(value: Any, values: Mapping[Symbol, Any]) -> Any:
    """The plain number of a symbolic one: as the graph computed it, if that is known."""
    own, expr = unlearnt(value), value.node.expr
    return evaluate(own if own.free <= values.keys() else expr, values)


def interpret(aten: AtenGraph, inputs: list[Any]) -> list[Any]:
    """The outputs of the graph on these inputs."""
    run = _Run(aten)
    return run.all(list(inputs))


def in_inference_mode(module: fx.GraphModule) -> Callable[..., Any] | None:
    """What runs a torch-level graph with the mode on for the calls that the program makes in it; None if it makes none."""
    if not any(node.meta.get("inference") for node in module.graph.nodes):
        return None
    run = _InModes(module).run
    return lambda *inputs: run(*inputs, enable_io_processing=False)


class _InModes(fx.Interpreter):
    """Runs the nodes of blocks of `torch.inference_mode`, which are no nodes themselves, as those blocks would."""

    def run_node(self, n: fx.Node) -> Any:
        if not n.meta.get("inference") or n.target is set_grad_enabled:  # which must outlast the node
            return super().run_node(n)
        with torch.inference_mode():
            return super().run_node(n)


def eager(aten: AtenGraph, lays_out: bool = False) -> Runnable:
    """The backend that compiles nothing: an `AtenCompiler`. `lays_out`: inputs may lie otherwise than they are described."""
    last_uses = _last_uses(aten.graph)
    telling = {node for node in aten.graph.nodes if tells_symbols(node.meta.get("val"))}

    def call(inputs: list[Any]) -> list[Any]:
        given = list(inputs)
        inputs.clear()
        return _Run(aten, last_uses, lays_out, telling).all(given)

    return call


def laying_out(aten: AtenGraph) -> Callable[[list[Any]], list[Any]]:
    """What makes inputs lie as the graph describes them."""
    nodes = list(aten.graph.find_nodes(op="placeholder"))

    def lay(inputs: list[Any]) -> list[Any]:
        run = _Run(aten, {}, lays_out=True)
        for node, value in zip(nodes, inputs, strict=True):
            run.nodes[node] = value
            run.note(node)
        return [run.laid_out(node) for node in nodes]

    return lay


def _dense_order(size: Any, strides: list[int]) -> list[int] | None:
    """The dimensions from the outermost to the innermost, if the elements fill memory without gaps."""
    order = sorted(range(len(strides)), key=lambda dim: (strides[dim], size[dim]), reverse=True)
    step = 1
    for dim in reversed(order):
        if size[dim] != 1 and strides[dim] != step:
            return None
        step *= size[dim]
    return order


class _Run:
    """One execution. `lays_out`: inputs may lie otherwise than they are described. `telling`: the nodes whose values say something
    about symbols, if that is known."""

    def __init__(
        self,
        aten: AtenGraph,
        last_uses: dict[fx.Node, list[fx.Node]] | None = None,
        lays_out: bool = False,
        telling: Set[fx.Node] | None = None,
    ) -> None:
        self.graph, self.lays_out, self.telling = aten.graph, lays_out, telling
        self.last_uses = _last_uses(aten.graph) if last_uses is None else last_uses
        self.nodes: dict[fx.Node, Any] = {}
        self.symbols: Values = {}

    def all(self, inputs: list[Any]) -> list[Any]:
        inputs.reverse()
        # Below autograd: a backward graph may be run while gradients of gradients are recorded.
        with torch.no_grad():
            for node in self.graph.nodes:
                if node.op == "output":
                    return [self.laid_out(a) for a in node.args[0]]
                self.nodes[node] = inputs.pop() if node.op == "placeholder" else self.call(node)
                self.note(node)
                if self.lays_out and node.op == "placeholder" and node in self.nodes:
                    self.nodes[node] = self.laid_out(node)
        raise AssertionError("a graph without an output node")

    def call(self, node: fx.Node) -> Any:
        if node.target in CHECKS:
            return self.check(node)
        if node.target is _clone and type(node.meta.get("val")) is FakeTensor and not node.kwargs:
            return self.copied(self.value(node.args[0]), self.value(node.meta["val"].stride_))
        target: Any = RUNS_AS.get(node.target, node.target)
        given = self.laid_out if is_random(node.target) else self.value  # numbers are drawn in the order of memory
        args = [given(a) for a in node.args]
        if node.target in BY_POSITION:
            args = self.placed(node, args)
        if any(isinstance(a, torch.Tensor) and is_transformed(a) for a in args):
            target = TRANSFORMED.get(node.target, target)
        results = target(*args, **{k: given(v) for k, v in node.kwargs.items()})
        return results if _namespace(node.target) == "aten" else self.lying(results, node.meta.get("val"))

    def placed(self, node: fx.Node, args: list[Any]) -> list[Any]:
        """The arguments of a call that looks at memory: a value may begin elsewhere in its memory than is described."""
        source: Any = node.args[0]
        value, begin, place = self.laid_out(source), self.value(source.meta["val"].offset_), BY_POSITION[node.target]
        offset = args[place] if len(args) > place and args[place] is not None else begin
        return [value, *args[1:place], offset - begin + value.storage_offset()]

    def check(self, node: fx.Node) -> Any:
        condition: Any = node.args[0]
        holds = evaluate(unlearnt(condition), self.symbols)
        return node.target(holds, *[self.value(a) for a in node.args[1:]])  # type: ignore[operator]

    def laid_out(self, argument: Any) -> Any:
        """A value that lies as it is described: writes become values, and values of views may be dense."""
        return self.lying(self.value(argument), argument.meta.get("val") if type(argument) is fx.Node else None)

    def lying(self, value: Any, described: Any) -> Any:
        """The value with the strides that are described. Descriptions of results of operators that are not PyTorch's own need
        not tell how they lie, and what follows was traced for strides as described."""
        if isinstance(value, list) and isinstance(described, (list, tuple)):
            return [self.lying(one, own) for one, own in zip(value, described, strict=True)]
        if type(described) is not FakeTensor or type(value) is not torch.Tensor or value.layout is not torch.strided:
            return value
        strides = self.value(described.stride_)
        lies = all(size < 2 or one == other for size, one, other in zip(value.shape, value.stride(), strides))
        return value if lies else self.copied(value, strides)

    def copied(self, value: torch.Tensor, strides: list[int]) -> torch.Tensor:
        """A copy with these strides, be it dense, with gaps, or one element in many places."""
        if list(value.stride()) == strides and value.is_contiguous():
            return value.clone()
        order = _dense_order(value.shape, strides)
        if order is not None:
            places = sorted(range(value.dim()), key=order.__getitem__)
            made = value.permute(order).clone(memory_format=torch.contiguous_format).permute(places)
            same = list(made.stride()) == strides  # where there is but one element, any stride is dense
            return made if same else made.as_strided(made.shape, strides)
        found = value.new_empty_strided(value.shape, strides)  # batched where the value is
        once, given = found, value
        for dim, (size, stride) in enumerate(zip(value.shape, strides)):
            if size > 1 and not stride:
                once, given = once.narrow(dim, 0, 1), given.narrow(dim, 0, 1)
        once.copy_(given)
        return found

    def note(self, node: fx.Node) -> None:
        """Bind symbols, free what is not used again."""
        for binding in node.meta.get("binds", ()):
            self.symbols[binding.symbol] = binding.value(self.nodes[node])
        if self.telling is None or node in self.telling:
            bind_symbols(node.meta.get("val"), self.nodes[node], self.symbols)
        for dead in self.last_uses.get(node, ()):
            self.nodes.pop(dead, None)

    def value(self, argument: Any) -> Any:
        if type(argument) is fx.Node:
            return self.nodes[argument]
        if isinstance(argument, (list, tuple)):
            return [self.value(a) for a in argument]
        if isinstance(argument, _SYMBOLIC):
            return number(argument, self.symbols)
        return argument


class _AsMade(_Run):
    """Values lie as operators make them, however they are described. An operator whose arguments all lie as described is not
    run: its results lie as described too. So `nodes` has only what lies otherwise: mostly little, since a product of
    matrices or a sum lays out its result as ever."""

    def __init__(self, aten: AtenGraph, described: Callable[[Any], Any]) -> None:
        super().__init__(aten, {})
        self.described, self.undisturbed = described, dict[fx.Node, Any]()

    def all(self, inputs: list[Any]) -> list[Any]:
        inputs.reverse()
        with torch.no_grad():
            for node in self.graph.nodes:
                if node.op == "output":
                    return list(map(self.strides, node.args[0]))
                if node.op != "placeholder" and not self.must_run(node):
                    continue
                self.nodes[node] = value = inputs.pop() if node.op == "placeholder" else self.call(node)
                self.note(node)
                if self.lies_as_described(value, node.meta.get("val")):
                    del self.nodes[node]
                elif node.op == "placeholder":
                    self.nodes[node] = self.described(value)
        raise AssertionError("a graph without an output node")

    def must_run(self, node: fx.Node) -> bool:
        """Whether an argument lies otherwise than described, or the call says what symbols are, or may not be left out."""
        if "binds" in node.meta or node.target in CHECKS or "val" not in node.meta:
            return True
        return any(one in self.nodes for one in node.all_input_nodes)

    def strides(self, result: Any) -> Any:
        """None of what is no tensor."""
        described = result.meta["val"] if type(result) is fx.Node else None
        if type(described) is FakeTensor and result not in self.nodes:
            return tuple(self.value(described.stride_))
        value = self.value(result)
        return value.stride() if isinstance(value, torch.Tensor) else None

    def lies_as_described(self, value: Any, described: Any) -> bool:
        if isinstance(described, (list, tuple)):
            return len(value) == len(described) and all(map(self.lies_as_described, value, described))
        if type(described) is not FakeTensor or described.spec.lazy or not isinstance(value, torch.Tensor):
            return False
        if type(value) is FakeTensor:
            strides, lazy = value.stride_, bool(value.spec.lazy)
        else:
            strides, lazy = value.stride(), value.is_conj() or value.is_neg()
        return not lazy and strides == tuple(self.value(described.stride_))

    def value(self, argument: Any) -> Any:
        if type(argument) is not fx.Node or argument in self.nodes:
            return super().value(argument)
        if argument not in self.undisturbed:
            self.undisturbed[argument] = self.as_described(argument.meta["val"])
        return self.undisturbed[argument]

    def as_described(self, described: Any) -> Any:
        """A value of this description."""
        if isinstance(described, (list, tuple)):
            return [self.as_described(one) for one in described]
        if type(described) is not FakeTensor:
            return self.value(described)
        size, stride = self.value(described.size_), self.value(described.stride_)
        return torch.empty_strided(size, stride, dtype=described.dtype_, device=described.device_)

    def laid_out(self, argument: Any) -> Any:
        return self.value(argument)

    def copied(self, value: torch.Tensor, strides: list[int]) -> torch.Tensor:
        return value.clone()


def strides_as_made(aten: AtenGraph, inputs: list[Any], described: Callable[[Any], Any]) -> list[Any]:
    """Strides of the results for inputs that may lie otherwise than is described; `described` makes a fake of a tensor."""
    return _AsMade(aten, described).all(list(inputs))


def _namespace(target: Any) -> str:
    """Of an operator; "aten" of what is none."""
    return getattr(target, "namespace", "aten")


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """For each node, the nodes that no later node uses."""
    seen: set[fx.Node] = set()
    found: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(graph.nodes):
        used = [u for u in node.all_input_nodes if u not in seen]
        seen.update(used)
        if used and node.op != "output":
            found[node] = used
    return found
