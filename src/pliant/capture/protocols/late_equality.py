"""Whether sequences of whole numbers are equal, some of which only the running graph knows: sizes that data tells.

In:     the operands of `==` or `!=`, as C code would get them.
Out:    a truth that the graph computes, upon which a branch may be an assumption (`if y.shape != (n, 3): raise`); None of
        other operands.
Holds:  numbers known without running are compared first, under guards: where they differ, the others decide nothing.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import exactly
from pliant.graph.fake_tensor import is_fake
from pliant.graph.unbacked import is_unbacked

_is_whole = exactly(int, bool, torch.SymInt, torch.SymBool)
_CLASSES = ({tuple, torch.Size}, {list})


def alike_when_run(t: Tracer, symbol: str, left: Any, right: Any) -> Any:
    classes = {type(left), type(right)}
    if symbol not in ("==", "!=") or not any(classes <= each for each in _CLASSES) or len(left) != len(right):
        return None
    if not any(is_unbacked(one) or _is_index(one) for one in (*left, *right)):
        return None
    pairs = [(_number(t, a), _number(t, b)) for a, b in zip(left, right, strict=True)]
    if not all(_is_whole(one) for pair in pairs for one in pair):
        return None
    late = [pair for pair in pairs if any(map(is_unbacked, pair))]
    known = [pair for pair in pairs if not any(map(is_unbacked, pair))]
    if not all(t.native(bool, t.native(operator.eq, *pair)) for pair in known):
        return symbol == "!="
    alike: Any = True
    for pair in late:
        alike = t.native(operator.and_, alike, t.native(operator.eq, *pair))
    return alike if symbol == "==" else t.native(torch.sym_not, alike)


def _is_index(value: Any) -> bool:
    """Whether it is a tensor that stands for a size, as `lengths.max()` does."""
    return is_fake(value) and value.dim() == 0 and value.dtype_ is torch.int64


def _number(t: Tracer, value: Any) -> Any:
    return t.call(torch.Tensor.item, (value,), {}) if _is_index(value) else value
