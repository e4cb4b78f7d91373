"""What makes calls faster and takes longer than one call gains: first calls do without it, and it is done before an entry serves
its second call.

In:     `use(work)`: such work, once a process. It returns whether it was done; where it was not, another call tries it.
Out:    `left()`: whether there is some; `prepared()` does it.
"""

from __future__ import annotations

from collections.abc import Callable

Work = Callable[[], bool]

_left: tuple[Work, ...] = ()


def use(work: Work) -> None:
    """Have this done before the next call that is an entry's second."""
    global _left
    _left = (*_left, work)


def left() -> bool:
    """Whether there is work that no second call has done."""
    return bool(_left)


def prepared() -> bool:
    """Whether there is none, once what is left has been tried. Threads that are here at once may do the same work."""
    global _left
    for work in _left:
        if work():
            _left = tuple(other for other in _left if other is not work)
    return not _left
