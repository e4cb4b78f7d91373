"""What products read, and with how many zeros behind its rows and columns it had best lie in memory.

In:     an ATen graph.
Out:    `Factor`s: how often products read each element, and the zeros.
Holds:  kernels of libraries read 16 bytes at a time where the dimensions along which they read and write memory are whole
        multiples of that, and take up to seven times as long where not: vocabularies are seldom multiples of eight. Zeros
        change no sum, and a column that is computed too much is not looked at.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import torch
from torch import fx

from pliant.lowering import views
from pliant.records import dataclass
from pliant.targets.registry import has_target, target_of
from pliant.targets.target import Target

aten = torch.ops.aten

PRODUCTS: dict[Any, int] = {aten.mm.default: 0, aten.addmm.default: 1, aten.bmm.default: 0, aten.baddbmm.default: 1}  # first factor
_OF_MATRICES = (aten.mm.default, aten.addmm.default)
_HALF = (torch.bfloat16, torch.float16)
_LONG = 16  # groups of elements from which on a dimension is worth it


@dataclass
class Factor:
    """times: how often products read each element, as far as is known. zeros: how many they want behind a dimension."""

    times: int = 0
    zeros: dict[int, int] = field(default_factory=dict)


def row_bytes(out: torch.Tensor, depth: Any = None) -> int:
    """At multiples of how many bytes rows of a product, or of a factor, had best begin: libraries take half as long where
    vectors of them may be read. `depth`: additions for each element of the result, which may have to be copied."""
    target = _target_of_products(out)
    if target is None:
        return 0
    return target.product_bytes if depth is None or type(depth) is int and depth >= target.product_depth else 0


def factors_of(graph: fx.Graph) -> dict[fx.Node, Factor]:
    """What products read, through views."""
    found: dict[fx.Node, Factor] = {}
    for node in reversed(graph.nodes):
        if node.target in PRODUCTS:
            _note_product(node, found)
        elif node in found and node.target in views.RULES and isinstance(node.args[0], fx.Node):
            _note_view(node, node.args[0], found)
    return found


def _note_product(node: fx.Node, found: dict[fx.Node, Factor]) -> None:
    first = PRODUCTS[node.target]
    result, pair = node.meta["val"], node.args[first : first + 2]
    for factor, result_dim in zip(pair, (-1, -2)):
        if isinstance(factor, fx.Node):
            times = result.shape[result_dim]
            known = found.setdefault(factor, Factor())
            known.times += times if type(times) is int else 0
    target = _target_of_products(result)
    if node.target in _OF_MATRICES and target is not None and all(isinstance(f, fx.Node) for f in pair):
        whole = target.product_bytes // result.dtype.itemsize
        _note_zeros(pair[0], pair[1], found, target.product_depth, whole)


def _note_zeros(a: Any, b: Any, found: dict[fx.Node, Factor], worth: int, whole: int) -> None:
    """Zeros for a product of matrices: behind the summed dimension where a factor is read along it, and behind the columns
    of the result where it has `worth` rows and additions each, for it may have to be copied."""
    left, right = a.meta["val"], b.meta["val"]
    (rows, depth), columns = left.shape, right.shape[1]
    short = _missing(depth, whole)
    if short and (_is_one(left.stride(1)) or _is_one(right.stride(0))):
        found[a].zeros[1] = found[b].zeros[0] = short
    if all(type(n) is int and n >= worth for n in (rows, depth)) and _missing(columns, whole):
        found[b].zeros[1] = _missing(columns, whole)


def _note_view(node: fx.Node, source: fx.Node, found: dict[fx.Node, Factor]) -> None:
    known, seen = found.setdefault(source, Factor()), found[node]
    known.times += seen.times
    before, after = source.meta["val"], node.meta["val"]
    if before.dim() == 2 and _known(before) and _known(after) == _known(before)[::-1]:
        known.zeros.update({1 - d: n for d, n in seen.zeros.items()})
    elif before.dim() and after.dim() - 1 in seen.zeros and _known(before)[-1:] == _known(after)[-1:]:
        known.zeros[before.dim() - 1] = seen.zeros[after.dim() - 1]


def _known(t: torch.Tensor) -> list[tuple[int, int]]:
    """Sizes and strides; those that are symbolic are like no other."""
    return [
        (n if type(n) is int else -1, s if type(s) is int else -d)
        for d, (n, s) in enumerate(zip(t.shape, t.stride()), 2)
    ]


def _missing(size: Any, whole: int) -> int:
    """How many elements a long dimension lacks to be a multiple of `whole`."""
    known = type(size) is int and whole > 1 and size >= _LONG * whole
    return -size % whole if known else 0


def _is_one(stride: Any) -> bool:
    return type(stride) is int and stride == 1


def _target_of_products(out: torch.Tensor) -> Target | None:
    return target_of(out.device) if out.dtype in _HALF and has_target(out.device) else None
