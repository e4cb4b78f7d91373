"""Sums that are written out become loops where their parts repeat, and nothing else does."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from pliant.codegen.cuda.rerolled import rerolled
from pliant.ir.loops import Buffer
from pliant.ir.scalar import Scalar, apply, cast, const, index_value, load, substitute, where
from pliant.symbolic.expr import Symbol, lit

f32 = torch.float32
ROW, I = Symbol("n0"), Symbol("x0")
IMAGE = Buffer("image", f32, (ROW * 64,), (lit(1),), torch.device("cpu"), "input")
WEIGHT = Buffer("weight", f32, (lit(64),), (lit(1),), torch.device("cpu"), "input")


def inside(e: object) -> Scalar:
    return apply("ge", index_value(e), const(0, torch.int64))


def window(rows: int, columns: int, at: Callable[[int, int], object], other: Callable[[int, int], Scalar] | None = None) -> Scalar:
    total: Scalar = const(0, f32)
    for i in range(rows):
        for j in range(columns):
            e = at(i, j)
            met = where(inside(e), load(IMAGE, e), const(0, f32) if other is None else other(i, j))
            total = apply("fma", met, load(WEIGHT, lit(columns * i + j)), total)
    return total


def regular(i: int, j: int) -> object:
    return I + ROW * i + (j - 3)


def written_out(total: Scalar) -> Scalar:
    """The sum, with all numbers of turns put in."""
    (one,) = rerolled(total)
    assert one.total is total
    found = one.begin
    for k in range(one.turn.extent.as_int()):
        turn = substitute(one.value, {one.turn.symbol: lit(k)})
        carried = substitute(one.carried, {})
        found = _put(turn, carried, found)
    return found


def _put(x: Scalar, carried: Scalar, value: Scalar) -> Scalar:
    if x is carried:
        return value
    a, b, rest = x.args
    return apply("fma", a, b, _put(rest, carried, value))


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (5, 5), (7, 7), (4, 5), (9, 2)])
def test_rows_are_turns(rows, columns):
    total = window(rows, columns, regular)
    (one,) = rerolled(total)
    assert one.turn.extent.as_int() == rows
    assert written_out(total) is total


def test_what_surrounds_a_sum_stays():
    total = window(5, 5, regular)
    value = cast(apply("exp", total), torch.bfloat16)
    (one,) = rerolled(value)
    assert one.total is total and one.begin is const(0, f32)


IRREGULAR = {
    "one place moved": lambda: window(5, 5, lambda i, j: regular(i, j) + (1 if (i, j) == (4, 1) else 0)),
    "uneven rows": lambda: window(5, 5, lambda i, j: I + ROW * (i * i) + j),
    "another constant": lambda: window(5, 5, regular, lambda i, j: const(float(i == 2), f32)),
    "zero of another sign": lambda: window(5, 5, regular, lambda i, j: const(-0.0 if i == 1 else 0.0, f32)),
    "a product more": lambda: apply("fma", load(IMAGE, I), load(WEIGHT, lit(50)), window(5, 5, regular)),
    "two turns": lambda: window(2, 9, regular),
    "few products": lambda: window(3, 3, regular),
}


@pytest.mark.parametrize("name", IRREGULAR)
def test_what_does_not_repeat_is_left(name):
    assert rerolled(IRREGULAR[name]()) == []


def test_equal_nans_repeat():
    assert len(rerolled(window(5, 5, regular, lambda i, j: const(math.nan, f32)))) == 1
