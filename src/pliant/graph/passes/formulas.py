"""Write calls that the partitioner would see as a whole as formulas of what they reduce to.

In:     a functional ATen graph with a forward and a backward.
Out:    the same graph: the result of a normalization is a formula of its input, mean and inverse deviation; those of softmax
        and log-softmax of input, maximum and sum; what the backward reads of a random mask of zeros and ones is
        cast back from one of bools.
Holds:  formulas are those of the loops that are written for the whole call, in the dtype that it computes in; values,
        dtypes and layouts are unchanged, and where a layout would change the call stays. The backward can then compute
        a result anew from few numbers, or keep a quarter of a mask.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.simplify import same_layout
from pliant.torch_adapter import append_node

_aten = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)


def write_formulas(graph: fx.Graph, exact: bool = False) -> int:
    """Rewrite the graph; how many calls. `exact`: only where formulas have each bit of the call's results."""
    found = 0
    for target, rewrite in (_EXACT if exact else _REWRITES).items():
        for node in graph.find_nodes(op="call_function", target=target):
            found += rewrite(Writer(graph, node), node)
    return found


class Writer:
    """Appends calls behind a node, of whose stage they are part."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self.graph, self.like, self.last = graph, node, node
        self.made: list[fx.Node] = []

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        values = pytree.tree_map(lambda a: a.meta["val"] if isinstance(a, fx.Node) else a, args)
        fake = next(v for v in pytree.tree_leaves(values) if isinstance(v, FakeTensor))
        with self.graph.inserting_after(self.last):
            made = append_node(self.graph, "call_function", target, args, kwargs, target.overloadpacket.__name__)
        made.meta = {k: v for k, v in self.like.meta.items() if k not in ("val", "binds")}
        made.meta["val"] = fake.fake_mode.compute(target, values, kwargs)
        self.last = made
        self.made.append(made)
        return made

    def cast(self, value: fx.Node, dtype: torch.dtype) -> fx.Node:
        return value if _val(value).dtype_ is dtype else self.call(_aten._to_copy.default, value, dtype=dtype)

    def unsqueezed(self, value: fx.Node, times: int) -> fx.Node:
        for _ in range(times):
            value = self.call(_aten.unsqueeze.default, value, -1)
        return value

    def follow(self, node: fx.Node) -> None:
        """Have `node`, and what is written from now on, right behind what was written last."""
        self.last.append(node)
        self.last = node

    def replace(self, old: fx.Node, new: fx.Node) -> bool:
        """Have all others read `new` in place of `old`, if it is the same; else take back what was written."""
        if not same_layout(_val(old), _val(new)) or _val(old).dtype_ is not _val(new).dtype_:
            return self.nothing()
        old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in self.made)
        if not old.users:
            self.graph.erase_node(old)
        return True

    def nothing(self) -> bool:
        """Take back what was written."""
        for made in reversed(self.made):
            self.graph.erase_node(made)
        return False


def _val(node: fx.Node) -> FakeTensor:
    val: FakeTensor = node.meta["val"]
    return val


def _opmath(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _HALF else dtype


# -- normalization layers ---------------------------------------------------------------------------------------------


_Spread = Callable[[fx.Node], fx.Node]


def _normalized(write: Writer, node: fx.Node, x: Any, statistic: _Spread, parameter: _Spread) -> bool:
    """result = (x - mean) * rstd * weight + bias; `statistic` and `parameter` have such tensors broadcast to x, which may
    be the input seen in another shape."""
    items = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    dtype = _opmath(_val(x).dtype_)
    if not items.keys() >= {0, 1, 2} or any(_val(items[k]).dtype_ is not dtype for k in (1, 2)):
        return write.nothing()  # of half precision eager may keep less than it computes with
    for k in (0, 1, 2):
        write.follow(items[k])
    result = write.call(_aten.sub.Tensor, write.cast(x, dtype), statistic(items[1]))
    result = write.call(_aten.mul.Tensor, result, statistic(items[2]))
    weight, bias = node.args[_PARAMETERS[node.target] : _PARAMETERS[node.target] + 2]
    if isinstance(weight, fx.Node):
        result = write.call(_aten.mul.Tensor, result, parameter(write.cast(weight, dtype)))
    if isinstance(bias, fx.Node):
        result = write.call(_aten.add.Tensor, result, parameter(write.cast(bias, dtype)))
    result = write.cast(result, _val(items[0]).dtype_)
    sizes = _val(items[0]).size_
    return write.replace(items[0], result if x is node.args[0] else write.call(_VIEW, result, [*sizes]))


def _layer_norm(write: Writer, node: fx.Node) -> bool:
    return _normalized(write, node, node.args[0], lambda t: t, lambda t: t)


def _batch_norm(write: Writer, node: fx.Node) -> bool:
    """Channels are dimension 1."""
    x: Any = node.args[0]
    behind = len(_val(x).size_) - 2
    if node.args[5 if node.target is _FUNCTIONAL else 3] is not True:
        return False
    return _normalized(write, node, x, *[lambda t: write.unsqueezed(t, behind)] * 2)


def _group_norm(write: Writer, node: fx.Node) -> bool:
    x: Any = node.args[0]
    n, c, *space = _val(x).size_
    groups = node.args[6]
    if type(c) is not int or type(groups) is not int:
        return False
    parts, behind = [groups, c // groups], len(space)
    return _normalized(
        write,
        node,
        write.call(_VIEW, x, [n, *parts, *space]),
        lambda t: write.unsqueezed(t, behind + 1),
        lambda t: write.unsqueezed(write.call(_VIEW, t, parts), behind),
    )


# -- softmax ----------------------------------------------------------------------------------------------------------


def _softmax(write: Writer, node: fx.Node) -> bool:
    """Of softmax the row's sum is inverted once, as in the loops of the whole call; of log-softmax its log is taken off."""
    found = _powers(write, node)
    if found is None:
        return write.nothing()
    below, powers, total = found
    if node.target is _aten._log_softmax.default:
        result = write.call(_aten.sub.Tensor, below, write.call(_aten.log.default, total))
    else:
        result = write.call(_aten.mul.Tensor, powers, write.call(_aten.reciprocal.default, total))
    return write.replace(node, write.cast(result, _val(node).dtype_))


def _powers(write: Writer, node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node] | None:
    """Of a softmax: its input less the row's maximum, the exponentials of that and their sum."""
    x: Any = node.args[0]
    dim: Any = node.args[1]
    dtype = _opmath(_val(node).dtype_)
    if dtype is not torch.float32 or not len(_val(node).size_) or not _has_elements(node, dim):
        return None
    given = write.cast(x, dtype)
    below = write.call(_aten.sub.Tensor, given, write.call(_aten.amax.default, given, [dim], True))
    powers = write.call(_aten.exp.default, below)
    return below, powers, write.call(_aten.sum.dim_IntList, powers, [dim], True)


def _has_elements(node: fx.Node, dim: Any) -> bool:
    size = _val(node).size_[dim]
    return type(size) is int and size > 0


# -- masks ------------------------------------------------------------------------------------------------------------


def _mask(write: Writer, node: fx.Node) -> bool:
    """What is drawn with a probability is zero or one."""
    dtype = _val(node).dtype_
    if dtype is torch.bool:
        return False
    return write.replace(node, write.cast(write.cast(node, torch.bool), dtype))


_VIEW = _aten.view.default
_FUNCTIONAL = _aten._native_batch_norm_legit_functional.default
_PARAMETERS: dict[Any, int] = {  # which argument is the weight; the bias follows
    _aten.native_layer_norm.default: 2,
    _aten._native_batch_norm_legit.no_stats: 1,
    _FUNCTIONAL: 1,
    _aten.native_group_norm.default: 1,
}
_EXACT: dict[Any, Callable[[Writer, fx.Node], bool]] = {_aten.bernoulli.p: _mask}
_REWRITES: dict[Any, Callable[[Writer, fx.Node], bool]] = {
    **_EXACT,
    _aten.native_layer_norm.default: _layer_norm,
    _FUNCTIONAL: _batch_norm,
    _aten.native_group_norm.default: _group_norm,
    _aten._native_batch_norm_legit.no_stats: _batch_norm,
    _aten._log_softmax.default: _softmax,
    _aten._softmax.default: _softmax,
}
