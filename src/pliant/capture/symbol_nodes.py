"""Nodes of the captured graph that compute symbolic numbers from the symbols' placeholders."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from pliant.capture.inputs import Inputs
from pliant.symbolic.expr import Expr
from pliant.symbolic.printer import to_python


class SymbolNodes:
    """Makes each expression's node once per graph, by running its Python text on proxies."""

    def __init__(self, graph: fx.Graph, inputs: Inputs) -> None:
        self.graph = graph
        self.inputs = inputs
        self._nodes: dict[Expr, fx.Node] = {}

    def node(self, value: Any) -> Any:
        """The node (or number) of a SymInt, SymFloat or SymBool."""
        expr = self.inputs.shape_env.simplify(self.inputs.shape_env.expr_of(value))
        if expr.is_const:
            return type_of_symbolic(value)(value)
        if expr not in self._nodes:
            self._nodes[expr] = self._make(expr, value)
        return self._nodes[expr]

    def _make(self, expr: Expr, value: Any) -> fx.Node:
        symbols = {s: f"v{i}" for i, s in enumerate(expr.free)}
        nodes = {name: self.inputs.symbol_node(s) for s, name in symbols.items()}
        if expr in symbols:
            return nodes[symbols[expr]]
        proxies: dict[str, Any] = {name: fx.Proxy(node) for name, node in nodes.items()}
        with torch._C.DisableTorchFunction():
            made = eval(to_python(expr, symbols), {**proxies, **self._functions()})
        node: fx.Node = made.node
        node.meta["val"] = value
        return node

    def _functions(self) -> dict[str, Any]:
        def call(function: Any) -> Any:
            return lambda *args: fx.Proxy(self.graph.call_function(function, tuple(_bare(a) for a in args)))

        return {
            "min": call(torch.sym_min),
            "max": call(torch.sym_max),
            "int": call(torch.sym_int),
            "float": call(torch.sym_float),
            "round": call(round),
            "abs": call(abs),
            "math": _Math(call),
        }


class _Math:
    def __init__(self, call: Any) -> None:
        self.call = call
        self.inf, self.nan = math.inf, math.nan

    def __getattr__(self, name: str) -> Any:
        return self.call(getattr(torch, f"sym_{name}", None) or getattr(math, name))


def _bare(value: Any) -> Any:
    return value.node if isinstance(value, fx.Proxy) else value


def type_of_symbolic(value: Any) -> type:
    """int, float or bool for a symbolic number."""
    return _PYTHON_TYPES[type(value)]


_PYTHON_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
