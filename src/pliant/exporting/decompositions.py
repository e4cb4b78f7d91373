"""Operators by others.

In:     a `Program`, names of operators; without names, all that have a rule and are no core operators.
Out:    the same graph with other operators in their place.
Holds:  a rule returns the nodes in whose place its own come, with the same sizes and layouts, or None: then the operator
        stays. Rules of arithmetic hold for float32 and float64, in which operators compute as they are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from pliant.errors import ConfigError
from pliant.exporting.core_operators import is_core
from pliant.exporting.nested import change_bodies
from pliant.exporting.program import Program, described
from pliant.graph.fake_tensor import FakeTensor
from pliant.torch_adapter import append_node

_aten = torch.ops.aten
Rule = Callable[..., Any]


def decomposing(operators: Sequence[str]) -> Callable[[Program], None]:
    """The pass."""
    names = {str(target): target for target in RULES}
    wanted = [one for text in operators for one in _named(text, names)] if operators else [t for t in RULES if not is_core(t)]
    chosen = {names[str(target)] for target in wanted}

    def decomposed(graph: fx.Graph) -> None:
        # Rules make operators that have rules themselves.
        changed = True
        while changed:
            nodes = [node for node in graph.nodes if node.target in chosen]
            changed = sum(_replaced(graph, node) for node in nodes) > 0

    def decompose(program: Program) -> None:
        decomposed(program.graph)
        change_bodies(program.graph, decomposed)

    return decompose


def _named(text: str, names: dict[str, Any]) -> list[Any]:
    found = [target for name, target in names.items() if name == text or name.rpartition(".")[0] == text]
    if not found:
        raise ConfigError(
            f"there is no decomposition of `{text}`", kind="unknown-operator", why=f"those there are: {', '.join(names)}",
            do="name one of these",
        )  # fmt: skip
    return found


class Building:
    """Makes nodes in front of one."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self.graph, self.node = graph, node
        fakes = [n.meta["val"] for n in [*node.all_input_nodes, node]]
        self.mode = next(f.fake_mode for f in torch.utils._pytree.tree_leaves(fakes) if isinstance(f, FakeTensor))

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        with self.graph.inserting_before(self.node):
            made = append_node(self.graph, "call_function", target, args, kwargs, target._schema.name.rpartition(":")[2])
        named = {name: described(value) for name, value in kwargs.items()}
        made.meta = {"val": self.mode.compute(target, described(args), named), "stage": "forward"}
        if (where := self.node.meta.get("where")) is not None:
            made.meta["where"] = where
        return made


def _replaced(graph: fx.Graph, node: fx.Node) -> bool:
    items: dict[Any, fx.Node] = {user.args[1]: user for user in node.users if getattr(user.target, "__name__", "") == "getitem"}
    own = node.meta["val"]
    floats = [f for f in torch.utils._pytree.tree_leaves(own) if isinstance(f, FakeTensor)]
    if node.target not in _ANY_DTYPE and not all(f.dtype_ in (torch.float32, torch.float64) for f in floats):
        return False
    found = RULES[node.target](Building(graph, node), *node.args, **node.kwargs)
    if found is None or any(found[place] is None for place in items if isinstance(found, list)):
        return False
    if isinstance(found, list):
        for place, item in items.items():
            item.replace_all_uses_with(found[place])
            graph.erase_node(item)
    else:
        node.replace_all_uses_with(found)
    graph.erase_node(node)
    return True


def _size(node: fx.Node) -> list[Any]:
    return list(node.meta["val"].size_)


# ---- forms
def _transpose(g: Building, x: fx.Node, one: int = 0, other: int = 1) -> fx.Node:
    order = list(range(len(_size(x))))
    if len(order) > 1:
        order[one], order[other] = order[other], order[one]
    return g(_aten.permute.default, x, order)


def _view(g: Building, x: fx.Node, size: list[Any]) -> fx.Node:
    return g(_aten.view.default, x, size)


def _pieces(g: Building, x: fx.Node, length: Any, dim: int = 0) -> list[fx.Node] | None:
    size = _size(x)[dim]
    if type(size) is not int or type(length) is not int or not length:
        return None
    starts = range(0, max(size, 1), length)
    return [g(_aten.slice.Tensor, x, dim, start, min(start + length, size)) for start in starts]


def _filled(value: float) -> Rule:
    """As large as the result, where that lies by rows."""

    def rule(g: Building, *_: Any, **__: Any) -> fx.Node | None:
        fake = g.node.meta["val"]
        if not fake.is_contiguous():
            return None
        return g(_aten.full.default, list(fake.size_), value, dtype=fake.dtype_, device=fake.device_)

    return rule


def _stack(g: Building, parts: Sequence[fx.Node], dim: int = 0) -> fx.Node:
    return g(_aten.cat.default, [g(_aten.unsqueeze.default, one, dim) for one in parts], dim)


def _unbind(g: Building, x: fx.Node, dim: int = 0) -> list[fx.Node]:
    return [g(_aten.select.int, x, dim, i) for i in range(len(g.node.meta["val"]))]


def _masked_fill(g: Building, x: fx.Node, mask: fx.Node, value: float) -> fx.Node | None:
    if not all(one.meta["val"].is_contiguous() for one in (x, mask, g.node)):  # else it may lie otherwise
        return None
    return g(_aten.where.self, mask, _scalar(g, x.meta["val"], value), x)


def _arange(g: Building, end: Any, **named: Any) -> fx.Node:
    return g(_aten.arange.start_step, 0, end, 1, **named)


# ---- arithmetic
def _silu(g: Building, x: fx.Node) -> fx.Node:
    return g(_aten.mul.Tensor, x, g(_aten.sigmoid.default, x))


def _gelu(g: Building, x: fx.Node, approximate: str = "none") -> fx.Node:
    if approximate == "none":
        inner = g(_aten.erf.default, g(_aten.mul.Tensor, x, math.sqrt(0.5)))
    else:
        cubed = g(_aten.mul.Tensor, g(_aten.mul.Tensor, g(_aten.mul.Tensor, x, x), x), 0.044715)
        inner = g(_aten.tanh.default, g(_aten.mul.Tensor, g(_aten.add.Tensor, x, cubed), math.sqrt(2 / math.pi)))
    return g(_aten.mul.Tensor, g(_aten.mul.Tensor, x, 0.5), g(_aten.add.Tensor, inner, 1.0))


def _hardsigmoid(g: Building, x: fx.Node) -> fx.Node:
    return g(_aten.div.Tensor, g(_aten.clamp.default, g(_aten.add.Tensor, x, 3.0), 0.0, 6.0), 6.0)


def _hardswish(g: Building, x: fx.Node) -> fx.Node:
    return g(_aten.mul.Tensor, x, _hardsigmoid(g, x))


def _addcmul(g: Building, x: fx.Node, a: fx.Node, b: fx.Node, value: float = 1) -> fx.Node:
    product = g(_aten.mul.Tensor, a, b)
    return g(_aten.add.Tensor, x, product if value == 1 else g(_aten.mul.Tensor, product, value))


def _addmm(g: Building, bias: fx.Node, a: fx.Node, b: fx.Node, beta: float = 1, alpha: float = 1) -> fx.Node | None:
    if beta == 0:  # then the bias counts for nothing, not even NaN
        return None
    product = g(_aten.mm.default, a, b)
    product = product if alpha == 1 else g(_aten.mul.Tensor, product, alpha)
    return g(_aten.add.Tensor, bias if beta == 1 else g(_aten.mul.Tensor, bias, beta), product)


def _layer_norm(g: Building, x: fx.Node, shape: list[Any], weight: Any, bias: Any, eps: float) -> list[Any]:
    dims = list(range(-len(shape), 0))
    mean = g(_aten.mean.dim, x, dims, True)
    apart = g(_aten.sub.Tensor, x, mean)
    spread = g(_aten.mean.dim, g(_aten.mul.Tensor, apart, apart), dims, True)
    scale = g(_aten.rsqrt.default, g(_aten.add.Tensor, spread, eps))
    found = g(_aten.mul.Tensor, apart, scale)
    found = found if weight is None else g(_aten.mul.Tensor, found, weight)
    return [found if bias is None else g(_aten.add.Tensor, found, bias), mean, scale]


def _batch_norm(
    g: Building, x: fx.Node, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> list[Any] | None:
    if training or mean is None or var is None:
        return None
    sizes = [1, -1] + [1] * (len(_size(x)) - 2)
    scale = g(_aten.rsqrt.default, g(_aten.add.Tensor, var, eps))
    scale = scale if weight is None else g(_aten.mul.Tensor, scale, weight)
    found = g(_aten.mul.Tensor, g(_aten.sub.Tensor, x, _view(g, mean, sizes)), _view(g, scale, sizes))
    return [found if bias is None else g(_aten.add.Tensor, found, _view(g, bias, sizes)), None, None]


def _softmax(g: Building, x: fx.Node, dim: int, half_to_float: bool = False) -> fx.Node | None:
    if not _size(x):
        return None
    raised = g(_aten.exp.default, g(_aten.sub.Tensor, x, g(_aten.amax.default, x, [dim], True)))
    return g(_aten.div.Tensor, raised, g(_aten.sum.dim_IntList, raised, [dim], True))


def _log_softmax(g: Building, x: fx.Node, dim: int, half_to_float: bool = False) -> fx.Node | None:
    if not _size(x):
        return None
    apart = g(_aten.sub.Tensor, x, g(_aten.amax.default, x, [dim], True))
    total = g(_aten.sum.dim_IntList, g(_aten.exp.default, apart), [dim], True)
    return g(_aten.sub.Tensor, apart, g(_aten.log.default, total))


def _behind(g: Building, scores: fx.Node, length: Any, keys: Any) -> fx.Node:
    """The scores with -inf where a key is behind its query."""
    fake = scores.meta["val"]
    rows, columns = (g(_aten.arange.default, n, device=fake.device_, pin_memory=False) for n in (length, keys))
    hidden = g(_aten.gt.Tensor, columns, g(_aten.unsqueeze.default, rows, 1))
    return g(_aten.where.self, hidden, _scalar(g, fake, -math.inf), scores)


def _scalar(g: Building, fake: FakeTensor, value: float) -> fx.Node:
    return g(_aten.full.default, [], value, dtype=fake.dtype_, device=fake.device_)


def _safe_softmax(g: Building, x: fx.Node, dim: int, dtype: Any = None) -> fx.Node | None:
    """0 where all is masked, as attention has it."""
    if not _size(x) or dtype is not None:
        return None
    masked = g(_aten.eq.Scalar, g(_aten.amax.default, x, [dim], True), -math.inf)
    return g(_aten.where.self, masked, _scalar(g, x.meta["val"], 0.0), g(_aten._softmax.default, x, dim, False))


def _attention(
    g: Building, q: fx.Node, k: fx.Node, v: fx.Node, dropout: float = 0.0, causal: bool = False, attn_mask: Any = None,
    scale: float | None = None,
) -> list[Any] | None:  # fmt: skip
    if dropout or scale is None and type(_size(q)[-1]) is not int:
        return None
    batch, heads, length, _ = _size(q)
    keys, width = _size(k)[2], _size(v)[3]
    factor = 1 / math.sqrt(_size(q)[-1]) if scale is None else scale

    def flat(x: fx.Node) -> fx.Node:
        whole = g(_aten.clone.default, x, memory_format=torch.contiguous_format)
        return _view(g, whole, [batch * heads, *_size(x)[2:]])

    q = flat(g(_aten.mul.Tensor, q, factor))
    scores = _view(g, g(_aten.bmm.default, q, _transpose(g, flat(k), 1, 2)), [batch, heads, length, keys])
    if attn_mask is not None:
        scores = g(_aten.add.Tensor, scores, attn_mask)
    if causal:
        scores = _behind(g, scores, length, keys)
    shares = _view(g, g(_aten._safe_softmax.default, scores, -1), [batch * heads, length, keys])
    found = _view(g, g(_aten.bmm.default, shares, flat(v)), [batch, heads, length, width])
    if found.meta["val"].spec.stride_key == g.node.meta["val"][0].spec.stride_key:
        return [found, None]
    by_row = g(_aten.clone.default, _transpose(g, found, 1, 2), memory_format=torch.contiguous_format)
    return [_transpose(g, by_row, 1, 2), None]


RULES: dict[Any, Rule] = {
    _aten.t.default: _transpose,
    _aten.transpose.int: _transpose,
    _aten._unsafe_view.default: _view,
    _aten.split.Tensor: _pieces,
    _aten.new_ones.default: _filled(1),
    _aten.new_zeros.default: _filled(0),
    _aten.ones.default: _filled(1),
    _aten.zeros.default: _filled(0),
    _aten.ones_like.default: _filled(1),
    _aten.zeros_like.default: _filled(0),
    _aten.arange.default: _arange,
    _aten.stack.default: _stack,
    _aten.unbind.int: _unbind,
    _aten.masked_fill.Scalar: _masked_fill,
    _aten.silu.default: _silu,
    _aten.gelu.default: _gelu,
    _aten.hardsigmoid.default: _hardsigmoid,
    _aten.hardswish.default: _hardswish,
    _aten.addcmul.default: _addcmul,
    _aten.addmm.default: _addmm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_batch_norm.default: _batch_norm,
    _aten._softmax.default: _softmax,
    _aten._safe_softmax.default: _safe_softmax,
    _aten._log_softmax.default: _log_softmax,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
}
_ANY_DTYPE = frozenset(
    (_aten.t.default, _aten.transpose.int, _aten._unsafe_view.default, _aten.split.Tensor, _aten.new_ones.default,
     _aten.new_zeros.default, _aten.ones_like.default, _aten.zeros_like.default, _aten.ones.default, _aten.zeros.default,
     _aten.arange.default, _aten.stack.default, _aten.unbind.int, _aten.masked_fill.Scalar)
)  # fmt: skip
