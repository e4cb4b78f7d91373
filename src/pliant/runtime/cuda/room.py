"""Where the tensors of a recording lie, so that it takes no more memory than they do at once.

In:     the allocations of work, as seen when it was captured before.
Out:    `plan`: a place for each in the free blocks of a pool and in one that is added. `fillers`: what to allocate first,
        for a while, so that PyTorch's allocator gives a tensor its place.
Holds:  a plan is a preference. Where memory turns out otherwise a tensor lies where the allocator puts it, and nothing is
        wrong but the size of the pool.

PyTorch gives a tensor the smallest free block that it fits in. Where tensors grow (as channels do in a network of
convolutions) what stays lies amid what was freed, so hardly a later one finds room, and a pool takes from the GPU up to
twice what there is at a time. When all allocations are known, each can be given a place that leaves room for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pliant.records import dataclass

LEAST = 1 << 20  # bytes: PyTorch allocates what is not larger elsewhere
GRAIN = 2 << 20  # bytes: it takes multiples from the GPU


@dataclass(frozen=True, slots=True)
class Allocation:
    """`size` bytes that the operator `at` allocates and that are free again when the operator `until` begins."""

    at: int
    until: int
    size: int


@dataclass(frozen=True, slots=True)
class Place:
    """`size` bytes in a block, from its byte `offset` on."""

    block: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`places`: of what each operator allocates. `added`: the bytes of the last block, which is not there yet."""

    places: dict[int, list[Place]]
    added: int


def most_at_once(allocations: Sequence[Allocation]) -> int:
    """Bytes that are allocated at a time, at most."""
    changes = sorted([(a.at, a.size) for a in allocations] + [(a.until, -a.size) for a in allocations])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


ORDERS: tuple[Callable[[Allocation], int], ...] = (
    lambda a: -a.size,
    lambda a: -a.size * (a.until - a.at),
    lambda a: a.at - a.until,
)


def plan(allocations: Sequence[Allocation], blocks: Sequence[int]) -> Plan:
    """Places in free blocks of these sizes (bytes), and in one that grows: of some orders in which to place what is
    allocated, the one that adds least."""
    plans = [_in_order(sorted(allocations, key=order), blocks) for order in ORDERS]
    return min(plans, key=lambda found: found.added)


def _in_order(allocations: Sequence[Allocation], blocks: Sequence[int]) -> Plan:
    """Each in the smallest gap that is free as long as it lives."""
    endless = 2 * sum(a.size for a in allocations) + max(blocks, default=0)
    laid: list[list[tuple[int, Allocation]]] = [[] for _ in [*blocks, 0]]
    places: dict[int, list[Place]] = {}
    for one in allocations:
        gaps = []
        for block, (size, others) in enumerate(zip([*blocks, endless], laid)):
            busy = [(offset, a.size) for offset, a in others if a.at < one.until and one.at < a.until]
            gaps += [(n, block, offset) for offset, n in gaps_between(busy, 0, size) if n >= one.size]
        _, block, offset = min(gaps)
        laid[block].append((offset, one))
        places.setdefault(one.at, []).append(Place(block, offset, one.size))
    added = max((offset + one.size for offset, one in laid[-1]), default=0)
    return Plan(places, -(-added // GRAIN) * GRAIN)


def gaps_between(busy: Iterable[tuple[int, int]], start: int, size: int) -> list[tuple[int, int]]:
    """Where the gaps are, and how long, from `start` on for `size` bytes. `busy`: beginnings and sizes of what lies there."""
    gaps = []
    free = start
    for begin, taken in sorted(busy):
        if begin > free:
            gaps.append((free, begin - free))
        free = max(free, begin + taken)
    return [*gaps, (free, start + size - free)] if free < start + size else gaps


@dataclass(frozen=True, slots=True)
class Filler:
    """Memory to allocate before an operator runs, and to free then, or, if it holds a place for it, just before."""

    size: int
    holds_place: bool


def fillers(places: Iterable[tuple[int, int]], gaps: Iterable[tuple[int, int]]) -> list[Filler]:
    """What is to be allocated, in this order, for the gaps at these places (address, size) to be the smallest that what
    belongs there fits in. `gaps`: what is free. Places that are not are left out."""
    free = sorted((size, begin) for begin, size in gaps if size > LEAST)
    cut: dict[tuple[int, int], tuple[list[Filler], int]] = {}
    for place, size in sorted(places):
        gap = next(((n, begin) for n, begin in free if begin <= place and place + size <= begin + n), None)
        if gap is not None:
            pieces, end = cut.get(gap, ([], gap[1]))
            before = [Filler(place - end, False)] if place - end > LEAST else []
            end += sum(piece.size for piece in before) + size
            cut[gap] = ([*pieces, *before, Filler(size, True)], end)
    if not cut:
        return []
    smallest = min(piece.size for pieces, _ in cut.values() for piece in pieces)
    found = []
    for size, begin in free[: free.index(max(cut)) + 1]:
        pieces, end = cut.get((size, begin), ([], begin))
        found += pieces
        if begin + size - end >= max(smallest, LEAST + 1) and (size, begin) != max(cut):
            found.append(Filler(begin + size - end, False))
    return found
