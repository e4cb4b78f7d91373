"""Compute complex numbers as their two real parts, where these are all that is read.

In:     a functional ATen graph, before it is partitioned.
Out:    the same graph: of complex products that only `view_as_real` reads, perhaps through views, the real and the imaginary
        parts are computed by operators of real tensors.
Holds:  values are those of eager's formula, infinities and NaN included; sizes, strides and dtypes are unchanged. What
        shares memory with an input or another result stays as it is. Loops are written for real numbers only: a rotation
        of queries and keys by complex factors is one kernel then, with what is before and behind it. Sums stay: eager
        multiplies one of the two by a complex 1, which makes NaN of infinities, or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx

from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.formulas import Writer
from pliant.graph.passes.purity import memory_root
from pliant.targets.registry import known_target

_aten = torch.ops.aten
_AS_REAL, _AS_COMPLEX, _MUL = _aten.view_as_real.default, _aten.view_as_complex.default, _aten.mul.Tensor
Parts = tuple[fx.Node, fx.Node]
Operand = tuple[fx.Node | float, fx.Node | float]


def compute_complex_parts(graph: fx.Graph) -> bool:
    """Rewrite what is read as real numbers; whether anything is left to be removed."""
    reads = frozenset(filter(_pays, graph.find_nodes(op="call_function", target=_AS_REAL)))
    if not reads:
        return False
    apart = _apart(graph, reads)
    parts: dict[fx.Node, Parts] = {}
    for node in [*graph.nodes]:
        if node in apart:
            write = Writer(graph, node)
            parts[node] = _ROWS[node.target](write, node, parts)
        elif node in reads and node.args[0] in apart:
            write = Writer(graph, node)
            write.replace(node, _joined(write, parts[node.args[0]]))
    return True


def _pays(read: fx.Node) -> bool:
    """Whether loops that write both parts in turn are quicker than operators of complex numbers."""
    value = read.meta.get("val")
    if type(value) is not FakeTensor:
        return False
    target = known_target(value.device_)
    return target is not None and value.dtype_ in target.complex_parts


def _apart(graph: fx.Graph, reads: Collection[fx.Node]) -> dict[fx.Node, None]:
    """Calls whose complex results are read in parts alone, in any order."""
    roots = Counter(memory_root(node) for node in graph.find_nodes(op="call_function", target=_AS_REAL))
    found: dict[fx.Node, None] = {}
    for node in reversed(graph.nodes):
        root = memory_root(node) if _is_row(node) else node
        computed = root.target is _MUL and roots[root] <= 1  # results that share memory do so in eager alone
        if _is_row(node) and node.users and all(user in found or user in reads and computed for user in node.users):
            found[node] = None
    return found


def _is_row(node: fx.Node) -> bool:
    """Whether a complex result comes by a row of the table from operands that have parts."""
    if node.op != "call_function" or node.target not in _ROWS or node.kwargs or not _is_complex(node):
        return False
    if node.target is _MUL:
        return all(map(_has_parts, node.args)) and any(map(_is_complex, node.args))
    return _has_parts(node.args[0])


def _has_parts(value: Any) -> bool:
    """`view_as_real` reads the parts of what is not conjugated when it is read; of a row they are known."""
    if not isinstance(value, fx.Node):
        return isinstance(value, (int, float, complex)) and not isinstance(value, bool)
    fake = value.meta.get("val")
    if type(fake) is not FakeTensor or fake.dtype_ is torch.complex32:
        return False
    return not fake.spec.lazy or value.target in _VIEWS and _has_parts(value.args[0])


def _is_complex(value: Any) -> bool:
    return isinstance(value, fx.Node) and type(fake := value.meta.get("val")) is FakeTensor and fake.dtype_.is_complex


def _operand(write: Writer, value: Any, known: dict[fx.Node, Parts], dtype: torch.dtype) -> Operand:
    """The parts of an operand, in the dtype of real numbers that the call computes in."""
    if not isinstance(value, fx.Node):
        return (value.real, value.imag) if isinstance(value, complex) else (float(value), 0.0)
    return _parts(write, value, known, dtype) if _is_complex(value) else (write.cast(value, dtype), 0.0)


def _parts(write: Writer, value: Any, known: dict[fx.Node, Parts], dtype: torch.dtype) -> Parts:
    if value not in known:
        lies = not value.meta["val"].spec.lazy
        known[value] = _halves(write, write.call(_AS_REAL, value)) if lies else _VIEWS[value.target](write, value, known)
    real, imaginary = known[value]
    return write.cast(real, dtype), write.cast(imaginary, dtype)


def _joined(write: Writer, parts: Parts) -> fx.Node:
    return write.call(_aten.cat.default, [write.call(_aten.unsqueeze.default, part, -1) for part in parts], -1)


# ---- rows: how the parts of a result are computed of those of operands


_Row = Callable[[Writer, fx.Node, dict[fx.Node, Parts]], Parts]


def _product(write: Writer, node: fx.Node, known: dict[fx.Node, Parts]) -> Parts:
    """By eager's formula: of a real operand the imaginary part is a zero, which makes NaN of infinities."""
    dtype = node.meta["val"].dtype_.to_real()
    (a, b), (c, d) = (_operand(write, value, known, dtype) for value in node.args)

    def times(x: fx.Node | float, y: fx.Node | float) -> fx.Node:
        return write.call(_MUL, *((x, y) if isinstance(x, fx.Node) else (y, x)))

    real = write.call(_aten.sub.Tensor, times(a, c), times(b, d))
    return real, write.call(_aten.add.Tensor, times(a, d), times(b, c))


def _each(write: Writer, node: fx.Node, known: dict[fx.Node, Parts]) -> Parts:
    """The same call of both parts."""
    real, imaginary = _parts(write, node.args[0], known, node.meta["val"].dtype_.to_real())
    return write.call(node.target, real, *node.args[1:]), write.call(node.target, imaginary, *node.args[1:])


def _conjugated(write: Writer, node: fx.Node, known: dict[fx.Node, Parts]) -> Parts:
    real, imaginary = _parts(write, node.args[0], known, node.meta["val"].dtype_.to_real())
    return real, write.call(_aten.neg.default, imaginary)


def _seen_as_complex(write: Writer, node: fx.Node, known: dict[fx.Node, Parts]) -> Parts:
    return _halves(write, node.args[0])


def _halves(write: Writer, both: Any) -> tuple[fx.Node, fx.Node]:
    return write.call(_aten.select.int, both, -1, 0), write.call(_aten.select.int, both, -1, 1)


_VIEWS: dict[Any, _Row] = {
    _AS_COMPLEX: _seen_as_complex,
    _aten._conj.default: _conjugated,
    **dict.fromkeys(
        (
            _aten.view.default, _aten.expand.default, _aten.permute.default, _aten.transpose.int, _aten.unsqueeze.default,
            _aten.squeeze.dim, _aten.squeeze.dims, _aten.slice.Tensor, _aten.select.int, _aten.alias.default,
        ),
        _each,
    ),
}  # fmt: skip
_ROWS: dict[Any, _Row] = {_MUL: _product, **_VIEWS}
