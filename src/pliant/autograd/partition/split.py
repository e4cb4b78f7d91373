"""Split a joint graph into forward and backward so that few bytes are saved.

In:     a `JointGraph`.
Out:    `Partition(forward, backward, saved...)`.
Holds:  running forward, then backward on what it saved, gives the joint graph's outputs. The joint graph is consumed:
        passes change it. An input that is written is saved by value, as it was before. Random draws happen once, in the
        forward.
Reads on: `policy.py` (what is saved), `runtime.py` (who passes it on).
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant import config
from pliant.autograd.joint import JointGraph
from pliant.autograd.partition.gradient_memory import GradientPlace, lay_as_eager, places_in_eager
from pliant.autograd.places import Saved
from pliant.graph.contracts import AtenGraph
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.biases import take_biases_out
from pliant.graph.passes.channels_last import channels_last
from pliant.graph.passes.complex_parts import compute_complex_parts
from pliant.graph.passes.cse import cse
from pliant.graph.passes.dce import dce
from pliant.graph.passes.formulas import write_formulas
from pliant.graph.passes.products import add_up_products
from pliant.graph.passes.purity import binds_symbols, has_effect, memory_root
from pliant.graph.passes.separate import separate
from pliant.graph.passes.simplify import simplify
from pliant.graph.passes.table_gradients import join_table_gradients
from pliant.graph.passes.written_parts import read_what_was_written
from pliant.records import dataclass
from pliant.symbolic.expr import Symbol
from pliant.torch_adapter import append_node

if TYPE_CHECKING:
    from pliant.autograd.partition.shared_memory import Place

_aten = torch.ops.aten
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(slots=True, eq=False)
class Partition:
    """forward: inputs -> results, then what is saved. backward: symbols, saved tensors, tangents -> gradients.

    `n_results`: how many forward outputs the output plan knows. `symbols`: forward outputs that are numbers backward
    needs.
    `wanted`: the captured inputs whose gradients backward returns, in order. `tangents`: forward results they belong
    to. `own`: results that are copies, whoever has the same values.
    """

    forward: AtenGraph
    backward: AtenGraph | None
    n_results: int
    symbols: list[int] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    tangents: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)


def clean(graph: fx.Graph) -> None:
    """The passes that run before anything else."""
    bitwise = config.get().bitwise
    simplify(graph)
    if not bitwise:  # eager's operators, whose results may depend on how rows lie, read a part of what was written
        read_what_was_written(graph)
    cse(graph)
    dce(graph)
    if not bitwise:  # both add in an order of their own
        add_up_products(graph)
        join_table_gradients(graph)


def partition(joint: JointGraph) -> Partition:
    """Forward and backward graphs; `backward` is None where nothing needs a gradient."""
    own = [i for i, value in enumerate(joint.results) if _is_own_copy(value)]
    places_of_gradients = places_in_eager(joint)
    clean(joint.graph)
    bitwise = config.get().bitwise
    if not bitwise:
        take_biases_out(joint.graph)
        if compute_complex_parts(joint.graph):
            cse(joint.graph)
            dce(joint.graph)
    if any(one is not None for one in joint.gradients):
        write_formulas(joint.graph, exact=bitwise)
        cse(joint.graph)
        choose_layouts(joint.graph, ())
    separate(joint.graph, range(len(joint.plan.results)))
    parts = _Split(joint, own, places_of_gradients).run()
    parts.own = own
    return parts


def choose_layouts(graph: fx.Graph, still: Collection[int]) -> None:
    """Those of images, by which the library chooses how it adds. `still`: placeholders that stay the same from call to call."""
    options = config.get()
    if not options.bitwise:
        channels_last(graph, still if options.build.packed_bytes else ())


def _is_own_copy(value: Any) -> bool:
    """Whether the caller gets a copy of what the backward may read: `clean` takes the value for the one it is a copy of."""
    root = memory_root(value) if isinstance(value, fx.Node) else None
    return root is not None and root.target is _aten.clone.default and not root.meta.get("eager_saves")


class _Split:
    def __init__(self, joint: JointGraph, own: list[int], in_eager: list[GradientPlace | None]) -> None:
        self.joint, self.in_eager = joint, in_eager
        self.output = next(iter(joint.graph.find_nodes(op="output")))
        self.results, self.gradients = joint.results, joint.gradients
        self.epilogue = [n for n in joint.graph.nodes if n.op == "call_function" and n.target is _aten.copy_.default]
        self.written = frozenset(joint.primals[w.input] for w in joint.plan.writes)
        # The caller may write these until the backward runs, and eager, which does not keep them, would not mind.
        self.exposed = {
            root
            for root in (*joint.primals[: len(joint.captured.inputs)], *map(memory_root, _nodes(self.results)))
            if not root.meta.get("eager_saves")
        }
        self.exposed.update(memory_root(joint.results[i]) for i in own)
        static = [i for i, one in enumerate(joint.captured.inputs) if one.static]
        self.lies_in: dict[fx.Node, Place] = {}
        # Eager keeps the written input itself, and its gradients see what is written to it unseen by autograd.
        kept: list[Any] = [n for n in self.epilogue if n.meta["eager_saves"]]
        place = {n: i for i, n in enumerate(joint.primals)}
        self.left_in_inputs: dict[fx.Node, int] = {n.args[1]: place[n.args[0]] for n in kept}
        self.static = frozenset([*static, *range(len(joint.captured.inputs), len(joint.primals))])

    def run(self) -> Partition:
        wanted = [i for i, g in enumerate(self.gradients) if g is not None]
        if not wanted and (
            self.joint.refusal or not any(self.joint.reached_by)
        ):  # a formula may also say that no gradient reaches its input
            forward = self.forward_graph([], [])
            written = {write.input for write in self.joint.plan.writes}
            choose_layouts(forward.graph, self.static - written)
            return Partition(forward, None, len(self.results))
        from pliant.autograd.partition.shared_memory import places  # as `policy`, of programs with gradients

        in_forward = self.closure([*_nodes(self.results), *self.epilogue, *self.binders("forward")])
        in_backward = self.backward_nodes(in_forward)
        saved = self.choose(in_forward, in_backward, wanted)
        body = self.backward_body(saved, wanted)
        symbols = self.symbols_of([*saved, *self.joint.tangents], body)
        fixed = {*_nodes(self.results), *self.joint.primals, *self.left_in_inputs}
        self.lies_in = places([n for n in saved if n not in fixed], body, lambda n: n not in fixed)
        backward = self.backward_graph(symbols, saved, body, wanted)
        return self.finish(symbols, saved, backward, wanted)

    # -- which node goes where ----------------------------------------------------------------------------------------
    def closure(self, roots: list[fx.Node]) -> set[fx.Node]:
        found = set(roots)
        queue = list(found)
        for node in queue:
            for argument in node.all_input_nodes:
                if argument not in found:
                    found.add(argument)
                    queue.append(argument)
        return found

    def backward_nodes(self, in_forward: set[fx.Node]) -> frozenset[fx.Node]:
        """What only gradients need: behind a tangent, or recorded by the engine and not used by the forward."""
        late = set(self.joint.tangents)
        for node in self.joint.graph.nodes:
            if node.target is operator.getitem and node.args[0] not in late:
                continue  # an item is computed with its tuple
            behind = any(a in late for a in node.all_input_nodes)
            if behind or (
                node.meta.get("stage") == "backward" and node not in in_forward and node.op == "call_function"
            ):
                late.add(node)
        late.discard(self.output)
        return frozenset(late)

    def choose(self, in_forward: set[fx.Node], in_backward: frozenset[fx.Node], wanted: list[int]) -> list[fx.Node]:
        read: dict[fx.Node, None] = {}
        for node in self.joint.graph.nodes:
            if node in in_backward:
                read.update(dict.fromkeys(a for a in node.all_input_nodes if a not in in_backward))
        for index in wanted:
            if self.gradients[index] not in in_backward:
                read[self.gradients[index]] = None
        kept = frozenset(n for n in (*_nodes(self.results), *self.joint.primals) if not self.by_value(n))
        self.free = frozenset(self.joint.primals[i] for i in self.static if not self.by_value(self.joint.primals[i]))
        numbers = {n for n in read if isinstance(n.meta.get("val"), _SYMBOLIC)}
        needed = [n for n in read if n not in self.free and n not in numbers]
        from pliant.autograd.partition.policy import choose_saved

        return choose_saved(needed, in_backward, kept, self.free, config.get().autograd.memory_budget)

    def backward_body(self, saved: list[fx.Node], wanted: list[int]) -> list[fx.Node]:
        """The nodes backward runs, in order; parameters it reads join `saved`."""
        stop = {*saved, *self.joint.tangents}
        found: set[fx.Node] = set()
        queue = [g for g in (self.gradients[i] for i in wanted) if g not in stop] + self.effects("backward")
        found.update(queue)
        for node in queue:
            for argument in node.all_input_nodes:
                if argument in stop or argument in found:
                    continue
                if argument.op == "placeholder":
                    stop.add(argument)
                    if isinstance(argument.meta["val"], torch.Tensor):
                        saved.append(argument)
                    continue
                found.add(argument)
                queue.append(argument)
        return _when_needed([n for n in self.joint.graph.nodes if n in found and n.op == "call_function"])

    def symbols_of(self, given: list[fx.Node], body: list[fx.Node]) -> list[Any]:
        """The symbols in what backward is given and in what it runs, as symbolic numbers."""
        outside: dict[Symbol, None] = {}
        for node in given:
            _collect(node.meta.get("val"), outside)
        inside: dict[Symbol, None] = {}
        for node in body:
            _collect([node.meta.get("val"), node.args, node.kwargs], inside)
        for node in body:
            for binding in node.meta.get("binds", ()):
                inside.pop(binding.symbol, None)
        env = self.joint.captured.shape_env
        return [env.wrap(symbol) for symbol in sorted({**outside, **inside}, key=str)]

    # -- graphs -------------------------------------------------------------------------------------------------------
    def forward_graph(self, symbols: list[Any], saved: list[fx.Node]) -> AtenGraph:
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        extra = [*symbols, *saved]
        for node in self.joint.primals:
            _copy(graph, node, copies)
        needed = self.closure([*_nodes(self.results), *_nodes(saved), *self.effects("forward"), *self.epilogue])
        for node in self.joint.graph.nodes:
            if node in needed and node.op == "call_function" and node.target is not _aten.copy_.default:
                _copy(graph, node, copies)
        kept_by_value = {n: _clone(graph, copies[n]) for n in saved if self.by_value(n)}
        kept_by_value |= {n: self.lies_in[n].emit(graph, copies) for n in saved if n in self.lies_in}
        self._copy_epilogue(graph, copies)
        values = [*self.results, *extra]
        taken = [kept_by_value.get(v, copies[v]) if i >= len(self.results) and isinstance(v, fx.Node) else _mapped(v,
        copies)
                 for i, v in enumerate(values)]  # fmt: skip
        graph.output(tuple(taken))
        held = frozenset(range(len(self.joint.primals)))
        name, private = f"{self.joint.captured.name}_forward", frozenset(range(len(self.results), len(values)))
        return AtenGraph(graph, self.joint.captured.shape_env, name, held, self.static, private)

    def _copy_epilogue(self, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> None:
        """The writes of inputs. A value that lies in an input written earlier is copied before all of them."""
        written: set[fx.Node] = set()
        values: list[fx.Node] = []
        for node in self.epilogue:
            target: Any = node.args[0]
            value: Any = node.args[1]
            values.append(_clone(graph, copies[value]) if memory_root(value) in written else copies[value])
            written.add(target)
        for node, value in zip(self.epilogue, values):
            copy = graph.call_function(_aten.copy_.default, (copies[node.args[0]], value))
            copy.meta = dict(node.meta)

    def by_value(self, node: fx.Node) -> bool:
        """Whether a saved value must not lie in memory that somebody may write."""
        root = memory_root(node)
        return root in self.written or root in self.exposed

    def effects(self, stage: str) -> list[fx.Node]:
        """Calls that must happen whether something reads them or not: unread ones of the forward may raise."""
        calls = [n for n in self.joint.graph.nodes if n.op == "call_function" and n.meta.get("stage") == stage]
        unread = [n for n in calls if has_effect(n.target) or stage == "forward" and not n.users]
        return unread + self.binders(stage)

    def binders(self, stage: str) -> list[fx.Node]:
        """Calls whose results give unbacked symbols their values."""
        return [n for n in self.joint.graph.nodes if binds_symbols(n) and n.meta.get("stage") == stage]

    def backward_graph(
        self, symbols: list[Any], saved: list[fx.Node], body: list[fx.Node], wanted: list[int]
    ) -> AtenGraph:
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for index, symbol in enumerate(symbols):
            graph.placeholder(f"symbol_{index}").meta["val"] = symbol
        for node in saved:
            copies[node] = graph.placeholder(f"saved_{node.name}")
            copies[node].meta.update(node.meta)
            if node in self.lies_in:
                copies[node].meta["val"] = self.lies_in[node].fake
        for node in [*self.joint.tangents, *body]:
            _copy(graph, node, copies)
        graph.output(tuple(copies[self.gradients[i]] for i in wanted))
        lay_as_eager(graph, len(symbols) + len(saved), [self.in_eager[i] for i in wanted])
        held_nodes = {n for n in (*self.joint.primals, *_nodes(self.results)) if not self.by_value(n)}
        held_nodes |= set(self.left_in_inputs)
        first_tangent = len(symbols) + len(saved)
        held = frozenset([len(symbols) + i for i, n in enumerate(saved) if n in held_nodes])
        held |= frozenset(range(first_tangent, first_tangent + len(self.joint.tangents)))
        parameters = {self.joint.primals[i] for i in self.static}
        own = [i for i, n in enumerate(saved) if n not in held_nodes or n in parameters]
        static = frozenset(len(symbols) + i for i in own)
        return AtenGraph(graph, self.joint.captured.shape_env, f"{self.joint.captured.name}_backward", held, static)

    def finish(self, symbols: list[Any], saved: list[fx.Node], backward: AtenGraph, wanted: list[int]) -> Partition:
        """Say where each saved tensor is found: among the inputs, the results, or returned besides them."""
        count = len(self.results)
        places = {n: Saved(False, i) for i, n in enumerate(self.results) if _is_node(n) and not self.by_value(n)}
        places |= {n: Saved(True, i) for i, n in enumerate(self.joint.primals) if not self.by_value(n)}
        places |= {n: Saved(True, i) for n, i in self.left_in_inputs.items()}
        extra = [n for n in saved if n not in places]
        places |= {n: Saved(False, count + len(symbols) + i) for i, n in enumerate(extra)}
        forward = self.forward_graph(symbols, extra)
        numbers = list(range(count, count + len(symbols)))
        found = [places[n] for n in saved]
        return Partition(forward, backward, count, numbers, found, wanted, list(self.joint.plan.differentiable))


def _when_needed(body: list[fx.Node]) -> list[fx.Node]:
    """The nodes in an order in which what runs again does so right before its first reader."""
    inside, order = set(body), dict[fx.Node, None]()
    for node in body:
        if node.meta.get("stage") == "forward" and node.users and not node.meta.get("binds"):
            continue
        stack = [node]
        while stack:
            missing = [a for a in stack[-1].all_input_nodes if a in inside and a not in order]
            if missing:
                stack.append(missing[0])
            else:
                order[stack.pop()] = None
    order.update(dict.fromkeys(node for node in body if node not in order))
    return list(order)


def _is_node(value: Any) -> bool:
    return isinstance(value, fx.Node)


def _nodes(values: list[Any]) -> list[fx.Node]:
    return [v for v in values if isinstance(v, fx.Node)]


def _mapped(value: Any, copies: dict[fx.Node, fx.Node]) -> Any:
    return copies[value] if isinstance(value, fx.Node) else value


def _copy(graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, fx.Node]) -> None:
    args, kwargs = fx.map_arg(node.args, copies.__getitem__), fx.map_arg(node.kwargs, copies.__getitem__)
    copies[node] = copy = append_node(graph, node.op, node.target, args, kwargs, node.name)
    copy.meta = dict(node.meta)


def _clone(graph: fx.Graph, node: fx.Node) -> fx.Node:
    copy = graph.call_function(_aten.clone.default, (node,))
    copy.meta = dict(node.meta)
    return copy


_WITHOUT_SYMBOLS = frozenset((fx.Node, int, float, bool, str, type(None), torch.dtype, torch.device))


def _collect(value: Any, free: dict[Symbol, None]) -> None:
    """Add the symbols that occur in a description or in arguments. Tensors are passed as they lie: where in its storage one
    begins, nobody asks but as an argument."""
    if type(value) in _WITHOUT_SYMBOLS:
        return
    if isinstance(value, _SYMBOLIC):
        free.update(dict.fromkeys(value.node.expr.free))
    elif type(value) is FakeTensor:
        for number in (*value.size_, *value.stride_):
            if type(number) is not int:
                _collect(number, free)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if type(item) not in _WITHOUT_SYMBOLS:
                _collect(item, free)
    elif isinstance(value, dict):
        _collect(list(value.values()), free)
