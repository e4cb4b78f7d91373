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
from pliant.graph.unbacked import is_unbacked

_is_whole = exactly(int, bool, torch.SymInt, torch.SymBool)
_CLASSES = ({tuple, torch.Size}, {list})


def alike_when_run(t: Tracer, symbol: str, left: Any, right: Any) -> Any:
    classes = {type(left), type(right)}
    if symbol not in ("==", "!=") or not any(classes <= each for each in _CLASSES) or len(left) != len(right):
        return None
    pairs = list(zip(left, right, strict=True))
    late = [pair for pair in pairs if any(map(is_unbacked, pair))]
    if not late or not all(map(_is_whole, (*left, *right))):
        return None
    known = [pair for pair in pairs if not any(map(is_unbacked, pair))]
    if not all(t.native(bool, t.native(operator.eq, *pair)) for pair in known):
        return symbol == "!="
    alike: Any = True
    for pair in late:
        alike = t.native(operator.and_, alike, t.native(operator.eq, *pair))
    return alike if symbol == "==" else t.native(torch.sym_not, alike)
