"""Facts about quotients and remainders, as facts that Dims can say.

In:     a fact in which sizes are divided by numbers, what else is known.
Out:    facts that together mean the same: for each size which multiple it is, and what is left to say.
Holds:  right for every choice of sizes that satisfies what is known. Each size is written as k*unit + r for every r; the
        cases that cannot be are dropped.

    batch*n == 8*batch*(n // 8)         n % 8 == 0
    side == 2*((side + 1) // 2)         side % 2 == 0
    h*w == 4*(h // 2)*(w // 2)          h % 2 == 0 and w % 2 == 0
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from pliant.symbolic import expr as x
from pliant.symbolic.bounds import Interval
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.facts import Facts
from pliant.symbolic.traverse import substitute

_MOST = 128  # cases that are looked at

Case = tuple[int, ...]  # a rest for each symbol


def plainer(fact: Expr, known: Facts) -> list[Expr]:
    """The fact as facts that Dims can say, as far as it is one of multiples."""
    steps = _steps(fact)
    if not steps or math.prod(steps.values()) > _MOST:
        return [fact]
    truths = {rests: _truth(fact, dict(zip(steps, rests)), steps, known) for rests in _cases(steps)}
    possible = [rests for rests, truth in truths.items() if truth is not False]
    if not possible:
        return [fact]
    common = [_common({rests[i] for rests in possible}, step) for i, step in enumerate(steps.values())]
    found = [(s % step).eq(rest) for s, (step, rest) in zip(steps, common) if step > 1]
    agreeing = (all(r % step == rest for r, (step, rest) in zip(rests, common)) for rests in truths)
    whole = all(truth is True for truth, agrees in zip(truths.values(), agreeing) if agrees)
    return found if whole and found else [*found, fact]


def _cases(steps: Mapping[Symbol, int]) -> Iterator[Case]:
    return itertools.product(*map(range, steps.values()))


def _steps(fact: Expr) -> dict[Symbol, int]:
    """For each size that is divided by numbers their least common multiple."""
    found: dict[Symbol, int] = {}
    for part in _parts(fact, set()):
        if type(part) in (x.FloorDiv, x.Mod) and (k := part.args[1].as_int()) and k > 1:
            for symbol in sorted(part.args[0].free, key=str):
                found[symbol] = math.lcm(found.get(symbol, 1), k)
    return found


def _parts(e: Expr, seen: set[Expr]) -> Iterator[Expr]:
    if e in seen:
        return
    seen.add(e)
    yield e
    for part in [mono for mono, _ in e.terms if mono is not e] or e.args:
        yield from _parts(part, seen)


def _truth(fact: Expr, rests: Mapping[Symbol, int], steps: Mapping[Symbol, int], known: Facts) -> bool | None:
    """Of the fact where each size has this rest; False where no size has it."""
    facts, units = known.copy(), dict[Symbol, Expr]()
    for symbol, rest in rests.items():
        step, r = steps[symbol], known.range_of(symbol)
        unit = Symbol(f"{symbol.name}_unit")
        lo = -((rest - int(r.lo)) // step) if math.isfinite(r.lo) else r.lo
        hi = (int(r.hi) - rest) // step if math.isfinite(r.hi) else r.hi
        if lo > hi:
            return False
        facts.set_range(unit, Interval(lo, hi))
        units[symbol] = unit * step + rest
    return facts.prove(facts.simplify(substitute(fact, units)))


def _common(rests: set[int], step: int) -> tuple[int, int]:
    """The largest divisor of `step` by which all have one rest, and that rest."""
    first = min(rests)
    found = math.gcd(step, *[rest - first for rest in rests])
    return found, first % found
