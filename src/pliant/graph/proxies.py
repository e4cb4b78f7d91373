"""Python functions run on nodes, so that what they compute becomes nodes of the same graph.

In:     `proxies(graph)`: a function from nodes to proxies.
Holds:  nodes have Python's operators, whatever a program has put in their places: PyTorch's proxies look `operator.add` up
        at each addition.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx

_ONE_SIDED = "eq ne lt gt le ge pos neg invert getitem".split()
_REFLECTED = "add sub mul floordiv truediv mod pow lshift rshift and_ or_ xor matmul".split()


class _Proxy(fx.Proxy):
    """A value whose operations are recorded."""


class _Tracer(fx.proxy.GraphAppendingTracer):
    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)


def _recorded(function: Any) -> Any:
    return lambda *operands: operands[0].tracer.create_proxy("call_function", function, operands, {})


def _reflected(function: Any) -> Any:
    return lambda right, left: right.tracer.create_proxy("call_function", function, (left, right), {})


for _name in (*_ONE_SIDED, *_REFLECTED):
    setattr(_Proxy, f"__{_name.strip('_')}__", _recorded(getattr(operator, _name)))
for _name in _REFLECTED:
    setattr(_Proxy, f"__r{_name.strip('_')}__", _reflected(getattr(operator, _name)))


def proxies(graph: fx.Graph) -> Callable[[fx.Node], fx.Proxy]:
    """What makes proxies of nodes of this graph."""
    return _Tracer(graph).proxy
