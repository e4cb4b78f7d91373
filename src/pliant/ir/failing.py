"""Which computations may fail on their data.

In:     a computation, or a scalar.
Out:    whether running it may be an error: an index out of range, an integer division, an operator of eager PyTorch that
        is not known to take whatever its arguments hold.
Reads on: `schedule/schedule.py`, which has such computations run before the first write of an input: where one fails, eager
does the call again, on inputs that are as they were.
"""

from __future__ import annotations

from pliant.graph.failing import operator_may_fail
from pliant.ir.loops import Computation, Extern, Pointwise
from pliant.ir.scalar import Apply, Scalar, walk

_INTEGER_DIVISIONS = frozenset(("floordiv", "truncdiv", "remainder", "fmod", "div"))


def may_fail(computation: Computation) -> bool:
    """Whether running it may be an error."""
    if isinstance(computation, Extern):
        return bool(computation.defines) or operator_may_fail(computation.target)
    looked_up = [value for _, value in computation.indirect] if isinstance(computation, Pointwise) else []
    return any(map(value_may_fail, (computation.value, *looked_up)))


def value_may_fail(value: Scalar) -> bool:
    return any(
        isinstance(x, Apply)
        and (x.op == "check_index" or x.op in _INTEGER_DIVISIONS and not x.dtype.is_floating_point)
        for x in walk(value)
    )  # fmt: skip
