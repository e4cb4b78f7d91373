"""The symbols of an exported program's sizes: one for each Dim, and what Dims say of one another.

In:     what is said of each tensor's sizes, the tensors of the example.
Out:    `Sizes`, the policy of a capture: it makes the symbols of each attempt and remembers the facts that were declared.
Holds:  numbers of the call that are no sizes are constants. A size of 0 or 1 in the example does not fix a Dim: `hints`
        has another size for it. Sizes that contradict what is said are all told in one `ConstraintError`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from pliant.dispatch.dynamic_policy import DimPolicy, DynamicPolicy
from pliant.errors import ConstraintError
from pliant.exporting.dims import AUTO, STATIC, Derived, Dim, Size, TensorSizes, root_of
from pliant.exporting.residues import plainer
from pliant.guards.sources import ArgSource, SizeSource, Source
from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.symbolic.expr import Eq, Expr, FloorDiv, Symbol
from pliant.symbolic.facts import Facts
from pliant.symbolic.final_guards import ShapeGuard, minimal_guards
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import evaluate

_FARTHEST = 512  # above the example's size, that is captured with
_OTHERS = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)  # sizes to capture with, in place of 0 and 1


@dataclass(frozen=True, slots=True)
class Place:
    """A dimension that may vary: of which tensor (its `id`), what is said of it, its size now."""

    path: str
    tensor: int
    dim: int
    said: Size
    now: int

    def __str__(self) -> str:
        return f"{self.path}.size({self.dim})"


def places_of(tensors: Sequence[torch.Tensor], said: Mapping[int, TensorSizes]) -> list[Place]:
    """Every dimension that may vary."""
    found = []
    for tensor in tensors:
        sizes = said[id(tensor)]
        for dim, size in enumerate(sizes.sizes):
            if size is not STATIC and not (size is AUTO and tensor.shape[dim] < 2):
                found.append(Place(sizes.path, id(tensor), dim, size, tensor.shape[dim]))
    return found


def values_of(places: Sequence[Place]) -> dict[str, int]:
    """The value of each Dim in the example. `ConstraintError` with all that does not fit."""
    values: dict[str, tuple[int, Place]] = {}
    wrong: list[str] = []
    for place in sorted(places, key=lambda one: isinstance(one.said, Derived)):
        root = root_of(place.said)
        if root is None:
            continue
        value = _solved(place)
        if value is None:
            wrong.append(f"{place} is {place.now}, which is not {place.said} of any {root.name}")
            continue
        known, first = values.setdefault(root.name, (value, place))
        if known != value:
            wrong.append(f"{place} is {place.now}: {root.name} is {known} by {first}")
    for value, place in values.values():
        root = root_of(place.said)
        assert root is not None
        lo, hi = _bounds(root)
        if not lo <= value <= hi:
            wrong.append(f"{root.name} is {value} by {place}, outside of {root!r}" + ", which starts at 1" * (root.min is None))
    if wrong:
        raise ConstraintError(
            "the example's sizes are not what `dynamic_shapes` says of them", kind="example-sizes", why="\n".join(wrong),
            do="change the example, or what is said of it", doc="docs/export.md#sizes",
        )  # fmt: skip
    return {name: value for name, (value, _) in values.items()}


def _bounds(dim: Dim) -> tuple[int, float]:
    return 1 if dim.min is None else dim.min, math.inf if dim.max is None else dim.max


def _solved(place: Place) -> int | None:
    """The root's value; None if there is none."""
    if isinstance(place.said, Derived):
        value, rest = divmod(place.now - place.said.offset, place.said.factor)
        return None if rest or value < 0 else value
    return place.now


def hints_of(values: Mapping[str, int], places: Sequence[Place], taken: set[int]) -> dict[str, int]:
    """For each Dim the value to capture with: the example's, if that is neither 0 nor 1."""
    dims = {root.name: root for one in places if (root := root_of(one.said)) is not None}
    found = {}
    for name, value in values.items():
        lo, hi = _bounds(dims[name])
        fits = (n for n in _OTHERS if lo <= n <= hi and n not in taken)
        if value < 2:
            value = next(fits, None) or next((n for n in (5, 3, 2) if lo <= n <= hi), value)
        taken.add(value)
        found[name] = value
    return found


def size_at(place: Place, hints: Mapping[str, int]) -> int:
    """The size to capture with. `hints`: by the name of a Dim, or the text of a place that is AUTO."""
    root = root_of(place.said)
    if root is None:
        return hints.get(str(place), place.now)
    factor, offset = _of_root(place.said)
    return factor * hints[root.name] + offset


def _of_root(said: Size) -> tuple[int, int]:
    return (said.factor, said.offset) if isinstance(said, Derived) else (1, 0)


class Sizes(DynamicPolicy):
    """The policy of one export. After a capture `exprs` has the size of each place, `symbols` the place whose size a
    symbol is, `declared` what was said of them beyond ranges, `apart` the tensors that the model found to be two, by `id`.
    `copies`: memory may be copied where a view would do at some sizes."""

    def __init__(self, places: Sequence[Place], hints: Mapping[str, int], copies: bool = True) -> None:
        super().__init__(False, may_break=False, guarded=False)
        self.places, self.hints, self.copies = places, hints, copies
        self.env: ShapeEnv | None = None
        self.exprs: dict[tuple[int, int], Expr] = {}
        self.symbols: dict[Symbol, Place] = {}
        self.declared: list[Expr] = []
        self.apart: dict[tuple[int, int], SourceLocation | None] = {}

    def is_one(self, source: Source) -> bool:
        """A tensor that is in the example twice is one where that matters (`Example.merged`), as those of the model are."""
        return True

    def note_apart(self, left: torch.Tensor, right: torch.Tensor, where: SourceLocation | None) -> None:
        self.apart.setdefault((id(left), id(right)), where)

    def tensor_dims(self, source: Source, tensor: torch.Tensor) -> tuple[DimPolicy, ...]:
        mine = {one.dim: one for one in self.places if one.tensor == id(tensor)}
        return tuple(self._dim_policy(mine.get(dim)) for dim in range(tensor.dim()))

    def _dim_policy(self, place: Place | None) -> DimPolicy:
        return "static" if place is None else functools.partial(self._size, place)

    def stride(self, source: Source, place: tuple[int, int], value: int, times: int | None) -> str:
        return "static"

    def _size(self, place: Place, env: ShapeEnv) -> Expr:
        if env is not self.env:
            self.start(env)
        return env.simplify(self.exprs[place.tensor, place.dim])

    def start(self, env: ShapeEnv) -> None:
        """Make the symbols of an attempt: first those of Dims that are sizes themselves."""
        self.env, self.exprs, self.symbols, self.declared = env, {}, {}, []
        env.takes_fallbacks, env.takes_copies = True, self.copies
        roots: dict[str, Expr] = {}
        for place in sorted(self.places, key=lambda one: isinstance(one.said, Derived)):
            self.exprs[place.tensor, place.dim] = self._expr(env, place, roots)

    def _expr(self, env: ShapeEnv, place: Place, roots: dict[str, Expr]) -> Expr:
        root = root_of(place.said)
        if root is None:
            return self._symbol(env, place, 1, None)
        factor, offset = _of_root(place.said)
        known = roots.get(root.name)
        if known is not None:
            return known * factor + offset
        lo = 1 if root.min is None else root.min
        hi = None if root.max is None else factor * root.max + offset
        symbol = self._symbol(env, place, factor * lo + offset, hi)
        if factor > 1:
            self.declared.append((symbol % factor).eq(offset % factor))
            env.declare(self.declared[-1])
        roots[root.name] = (symbol - offset) // factor
        return symbol

    def _symbol(self, env: ShapeEnv, place: Place, lo: int, hi: int | None) -> Expr:
        source = SizeSource(ArgSource(0, place.path), place.dim)
        symbol = env.create_symbol(size_at(place, self.hints), source, lo=max(lo, 0), hi=hi, duck=False)
        assert isinstance(symbol, Symbol)
        self.symbols[symbol] = place
        return symbol

    # ---- what the program needs beyond
    def said(self) -> Facts:
        """What is known before the program runs."""
        facts = Facts()
        env = self.env
        for symbol in self.symbols:
            assert env is not None
            facts.set_range(symbol, env.declared[symbol])
        for fact in self.declared:
            facts.learn(fact)
        return facts

    def guards(self) -> Iterator[ShapeGuard]:
        """The guards of the program, in the words of Dims where they have one."""
        known = self.said()
        for guard in self.env.final_guards() if self.env is not None else ():
            for fact in plainer(guard.expr, known):
                yield ShapeGuard(fact, guard.origin)

    def of_example(self) -> dict[Symbol, int]:
        """The sizes of the example, which may be captured with others in their place."""
        return _known(self, values_of(self.places))

    def takes_example(self, guard: ShapeGuard) -> bool:
        """Whether the example is one of the calls that the guard is for. (What running tells is checked by calls.)"""
        known = self.of_example()
        return not guard.expr.free <= known.keys() or bool(evaluate(guard.expr, known))

    def needed(self) -> Iterator[ShapeGuard]:
        """Those that do not follow from what is said."""
        known = self.said()
        return (one for one in minimal_guards(self.guards()) if not known.prove_fully(one.expr))


def small_sizes(sizes: Sizes) -> Iterator[Expr]:
    """For each size that the program makes by division and was captured with as 0 or 1: what is 0 as long as it is that."""
    for guard in sizes.env.final_guards() if sizes.env is not None else ():
        if type(guard.expr) is Eq:
            (difference,) = guard.expr.args
            if difference.const in (0, -1) and type(difference - difference.const) is FloorDiv:
                yield difference


def larger_hints(sizes: Sizes) -> dict[str, int] | None:
    """Values of Dims at which these are 2 and more, with the same rests; None if there are none."""
    found = dict(sizes.hints)
    for difference in small_sizes(sizes):
        rest = (difference - difference.const).args[0] % (difference - difference.const).args[1]
        wanted = evaluate(rest, _known(sizes, sizes.hints))
        for symbol in sorted(difference.free, key=str):
            now = size_at(sizes.symbols[symbol], found)
            for more in range(_FARTHEST):
                larger = {**found, **_with(sizes, symbol, now + more)}
                known = _known(sizes, larger)
                if evaluate(difference, known) > 0 and evaluate(rest, known) == wanted:
                    found = larger
                    break
    return found if found != sizes.hints else None


def _with(sizes: Sizes, symbol: Symbol, size: int) -> dict[str, int]:
    """The hints that give a symbol's place, and all that are to be as large, this size; none where a Dim has no such value."""
    place = sizes.symbols[symbol]
    root = root_of(place.said)
    if root is None:
        assert sizes.env is not None
        alike = (one for one in sizes.places if sizes.env.simplify(sizes.exprs[one.tensor, one.dim]) is symbol)
        return {str(one): size for one in alike if root_of(one.said) is None}
    factor, offset = _of_root(place.said)
    value, rest = divmod(size - offset, factor)
    lo, hi = _bounds(root)
    return {root.name: value} if not rest and lo <= value <= hi else {}


def _known(sizes: Sizes, hints: Mapping[str, int]) -> dict[Symbol, int]:
    return {symbol: size_at(place, hints) for symbol, place in sizes.symbols.items()}
