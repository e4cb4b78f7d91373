"""What a user can write about an unbacked symbol.

In:     symbols and the lines that made them.
Out:    text in the program's own names: the line `n = x.max().item()` makes `u0` readable as `n`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pliant.records import dataclass
from pliant.regular import pattern
from pliant.source import SourceLocation
from pliant.symbolic.expr import Eq, Expr, Symbol
from pliant.torch_adapter import CHECK

_ASSIGNMENT = pattern(r"([A-Za-z_]\w*)\s*(?::[^=]+)?=(?!=)\s*(.+)")


@dataclass(frozen=True, slots=True)
class Origin:
    """What made a symbol: the operator, the user's line; whether the symbol is a size of the result."""

    what: str
    where: SourceLocation | None
    is_size: bool = False
    name: str = ""  # how the program calls the number, where that is known

    def __str__(self) -> str:
        return f"{self.what} at {self.where}" if self.where else self.what


def name_of(origin: Origin | None) -> str | None:
    """The variable that the line assigns, or its size."""
    if origin is not None and origin.name:
        return origin.name
    found = _ASSIGNMENT.fullmatch(origin.where.text) if origin is not None and origin.where else None
    if origin is None or found is None:
        return None
    reads_size = ".shape[" in found[2] or ".size(" in found[2] or found[2].startswith("len(")
    return f"{found[1]}.size(0)" if origin.is_size and not reads_size else found[1]


def statement(e: Expr, origins: Mapping[Symbol, Origin | None]) -> str:
    """The line to add so that a condition is decided (that it holds, or for an equality that it does not), or a number
    known.
    """
    text = str(e.not_() if isinstance(e, Eq) else e) + ("" if e.kind is bool else " == 3")
    for symbol in e.free:
        name = name_of(origins.get(symbol))
        if name is not None:
            text = re.sub(rf"\b{symbol.name}\b", name, text)
    return f"{CHECK}({text})"
