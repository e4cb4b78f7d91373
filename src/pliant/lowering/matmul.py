"""Products and other operators that vendor libraries do best: extern calls that write into planned memory where they
can.

`out` overloads run the same kernel as the functional ones and need no allocation of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.lowering.context import Lowering
from pliant.lowering.fallback import lower_call
from pliant.targets.registry import has_target, target_of

aten = torch.ops.aten


PRODUCTS = {aten.mm.default: 0, aten.addmm.default: 1, aten.bmm.default: 0, aten.baddbmm.default: 1}  # first factor
_HALF = (torch.bfloat16, torch.float16)


def row_bytes(out: torch.Tensor, depth: Any = None) -> int:
    """At multiples of how many bytes rows of a product, or of a factor, had best begin: libraries take half as long where
    vectors of them may be read. `depth`: additions for each element of the result, which may have to be copied."""
    if out.dtype not in _HALF or not has_target(out.device):
        return 0
    target = target_of(out.device)
    return target.product_bytes if depth is None or type(depth) is int and depth >= target.product_depth else 0


def _product(target: Any, out_overload: Any) -> Callable[..., Any]:
    """`out` overloads write into rows that begin anywhere."""

    def rule(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        depth = args[PRODUCTS[target]].shape[-1].as_int()
        return lower_call(low, target, out, args, kwargs, out_overload, row_bytes(out, depth or 0))

    return rule


def _with_out(target: Any, out_overload: Any) -> Callable[..., Any]:
    def rule(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return lower_call(low, target, out, args, kwargs, out_overload)

    return rule


RULES: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _product(aten.mm.default, aten.mm.out),
    aten.addmm.default: _product(aten.addmm.default, aten.addmm.out),
    aten.bmm.default: _with_out(aten.bmm.default, aten.bmm.out),
    aten.baddbmm.default: _with_out(aten.baddbmm.default, aten.baddbmm.out),
}
