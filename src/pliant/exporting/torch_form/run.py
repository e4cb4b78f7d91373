"""A program's graph, run on tensors that PyTorch follows: their sizes are its symbols.

In:     a `Program`; what its placeholders stand for.
Out:    `Run`: the results, in the model's own tree.
Holds:  every fact that the program needs of sizes is stated before the graph runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.autograd.places import FromInput, FromResult, Literal, Output, SameAs, ViewOf
from pliant.exporting.checking import facts_of, homes_of
from pliant.exporting.control_form import control_of, values_of
from pliant.exporting.hierarchy import module_at
from pliant.exporting.program import CONSTANT, USER, Program
from pliant.exporting.torch_form.control import check_control, module_of_control
from pliant.exporting.torch_form.numbers import Values, number
from pliant.exporting.torch_form.refusal import refused
from pliant.exporting.torch_form.sizes import Sizes
from pliant.exporting.torch_form.width import dropped
from pliant.exporting.written_back import writing_graph
from pliant.graph.effects import OURS
from pliant.graph.passes.purity import memory_root
from pliant.graph.recurrent import layer_of
from pliant.graph.unbacked import CHECKS, unlearnt
from pliant.symbolic.expr import Constant, Expr, Symbol
from pliant.symbolic.printer import to_python
from pliant.torch_adapter import RUNS_AS, OpOverload
from pliant.torch_adapter import check as torch_check

_aten = torch.ops.aten
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_STRIDED = (_aten.as_strided.default, _aten.as_strided_copy.default, torch.as_strided, torch.Tensor.as_strided)
# The graph writes nothing that it reads afterwards, so a copy is as good where a tensor lies otherwise than the example.
_INSTEAD: dict[Any, Any] = {_aten.view.default: _aten.reshape.default, _aten.bernoulli.p: RUNS_AS[_aten.bernoulli.p]}
_check: Callable[[Any, Callable[[], str]], None] = torch_check


class Run:
    """Runs the graph on tensors that PyTorch follows: sizes are its symbols."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.graph = writing_graph(program).graph
        nodes = program.placeholders
        self.users = [(one, nodes[i].meta["val"]) for i, one in program.user_inputs()]
        self.homes = homes_of([fake.spec for _, fake in self.users])
        self.facts = facts_of(program.shape_env)
        self.known = list(self._known())
        self.dropped = set(dropped(self.facts))
        for place in program.mutated:
            if program.inputs[place].kind == CONSTANT:
                raise refused(f"the program writes the constant {program.inputs[place].target}", "it is no buffer of a module",
                               "register it as a buffer of the model")  # fmt: skip
        for node in self.graph.nodes:
            if node.op == "call_function":
                self._check(node)

    def _known(self) -> Iterator[tuple[int, int, Expr]]:
        """Sizes that others tell: the argument, the dimension, what it must be. PyTorch checks those that do not vary."""
        sizes = Sizes(self.program)
        for place, (_, fake) in enumerate(self.users):
            for dim, size in enumerate(sizes.of(fake)):
                home = self.homes.get(size) if isinstance(size, Symbol) else None
                if not isinstance(size, Constant) and home != (place, dim):
                    yield place, dim, size

    def _check(self, node: fx.Node) -> None:
        """Refuse what has another meaning, or none, in PyTorch's programs."""
        target: Any = node.target
        if target in _STRIDED and self._in_argument(node.args[0]):
            raise refused("the program reads the memory of an argument by strides", "PyTorch's programs do not look how it lies",
                           "use views that do not name strides", node.meta.get("where"))  # fmt: skip
        plain = target is operator.getitem or target in CHECKS or layer_of(node) is not None or check_control(node, self._check)
        if not plain and (not isinstance(target, OpOverload) or target.namespace in OURS):
            name = str(target) if isinstance(target, OpOverload) else getattr(target, "__qualname__", str(target))
            raise refused(f"`{name}` has no form in PyTorch's programs", "it is Pliant's own", where=node.meta.get("where"))

    def _in_argument(self, node: Any) -> bool:
        root = memory_root(node)
        return root.op == "placeholder" and any(one.name == root.name for one, _ in self.users)

    # ---- a call
    def called(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> Any:
        form = self.program.form
        args, kwargs = pytree.tree_unflatten([None] * form.arguments.num_leaves, form.arguments)
        named = dict(zip(kwargs, arguments[len(args) :], strict=True))
        leaves = pytree.tree_leaves((arguments[: len(args)], named))
        return self.outputs(self._given(module, leaves))

    def _given(self, module: torch.nn.Module, leaves: Sequence[Any]) -> list[Any]:
        """What placeholders stand for."""
        found = []
        for one in self.program.inputs:
            if one.leaf is not None:
                found.append(leaves[one.leaf])
            elif one.kind == CONSTANT:
                found.append(self.program.state[one.target])
            else:
                path, _, name = one.target.rpartition(".")
                found.append(getattr(module_at(module, path), name))
        return found

    def outputs(self, given: list[Any]) -> Any:
        values = self._bound(given)
        results = self._results(given, values)
        made = [self._output(one, given, results) for one in self.program.outputs]
        return pytree.tree_unflatten(made, self.program.form.result)

    def _bound(self, given: Sequence[Any]) -> Values:
        """Symbols by name, after the facts are stated."""
        users = [given[i] for i, one in enumerate(self.program.inputs) if one.kind == USER]
        values = {symbol.name: users[place].size(dim) for symbol, (place, dim) in self.homes.items()}
        for place, dim, size in self.known:
            self._state(users[place].size(dim) == number(size, values), f"{self.users[place][0].target}.size({dim})", size)
        for fact in self.facts:
            if fact in self.dropped:
                self._state_of_tensors(fact, values)
            else:
                self._state(number(fact, values), "", fact)
        return values

    def _state_of_tensors(self, fact: Expr, values: Values) -> None:
        """By an operator, since PyTorch drops what holds for sizes from 2 on."""
        names = {symbol.name for symbol in fact.free}
        tensors = {name: torch.scalar_tensor(values[name], dtype=torch.int64, device="cpu") for name in names}
        _aten._assert_async.msg(number(fact, tensors), f"{to_python(fact, self.program.names)} does not hold")

    def _state(self, holds: Any, what: str, e: Expr) -> None:
        text = to_python(e, self.program.names)
        _check(holds, lambda: f"{what} is not {text}" if what else f"{text} does not hold")

    def _results(self, given: Sequence[Any], values: Values) -> list[Any]:
        nodes: dict[fx.Node, Any] = {}
        inputs = iter(given)
        for node in self.graph.nodes:
            if node.op == "output":
                return [_value(one, nodes, values) for one in node.args[0]]
            nodes[node] = next(inputs) if node.op == "placeholder" else self._called(node, nodes, values)
            for binding in node.meta.get("binds", ()):
                values[binding.symbol.name] = binding.value(nodes[node])
        raise AssertionError("a graph without an output node")

    def _called(self, node: fx.Node, nodes: Mapping[fx.Node, Any], values: Values) -> Any:
        if node.target in CHECKS:
            message = str(node.args[1] if len(node.args) == 2 else node.args[2])
            _check(number(unlearnt(node.args[0]), values), lambda: message)
            return None
        target: Any = _instead(node.target)
        args = [_value(a, nodes, values) for a in node.args]
        layer = layer_of(node)
        if layer is not None:
            return layer(*args[1:])
        program = control_of(node)
        if program is not None:
            return module_of_control(program, _instead)(*_value(values_of(node), nodes, values))
        return target(*args, **{k: _value(v, nodes, values) for k, v in node.kwargs.items()})

    def _output(self, output: Output, given: Sequence[Any], results: Sequence[Any]) -> Any:
        match output:
            case Literal(value):
                return value
            case FromInput(position):
                return given[position]
            case FromResult(position):
                return results[position]
            case SameAs(place):
                return self._output(self.program.outputs[place], given, results)
            case ViewOf(source, steps):
                tensor = self._output(source, given, results)
                for step in steps:
                    tensor = _viewed(step, tensor, results)
                return tensor
        raise AssertionError(output)


def _viewed(step: Any, tensor: torch.Tensor, results: Sequence[Any]) -> torch.Tensor:
    if step.func in _STRIDED:
        raise refused("a result is a view by strides", "PyTorch's programs do not look how arguments lie", "return a copy of it: .clone()")
    args, kwargs = pytree.tree_map_only(FromResult, lambda one: results[one.position], (step.args, step.kwargs))
    view = step.func(tensor, *args, **kwargs)
    found: torch.Tensor = view if step.index is None else view[step.index]
    return found


def _instead(target: Any) -> Any:
    return _INSTEAD.get(target, target)


def _value(value: Any, nodes: Mapping[fx.Node, Any], values: Values) -> Any:
    if isinstance(value, fx.Node):
        return nodes[value]
    if isinstance(value, (list, tuple)):
        return [_value(one, nodes, values) for one in value]
    return number(value.node.expr, values) if isinstance(value, _SYMBOLIC) else value
