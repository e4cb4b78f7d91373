"""How many bytes buffers take, as an estimate: symbols count with the sizes seen when the program was compiled.

In:     a `LoopProgram`.
Out:    bytes of its buffers, plain numbers.
Holds:  nothing that must be right depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pliant.ir.loops import Axis, Buffer, LoopProgram
from pliant.symbolic.expr import Expr, lit
from pliant.symbolic.traverse import substitute

LARGER = 8  # symbols may be this often what was seen: what takes most memory may then be something else
ASSUMED = 32  # the size of a symbol that only running the program gives


class Sizes:
    """Bytes of a program's buffers, if symbols are `times` what was seen."""

    def __init__(self, program: LoopProgram, times: int = 1) -> None:
        finite = ((symbol, hint) for symbol, hint in program.hints.items() if math.isfinite(hint))  # not all are sizes
        self.hints = {symbol: int(hint) * times for symbol, hint in finite}
        self.known: dict[Expr, int] = {}

    def sum(self, buffers: Iterable[Buffer]) -> int:
        return sum(map(self.bytes, buffers))

    def bytes(self, buffer: Buffer) -> int:
        known = self.known
        return buffer.dtype.itemsize * math.prod([known[e] if e in known else self._extent(e) for e in buffer.shape])

    def points(self, axes: Iterable[Axis]) -> int:
        """Of a loop nest."""
        return math.prod(self._extent(a.extent) for a in axes)

    def _extent(self, e: Expr) -> int:
        found = self.known.get(e)
        if found is None:
            number = substitute(e, {s: lit(self.hints.get(s, ASSUMED)) for s in e.free}).as_int()
            found = self.known[e] = ASSUMED if number is None else number
        return found


def all_guesses(program: LoopProgram) -> list[Sizes]:
    """The sizes to plan for."""
    return [Sizes(program), *([Sizes(program, LARGER)] if program.hints else [])]
