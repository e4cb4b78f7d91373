"""What a program needs of its sizes beyond what `dynamic_shapes` says, and what to say instead.

In:     the `Sizes` of a finished capture.
Out:    `Judgement`: violations (each with the user's line), guards that no Dim can say, what AUTO sizes became; `advice`:
        for each tensor the sizes that the program is exported with.
Holds:  a bound that was not given is as narrow as the program needs; a bound, a name or a derived size that was given is
        never narrowed silently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from pliant.exporting.dims import AUTO, STATIC, Derived, Dim, Size, TensorSizes, root_of
from pliant.exporting.residues import plainer
from pliant.exporting.symbols import Place, Sizes
from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.symbolic import expr as x
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.facts import Facts
from pliant.symbolic.final_guards import ShapeGuard
from pliant.symbolic.printer import to_python
from pliant.symbolic.traverse import substitute


@dataclass(frozen=True, slots=True)
class Violation:
    """text: batch is 4 by gate.py:12 in forward    x.view(4, -1)"""

    text: str
    origin: SourceLocation | None

    def __str__(self) -> str:
        return self.text + (f"\n  {self.origin}".replace("\n", "\n  ") if self.origin is not None else "")


@dataclass(slots=True)
class Judgement:
    """`beyond`: guards that no `dynamic_shapes` can say. `notes`: what AUTO sizes turned out to be."""

    violations: list[Violation] = field(default_factory=list)
    beyond: list[ShapeGuard] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def names_of(sizes: Sizes) -> dict[Symbol, str]:
    """What messages and printed programs call each symbol."""
    found: dict[Symbol, str] = {}
    taken: set[str] = set()
    for symbol, place in sizes.symbols.items():
        root = root_of(place.said)
        base = root.name if root is not None else "".join(c if c.isalnum() else "_" for c in place.path) + f"_{place.dim}"
        if isinstance(place.said, Derived):
            base += "_size"
        name, number = base, 0
        while name in taken or not name.isidentifier():
            number += 1
            name = f"{base}_{number}" if base.isidentifier() else f"size_{number}"
        taken.add(name)
        found[symbol] = name
    return found


def judge(sizes: Sizes) -> Judgement:
    """All that the program needs beyond what was said."""
    found = Judgement()
    names, units = names_of(sizes), Units.of(sizes)
    for guard in sizes.needed():
        form = _form(guard.expr, sizes.said(), units)
        fact = _as_bound(guard.expr, sizes.said()) if form == "range" else guard.expr
        text = f"{_worded(fact, sizes, names)} is needed" + _of_sizes(guard.expr, sizes)
        if not sizes.takes_example(guard):
            found.violations.append(Violation(text + _in_example(guard.expr, sizes), guard.origin))
        elif form == "beyond":
            found.beyond.append(guard)
        elif _is_left_open(guard.expr, form, sizes, units):
            found.notes.append(text + (f", at {str(guard.origin).splitlines()[0]}" if guard.origin is not None else ""))
        else:
            found.violations.append(Violation(text, guard.origin))
    return found


@dataclass(frozen=True, slots=True)
class Units:
    """Symbols that the program needs to be k*unit + r: by symbol its unit, k and r. So `s0 // 2` is the unit itself."""

    known: Mapping[Symbol, tuple[Symbol, int, int]]

    @classmethod
    def of(cls, sizes: Sizes) -> Units:
        found: dict[Symbol, tuple[int, int]] = {}
        for guard in sizes.guards():
            multiple = multiple_of(guard.expr)
            if multiple is not None:
                (symbol,) = guard.expr.free
                k, rest = found.get(symbol, (1, 0))
                found[symbol] = (math.lcm(k, multiple[0]), max(rest, multiple[1]))
                if k > 1 and found[symbol][1]:  # two rests: left as it is
                    found[symbol] = (1, 0)
        return cls({s: (Symbol(f"{s.name}_"), k, rest) for s, (k, rest) in found.items() if k > 1})

    def within(self, e: Expr) -> Expr:
        """The expression in units."""
        return substitute(e, {s: unit * k + rest for s, (unit, k, rest) in self.known.items()})

    def symbol_of(self, unit: Expr) -> Symbol | None:
        return next((s for s, (known, _, _) in self.known.items() if known is unit), None)


def _as_bound(e: Expr, said: Facts) -> Expr:
    """A fact that bounds a size on one side as that bound: `(n + 3) // 4 <= 4` is `n <= 16`."""
    (symbol,) = e.free
    before = said.range_of(symbol)
    said.learn(e)
    after = said.range_of(symbol)
    if (after.lo > before.lo) is (after.hi < before.hi):
        return e
    return symbol.ge(int(after.lo)) if after.lo > before.lo else symbol.le(int(after.hi))


def _worded(e: Expr, sizes: Sizes, names: Mapping[Symbol, str]) -> str:
    """The fact in the words of the user, who derived some sizes of Dims that are no sizes themselves."""
    roots: dict[Symbol, Expr] = {}
    words = dict(names)
    for symbol in e.free & sizes.symbols.keys():
        said = sizes.symbols[symbol].said
        if isinstance(said, Derived):
            root = Symbol(f"{symbol.name}_root")
            roots[symbol], words[root] = root * said.factor + said.offset, said.root.name
    if roots:
        plain = plainer(substitute(e, roots), Facts())
        e = plain[0] if len(plain) == 1 else substitute(e, roots)
    return to_python(e, words)


def _of_sizes(e: Expr, sizes: Sizes) -> str:
    known = [(str(symbol), sizes.symbols[symbol]) for symbol in sorted(e.free, key=str) if symbol in sizes.symbols]
    return f" ({', '.join(str(place) for _, place in known)})" if known else ""


def _in_example(e: Expr, sizes: Sizes) -> str:
    values = sizes.of_example()
    return ", and the example has " + ", ".join(str(values[symbol]) for symbol in sorted(e.free, key=str))


def _form(e: Expr, said: Facts, units: Units) -> str:
    """Whether the fact fixes a size, bounds it, makes it a multiple, relates two, or is beyond what Dims say."""
    if len(e.free) == 1:
        (symbol,) = e.free
        if multiple_of(e) is not None:
            return "multiple"
        facts = said.copy()
        facts.learn(e)
        if isinstance(facts.simplify(symbol), x.Constant):
            return "fixed"
        alone = Facts()
        alone.set_range(symbol, facts.range_of(symbol))
        return "range" if alone.prove_fully(e) else "beyond"
    e = units.within(e)
    return "relation" if type(e) is x.Eq and len(e.free) == 2 and _relation(e.args[0]) is not None else "beyond"


def multiple_of(e: Expr) -> tuple[int, int] | None:
    """(k, r) where the fact says of its one symbol that it is r modulo k."""
    if type(e) is not x.Eq or len(e.free) != 1:
        return None
    p = e.args[0]
    if len(p.terms) != 1 or type(p.terms[0][0]) is not x.Mod or abs(p.terms[0][1]) != 1:
        return None
    inner, k = p.terms[0][0].args
    rest = -p.const * p.terms[0][1]
    if k.as_int() is None or len(inner.terms) != 1 or inner.terms[0][1] != 1 or not isinstance(inner.terms[0][0], Symbol):
        return None
    return k.const, (rest - inner.const) % k.const


def _relation(p: Expr) -> tuple[tuple[Expr, int], tuple[Expr, int]] | None:
    """The two terms of a*s + b*t + c where one is a whole multiple of the other, with a rest."""
    if len(p.terms) != 2 or not all(isinstance(mono, Symbol) for mono, _ in p.terms):
        return None
    one, other = p.terms
    return (one, other) if one[1] * other[1] < 0 and 1 in (abs(one[1]), abs(other[1])) else None


def _is_left_open(e: Expr, form: str, sizes: Sizes, units: Units) -> bool:
    """Whether the fact only says what was left to the program."""
    dims = {s: root for s in e.free if s in sizes.symbols and (root := root_of(sizes.symbols[s].said)) is not None}
    if not dims:
        return True
    if form == "range":
        (symbol,) = e.free
        facts = sizes.said()
        before = facts.range_of(symbol)
        facts.learn(e)
        after, root = facts.range_of(symbol), dims[symbol]
        return (after.lo <= before.lo or root.min is None) and (after.hi >= before.hi or root.max is None)
    if form == "relation" and len(dims) == 1:  # an AUTO size that a Dim gives
        terms = _relation(units.within(e).args[0])
        assert terms is not None
        return any((units.symbol_of(mono) or mono) not in dims and abs(factor) == 1 for mono, factor in terms)
    return False


# ---- what to say instead
def advice(sizes: Sizes, said: Mapping[int, TensorSizes], bounded: bool) -> dict[int, TensorSizes]:
    """For each tensor the sizes that the capture found. `bounded`: with the bounds that the program needs, which may be
    wider once names and derived sizes are said."""
    env = sizes.env
    assert env is not None
    facts, units, relations = sizes.said(), Units.of(sizes), Facts()
    for guard in sizes.needed():
        form = _form(guard.expr, sizes.said(), units)
        if bounded or form not in ("range", "beyond"):
            facts.learn(guard.expr)
        if form == "relation":
            relations.learn(units.within(guard.expr))
    within = {place: units.within(env.simplify(sizes.exprs[place.tensor, place.dim])) for place in sizes.places}
    found = {place: _said(relations.simplify(e), place, sizes, facts, units) for place, e in within.items()}
    return {
        tensor: TensorSizes(one.path, tuple(_at(found, tensor, dim, size) for dim, size in enumerate(one.sizes)))
        for tensor, one in said.items()
    }


def _at(found: Mapping[Place, Size], tensor: int, dim: int, size: Size) -> Size:
    return next((said for place, said in found.items() if (place.tensor, place.dim) == (tensor, dim)), size)


def _said(e: Expr, place: Place, sizes: Sizes, facts: Facts, units: Units) -> Size:
    if isinstance(e, x.Constant):
        return STATIC
    if place.said is AUTO:
        return AUTO
    if len(e.terms) != 1 or not isinstance(e.terms[0][0], Symbol) or e.terms[0][1] < 1:
        return AUTO
    mono, factor = e.terms[0]
    symbol = units.symbol_of(mono)
    if symbol is None:
        dim = _dim(mono, 1, 0, sizes, facts)
    else:
        dim = _dim(symbol, *units.known[symbol][1:], sizes, facts)
    return dim if (factor, e.const) == (1, 0) else Derived(dim, factor, e.const)


def _dim(symbol: Expr, k: int, rest: int, sizes: Sizes, facts: Facts) -> Dim:
    """The Dim of (symbol - rest) / k, with the bounds that are known."""
    assert isinstance(symbol, Symbol)
    said = sizes.symbols[symbol].said
    root, derived = root_of(said), isinstance(said, Derived)
    if isinstance(said, Derived) and k > 1 and (said.factor, said.offset) == (k, rest):
        name, own = said.root.name, True  # its unit is the Dim itself
    else:
        name, own = root.name if root is not None else names_of(sizes)[symbol], k == 1 and not derived
    r = facts.range_of(symbol)
    lo, hi = -((rest - int(r.lo)) // k), math.inf if math.isinf(r.hi) else (int(r.hi) - rest) // k
    wants = root is not None and root.min is not None and own
    return Dim(
        name if own else f"_{name}",
        min=lo if wants or lo > 1 or not lo and root is not None and root.min == 0 else None,
        max=None if math.isinf(hi) else int(hi),
    )


def advice_text(arguments: Mapping[str, Any], said: Mapping[int, TensorSizes]) -> str:
    """The sizes as Python that can be pasted: assignments of Dims, then `dynamic_shapes`."""
    from pliant.exporting.spelled import spelled_sizes

    dims = {root.name: root for one in said.values() for size in one.sizes if (root := root_of(size)) is not None}
    lines = [f"{name} = pliant.{dim!r}" for name, dim in dims.items()]
    sizes = spelled_sizes(arguments, said)
    return "\n".join([*lines, f"dynamic_shapes = {sizes}" + ("  # no size varies" if sizes == "{}" else "")])


def fixed_places(guards: list[ShapeGuard], sizes: Sizes) -> Iterator[Place]:
    """The dimensions to fix so that these guards hold."""
    symbols = {symbol for guard in guards for symbol in guard.expr.free}
    for place in sizes.places:
        if sizes.exprs[place.tensor, place.dim].free & symbols:
            yield place
