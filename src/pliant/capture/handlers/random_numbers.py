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
import inspect
import math
import random
import sys
from collections.abc import Callable
from typing import Any

from pliant import config
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.numbers.array_memory import is_array, real_tensor, wrap
from pliant.capture.numbers.arrays import constant_array
from pliant.capture.numbers.numpy_scalars import wrap_scalar
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_list_or_tuple, leaves, mapped
from pliant.capture.trace import Draw, DrawnState
from pliant.capture.value_kinds import (
    LITERALS,
    exactly,
    is_fixed_number,
    is_int,
    is_list,
    is_numpy_scalar,
    is_symbolic,
    plain_class,
)
from pliant.graph.unbacked import is_unbacked
from pliant.guards.sources import DrawSource, Source, held
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.symbolic.expr import Constant, Expr, lit
from pliant.symbolic.traverse import substitute

ROWS = Rows()
TABLE = ROWS.callables

_Range = tuple[type, float, float]
_ANY: _Range = (float, -math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class _Between:
    """A number between two, which may vary: its kind, the ends, and whether the last is one of them."""

    kind: type
    low: Any
    high: Any
    closed: bool = True

    def are_numbers(self) -> bool:
        return {int, self.kind}.issuperset(map(plain_class, (self.low, self.high)))


def _below(start: Any, stop: Any = None) -> _Between:
    low, high = (0, start) if stop is None else (start, stop)
    return _Between(int, low, high, False)


def _one_of(seq: Any) -> _Between:
    kinds = set(map(type, seq))
    if kinds not in ({int}, {float}):
        raise GraphBreak("random-state", "a choice among what are no numbers")
    return _Between(kinds.pop(), min(seq), max(seq))


# By the generator's class and method: what the arguments say of the numbers.
_NUMBERS: dict[tuple[str, str], Callable[..., _Between]] = {
    ("Random", "random"): lambda: _Between(float, 0.0, 1.0),
    ("Random", "uniform"): lambda a, b: _Between(float, a, b),
    ("Random", "triangular"): lambda low=0.0, high=1.0, mode=None: _Between(float, low, high),
    ("Random", "randint"): lambda a, b: _Between(int, a, b),
    ("Random", "randrange"): _below,
    ("Random", "getrandbits"): lambda k: _Between(int, 0, 2**k - 1),
    ("Random", "choice"): _one_of,
    ("Random", "shuffle"): lambda x: _one_of(x),
    ("Random", "choices"): lambda population, *args, **kwargs: _one_of(population),
    ("Random", "sample"): lambda population, *args, **kwargs: _one_of(population),
    ("RandomState", "randint"): lambda low, high=None: _below(low, high),
    ("RandomState", "uniform"): lambda low=0.0, high=1.0: _Between(float, low, high),
}
_OF_WHAT_VARIES = frozenset(("randint", "randrange", "uniform"))


# By the method of NumPy's generators: what the arguments say of the size of the array that is drawn.
_SIZES: dict[str, Callable[..., Any]] = {
    "permutation": lambda x: x,
    **dict.fromkeys(("rand", "randn"), lambda *dims: dims),
    **dict.fromkeys(("random", "random_sample", "standard_normal", "standard_exponential"), lambda size=None, **_: size),
    **dict.fromkeys(("uniform", "normal", "integers", "randint"), lambda low=0, high=None, size=None, *_, **__: size),
    "choice": lambda a, size=None, *_, **__: size,
}
_STATES = ("seed", "getstate", "setstate")


is_of_python = exactly(random.Random)
_SOURCES = {name: inspect.getattr_static(random.Random, name) for name in ("random", "getrandbits")}


def _is_patched(t: Tracer, generator: random.Random) -> bool:
    """Whether what all methods draw from is not Python's own, but as a test's mock that the program puts there."""
    own = all(t.world.type_lookup(random.Random, name) is known for name, known in _SOURCES.items())
    table = vars(generator)
    return not own or not _SOURCES.keys().isdisjoint((*table, *t.world.stores_into(table)))


def is_generator(value: Any) -> bool:
    """Whether it is a random generator of Python's or NumPy's."""
    if is_of_python(value):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) in (numpy.random.RandomState, numpy.random.Generator)


def draw(t: Tracer, generator: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """generator.name(*args, **kwargs)"""
    if is_of_python(generator) and _is_patched(t, generator):
        raise GraphBreak("random-state", f"{name} of a random generator whose methods the program replaced")
    if (varying := _of_what_varies(t, generator, name, args, kwargs)) is not None:
        return varying
    if (array := _of_varying_size(t, generator, name, args, kwargs)) is not None:
        return array
    if name == "shuffle" and not is_of_python(generator) and len(args) == 1 and is_array(args[0]):
        return _shuffle_array(t, generator, args[0])
    outside = [one for one in (*args, *kwargs.values()) if t.world.needs_guards(one)]  # a break is no reason to read all
    values = tuple(map(t.plain, args)) if all(map(_is_plain, outside)) else None
    named = {k: t.plain(v) for k, v in kwargs.items()}
    if values is None or not all(map(_is_plain, (*values, *named.values()))):
        raise GraphBreak("random-state", f"{name} of a random generator")
    values, named = copy.deepcopy((values, named))  # which the program may change
    if id(generator) in t.world.made:
        return _given(t, t.native(getattr(generator, name), *values, **named))
    source = t.world.source_of(generator) or held(generator, "random")
    if name in _STATES:
        return _set_state(t, Draw(source, name, values, named))
    try:
        range_ = _range_of(generator, name, values, named)
        example = (
            shuffled(copy.copy(generator), values[0])
            if name == "shuffle"
            else getattr(copy.deepcopy(generator), name)(*values, **named)
        )
    except Exception:  # eager words it
        raise GraphBreak("random-state", f"{name} of a random generator with these arguments") from None
    if name == "shuffle":
        own = t.world.adopt(t.world.resolve(args[0]))
        if not is_of_python(generator) or not is_list(own):
            raise GraphBreak("random-state", f"shuffle of a {type(own).__name__}")
        own[:] = _drawn(t, Draw(source, shuffled, values, named), example, range_)
        return None
    return _drawn(t, Draw(source, name, values, named), example, range_)


def _range_of(generator: Any, name: str, values: Args, named: Kwargs) -> _Range:
    """What the arguments say of the numbers."""
    try:
        found = _NUMBERS[type(generator).__name__, name](*values, **named)
    except (KeyError, TypeError):  # another call, or one for many numbers
        return _ANY
    if not found.are_numbers():
        return _ANY
    low, high = sorted((found.low, found.high))
    return found.kind, low, high if found.closed else high - 1


def _of_what_varies(t: Tracer, generator: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A number that is drawn between numbers that vary, which the entry has by then; None of other calls."""
    find = _NUMBERS.get((type(generator).__name__, name)) if name in _OF_WHAT_VARIES else None
    given = (*args, *kwargs.values())
    if find is None or id(generator) in t.world.made or not any(map(is_symbolic, given)):
        return None
    try:
        found = find(*args, **kwargs)
    except TypeError:  # with more arguments
        return None
    ends = (found.low, found.high)
    if not found.are_numbers() or not all(_is_known_before(t, one) for one in ends):
        return None
    low, high = map(t.shape_env.expr_of, ends)
    if found.kind is int and not _are_apart(t, low, high, 0 if found.closed else 1):
        return None  # an error, or perhaps one
    bounds = [t.shape_env.bounds(one) for one in (low, high)]
    range_ = (found.kind, min(b.lo for b in bounds), max(b.hi for b in bounds))
    index = len(t.draws)
    source = t.world.source_of(generator) or held(generator, "random")
    number = _number(t, DrawSource(index), None, range_)
    if found.kind is int:
        last = high if found.closed else high - 1
        drawn = t.shape_env.expr_of(number)
        for fact in (low.le(last), low.le(drawn), drawn.le(last)):
            t.shape_env.facts.learn(fact)
        t.drawn_between[drawn] = low, last
    t.draws.append(Draw(source, name, args, kwargs))
    return number


def _of_varying_size(t: Tracer, generator: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """An array whose size varies, which the entry has by then; None of other calls. Other numbers are fixed."""
    find = None if is_of_python(generator) else _SIZES.get(name)
    if find is None or id(generator) in t.world.made or not any(map(is_symbolic, leaves(args, kwargs))):
        return None
    args, kwargs = mapped((args, kwargs), t.internalize)
    try:
        sizes = find(*args, **kwargs)
    except TypeError:
        return None
    if any(map(is_list, (*args, *kwargs.values()))):  # which the program may change
        return None
    sizes = sizes if is_list_or_tuple(sizes) else (sizes,)
    if not any(map(is_symbolic, sizes)) or not all(_may_be_size(t, size) for size in sizes):
        return None

    def fixed(one: Any) -> Any:
        return one if any(one is size for size in sizes) else t.plain(one)

    args, kwargs = mapped((args, kwargs), fixed)
    if not all(map(_is_plain, leaves(*mapped((args, kwargs), lambda one: 0 if is_symbolic(one) else one)))):
        return None
    now, named = mapped((args, kwargs), lambda one: t.shape_env.hint(one.node.expr) if is_symbolic(one) else one)
    try:
        example = getattr(copy.deepcopy(generator), name)(*now, **named)
    except Exception as error:  # eager words it
        pass_on(error)
        return None
    if type(example).__name__ != "ndarray" or example.ndim != len(sizes):
        return None
    source = t.world.source_of(generator) or held(generator, "random")
    place = DrawSource(len(t.draws))
    t.draws.append(Draw(source, name, args, kwargs, is_array=True))
    return wrap(t.inputs.drawn_tensor(real_tensor(example), place, sizes))


def _may_be_size(t: Tracer, size: Any) -> bool:
    if not is_symbolic(size):
        return is_int(size)
    known = plain_class(size) is int and not is_unbacked(size) and _is_known_before(t, size)
    return known and bool(t.truth(size > 1))


def _shuffle_array(t: Tracer, generator: Any, array: Any) -> None:
    """As NumPy shuffles rows: in the order of the permutation that the generator would give."""
    if type(generator).__name__ != "RandomState" or not array.ndim:
        raise GraphBreak("random-state", "shuffle of an array by a generator that permutes otherwise")
    rows, of = array.shape[0], type(array)
    if t.truth(rows < 2):  # for which nothing is drawn
        return
    order = draw(t, generator, "permutation", (rows,), {})
    t.call(of.__setitem__, (array, ..., t.call(of.__getitem__, (array, order), {})), {})


def _are_apart(t: Tracer, low: Expr, high: Expr, least: int) -> bool:
    """Whether high - low is at least this, whatever numbers were drawn before: under a guard on sizes, where it is as far
    from that as a step of the drawn number is."""
    env, apart = t.shape_env, t.shape_env.simplify(high - low)
    for drawn, ends in reversed(t.drawn_between.items()):
        if drawn not in apart.free:
            continue
        at_zero, at_one = (substitute(apart, {drawn: lit(n)}) for n in (0, 1))
        step = env.simplify(at_one - at_zero)
        if not isinstance(step, Constant) or env.simplify(apart - at_zero - step * drawn) != lit(0):
            return False
        apart = env.simplify(at_zero + step * ends[step.value < 0])
    return not env.unbacked_symbols(apart) and bool(env.evaluate(lit(least).le(apart)))


def _is_known_before(t: Tracer, value: Any) -> bool:
    """Whether the entry can make the number before the graph runs."""
    env = t.shape_env
    for symbol in value.node.expr.free if is_symbolic(value) else ():
        source = env.sources.get(symbol, (None,))[0]
        if not isinstance(source, DrawSource if env.is_unbacked(symbol) else Source):
            return False
    return True


def _is_plain(value: Any) -> bool:
    return all(type(one) in _PLAIN or is_numpy_scalar(one) for one in leaves(value))


_PLAIN = LITERALS | {range, type, DrawnState}


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
    if is_list(example) and {int, float}.issuperset(map(type, example)):
        one.count = len(example)
        t.draws.append(one)
        return [_number(t, DrawSource(index, i), v, range_) for i, v in enumerate(example)]
    if is_fixed_number(example):
        number = _number(t, DrawSource(index), example, range_)
        t.draws.append(one)
        return number
    if type(example).__name__ != "ndarray" and not is_numpy_scalar(example):
        raise GraphBreak("random-state", f"{one.method} of a random generator gives a {type(example).__name__}")
    one.is_array = True
    t.draws.append(one)
    tensor = t.inputs.drawn_tensor(real_tensor(sys.modules["numpy"].asarray(example)), DrawSource(index))
    return wrap_scalar(tensor) if is_numpy_scalar(example) else wrap(tensor)


def _number(t: Tracer, source: DrawSource, example: int | float | None, range_: _Range) -> Any:
    if not config.get().shapes.symbols:
        raise GraphBreak("random-state", "a random number, where no number may be a symbol")
    kind, low, high = range_
    if example is not None and kind is not type(example):
        kind, low, high = type(example), -math.inf, math.inf
    if kind is int:
        low, high = max(low, -(2**62)), min(high, 2**62)
        if example is not None and not low <= example <= high:
            raise GraphBreak("random-state", "random numbers that are large")
    symbol = t.shape_env.create_unbacked_number(source, kind, low, high, "a random number")
    if kind is int:
        t.drawn_between[symbol] = lit(int(low)), lit(int(high))
    return t.inputs.wrap(symbol)


def _given(t: Tracer, value: Any) -> Any:
    return constant_array(t, value) if type(value).__name__ == "ndarray" else value


_GLOBAL: random.Random = random._inst  # whose methods the functions of the module are
_UNBOUNDED = "gauss normalvariate lognormvariate expovariate betavariate gammavariate paretovariate".split()
for _name in (*_STATES, *_UNBOUNDED, *(name for owner, name in _NUMBERS if owner == "Random")):
    TABLE[getattr(_GLOBAL, _name)] = functools.partial(lambda name, t, *given: draw(t, _GLOBAL, name, *given), _name)


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
