"""What running graphs check of numbers that only they compute.

In:     facts about unbacked symbols that the program stated, or that operators' rules take for granted.
Out:    for each part of a graph those that it is to check; those that no graph has the symbols of wait.
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.symbolic.expr import Expr


@dataclass(frozen=True, slots=True)
class RuntimeAssert:
    """What a running graph checks as soon as the symbols of `expr` are known; `expr` is never simplified.

    `stated`: the program said it (by a check); else an operator's rule took it for granted. `message`: what it is called, if
    not by its expression, whose symbols have other names in another capture.
    """

    expr: Expr
    message: str
    origin: SourceLocation | None
    stated: bool = False

    def __str__(self) -> str:
        return self.message or str(self.expr)


class RuntimeAsserts:
    """The asserts of one compilation, and how far graphs have taken them."""

    def __init__(self) -> None:
        self.runtime_asserts: list[RuntimeAssert] = []
        self._asserts_taken = 0
        self._waiting: list[RuntimeAssert] = []  # those whose symbols no graph has had together

    def take_asserts(self, ready: Callable[[RuntimeAssert], bool] | None = None) -> list[RuntimeAssert]:
        """The runtime asserts that were learnt since the last call. `ready`: of these, and of those left by earlier calls,
        the ones that can be checked now; the others wait."""
        found = [*self._waiting, *self.runtime_asserts[self._asserts_taken :]]
        self._asserts_taken = len(self.runtime_asserts)
        self._waiting = [] if ready is None else [one for one in found if not ready(one)]
        return [one for one in found if one not in self._waiting] if self._waiting else found

    def asserts_taken(self) -> tuple[int, list[RuntimeAssert]]:
        """How far asserts are taken, for `take_again`."""
        return self._asserts_taken, list(self._waiting)

    def take_again(self, taken: tuple[int, list[RuntimeAssert]]) -> None:
        """Have what was taken since be taken again: the graphs that it was taken for are given up."""
        self._asserts_taken, waiting = taken
        self._waiting = list(waiting)

    def has_waiting(self) -> bool:
        """Whether there are asserts that no graph checks."""
        return bool(self._waiting)
