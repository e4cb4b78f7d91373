"""What the program draws from the random generators of Python and NumPy.

In:     calls of the functions of `random` and `numpy.random`, and of methods of generators.
Out:    symbolic numbers without a known value, arrays as inputs of the graph: the entry draws them, in order, before the
        graph runs. A generator that the trace made and seeded draws at capture.
Holds:  generators advance as they do in eager. What kind of value is drawn is found on a copy of the generator; a choice
        among objects is a break, and so is a branch on a drawn number.
"""

from __future__ import annotations

import copy
import functools
import math
import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant import config
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Args, Kwargs, Rows
from pliant.capture.numbers.arrays import constant_array, real_tensor, wrap
from pliant.capture.numbers.numpy_scalars import wrap_scalar
from pliant.capture.structures import leaves
from pliant.capture.trace import Draw, DrawnState
from pliant.capture.value_kinds import is_numpy_scalar
from pliant.guards.sources import DrawSource, held

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

ROWS = Rows()
TABLE = ROWS.callables

# Method -> what its arguments say of the numbers: kind, least, greatest.
_Range = tuple[type, float, float]
_ANY: _Range = (float, -math.inf, math.inf)


def _between(a: float, b: float) -> _Range:
    return float, min(a, b), max(a, b)


def _integers(start: int, stop: int | None = None, step: int = 1) -> _Range:
    values = range(start) if stop is None else range(start, stop, step)
    return int, min(values), max(values)


def _one_of(seq: Any) -> _Range:
    kinds = set(map(type, seq))
    if kinds not in ({int}, {float}):
        raise GraphBreak("random-state", "a choice among what are no numbers")
    return kinds.pop(), min(seq), max(seq)


_NUMBERS: dict[str, Callable[..., _Range]] = {
    "random": lambda: (float, 0.0, 1.0),
    "uniform": _between,
    "triangular": lambda low=0.0, high=1.0, mode=None: _between(low, high),
    "randint": lambda a, b: (int, a, b),
    "randrange": _integers,
    "getrandbits": lambda k: (int, 0, 2**k - 1),
    "choice": _one_of,
    "shuffle": lambda x: _one_of(x),
    "choices": lambda population, *args, **kwargs: _one_of(population),
    "sample": lambda population, *args, **kwargs: _one_of(population),
}


_STATES = ("seed", "getstate", "setstate")


def is_generator(value: Any) -> bool:
    """Whether it is a random generator of Python's or NumPy's."""
    if type(value) is random.Random:
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) in (numpy.random.RandomState, numpy.random.Generator)


def draw(t: Tracer, generator: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """generator.name(*args, **kwargs)"""
    values = tuple(map(t.plain, args))
    named = {k: t.plain(v) for k, v in kwargs.items()}
    if not all(map(_is_plain, (*values, *named.values()))):
        raise GraphBreak("random-state", f"{name} of a random generator")
    values, named = copy.deepcopy((values, named))  # which the program may change
    if id(generator) in t.world.made:
        return _given(t, t.native(getattr(generator, name), *values, **named))
    source = t.world.source_of(generator) or held(generator, "random")
    is_pythons = type(generator) is random.Random
    if name in _STATES:
        return _set_state(t, Draw(source, name, values, named))
    try:
        range_ = _NUMBERS[name](*values, **named) if name in _NUMBERS and is_pythons else _ANY
        example = (
            shuffled(copy.copy(generator), values[0])
            if name == "shuffle"
            else getattr(copy.deepcopy(generator), name)(*values, **named)
        )
    except Exception:  # eager words it
        raise GraphBreak("random-state", f"{name} of a random generator with these arguments") from None
    if name == "shuffle":
        own = t.world.adopt(t.world.resolve(args[0]))
        if not is_pythons or type(own) is not list:
            raise GraphBreak("random-state", f"shuffle of a {type(own).__name__}")
        own[:] = _drawn(t, Draw(source, shuffled, values, named), example, range_)
        return None
    return _drawn(t, Draw(source, name, values, named), example, range_)


def _is_plain(value: Any) -> bool:
    return all(type(one) in _PLAIN or is_numpy_scalar(one) for one in leaves(value))


_PLAIN = frozenset((int, float, str, bool, type(None), range, type, DrawnState))


def shuffled(generator: random.Random, values: list[Any]) -> list[Any]:
    """What `generator.shuffle` makes of a list."""
    values = list(values)
    generator.shuffle(values)
    return values


def _set_state(t: Tracer, one: Draw) -> Any:
    if one.method == "seed" and (not one.args or one.args[0] is None) and not one.kwargs:
        raise GraphBreak("random-state", "random.seed without a seed")
    if one.method == "setstate" and not isinstance(one.args[0], DrawnState):
        raise GraphBreak("random-state", "random.setstate of a state from outside")
    t.draws.append(one)
    if one.method != "getstate":
        return None
    state = DrawnState(len(t.draws) - 1)
    t.world.set_origin(state, DrawSource(state.index))
    return state


def _drawn(t: Tracer, one: Draw, example: Any, range_: _Range) -> Any:
    """What stands for the drawn value during the trace."""
    index = len(t.draws)
    if type(example) is list and {int, float}.issuperset(map(type, example)):
        one.count = len(example)
        t.draws.append(one)
        return [_number(t, DrawSource(index, i), v, range_) for i, v in enumerate(example)]
    if type(example) in (int, float):
        number = _number(t, DrawSource(index), example, range_)
        t.draws.append(one)
        return number
    if type(example).__name__ != "ndarray" and not is_numpy_scalar(example):
        raise GraphBreak("random-state", f"{one.method} of a random generator gives a {type(example).__name__}")
    one.is_array = True
    t.draws.append(one)
    tensor = t.inputs.drawn_tensor(real_tensor(sys.modules["numpy"].asarray(example)), DrawSource(index))
    return wrap_scalar(tensor) if is_numpy_scalar(example) else wrap(tensor)


def _number(t: Tracer, source: DrawSource, example: int | float, range_: _Range) -> Any:
    if not config.get().shapes.symbols:
        raise GraphBreak("random-state", "a random number, where no number may be a symbol")
    kind, low, high = range_
    if kind is not type(example):
        kind, low, high = type(example), -math.inf, math.inf
    if kind is int:
        low, high = max(low, -(2**62)), min(high, 2**62)
        if not low <= example <= high:
            raise GraphBreak("random-state", "random numbers that are large")
    symbol = t.shape_env.create_unbacked_number(source, kind, low, high, "a random number")
    return t.inputs.wrap(symbol)


def _given(t: Tracer, value: Any) -> Any:
    return constant_array(t, value) if type(value).__name__ == "ndarray" else value


_GLOBAL: random.Random = random.random.__self__  # type: ignore[attr-defined]
_UNBOUNDED = "gauss normalvariate lognormvariate expovariate betavariate gammavariate paretovariate".split()
for _name in (*_STATES, *_UNBOUNDED, *_NUMBERS):
    TABLE[getattr(random, _name)] = functools.partial(
        lambda name, t, args, kwargs: draw(t, _GLOBAL, name, args, kwargs), _name
    )


# ---- NumPy's
def call_numpy_random(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """`numpy.random.seed` and `default_rng`; NotImplemented for all else."""
    name = getattr(function, "__name__", "")
    if getattr(function, "__module__", "") != "numpy.random" or name not in ("seed", "default_rng"):
        return NotImplemented
    numpy = sys.modules["numpy"]
    if name == "seed":
        return draw(t, numpy.random.mtrand._rand, name, args, kwargs)
    return make_generator(t, numpy.random.default_rng, args, kwargs)


def make_generator(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A generator of NumPy's with a seed."""
    values = list(map(t.plain, (*args, *kwargs.values())))
    if not values or values[0] is None or not all(map(_is_plain, values)):
        raise GraphBreak("random-state", "a random generator without a seed")
    made = t.native(function, *values[: len(args)], **dict(zip(kwargs, values[len(args) :])))
    t.world.made[id(made)] = made
    return made
