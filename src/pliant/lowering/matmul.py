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

aten = torch.ops.aten


def _with_out(target: Any, out_overload: Any) -> Callable[..., Any]:
    def rule(low: Lowering, out: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return lower_call(low, target, out, args, kwargs, out_overload)

    return rule


RULES: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _with_out(aten.mm.default, aten.mm.out),
    aten.addmm.default: _with_out(aten.addmm.default, aten.addmm.out),
    aten.bmm.default: _with_out(aten.bmm.default, aten.bmm.out),
    aten.baddbmm.default: _with_out(aten.baddbmm.default, aten.baddbmm.out),
}
