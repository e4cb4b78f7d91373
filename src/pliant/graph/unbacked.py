"""Unbacked symbols as values of a graph: which call gives each its value, and what a running graph checks of them.

In:     the symbols that a call made (`ShapeEnv.take_fresh`) and its result; facts that hold by assumption or statement.
Out:    `bindings_of`: where in the result each symbol is found; `check`: the function that graphs call.
Holds:  `node.meta["binds"]` of a torch-level or ATen node has a `Binding` for each symbol that the node defines, so such
        a node is neither dropped, merged nor run again. `node.meta["made"]` (torch level only) are all symbols that the
        call made, found in its result or not, in order: a second trace makes the same.
        A failed assumption is an `AssumptionError`, upon which the call runs eagerly; a failed statement of the program
        raises what the program says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pliant.graph.checks import assume as assume
from pliant.graph.checks import check as check
from pliant.graph.checks import place as place
from pliant.graph.effects import returns_numbers
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.unsupported import UnsupportedOperator
from pliant.records import dataclass
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.rules import floats
from pliant.symbolic.sym_node import wrap_node
from pliant.symbolic.traverse import substitute
from pliant.torch_adapter import OpOverload, OpOverloadPacket, has_derivative

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True, slots=True)
class Binding:
    """`symbol` is result `item` (the whole result if None), or its size along `dim`."""

    symbol: Symbol
    item: int | None
    dim: int | None

    def value(self, result: Any) -> Any:
        """The number in a real result."""
        part = result if self.item is None else result[self.item]
        return part if self.dim is None else part.shape[self.dim]

    def text(self, name: str) -> str:
        """Python text that reads the number from a result called `name`."""
        part = name if self.item is None else f"{name}[{self.item}]"
        return part if self.dim is None else f"{part}.size({self.dim})"


def bindings_of(symbols: Iterable[Symbol], result: Any) -> tuple[Binding, ...]:
    """Where the symbols are found; those that are nowhere to be seen have no binding."""
    wanted = dict.fromkeys(symbols)
    found: dict[Symbol, Binding] = {}
    for symbol, item, dim in _places(result):
        if symbol in wanted:
            found.setdefault(symbol, Binding(symbol, item, dim))
    return tuple(found.values())


def _places(result: Any) -> Iterator[tuple[Expr, int | None, int | None]]:
    parts = enumerate(result) if isinstance(result, (list, tuple)) else [(None, result)]
    for item, part in parts:
        if isinstance(part, _NUMBERS):
            yield written(part), item, None
        elif isinstance(part, FakeTensor):
            for dim, size in enumerate(part.size_):  # its `shape` has a plain number in place of a symbol that is known
                if isinstance(size, torch.SymInt):
                    yield written(size), item, dim


def written(number: Any) -> Expr:
    """The expression of a symbolic number as it was made, before anything learnt replaced symbols in it."""
    expr: Expr = number.node._expr
    return expr


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_unbacked(number: Any) -> bool:
    """Whether the value is a symbolic number that only running the graph tells."""
    if type(number) not in _SYMBOLIC:
        return False
    env = number.node.shape_env
    return bool(env.unbacked_symbols(env.simplify(number.node.expr)))


def unlearnt(condition: Any) -> Expr:
    """The expression of a checked condition: unbacked symbols stand for themselves, whatever was learnt of them since."""
    env, e = condition.node.shape_env, written(condition)
    return substitute(e, {s: env.simplify(s) for s in e.free if not env.is_unbacked(s)})


def select(condition: Any, then: Any, other: Any) -> Any:
    """`then if condition else other`, of symbolic numbers too."""
    if isinstance(condition, torch.SymBool):
        return condition.node.shape_env.select(condition, then, other)
    return then if condition else other


# Functions whose C++ form returns a plain truth value, which a graph computes by the operator instead.
TRUTHS: dict[Any, Any] = {
    torch.equal: torch.ops.aten.equal.default,
    torch.Tensor.equal: torch.ops.aten.equal.default,
    torch.allclose: torch.ops.aten.allclose.default,
    torch.Tensor.allclose: torch.ops.aten.allclose.default,
    torch.is_nonzero: torch.ops.aten.is_nonzero.default,
    torch.Tensor.is_nonzero: torch.ops.aten.is_nonzero.default,
}


def numbering(function: Any) -> Any:
    """The operator that a function is which returns Python numbers; None if it is no such function."""
    known = TRUTHS.get(function)
    if known is not None or type(function) not in OPERATORS:
        return known
    if type(function) is OpOverload:
        return function if returns_numbers(function) else None
    overloads = [getattr(function, name) for name in function.overloads()]
    if not any(map(returns_numbers, overloads)):
        return None
    if len(overloads) > 1:
        raise UnsupportedOperator(f"which overload of `{function}` is called is not known", kind="overloads")
    return overloads[0]


def call_numbering(func: Any, mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the operator returns, with symbols for numbers: past C++, which would ask for the numbers."""
    given = (args, kwargs)
    if func not in _TRUTH_OPERATORS and torch.is_grad_enabled() and has_derivative(func):
        if any(isinstance(t, torch.Tensor) and t.requires_grad for t in tree_leaves(given)):
            raise UnsupportedOperator(f"`{func}` returns numbers and has a derivative", kind="numbers-and-derivative")
    return mode.__torch_dispatch__(func, (), args, kwargs)


OPERATORS = (OpOverload, OpOverloadPacket)
_TRUTH_OPERATORS = frozenset(TRUTHS.values())


def math_function(name: str) -> Callable[..., Any]:
    """`math.<name>` of one number or two, symbolic or not."""
    return _math_functions[name]


def _math_function(name: str) -> Callable[..., Any]:
    plain, method = getattr(math, name), f"sym_{name}"

    def function(*numbers: Any) -> Any:
        node = next((n.node for n in numbers if isinstance(n, (torch.SymInt, torch.SymFloat))), None)
        if node is None:
            return plain(*numbers)
        first, *rest = [node.wrap_float(float(n)) if isinstance(n, (int, float)) else n.node for n in numbers]
        return wrap_node(getattr(first, method)(*rest))

    function.__name__ = function.__qualname__ = name
    return function


_math_functions = {name: _math_function(name) for name in floats.MATH}


CHECKS = frozenset((check, assume))
