"""How operators act on the elements of small tensors of integers: a row each; those that only move elements are run on
their places.

In:     a node of the torch-level graph and its arguments, tensors as `Grid`s.
Out:    `Grid`s of its results. `Unknown` where only running the graph tells, or a row does not know this form of the call.
Holds:  what a row has to decide is guarded.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from pliant.capture.structures import argument, as_tuple, several
from pliant.capture.value_kinds import SYMBOLIC_TYPES, concrete, exactly, is_tensor, plain_class
from pliant.records import dataclass
from pliant.symbolic.expr import Apply
from pliant.symbolic.traverse import atoms

MOST_ELEMENTS = 1024  # of a tensor that is followed: a batch of token types, sizes of images
READABLE = ("cpu", "cuda")  # devices whose elements may be asked for; a GPU is waited for, as where the program asks
_MANY = 6  # symbols in one expression
_EXACT = 2**22  # quotients of smaller integers differ by more than the error of one in single precision
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# The integers that a tensor of this type holds as they are; floats hold quotients of some.
HOLDS = {dtype: range(torch.iinfo(dtype).min, torch.iinfo(dtype).max + 1) for dtype in _INTEGERS}
HOLDS |= {torch.bool: range(2), torch.float32: range(0)}


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Elements of a tensor: each place holds an index into `numbers`."""

    numbers: list[Any]
    places: torch.Tensor

    def flat(self) -> list[Any]:
        return [self.numbers[i] for i in self.places.flatten().tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """An element of a tensor of floats that is a quotient of integers: `over` is positive. No zero has a minus."""

    number: Any
    over: Any

    def __add__(self, other: Any) -> Ratio:
        other = _ratio_of(other)
        return Ratio(self.number * other.over + other.number * self.over, self.over * other.over)

    def __mul__(self, other: Any) -> Ratio:
        other = _ratio_of(other)
        if concrete(self.number * other.number == 0) and concrete(self.number + other.number < 0):
            raise Unknown
        return Ratio(self.number * other.number, self.over * other.over)

    def __neg__(self) -> Ratio:
        if concrete(self.number == 0):
            raise Unknown
        return Ratio(-self.number, self.over)

    def __sub__(self, other: Any) -> Ratio:
        other = _ratio_of(other)
        return self + Ratio(-other.number, other.over)

    def __rsub__(self, other: Any) -> Ratio:
        return Ratio(other * self.over - self.number, self.over)

    __radd__ = __add__
    __rmul__ = __mul__


class Unknown(Exception):
    """Only running the graph tells."""


def _compared(function: Callable[[Any, Any], Any]) -> Callable[[Ratio, Any], Any]:
    """A comparison of whole numbers: quotients may be equal once they are rounded."""

    def compare(a: Ratio, other: Any) -> Any:
        b = _ratio_of(other)
        if not (concrete(a.over == 1) and concrete(b.over == 1)):
            raise Unknown
        return function(a.number, b.number)

    return compare


def _refused(*args: Any) -> Any:
    raise Unknown


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Ratio, f"__{_name}__", _compared(getattr(operator, _name)))
for _name in """truediv rtruediv floordiv rfloordiv mod rmod pow rpow divmod and or xor lshift rshift rand ror rxor abs bool int
float index round floor ceil trunc""".split():
    setattr(Ratio, f"__{_name}__", _refused)
_is_ratio, _is_grid = exactly(Ratio), exactly(Grid)


def grid(numbers: list[Any], sizes: tuple[int, ...]) -> Grid:
    return Grid(numbers, torch.arange(len(numbers)).view(sizes))


def _asgrid(value: Any) -> Grid:
    return value if _is_grid(value) else grid([value], ())


def as_tensor_of(value: Any, dtype: torch.dtype) -> Grid:
    """The elements as a tensor of this type holds them."""
    if not _is_grid(value):
        raise Unknown
    others: dict[torch.dtype, Callable[[Any], Any]] = {torch.bool: _truth, torch.float32: _quotient_of_whole}
    make = others.get(dtype) or functools.partial(_whole, within=HOLDS[dtype])
    numbers = [make(n) for n in value.numbers]
    return Grid(numbers, value.places)


def as_python(number: Any) -> Any:
    """The element as a program gets it. A quotient is rounded by the type of its tensor: only running the graph tells."""
    if not _is_ratio(number):
        return number
    if not concrete(number.over == 1):
        raise Unknown
    return torch.sym_float(number.number)  # type: ignore[no-untyped-call]


def _truth(number: Any) -> Any:
    return number if plain_class(number) is bool else number != 0


def _quotient_of_whole(number: Any) -> Any:
    """What single precision holds as it is, or close enough that rounding it to an integer gives the same."""
    made = _ratio_of(number)
    if not (made.number > -_EXACT and made.number < _EXACT and made.over < _EXACT):
        raise Unknown
    return made


def _ratio_of(number: Any) -> Ratio:
    return number if _is_ratio(number) else Ratio(_whole(number), 1)


def _free(number: Any) -> frozenset[Any]:
    """The symbols that a number depends on."""
    node = getattr(number, "node", None)
    return frozenset() if node is None else node.expr.free


def _cut_off(number: Ratio) -> Any:
    if not number.number >= 0:
        raise Unknown
    return number.number // number.over


def _integer(number: Any) -> Any:
    """The number, which is no float nor a quotient."""
    if _is_ratio(number) or plain_class(number) is float:
        raise Unknown
    return number


def _whole(number: Any, within: range = HOLDS[torch.int64]) -> Any:
    if _is_ratio(number):
        made = _cut_off(number)
    elif plain_class(number) is bool:  # guarded: sums of truths are hard to reason about
        made = int(concrete(number))
    else:  # of a number that depends on many others little can be proved in time
        made = concrete(_integer(number)) if len(_free(number)) > _MANY else _integer(number)
    if within != HOLDS[torch.int64] and not (made >= within.start and made < within.stop):  # it would wrap
        raise Unknown
    return made


# ---- operators that only move elements
def _moved(node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """The operator, run on the places of elements."""
    numbers: list[Any] = []
    function: Any = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
    return _grids(function(*_places(args, numbers), **_places(kwargs, numbers)), numbers)


def by_type(rows: dict[type, Callable[[Any], Any]], value: Any) -> Any:
    """A structure of arguments, its parts of these types changed; slices are structures."""
    whole = {slice: lambda s: slice(*(by_type(rows, one) for one in (s.start, s.stop, s.step))), **rows}
    return tree_map(lambda one: whole.get(type(one), lambda same: same)(one), value)


def _places(value: Any, numbers: list[Any]) -> Any:
    def place(given: Grid) -> torch.Tensor:
        numbers.extend(given.numbers)
        return given.places + (len(numbers) - len(given.numbers))

    return by_type({Grid: place, **dict.fromkeys(SYMBOLIC_TYPES, concrete)}, value)


def _grids(value: Any, numbers: list[Any]) -> Any:
    return Grid(numbers, value) if is_tensor(value) else tuple(Grid(numbers, one) for one in value)


def _item_of(node: fx.Node, value: Grid, index: Any) -> Any:
    """Which elements a mask takes is guarded."""
    if getattr(argument(node.args[1]), "dtype_", None) is torch.bool:
        mask = torch.tensor([bool(concrete(_truth(n))) for n in index.flat()])
        return Grid(value.numbers, value.places[mask.view(index.places.shape)])
    if Grid in map(type, as_tuple(index)):
        raise Unknown
    return _moved(node, value, index)


def _attribute(node: fx.Node, value: Grid, name: str) -> Grid:
    if name not in ("T", "mT", "data"):
        raise Unknown
    return Grid(value.numbers, getattr(value.places, name))


def _padded(node: fx.Node, given: Grid, pad: Any, mode: str = "constant", value: Any = None) -> Grid:
    numbers = [*given.numbers, value or 0]
    if mode != "constant":
        raise Unknown
    return Grid(numbers, torch.nn.functional.pad(given.places, _places(pad, []), value=len(numbers) - 1))


def _repeated(node: fx.Node, value: Grid, repeats: Any, dim: Any = None, *, output_size: Any = None) -> Grid:
    counts = torch.tensor([int(concrete(n)) for n in _asgrid(repeats).flat()])
    return Grid(value.numbers, torch.repeat_interleave(value.places, counts, dim))


# ---- operators that compute
def _each(function: Callable[..., Any]) -> Callable[..., Grid]:
    """An operator on elements at the same place."""

    def rule(node: fx.Node, *args: Any) -> Grid:
        _check_operands(node, args)
        grids = [_asgrid(arg) for arg in args]
        places = torch.broadcast_tensors(*[grid.places for grid in grids])  # type: ignore[no-untyped-call]
        columns = [Grid(g.numbers, p).flat() for g, p in zip(grids, places, strict=True)]
        return grid([function(*row) for row in zip(*columns, strict=True)], tuple(places[0].shape))

    return rule


def _check_operands(node: fx.Node, args: Iterable[Any]) -> None:
    """Numbers and 0-d tensors beside a tensor of a narrower type are wrapped to that type before the operator takes them."""
    fakes = [one.meta["val"] for one in node.all_input_nodes]
    whole = [fake for fake in fakes if getattr(fake, "dtype_", None) in _INTEGERS]
    if not whole:
        return
    within = HOLDS[functools.reduce(torch.promote_types, [f.dtype_ for f in whole if f.size_] or [f.dtype_ for f in whole])]
    mixed = len({fake.dtype_ for fake in whole}) > 1
    for number in itertools.chain(*(one.numbers if _is_grid(one) and mixed else [one] for one in args)):
        if plain_class(number) in (int, torch.SymInt):
            _whole(number, within)


def _truths(function: Callable[..., Any]) -> Callable[..., Grid]:
    """An operator on truths, each of which is guarded; of integers, `&` and its like are bitwise."""

    def rule(node: fx.Node, *args: Any) -> Grid:
        if node.meta["val"].dtype_ is not torch.bool:
            raise Unknown
        return _each(lambda *row: function(*[bool(concrete(_truth(n))) for n in row]))(node, *args)

    return rule


def _larger(a: Any, b: Any) -> Any:
    return a if a >= b else b


def _smaller(a: Any, b: Any) -> Any:
    return a if a <= b else b


def _clamped(node: fx.Node, value: Grid, min: Any = None, max: Any = None) -> Grid:
    for bound, function in ((min, _larger), (max, _smaller)):
        value = value if bound is None else _each(function)(node, value, bound)
    return value


def _divided(node: fx.Node, left: Any, right: Any, *, rounding_mode: str | None = None) -> Grid:
    if rounding_mode == "trunc" and not all(n >= 0 for one in (left, right) for n in _asgrid(one).flat()):
        raise Unknown
    return _ratio(node, left, right) if rounding_mode is None else _quotient(node, left, right)


def _positive(number: Any) -> Any:
    if not _integer(number) > 0:
        raise Unknown
    return number


def _floor(left: Any, right: Any) -> Any:
    return _linear(_integer(left)) // _positive(right)


def _linear(number: Any) -> Any:
    """The number; a constant where it is a sum of quotients: little can be proved in time of quotients of these."""
    if len(_free(number)) < 2:
        return number
    return concrete(number) if any(isinstance(one, Apply) for one in atoms(number.node.expr)) else number


def _rounded(function: Callable[[Any, Any], Any]) -> Callable[..., Grid]:
    """`ceil` and its like: also of quotients."""
    return _each(lambda n: Ratio(function(n.number, n.over), 1) if _is_ratio(n) else n)


def _along(combine: Callable[[list[Any]], list[Any]], keeps: bool = False) -> Callable[..., Grid]:
    """An operator on all elements along a dimension, or on all; `keeps`: it leaves as many."""

    def rule(node: fx.Node, value: Grid, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Grid:
        if dtype is not None:  # elements are of this type before they are combined
            value = as_tensor_of(value, dtype) if dtype in HOLDS else _refused()
        rank = value.places.dim()
        dims = range(rank) if dim is None else several(dim)
        last = tuple(range(-len(dims), 0))
        places = value.places.movedim(tuple(dims), last) if rank else value.places[None]
        kept = places.shape[: places.dim() - max(len(dims), 1)]
        rows = [combine([value.numbers[i] for i in row]) for row in places.reshape(math.prod(kept), -1).tolist()]
        made = grid(list(itertools.chain(*rows)), places.shape if keeps else (*kept, *(1 for _ in last)))
        if (keeps or keepdim) and rank:
            return Grid(made.numbers, made.places.movedim(last, tuple(dims)))
        return Grid(made.numbers, made.places.reshape(kept))

    return rule


def _term(number: Any) -> Any:
    """What an element adds to the others: a truth is 0 or 1."""
    return number if _is_ratio(number) else _whole(number)


def _folded(function: Callable[[Any, Any], Any], first: Any = None) -> Callable[[list[Any]], list[Any]]:
    def combine(numbers: Iterable[Any]) -> list[Any]:
        terms = [_term(n) for n in numbers]
        return [functools.reduce(function, terms if first is None else [first, *terms])]

    return combine


def _full(node: fx.Node, sizes: Any, value: Any, **kwargs: Any) -> Grid:
    """Also where the value is a number that varies."""
    sizes = tuple(concrete(size) for size in sizes)
    if type(value) not in (int, bool, *SYMBOLIC_TYPES):
        raise Unknown
    return Grid([value], torch.zeros(sizes, dtype=torch.int64))


def _written_out(node: fx.Node, data: Any, **kwargs: Any) -> Grid:
    """`tensor`: of constants."""
    if not {int, bool}.issuperset(map(type, tree_leaves(data))):
        raise Unknown
    made = torch.tensor(data)
    return grid(made.flatten().tolist(), tuple(made.shape))


def _counted(node: fx.Node, *args: Any, **kwargs: Any) -> Grid:
    """`arange`: of numbers that are constants by now."""
    made = torch.arange(*map(_only, args))
    if made.is_floating_point() or made.numel() > MOST_ELEMENTS:
        raise Unknown
    return grid(made.tolist(), tuple(made.shape))


def _only(value: Any) -> Any:
    return concrete(_asgrid(value).flat()[0])


def _distinct(
    node: fx.Node, value: Grid, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Grid:
    """`unique_consecutive`: which elements are equal is guarded."""
    if return_inverse or return_counts or dim is not None:
        raise Unknown
    kept = [group for group, _ in itertools.groupby(map(concrete, value.flat()))]
    return grid(kept, (len(kept),))


_quotient = _each(_floor)
_ratio = _each(lambda a, b: _ratio_of(a) * Ratio(1, _positive(b)))

_MOVES = """view reshape unsqueeze squeeze select permute transpose t flatten unflatten expand cat concat stack unbind split
chunk narrow repeat tile flip roll movedim swapaxes broadcast_to""".split()
_SAME = "clone contiguous detach to long int bool type cpu alias".split()
RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_MOVES, _moved),
    **dict.fromkeys(_SAME, lambda node, value, *args, **kwargs: value),
    "getitem": _item_of,
    "__getitem__": _item_of,
    "getattr": _attribute,
    "pad": _padded,
    "repeat_interleave": _repeated,
    "full": _full,
    "arange": _counted,
    "tensor": _written_out,
    "unique_consecutive": _distinct,
    "ceil": _rounded(lambda a, b: -(-_linear(a) // b)),
    "floor": _rounded(lambda a, b: _linear(a) // b),
    "add": _each(operator.add),
    "sub": _each(operator.sub),
    "rsub": _each(lambda a, b: b - a),
    "__rsub__": _each(lambda a, b: b - a),
    "mul": _each(operator.mul),
    "neg": _each(operator.neg),
    "div": _divided,
    "floor_divide": _quotient,
    "__floordiv__": _quotient,
    "remainder": _each(lambda a, b: a - _floor(a, b) * b),
    "maximum": _each(_larger),
    "minimum": _each(_smaller),
    "eq": _each(operator.eq),
    "__eq__": _each(operator.eq),
    "__and__": _truths(operator.and_),
    "__or__": _truths(operator.or_),
    "__invert__": _truths(lambda a: not a),
    "logical_and": _truths(operator.and_),
    "logical_or": _truths(operator.or_),
    "logical_not": _truths(lambda a: not a),
    "clamp": _clamped,
    "ne": _each(operator.ne),
    "lt": _each(operator.lt),
    "le": _each(operator.le),
    "gt": _each(operator.gt),
    "ge": _each(operator.ge),
    "sum": _along(_folded(operator.add, 0)),
    "prod": _along(_folded(operator.mul, 1)),
    "max": _along(_folded(_larger)),
    "min": _along(_folded(_smaller)),
    "amax": _along(_folded(_larger)),
    "amin": _along(_folded(_smaller)),
    "all": _along(lambda numbers: [functools.reduce(operator.and_, map(_truth, numbers), True)]),
    "any": _along(lambda numbers: [functools.reduce(operator.or_, map(_truth, numbers), False)]),
    "cumsum": _along(lambda numbers: list(itertools.accumulate(map(_term, numbers))), keeps=True),
}
# Other names of PyTorch's, by which its NumPy calls them.
_OTHER_NAMES = {
    "as_tensor": "tensor", "subtract": "sub", "multiply": "mul", "negative": "neg", "divide": "div", "true_divide": "div",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
}  # fmt: skip
RULES.update({name: RULES[known] for name, known in _OTHER_NAMES.items()})
# Operators whose result is as long as the sum of an argument's elements.
SUMMED: dict[str, Callable[[fx.Node], Any]] = {
    "repeat_interleave": lambda node: node.args[1] if len(node.args) > 1 else node.kwargs.get("repeats"),
}
