"""Copies that are views at some sizes: `reshape` and `contiguous` copy no elements that lie in order already.

In:     in a trace that is to serve sizes other than those at hand: each clone, each write, each read, the outputs.
Out:    `show`: whether a caller could tell the copies from views. Then the question which they are needs a guard.
Holds:  told apart are they by a write that is read through the other of both, and by outputs that share memory with
        an input or with one another. Outputs with no element in common share none that a write would show.

    y = x.transpose(0, 1).contiguous()      a view of x where x.size(0) is 1
    y.add_(1); return x                     where it shows
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pliant.autograd.aliases import Alias, Base
from pliant.autograd.regions import Known, disjoint
from pliant.graph.fake_tensor import FakeTensor


class CopiesInDoubt:
    """`_groups`: by the id of a base all that may be one memory with it. `_stale`: bases whose value is another one if so.
    `_sources`: by the id of a copy of what is no copy itself: that base, and what is copied of it. `known`: what holds."""

    def __init__(self, known: Known) -> None:
        self.show, self._known = False, known
        self._sources: dict[int, tuple[Base, FakeTensor]] = {}
        self._groups: dict[int, list[Base]] = {}
        self._stale: set[int] = set()

    def note_copy(self, source: Base, copy: Base) -> None:
        one, other = (self._groups.get(id(base), [base]) for base in (source, copy))
        if one is not other:
            one.extend(other)
            self._groups.update((id(base), one) for base in one)

    def note_copy_of(self, source: FakeTensor, copy: Base) -> None:
        base = source.node.base
        if id(base) not in self._sources:
            self._sources[id(copy)] = base, source
        self.note_copy(base, copy)

    def note_other(self, copy: Base, other: Base) -> None:
        """Another tensor in the memory of a copy."""
        if id(copy) in self._groups:
            self._sources.pop(id(copy), None)
            self.note_copy(copy, other)

    def note_write(self, written: Base) -> None:
        for base in self._groups.get(id(written), ()):
            if base is not written:
                self._stale.add(id(base))
                self.show = self.show or base.input is not None

    def note_read(self, alias: Alias) -> None:
        self.show = self.show or id(alias.base) in self._stale

    def note_outputs(self, outputs: Iterable[Any]) -> None:
        returned: dict[int, list[FakeTensor]] = {}
        for one in outputs:
            if type(one) is FakeTensor and id(one.node.base) in self._groups:
                returned.setdefault(id(one.node.base), []).append(one)
        for fakes in returned.values():
            base = fakes[0].node.base
            for other in self._groups[id(base)]:
                if other is not base and not self.show:
                    theirs = returned.get(id(other), ())
                    apart = all(self._are_apart(a, b) for a in fakes for b in theirs)
                    self.show = other.input is not None or not apart

    def _are_apart(self, one: FakeTensor, other: FakeTensor) -> bool:
        """Whether outputs on two bases have no element in common, should these be one memory."""
        (base, place), (memory, room) = map(self._place, (one, other))
        return base is memory and disjoint(place, room, self._known)

    def _place(self, output: FakeTensor) -> tuple[Base, FakeTensor]:
        """In which memory it would lie, and as what."""
        return self._sources.get(id(output.node.base), (output.node.base, output))
