"""Whether two views of one memory have no element in common, at every size.

In:     fakes of both, and what is known of sizes.
Out:    True where it is proved.

    x[:, 0], x[:, 1:]    of x with strides (2*n, n, 1): within every 2*n elements one has the first n, the other the rest
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of
from pliant.symbolic.expr import Expr, lit

Known = Callable[[Expr], bool | None]


def disjoint(one: FakeTensor, other: FakeTensor, known: Known) -> bool:
    """Within some period, which all other strides are multiples of, each has its own part."""
    strides = {stride for fake in (one, other) for stride in map(lit, keys_of(fake.stride_)) if known(stride.gt(0))}
    for period in strides:
        mine, theirs = (_part(fake, period, known) for fake in (one, other))
        if mine and theirs and (known(mine[1].le(theirs[0])) or known(theirs[1].le(mine[0]))):
            return True
    return False


def _part(fake: FakeTensor, period: Expr, known: Known) -> tuple[Expr, Expr] | None:
    """From where to where its elements are in every period."""
    low: Expr = lit(keys_of([fake.offset_])[0])
    high = low + 1
    for size, stride in zip(map(lit, keys_of(fake.size_)), map(lit, keys_of(fake.stride_)), strict=True):
        if not known((stride % period).eq(0)) and not known(size.eq(1)):
            high = high + (size - 1) * stride
    return (low, high) if known(low.ge(0)) and known(high.le(period)) else None
