"""What must hold of every expression; a function that raises AssertionError for each, used here and by `fuzz.py`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tests.symbolic.programs import SYMBOLS, Choose, Tree, build, meaning, tree

from pliant.symbolic import expr as x
from pliant.symbolic.bounds import Interval, bounds
from pliant.symbolic.facts import Contradiction, Facts
from pliant.symbolic.printer import to_python
from pliant.symbolic.traverse import evaluate, substitute

UNDEFINED = (ZeroDivisionError, OverflowError, ValueError)


RANGES = [Interval(0, math.inf), Interval(2, math.inf), Interval(-6, math.inf), Interval(-9, -1), Interval(-5, 6)]


@dataclass(frozen=True)
class Round:
    """A tree; facts over symbols in a range, and what they were asked."""

    tree: Tree
    facts: list[Tree]
    question: Tree
    range: Interval


def same(a: Any, b: Any) -> bool:
    """Equal values of the same type; NaN equals NaN, and the zeros differ."""
    if isinstance(a, float) or isinstance(b, float):
        return repr(float(a)) == repr(float(b)) and type(a) is type(b)
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def build_or_none(t: Tree) -> x.Expr | None:
    try:
        return build(t)
    except UNDEFINED:
        return None


def points(choose: Choose, count: int, lo: int, hi: int) -> list[list[int]]:
    return [[lo + choose(hi - lo + 1) for _ in SYMBOLS] for _ in range(count)]


def check_value(t: Tree, values: list[int]) -> None:
    """The canonical form, its text and its pieces put together again all mean what the tree means."""
    e = build_or_none(t)
    if e is None:
        return
    try:
        expected = meaning(t, values)
    except UNDEFINED:
        return
    at = dict(zip(SYMBOLS, values, strict=True))
    got = evaluate(e, at)
    assert same(got, expected), f"{e} at {values}: {got}, expected {expected}, from {t}"
    text = to_python(e)
    names = {s.name: v for s, v in at.items()}
    assert same(eval(text, {"math": math}, names), expected), f"text {text} at {values}, from {t}"
    try:
        constant = substitute(e, {s: x.lit(v) for s, v in at.items()})
    except UNDEFINED:
        return  # in a branch that is not taken
    assert constant is x.lit(expected) or not constant.is_const and constant.kind is float, (
        f"{e} at {values} folds to {constant}, expected {expected}"
    )


def check_bounds(t: Tree, box: list[tuple[int, int]], values: list[int]) -> None:
    """The value lies in the interval computed from the box that holds the symbols."""
    e = build_or_none(t)
    if e is None:
        return
    try:
        value = evaluate(e, dict(zip(SYMBOLS, values, strict=True)))
        meaning(t, values)
    except UNDEFINED:
        return
    ranges = {s: Interval(lo, hi) for s, (lo, hi) in zip(SYMBOLS, box, strict=True)}
    r = bounds(e, lambda part: ranges.get(part) if isinstance(part, x.Symbol) else None)
    assert value != value or r.lo <= value <= r.hi, f"{e} = {value} at {values} not in {r} for {box}"


def check_facts(trees: list[Tree], question: Tree, r: Interval, samples: list[list[int]]) -> None:
    """After learning facts, whatever is proved or simplified agrees with every sample that satisfies the facts."""
    asked = build_or_none(question)
    learnt = [e for e in map(build_or_none, trees) if e is not None and e.kind is bool]
    if asked is None:
        return
    facts = Facts()
    for s in SYMBOLS:
        facts.set_range(s, r)
    try:
        for e in learnt:
            facts.learn(e)
        simple = facts.simplify(asked)
        known = facts.prove(simple) if asked.kind is bool else None
    except Contradiction:
        simple, known, facts = asked, None, None  # type: ignore[assignment]
    except UNDEFINED:
        return
    for values in samples:
        at = dict(zip(SYMBOLS, values, strict=True))
        try:
            if not all(evaluate(e, at) for e in learnt):
                continue
            expected = meaning(question, values)
        except UNDEFINED:
            continue
        assert facts is not None, f"{learnt} hold at {values} but were called contradictory"
        for s, found in facts.ranges.items():
            assert found.lo <= at[s] <= found.hi, f"{learnt} hold at {values} but {s} in {found}"
        got = evaluate(simple, at)
        assert same(got, expected), f"{asked} became {simple} under {learnt}: {got} at {values}, expected {expected}"
        assert known in (None, expected), f"{asked} proved {known} under {learnt}, but is {expected} at {values}"


def check_random(choose: Choose) -> Round:
    """One round of everything, on values."""
    integers = choose(3) > 0
    kind = "iiib"[choose(4)] if integers else "iiibf"[choose(5)]
    t = tree(choose, kind, 2 + choose(4), integers)
    for values in points(choose, 3, -9, 9):
        check_value(t, values)
    box = [(low, low + choose(12)) for low in (choose(16) - 8 for _ in SYMBOLS)]
    for _ in range(3):
        check_bounds(t, box, [lo + choose(hi - lo + 1) for lo, hi in box])
    trees = [tree(choose, "b", 1 + choose(3), integers) for _ in range(choose(4))]
    question = tree(choose, "bbi"[choose(3)], 1 + choose(4), integers)
    r = RANGES[choose(len(RANGES))]
    check_facts(trees, question, r, points(choose, 24, int(r.lo), int(min(r.hi, 10))))
    return Round(t, trees, question, r)
