"""Copies that are views at some sizes: `reshape` and `contiguous` copy no elements that lie in order already.

In:     in a trace that is to serve sizes other than those at hand: each clone, each write, each read, the outputs.
Out:    `show`: whether a caller could tell the copies from views. Then the question which they are needs a guard.
Holds:  told apart are they by a write that is read through the other of both, and by outputs that share memory with
        an input or with one another.

    y = x.transpose(0, 1).contiguous()      a view of x where x.size(0) is 1
    y.add_(1); return x                     where it shows
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pliant.autograd.aliases import Alias, Base
from pliant.graph.fake_tensor import FakeTensor


class CopiesInDoubt:
    """`_groups`: by the id of a base all that may be one memory with it. `_stale`: bases whose value is another one if so."""

    def __init__(self) -> None:
        self.show = False
        self._groups: dict[int, list[Base]] = {}
        self._stale: set[int] = set()

    def note_copy(self, source: Base, copy: Base) -> None:
        one, other = (self._groups.get(id(base), [base]) for base in (source, copy))
        if one is not other:
            one.extend(other)
            self._groups.update((id(base), one) for base in one)

    def note_other(self, copy: Base, other: Base) -> None:
        """Another tensor in the memory of a copy."""
        if id(copy) in self._groups:
            self.note_copy(copy, other)

    def note_write(self, written: Base) -> None:
        for base in self._groups.get(id(written), ()):
            if base is not written:
                self._stale.add(id(base))
                self.show = self.show or base.input is not None

    def note_read(self, alias: Alias) -> None:
        self.show = self.show or id(alias.base) in self._stale

    def note_outputs(self, outputs: Iterable[Any]) -> None:
        returned = {id(base): base for one in outputs if type(one) is FakeTensor for base in (one.node.base,)}
        for base in returned.values():
            others = (other for other in self._groups.get(id(base), ()) if other is not base)
            self.show = self.show or any(other.input is not None or id(other) in returned for other in others)
