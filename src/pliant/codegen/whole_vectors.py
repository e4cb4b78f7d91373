"""Which loops on vectors a number of points needs: one of several whole vectors at a time, one of what these leave.

In:     what is known of the number of points, and how many vectors the first loop takes at a time.
Out:    the lines around each loop: none where every machine runs it, `#if` where machines with some length of vectors do,
        None where no machine does.
Holds:  a loop that is left out would have run no turn. The compiler finds that out as well, once it has done most of its
        work on that loop: half of a kernel's text, where its rows are whole vectors.
"""

from __future__ import annotations

from pliant.records import dataclass

LANES = (4, 8, 16)  # of a vector, by the machine: `P_L`

Around = tuple[list[str], list[str]]


@dataclass(frozen=True, slots=True)
class Points:
    """What is known of how many points a loop has: a multiple of `multiple`, `most` at most."""

    multiple: int = 1
    most: int | None = None


def around_whole(points: Points, at_once: int) -> Around | None:
    """What is around the loop that takes `at_once` whole vectors at a time."""
    lanes = [n for n in LANES if points.most is None or n * at_once <= points.most]
    return _around(lanes, f"#if P_L <= {lanes[-1]}" if lanes else "")


def around_rest(points: Points, at_once: int) -> Around | None:
    """What is around the loop that takes what the other leaves."""
    lanes = [n for n in LANES if points.multiple % (n * at_once)]
    return _around(lanes, f"#if P_L >= {lanes[0]}" if lanes else "")


def _around(lanes: list[int], condition: str) -> Around | None:
    if not lanes:
        return None
    return ([], []) if len(lanes) == len(LANES) else ([condition], ["#endif"])
