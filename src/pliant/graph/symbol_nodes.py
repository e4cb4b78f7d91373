"""Nodes of the captured graph that compute symbolic numbers from the symbols' placeholders."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import fx

from pliant.graph.proxies import proxies
from pliant.graph.unbacked import Binding, math_function, select
from pliant.symbolic.expr import Expr, Product, Sum, Symbol
from pliant.symbolic.nodes import Apply
from pliant.symbolic.printer import to_calls
from pliant.symbolic.rules import floats
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import atoms, substitute
from pliant.torch_adapter import DisableTorchFunction


class Placeholders(Protocol):
    """What a graph is given."""

    shape_env: ShapeEnv

    def symbol_node(self, symbol: Symbol) -> fx.Node:
        """The placeholder that carries a symbol's value."""


class SymbolNodes:
    """Makes each expression's node once per graph, by running its Python text on proxies."""

    def __init__(self, graph: fx.Graph, inputs: Placeholders) -> None:
        self.graph = graph
        self.inputs = inputs
        self._proxy = proxies(graph)
        self._nodes: dict[Expr, fx.Node] = {}
        self._bound: dict[Symbol, tuple[fx.Node, Binding]] = {}

    def bind(self, node: fx.Node, bindings: Iterable[Binding]) -> None:
        """Note where unbacked symbols get their values."""
        self._bound.update({one.symbol: (node, one) for one in bindings})

    def bound(self, symbol: Symbol) -> tuple[fx.Node, Binding] | None:
        """Where an unbacked symbol gets its value."""
        return self._bound.get(symbol)

    def knows(self, expr: Expr) -> bool:
        """Whether the graph can compute the expression by now."""
        env = self.inputs.shape_env
        return all(s in self._bound or s in env.sources for s in env.unbacked_symbols(expr))

    def written(self, expr: Expr) -> Any:
        """The node of an expression as it is, whatever is known of it."""
        return self._make(expr, self.inputs.shape_env.as_written(expr))

    def node(self, value: Any) -> Any:
        """The node (or number) of a SymInt, SymFloat or SymBool."""
        expr = self.inputs.shape_env.simplify(self.inputs.shape_env.expr_of(value))
        if expr.is_const:
            return expr.kind(value)
        if expr not in self._nodes:
            self._nodes[expr] = self._make(expr, value)
        return self._nodes[expr]

    def _make(self, expr: Expr, value: Any) -> fx.Node:
        if isinstance(expr, Symbol):
            return self._symbol(expr)
        parts = {part: Symbol(f"part{k}", part.kind) for k, part in enumerate(_parts(expr))}
        whole = substitute(expr, parts)
        stands_for = {symbol: part for part, symbol in parts.items()}
        symbols = {s: f"v{i}" for i, s in enumerate(sorted(whole.free, key=lambda s: s.order))}
        operands: dict[str, Any] = {name: self._proxy(self._part(stands_for.get(s, s))) for s, name in symbols.items()}
        with DisableTorchFunction():
            made = eval(to_calls(whole, symbols), {**operands, **self._functions()})
        node: fx.Node = made.node
        node.meta["val"] = value
        _mark_steps(node)
        return node

    def _part(self, expr: Expr) -> fx.Node:
        """The node of a part, made once for all expressions that have it."""
        if expr not in self._nodes:
            self._nodes[expr] = self._make(expr, self.inputs.shape_env.as_written(expr))
        return self._nodes[expr]

    def _symbol(self, symbol: Symbol) -> fx.Node:
        found = self._bound.get(symbol)
        if found is None:
            return self.inputs.symbol_node(symbol)
        node, place = found
        if place.item is not None:
            several = node.meta["val"]
            node = self.graph.call_function(operator.getitem, (node, place.item))
            node.meta["val"] = several[place.item]
        if place.dim is not None:
            node = self.graph.call_method("size", (node, place.dim))
        if node is not found[0]:
            node.meta["val"] = self.inputs.shape_env.as_written(symbol)
            self._bound[symbol] = (node, Binding(symbol, None, None))
        return node

    def _functions(self) -> dict[str, Any]:
        def call(function: Any) -> Any:
            return lambda *args: self._proxy(self.graph.call_function(function, tuple(getattr(a, "node", a) for a in args)))

        def by_twos(function: Any) -> Any:
            return lambda *args: functools.reduce(function, args)

        return {
            "min": by_twos(call(torch.sym_min)),
            "max": by_twos(call(torch.sym_max)),
            "int": call(torch.sym_int),
            "float": call(torch.sym_float),
            "round": call(round),
            "abs": call(abs),
            "sym_not": call(torch.sym_not),
            "select": call(select),
            "math": _Math(call),
        }


def _mark_steps(node: fx.Node) -> None:
    """Say of the nodes on the way to a number, of which nobody asks the value, that they compute numbers."""
    queue = [node]
    for one in queue:
        steps = [step for step in one.all_input_nodes if step.op == "call_function" and not step.meta.keys() & {"val", "number"}]
        queue += steps
        for step in steps:
            step.meta["number"] = True


def _parts(expr: Expr) -> Iterator[Expr]:
    """The outermost operations on numbers inside an expression: sizes behind many layers have one another's in them."""
    for inside in atoms(expr) if type(expr) in (Sum, Product) else expr.args:
        if isinstance(inside, Apply) and inside.kind is not bool:
            yield inside
        else:
            yield from _parts(inside)  # symbols and constants have none


class _Math:
    def __init__(self, call: Any) -> None:
        self.call = call
        self.inf, self.nan = math.inf, math.nan

    def __getattr__(self, name: str) -> Any:
        return self.call(
            math_function(name) if name in floats.MATH else getattr(torch, f"sym_{name}", None) or getattr(math, name)
        )
