"""Numbers that the program draws from Python's random generators.

In:     calls of the `random` module's functions, and of methods of `random.Random` objects from outside.
Out:    symbolic numbers without a known value: the entry draws them, in order, before the graph runs.
Holds:  generators advance as they do in eager. What is drawn by value alone (a shuffled list) is a break, and so is a
        branch on a drawn number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import TABLE, Args, Kwargs
from pliant.capture.trace import Draw
from pliant.guards.sources import DrawSource, held

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

# Method -> what its arguments say of the numbers: kind, least, greatest.
_Range = tuple[type, float, float]
_ANY: _Range = (float, -math.inf, math.inf)


def _between(low: float, high: float) -> _Range:
    return float, min(low, high), max(low, high)


def _integers(start: int, stop: int | None = None, step: int = 1) -> _Range:
    values = range(start) if stop is None else range(start, stop, step)
    return int, min(values), max(values)


def _one_of(values: Any) -> _Range:
    kinds = set(map(type, values))
    if kinds not in ({int}, {float}):
        raise GraphBreak("random-state", "a choice among what are no numbers")
    return kinds.pop(), min(values), max(values)


_NUMBERS: dict[str, Callable[..., _Range]] = {
    "random": lambda: (float, 0.0, 1.0),
    "uniform": _between,
    "triangular": lambda low=0.0, high=1.0, mode=None: _between(low, high),
    "randint": lambda a, b: (int, a, b),
    "randrange": _integers,
    "getrandbits": lambda k: (int, 0, 2**k - 1),
    "choice": _one_of,
    **{
        name: lambda *args: _ANY
        for name in "gauss normalvariate lognormvariate expovariate betavariate gammavariate paretovariate".split()
    },
}


def draw(t: Tracer, generator: random.Random, name: str, args: Args, kwargs: Kwargs) -> Any:
    """generator.name(*args), where the generator lives outside the trace."""
    values = tuple(t.concrete_tree(t.internalize(a)) for a in args)
    plain = all(type(v) in (int, float, str, bool, type(None), list, tuple) for v in values)
    if not plain or kwargs or type(generator) is not random.Random or name not in (*_NUMBERS, "seed"):
        raise GraphBreak("random-state", f"random.{name}")
    if name == "seed" and not values:
        raise GraphBreak("random-state", "random.seed without a seed")
    source = t.world.source_of(generator) or held(generator, "random")
    number = len(t.draws)
    if name == "seed":
        t.draws.append(Draw(source, name, values))
        return None
    try:
        kind, low, high = _NUMBERS[name](*values)
    except (TypeError, ValueError):  # eager words it
        raise GraphBreak("random-state", f"random.{name} of these arguments") from None
    if kind is int and not -(2**62) < low <= high < 2**62:
        raise GraphBreak("random-state", f"random.{name} of large numbers")
    t.draws.append(Draw(source, name, values))
    symbol = t.shape_env.create_unbacked_number(DrawSource(number), kind, low, high, f"random.{name}()")
    return t.inputs.wrap(symbol)


def _row(name: str) -> Callable[[Tracer, Args, Kwargs], Any]:
    return lambda t, args, kwargs: draw(t, _GLOBAL, name, args, kwargs)


_GLOBAL: random.Random = random.random.__self__  # type: ignore[attr-defined]
for _name in ("seed", "shuffle", "sample", "choices", "getstate", "setstate", *_NUMBERS):
    TABLE[getattr(random, _name)] = _row(_name)
