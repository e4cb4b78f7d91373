"""Where the tensors of a recording lie: as low as they fit, and where PyTorch's allocator can be brought to put them."""

import random

import pytest

from pliant.runtime.cuda.room import GRAIN, Allocation, fillers, gaps_between, most_at_once, plan

MB = 1 << 20


class BestFit:
    """What PyTorch's allocator is known to do for large tensors: the smallest free block, cut if more than 1 MB is left."""

    def __init__(self, *blocks):
        self.owned = []
        self.free = {}
        for size in blocks:
            self.add(size)

    def add(self, size):
        begin = (len(self.owned) + 1) << 40
        self.owned.append(size)
        self.free[begin] = size

    def allocate(self, size):
        fitting = [(n, begin) for begin, n in self.free.items() if n >= size]
        if not fitting:
            self.add(-(-size // GRAIN) * GRAIN)
            return self.allocate(size)
        room, begin = min(fitting)
        del self.free[begin]
        if room - size > MB:
            self.free[begin + size] = room - size
            return begin, size
        return begin, room

    def give_back(self, memory):
        begin, size = memory
        before = next((b for b, n in self.free.items() if b + n == begin), begin)
        size += self.free.pop(before, 0) + self.free.pop(begin + size, 0)
        self.free[before] = size


def run(allocations, memory, planned=None, blocks=()):
    """The bytes that are taken in the end. `blocks`: where the plan's are."""
    live = {}
    for now in range(max(a.until for a in allocations)):
        for one in [a for a in live if a.until == now]:
            memory.give_back(live.pop(one)[0])
        held = []
        if planned:
            inside = [[(m[0], n) for m, n in live.values() if b <= m[0] < b + size] for b, size in blocks]
            gaps = [gap for (b, size), busy in zip(blocks, inside) for gap in gaps_between(busy, b, size)]
            places = [(blocks[p.block][0] + p.offset, p.size) for p in planned.places.get(now, ())]
            made = [(memory.allocate(f.size), f.holds_place) for f in fillers(places, gaps)]
            for piece, holds_place in made:
                if holds_place:
                    memory.give_back(piece)
            held = [piece for piece, holds_place in made if not holds_place]
        live.update({a: (memory.allocate(a.size), a.size) for a in allocations if a.at == now})
        for piece in held:
            memory.give_back(piece)
    return sum(memory.owned)


def chain(*sizes):
    """Results of a network, each made of the one before, which is free then."""
    return [Allocation(k, k + 2, size * MB) for k, size in enumerate(sizes)]


def random_program(seed, at_most=2, count=60):
    pick = random.Random(seed)
    found = []
    for at in range(count):
        for _ in range(pick.choice([0, 1, 1, 1, at_most])):
            found.append(Allocation(at, at + 1 + int(pick.expovariate(0.2)), pick.randrange(3 * MB, 90 * MB, 512)))
    return found


GROWING = {
    "channels that grow": chain(24, 48, 30, 60, 36, 72, 40, 80),
    "one stays between": [Allocation(0, 3, 25 * MB), Allocation(1, 3, 25 * MB), Allocation(2, 9, 25 * MB), Allocation(3, 9, 98 * MB)],
}  # fmt: skip


@pytest.mark.parametrize("allocations", GROWING.values(), ids=[*GROWING])
def test_growing_tensors_take_what_is_there_at_once(allocations):
    most = most_at_once(allocations)
    planned = plan(allocations, [])
    memory = BestFit(planned.added)
    taken = run(allocations, memory, planned, [(1 << 40, planned.added)])
    assert most <= taken < most + GRAIN
    assert run(allocations, BestFit()) > 1.2 * most


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("blocks", [(), (80, 40), (200,)])
def test_nothing_lies_where_something_else_does(seed, blocks):
    allocations = random_program(seed)
    planned = plan(allocations, [size * MB for size in blocks])
    sizes = [*(size * MB for size in blocks), planned.added]
    pieces = {at: list(places) for at, places in planned.places.items()}
    laid = []
    for one in allocations:
        place = next(p for p in pieces[one.at] if p.size == one.size)
        pieces[one.at].remove(place)
        assert 0 <= place.offset and place.offset + place.size <= sizes[place.block]
        for other, there in laid:
            if other.at < one.until and one.at < other.until and place.block == there.block:
                assert place.offset + place.size <= there.offset or there.offset + there.size <= place.offset
        laid.append((one, place))
    assert sum(sizes) >= most_at_once(allocations)


@pytest.mark.parametrize("at_most, beyond", [(1, 1.01), (2, 1.15)])
@pytest.mark.parametrize("blocks", [(), (300, 120)])
def test_the_allocator_follows_the_plan(blocks, at_most, beyond):
    """It takes hardly more than was planned, and less than alone. Of two tensors of one operator that lie side by side it
    may give either the place of the other."""
    alone = taken = planned_for = 0
    for seed in range(8):
        allocations = random_program(seed, at_most)
        found = plan(allocations, [size * MB for size in blocks])
        sizes = [*(size * MB for size in blocks), found.added]
        places = [((k + 1) << 40, size) for k, size in enumerate(sizes)]
        taken += run(allocations, BestFit(*sizes), found, places)
        planned_for += sum(sizes)
        alone += run(allocations, BestFit(*(size * MB for size in blocks)))
    assert planned_for <= taken < beyond * planned_for
    assert taken < alone


def test_most_at_once():
    assert most_at_once([]) == 0
    assert most_at_once([Allocation(0, 1, 5), Allocation(1, 2, 7), Allocation(1, 3, 1), Allocation(2, 3, 6)]) == 8
