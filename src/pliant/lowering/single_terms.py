"""Sums of which one term at most is not zero.

In:     the value that a loop sums, and the loop.
Out:    the sum without a loop, where the value is chosen at one point of it and 0 elsewhere: `sum(r) where(r == t and c, v, 0)`.
Holds:  neither `t` nor `c` nor `v` varies along the loop. Where `t` is no point of it the sum is 0. A sum of -0.0 and zeros is 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from pliant.ir.loops import Axis
from pliant.ir.scalar import (
    Apply,
    IndexValue,
    Scalar,
    apply,
    cast,
    const,
    index_expressions,
    index_value,
    is_const,
    where,
)
from pliant.symbolic.expr import Symbol


def sum_of_single_term(value: Scalar, axes: Sequence[Axis]) -> Scalar | None:
    """The sum of `value` over `axes`, in its dtype; None if more terms of it may count."""
    if len(axes) != 1:
        return None
    term = _single_term(value, axes[0])
    return None if term is None else apply("add", term, const(0, value.dtype))


def _single_term(value: Scalar, axis: Axis) -> Scalar | None:
    if not isinstance(value, Apply):
        return None
    if value.op == "cast":
        term = _single_term(value.args[0], axis)
        return None if term is None else cast(term, value.dtype)
    if value.op != "where" or not is_const(value.args[2], 0):
        return None
    conditions = list(_conditions(value.args[0]))
    here = next((c for c in conditions if _place(c, axis.symbol) is not None), None)
    others = [c for c in conditions if c is not here]
    if here is None or any(_varies(x, axis.symbol) for x in (value.args[1], *others)):
        return None
    place = _place(here, axis.symbol)
    assert place is not None
    chosen = apply("bit_and", apply("ge", place, const(0, torch.int64)), apply("lt", place, index_value(axis.extent)))
    for c in others:
        chosen = apply("bit_and", chosen, c)
    return where(chosen, value.args[1], value.args[2])


def _conditions(x: Scalar) -> Iterator[Scalar]:
    """What all has to hold for `x` to hold."""
    if isinstance(x, Apply) and x.op == "bit_and":
        for arg in x.args:
            yield from _conditions(arg)
    else:
        yield x


def _place(condition: Scalar, symbol: Symbol) -> Scalar | None:
    """The point of the loop that the condition asks for, if it asks for one."""
    if not isinstance(condition, Apply) or condition.op != "eq":
        return None
    for position, place in (condition.args, condition.args[::-1]):
        if isinstance(position, IndexValue) and position.expr is symbol and position.dtype is torch.int64:
            return None if _varies(place, symbol) else place
    return None


def _varies(x: Scalar, symbol: Symbol) -> bool:
    return any(symbol in e.free for e in index_expressions(x))
