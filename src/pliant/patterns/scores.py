"""How a program computes attention's scores: the way from a softmax back to a product of queries and keys.

In:     the argument of a softmax in a functional ATen graph.
Out:    `steps_to(...)`: the calls on the way, from the product on, each with what it does to the scores.
Holds:  a call that is not known stops the way. `Left` where there is a product below, but something else is done to it.
Reads on: `attention.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant.patterns.attend import HIDES
from pliant.patterns.axes import is_view
from pliant.patterns.rewriting import Left
from pliant.records import dataclass
from pliant.torch_adapter import OpOverload

_aten = torch.ops.aten

@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """`kind`: "product", "view", "cast", "scale" (by `value`), "add" (`mask`) or "fill" (`value` where `mask`; `keeps`: elsewhere)."""

    kind: str
    node: fx.Node
    value: float = 0.0
    mask: fx.Node | None = None
    keeps: bool = False


Steps = list[Step]


def steps_to(node: Any) -> Steps | None:
    """The steps that end in a node; None if none of them is a product."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return None
    if is_view(node):
        return _behind(node.args[0], Step("view", node))
    rule = _RULES.get(node.target)
    if rule is not None:
        return rule(node)
    pointwise = isinstance(node.target, OpOverload) and torch.Tag.pointwise in node.target.tags
    if pointwise and len(node.all_input_nodes) == 1 and steps_to(node.args[0]) is not None:
        raise Left(f"`{node.target}` is computed of its scores")
    return None


def _behind(source: Any, *steps: Step) -> Steps | None:
    found = steps_to(source)
    return None if found is None else [*found, *steps]


def _product(node: fx.Node) -> Steps | None:
    return [Step("product", node)]


def _sum_with_product(node: fx.Node) -> Steps | None:
    """`baddbmm`: beta * mask + alpha * product."""
    beta, alpha = (node.kwargs.get(name, 1) for name in ("beta", "alpha"))
    if not isinstance(alpha, int | float) or beta not in (0, 1):
        return None
    steps = [Step("product", node), Step("scale", node, float(alpha))]
    mask = node.args[0]
    assert isinstance(mask, fx.Node)
    return [*steps, Step("add", node, mask=mask)] if beta == 1 else steps


def _cast(node: fx.Node) -> Steps | None:
    dtype = node.kwargs.get("dtype")
    if node.kwargs.keys() - {"dtype", "layout", "device"} or dtype not in (torch.float32, torch.float64):
        return None
    return _behind(node.args[0], Step("cast", node))


def _scaled(divided: bool) -> Callable[[fx.Node], Steps | None]:
    def rule(node: fx.Node) -> Steps | None:
        for one, other in ((node.args[0], node.args[1]), (node.args[1], node.args[0]))[: 1 if divided else 2]:
            number = constant(other)
            if number is not None and number != 0 and math.isfinite(number):
                return _behind(one, Step("scale", node, 1 / number if divided else number))
        if steps_to(node.args[0]) is not None:
            raise Left("its scores are scaled by a tensor")
        return None

    return rule


def _added(node: fx.Node) -> Steps | None:
    one, other = node.args[0], node.args[1]
    if node.kwargs or not isinstance(one, fx.Node) or not isinstance(other, fx.Node):
        return None
    found = _behind(one, Step("add", node, mask=other))
    return found if found is not None else _behind(other, Step("add", node, mask=one))


def _filled(node: fx.Node) -> Steps | None:
    scores, mask, value = node.args
    return _fill(node, scores, mask, value, keeps=False)


def _chosen(node: fx.Node) -> Steps | None:
    mask, one, other = node.args
    found = _fill(node, one, mask, other, keeps=True)
    return found if found is not None else _fill(node, other, mask, one, keeps=False)


def _fill(node: fx.Node, scores: Any, mask: Any, value: Any, keeps: bool) -> Steps | None:
    found = steps_to(scores)
    if found is None or not isinstance(mask, fx.Node):
        return None
    number = constant(value)
    if number is None or not number <= HIDES:
        raise Left(f"its masked scores become {'others' if number is None else number}, which does not hide them for certain")
    return [*found, Step("fill", node, number, mask, keeps)]


def constant(value: Any) -> float | None:
    """The number that an argument is, if the graph says it."""
    if isinstance(value, bool) or not isinstance(value, int | float | fx.Node):
        return None
    if not isinstance(value, fx.Node):
        return float(value)
    rule = _NUMBERS.get(value.target)
    return None if rule is None else rule(value)


def _number_of_full(node: fx.Node) -> float | None:
    return constant(node.args[1]) if node.args[0] == [] else None


def _root(node: fx.Node) -> float | None:
    number = constant(node.args[0])
    return None if number is None or number < 0 else math.sqrt(number)


def _same_number(node: fx.Node) -> float | None:
    return constant(node.args[0]) if node.kwargs.get("dtype") in (torch.float32, torch.float64) else None


_NUMBERS: dict[Any, Callable[[fx.Node], float | None]] = {
    _aten.full.default: _number_of_full,
    _aten.scalar_tensor.default: lambda node: constant(node.args[0]),
    _aten.sqrt.default: _root,
    _aten._to_copy.default: _same_number,
    _aten.clone.default: lambda node: constant(node.args[0]),
}
_RULES: dict[Any, Callable[[fx.Node], Steps | None]] = {
    _aten.bmm.default: _product,
    _aten.baddbmm.default: _sum_with_product,
    _aten._to_copy.default: _cast,
    _aten.mul.Tensor: _scaled(divided=False),
    _aten.mul.Scalar: _scaled(divided=False),
    _aten.div.Tensor: _scaled(divided=True),
    _aten.div.Scalar: _scaled(divided=True),
    _aten.add.Tensor: _added,
    _aten.masked_fill.Scalar: _filled,
    _aten.masked_fill.Tensor: _filled,
    _aten.where.self: _chosen,
}
