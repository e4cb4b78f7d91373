"""The block of memory that a recording begins with: the one with which it takes least from the GPU."""

import pytest

from pliant.runtime.cuda.room import Needs, least_room

MB = 1 << 20


@pytest.mark.parametrize(
    "alone, beyond, room, tries",
    [
        (400, lambda room: 0, 200, [0, 200]),  # all fits into what is there at once
        (400, lambda room: 60 if room < 220 else 0, 225, [0, 200, 225]),  # but for gaps
        (300, lambda room: 150, 0, [0, 200, 225, 250]),  # the library takes as much as a block spares
        (300, lambda room: 75, 200, [0, 200, 225, 250]),  # or less
        (210, lambda room: 0, 0, [0]),  # nothing to spare
    ],
)
def test_the_least(alone, beyond, room, tries):
    tried = []

    def try_with(size):
        tried.append(size // MB)
        return Needs(200 * MB, alone * MB if not size else size + beyond(size // MB) * MB)

    assert (least_room(try_with) // MB, tried) == (room, tries)
