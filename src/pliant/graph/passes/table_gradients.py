"""Make one gradient of a table that is looked up more than once, instead of adding up one for each time.

In:     a functional ATen graph.
Out:    the same graph: the sum of two gradients of a table's rows is the gradient of both lookups, joined.
Holds:  gradients that anything else reads stay; layout and dtype are unchanged. Only where the lookups together read
        fewer rows than the table has: else joining them would take more memory than the table.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from pliant.graph.passes.simplify import same_layout
from pliant.torch_adapter import append_node

_aten = torch.ops.aten
_CAT, _CLONE, _VIEW = _aten.cat.default, _aten.clone.default, _aten.view.default
_GRADIENT = _aten.embedding_dense_backward.default  # (gradient, indices, rows, padding row, scale by frequency)


def join_table_gradients(graph: fx.Graph) -> int:
    """Rewrite the sums, in one walk; how many."""
    return sum(_rewrite(graph, node) for node in graph.find_nodes(op="call_function", target=_aten.add.Tensor))


def _rewrite(graph: fx.Graph, total: fx.Node) -> bool:
    terms: Any = total.args[:2]
    if total.kwargs or not all(isinstance(one, fx.Node) and _is_part(one) for one in terms) or terms[0] is terms[1]:
        return False
    one, other = terms
    if not same_layout(one.meta["val"], other.meta["val"]) or one.args[3] != other.args[3]:
        return False
    indices = [one.args[1], other.args[1]]
    if indices[0].meta["val"].dtype_ != indices[1].meta["val"].dtype_:
        return False
    counts = [math.prod(index.meta["val"].size_) for index in indices]
    if sum(map(_hint, counts)) >= _hint(one.args[2]):
        return False
    width = one.meta["val"].size_[1]
    with graph.inserting_before(total):
        call = _Calls(graph, total.meta)
        gradients = [call.flat(term.args[0], (count, width)) for term, count in zip(terms, counts)]
        flat = [call.flat(index, (count,)) for index, count in zip(indices, counts)]
        joined = call(_GRADIENT, call(_CAT, gradients), call(_CAT, flat), *one.args[2:])
    total.replace_all_uses_with(joined)
    for dead in (total, one, other):
        graph.erase_node(dead)
    return True


def _is_part(node: fx.Node) -> bool:
    return node.target is _GRADIENT and len(node.args) == 5 and not node.args[4] and len(node.users) == 1


def _hint(number: Any) -> int:
    """What a size was when the program was compiled; unknown ones count as large."""
    hint = number if isinstance(number, int) else number.node.hint
    return 1 << 62 if hint is None else int(hint)


class _Calls:
    """Appends calls with their descriptions."""

    def __init__(self, graph: fx.Graph, meta: dict[str, Any]) -> None:
        self.graph, self.meta = graph, meta

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = append_node(self.graph, "call_function", target, args, kwargs, target.__name__.partition(".")[0])
        described = [_described(one) for one in args]
        val = self.meta["val"].fake_mode.compute(target, described, kwargs)
        node.meta.update({**self.meta, "val": val})
        return node

    def flat(self, node: fx.Node, size: tuple[Any, ...]) -> fx.Node:
        """The value with its leading dimensions joined."""
        return self(_VIEW, self(_CLONE, node, memory_format=torch.contiguous_format), size)


def _described(value: Any) -> Any:
    if isinstance(value, list):
        return [_described(one) for one in value]
    return value.meta["val"] if isinstance(value, fx.Node) else value
