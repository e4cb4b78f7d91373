"""Interned symbolic expressions over integers, floats and booleans.

In:     constants, symbols and Python operators on expressions.
Out:    `Expr` nodes; equal expressions are the same object (`is`), so dictionaries and sets need no deep comparison.
Holds:  an integer expression is a canonical sum of products `const + coef*mono + ...` over atoms (symbols, `a // b`).
        Comparisons of integers are `p == 0`, `p != 0` or `p <= 0` with coprime coefficients.
        Floats keep their evaluation order.
        Integers are mathematical integers; an expression means something only where no divisor in it is zero.
        Every rewrite holds for all values of the symbols: what needs a range lives in `simplify.py` and `prove.py`.
Memory: nodes live as long as the process; symbol names repeat between compilations, and so do their expressions.
Reads on: `rules/` (one file a theme), `traverse.py`, `bounds.py`, `shape_env.py`.

This module is one thing: the node classes and the arithmetic of polynomials that their constructors need.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, cast

from pliant.errors import Unsupported

Kind: TypeAlias = "type[int] | type[float] | type[bool]"
Number: TypeAlias = "int | float | bool"
Term: TypeAlias = "tuple[Expr, int]"

EXPAND_LIMIT = 36  # terms: larger products stay factored, so that expressions grow linearly
_MEMO_LIMIT = 1 << 16

_table: dict[tuple[object, ...], Expr] = {}
_add_memo: dict[tuple[Expr, Expr], Expr] = {}
_mul_memo: dict[tuple[Expr, Expr], Expr] = {}


class UnknownTruth(Unsupported, TypeError):
    """Code for plain numbers was given an expression: lowering then calls the operator."""


class Expr:
    """One node. `const` and `terms` give any integer expression as a sum of products; `free` its symbols.

    `order` sorts monomials, and `digest` is a hash, the same in every process.
    """

    __slots__ = ("args", "const", "terms", "free", "order", "digest", "__weakref__")
    kind: ClassVar[Any] = int
    args: tuple[Expr, ...]
    const: int
    terms: tuple[Term, ...]
    free: frozenset[Symbol]
    order: tuple[Any, ...]
    digest: int

    # -- integer and float arithmetic ---------------------------------------------------------------------------------
    def __add__(self, other: ExprLike) -> Expr:
        return add(self, lit(other))

    def __radd__(self, other: ExprLike) -> Expr:
        return add(lit(other), self)

    def __sub__(self, other: ExprLike) -> Expr:
        return sub(self, lit(other))

    def __rsub__(self, other: ExprLike) -> Expr:
        return sub(lit(other), self)

    def __mul__(self, other: ExprLike) -> Expr:
        return mul(self, lit(other))

    def __rmul__(self, other: ExprLike) -> Expr:
        return mul(lit(other), self)

    def __neg__(self) -> Expr:
        return neg(self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return division.floordiv(self, lit(other))

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return division.floordiv(lit(other), self)

    def __mod__(self, other: ExprLike) -> Expr:
        return division.mod(self, lit(other))

    def __rmod__(self, other: ExprLike) -> Expr:
        return division.mod(lit(other), self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return floats.truediv(self, lit(other))

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return floats.truediv(lit(other), self)

    def __pow__(self, other: ExprLike) -> Expr:
        return powers.power(self, lit(other))

    def __rpow__(self, other: ExprLike) -> Expr:
        return powers.power(lit(other), self)

    # -- comparisons and logic (`==` itself is identity) --------------------------------------------------------------
    def eq(self, other: ExprLike) -> Expr:
        return relations.eq(self, lit(other))

    def ne(self, other: ExprLike) -> Expr:
        return relations.ne(self, lit(other))

    def lt(self, other: ExprLike) -> Expr:
        return relations.lt(self, lit(other))

    def le(self, other: ExprLike) -> Expr:
        return relations.le(self, lit(other))

    def gt(self, other: ExprLike) -> Expr:
        return relations.lt(lit(other), self)

    def ge(self, other: ExprLike) -> Expr:
        return relations.le(lit(other), self)

    def and_(self, other: ExprLike) -> Expr:
        return relations.and_(self, lit(other))

    def or_(self, other: ExprLike) -> Expr:
        return relations.or_(self, lit(other))

    def not_(self) -> Expr:
        return relations.not_(self)

    # -- questions ----------------------------------------------------------------------------------------------------
    @property
    def is_const(self) -> bool:
        return isinstance(self, Constant)

    def as_int(self) -> int | None:
        """The value of an integer constant, else None."""
        return self.const if type(self) is Integer else None

    def drop(self, symbol: Symbol) -> Expr:
        """The terms that do not contain `symbol`."""
        if symbol not in self.free:
            return self
        return from_terms(self.const, {m: c for m, c in self.terms if symbol not in m.free})

    def __getattr__(self, name: str) -> Any:
        # Sorting keys, digests and symbols of inner nodes are computed when first asked for: most sums never are.
        compute = _LAZY.get(name)
        if compute is None:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        value = compute(self)
        setattr(self, name, value)
        return value

    def __bool__(self) -> bool:
        raise UnknownTruth(f"the truth of `{self}` is not known here; ask the shape environment")

    def __repr__(self) -> str:
        return printer.to_python(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _intern, (type(self), self.args)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Expr:
        return self


ExprLike: TypeAlias = "Expr | int | float | bool"


# -- leaves -----------------------------------------------------------------------------------------------------------


class Constant(Expr):
    """A number; `value` has the kind's Python type."""

    __slots__ = ("value",)
    value: Number

    def __reduce__(self) -> tuple[Any, ...]:
        return lit, (self.value,)


class Integer(Constant):
    """`Integer(3)`."""

    __slots__ = ()
    value: int

    def __new__(cls, value: int) -> Integer:
        found = _integers.get(value)
        return found if found is not None else _new_integer(value)


class Float(Constant):
    """`Float(0.5)`; zeros of both signs and NaN are constants of their own."""

    __slots__ = ()
    kind = float
    value: float

    def __new__(cls, value: float) -> Float:
        key = (Float, value.hex())
        found = _table.get(key)
        if found is None:
            node = _leaf(cls, (0, "", 0, zlib.crc32(value.hex().encode())))
            node.value = value
            found = _table.setdefault(key, node)
        return cast(Float, found)


class Bool(Constant):
    """`Bool(True)` is `TRUE`, `Bool(False)` is `FALSE`."""

    __slots__ = ()
    kind = bool
    value: bool

    def __new__(cls, value: bool) -> Bool:
        return TRUE if value else FALSE


class Symbol(Expr):
    """A named unknown of one kind. What is known about its value is the business of a shape environment."""

    __slots__ = ("name", "_kind")
    name: str
    _kind: Kind

    def __new__(cls, name: str, kind: Kind = int) -> Symbol:
        key = (Symbol, name, kind)
        found = _table.get(key)
        if found is None:
            prefix = name.rstrip("0123456789")
            digits = name[len(prefix) :]
            stable = zlib.crc32(f"{name}:{kind.__name__}".encode())
            node = _leaf(cls, (1, prefix, int(digits) if digits else -1, stable))
            node.name, node._kind = name, kind
            node.free = frozenset((node,))
            found = _table.setdefault(key, node)
        return cast(Symbol, found)

    @property
    def kind(self) -> Kind:  # a symbol's kind is its own; all other nodes share their class's
        return self._kind

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.name, self._kind)


def symbol(name: str, kind: Kind = int) -> Symbol:
    return Symbol(name, kind)


# -- sums and products ------------------------------------------------------------------------------------------------


class Sum(Expr):
    """text: 2*s0*s1 + s0 + 3      `const` plus `coef * mono` for each of `terms`; never one bare monomial."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_pairs, (self.const, self.terms)


class Product(Expr):
    """text: s0*s1      at least two atoms in order, an atom repeated for its power."""

    __slots__ = ()


class Apply(Expr):
    """An operation on `args` that is an atom of the polynomials around it."""

    __slots__ = ()
    rank: ClassVar[int] = 2


class FloorDiv(Apply):
    """text: a // b      Python's floor division of integers."""

    __slots__ = ()
    rank = 3


class Mod(Apply):
    """text: a % b      Python's remainder of integers: zero, or the divisor's sign."""

    __slots__ = ()
    rank = 4


class Min(Apply):
    """text: min(a, b, ...)      integers, two or more."""

    __slots__ = ()
    rank = 5


class Max(Apply):
    """text: max(a, b, ...)      integers, two or more."""

    __slots__ = ()
    rank = 6


class Pow(Apply):
    """text: a**b      integers, b >= 0."""

    __slots__ = ()
    rank = 7


class Factored(Apply):
    """text: (a)*(b)      a product of sums too long to expand."""

    __slots__ = ()
    rank = 8


class LeftShift(Apply):
    """text: a << b      integers, b >= 0."""

    __slots__ = ()
    rank = 9


class RightShift(Apply):
    """text: a >> b      integers, b >= 0; rounds down."""

    __slots__ = ()
    rank = 10


class BitAnd(Apply):
    """text: a & b"""

    __slots__ = ()
    rank = 11


class BitOr(Apply):
    """text: a | b"""

    __slots__ = ()
    rank = 12


class BitXor(Apply):
    """text: a ^ b"""

    __slots__ = ()
    rank = 13


class ToInt(Apply):
    """text: math.trunc(x)      a float toward zero."""

    __slots__ = ()
    rank = 14


class Floor(Apply):
    """text: math.floor(x)      a float to the integer below."""

    __slots__ = ()
    rank = 15


class Ceil(Apply):
    """text: math.ceil(x)      a float to the integer above."""

    __slots__ = ()
    rank = 16


class Round(Apply):
    """text: round(x)      a float to the nearest integer, halves to even."""

    __slots__ = ()
    rank = 17


class Select(Apply):
    """text: (a if c else b)      integers."""

    __slots__ = ()
    rank = 18


# -- floats -----------------------------------------------------------------------------------------------------------


class FloatApply(Apply):
    """An operation whose value is a float, with IEEE double meaning and exactly this evaluation order."""

    __slots__ = ()
    kind = float
    rank = 30


class ToFloat(FloatApply):
    """text: float(n)      n an integer, rounded to nearest."""

    __slots__ = ()
    rank = 31


class TrueDiv(FloatApply):
    """text: a / b      floats."""

    __slots__ = ()
    rank = 32


class IntTrueDiv(FloatApply):
    """text: a / b      integers; the exact quotient rounded once, as Python does."""

    __slots__ = ()
    rank = 33


class FloatAdd(FloatApply):
    """text: a + b"""

    __slots__ = ()
    rank = 34


class FloatSub(FloatApply):
    """text: a - b"""

    __slots__ = ()
    rank = 35


class FloatMul(FloatApply):
    """text: a * b"""

    __slots__ = ()
    rank = 36


class FloatNeg(FloatApply):
    """text: -a"""

    __slots__ = ()
    rank = 37


class FloatMod(FloatApply):
    """text: a % b      Python's float remainder."""

    __slots__ = ()
    rank = 38


class FloatPow(FloatApply):
    """text: a ** b      floats, real results only."""

    __slots__ = ()
    rank = 39


class FloatMin(FloatApply):
    """text: min(a, b)      Python's: the second only if it is smaller."""

    __slots__ = ()
    rank = 40


class FloatMax(FloatApply):
    """text: max(a, b)      Python's: the second only if it is greater."""

    __slots__ = ()
    rank = 41


class FloatAbs(FloatApply):
    """text: abs(a)"""

    __slots__ = ()
    rank = 42


class RoundDigits(FloatApply):
    """text: round(x, n)      n an integer."""

    __slots__ = ()
    rank = 43


class FloatSelect(FloatApply):
    """text: (a if c else b)      floats."""

    __slots__ = ()
    rank = 44


class MathCall(FloatApply):
    """A one-argument function of `math`; concrete classes below name it."""

    __slots__ = ()
    function: ClassVar[str] = ""


def _math_class(name: str, rank: int) -> type[MathCall]:
    """A concrete `MathCall`, text `math.<name>(x)`."""
    fields = {"__slots__": (), "function": name, "rank": rank, "__doc__": f"text: math.{name}(x)"}
    fields["__module__"] = __name__
    return cast("type[MathCall]", type(name.capitalize(), (MathCall,), fields))


MATH_CLASSES: tuple[type[MathCall], ...] = tuple(
    _math_class(name, 50 + i)
    for i, name in enumerate("sqrt cos cosh sin sinh tan tanh asin acos atan log log2 exp".split())
)
Sqrt, Cos, Cosh, Sin, Sinh, Tan, Tanh, Asin, Acos, Atan, Log, Log2, Exp = MATH_CLASSES


# -- booleans ---------------------------------------------------------------------------------------------------------


class BoolApply(Apply):
    """An operation whose value is a boolean."""

    __slots__ = ()
    kind = bool
    rank = 70


class Eq(BoolApply):
    """text: p == 0      integer p, leading coefficient positive, coefficients coprime."""

    __slots__ = ()
    rank = 71


class Ne(BoolApply):
    """text: p != 0      the negation of `Eq`."""

    __slots__ = ()
    rank = 72


class Le(BoolApply):
    """text: p <= 0      integer p, coefficients of the monomials coprime."""

    __slots__ = ()
    rank = 73


class FloatEq(BoolApply):
    """text: a == b      floats."""

    __slots__ = ()
    rank = 74


class FloatLt(BoolApply):
    """text: a < b      floats; false if one is NaN, so its negation is `Not`."""

    __slots__ = ()
    rank = 75


class FloatLe(BoolApply):
    """text: a <= b      floats."""

    __slots__ = ()
    rank = 76


class IsInteger(BoolApply):
    """text: x.is_integer()"""

    __slots__ = ()
    rank = 77


class Not(BoolApply):
    """text: not a      only around what has no negated form of its own."""

    __slots__ = ()
    rank = 78


class And(BoolApply):
    """text: a and b      two or more, sorted."""

    __slots__ = ()
    rank = 79


class Or(BoolApply):
    """text: a or b      two or more, sorted."""

    __slots__ = ()
    rank = 80


class BoolEq(BoolApply):
    """text: a == b      booleans, sorted."""

    __slots__ = ()
    rank = 81


# -- interning --------------------------------------------------------------------------------------------------------

_NO_SYMBOLS: frozenset[Symbol] = frozenset()


def _leaf(cls: type[Any], atom_order: tuple[Any, ...]) -> Any:
    """A new node without arguments, not yet in the table."""
    node = object.__new__(cls)
    node.args, node.const, node.terms = (), 0, ((node, 1),)
    node.free = _NO_SYMBOLS
    node.order, node.digest = (-1, (atom_order,)), hash((atom_order[0], atom_order[3]))
    return node


def _new_integer(value: int) -> Integer:
    value = int(value)  # a bool or a NumPy integer becomes a plain int
    node = _leaf(Integer, (0, "", 0, value))
    node.value, node.const, node.terms = value, value, ()
    return _integers.setdefault(value, node)


_integers: dict[int, Integer] = {}
ZERO, ONE = Integer(0), Integer(1)


def _new_bool(value: bool) -> Bool:
    node = _leaf(Bool, (0, "", 0, int(value)))
    node.value = value
    return cast(Bool, node)


TRUE, FALSE = _new_bool(True), _new_bool(False)


def _intern(cls: type[Expr], args: tuple[Expr, ...]) -> Expr:
    """The node `cls(args)`. Callers have already put the arguments in canonical form."""
    key = (cls, args)
    found = _table.get(key)
    if found is not None:
        return found
    node = object.__new__(cls)
    node.args, node.const, node.terms = args, 0, ((node, 1),)
    return _table.setdefault(key, node)


def _free(e: Expr) -> frozenset[Symbol]:
    result = _NO_SYMBOLS
    for a in e.args or [mono for mono, _ in e.terms]:
        if a.free is not result:
            result = result | a.free if result else a.free
    return result


def _digest(e: Expr) -> int:
    if type(e) is Sum:
        return hash((2, e.const, *[(m.digest, c) for m, c in e.terms]))
    return hash((_rank(e), *[a.digest for a in e.args]))


def _order_of(e: Expr) -> tuple[Any, ...]:
    if type(e) is Product:
        return -len(e.args), tuple([a.order[1][0] for a in e.args])
    return -1, ((_rank(e), "", 0, e.digest),)


def _rank(e: Expr) -> int:
    return e.rank if isinstance(e, Apply) else 2 if type(e) is Sum else 1


_LAZY: dict[str, Callable[[Expr], Any]] = {"free": _free, "digest": _digest, "order": _order_of}


def _order(term: Term) -> tuple[Any, ...]:
    return term[0].order


def from_terms(const: int, terms: dict[Expr, int]) -> Expr:
    """`const` plus the sum of `coef * mono`; no coefficient is zero."""
    if not terms:
        return Integer(const)
    if len(terms) == 1:
        pairs = tuple(terms.items())
        if const == 0 and pairs[0][1] == 1:
            return pairs[0][0]
    else:
        pairs = tuple(sorted(terms.items(), key=_order))
    return _from_pairs(const, pairs)


def _from_pairs(const: int, pairs: tuple[Term, ...]) -> Expr:
    key = (Sum, const, pairs)
    found = _table.get(key)
    if found is not None:
        return found
    node = object.__new__(Sum)
    node.args, node.const, node.terms = (), const, pairs
    return _table.setdefault(key, node)


def lit(value: ExprLike) -> Expr:
    """A constant for a Python number; an expression is itself."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return Integer(value)
    if isinstance(value, float):
        return Float(value)
    raise TypeError(f"{type(value).__name__} has no symbolic form")


# -- polynomial arithmetic --------------------------------------------------------------------------------------------


def add(a: Expr, b: Expr) -> Expr:
    key = (a, b)
    found = _add_memo.get(key)
    if found is None:
        found = _add(a, b)
        _remember(_add_memo, key, found)
    return found


def _add(a: Expr, b: Expr) -> Expr:
    if a.kind is not int or b.kind is not int:
        return floats.add(a, b)
    if not b.terms:
        return _shift(a, b.const)
    if not a.terms:
        return _shift(b, a.const)
    terms = dict(a.terms)
    for mono, coef in b.terms:
        total = terms.get(mono, 0) + coef
        if total:
            terms[mono] = total
        else:
            del terms[mono]
    return from_terms(a.const + b.const, terms)


def _shift(a: Expr, by: int) -> Expr:
    """`a + by`; the terms are sorted already."""
    if by == 0:
        return a
    if not a.terms:
        return Integer(a.const + by)
    const = a.const + by
    if const == 0 and len(a.terms) == 1 and a.terms[0][1] == 1:
        return a.terms[0][0]
    return _from_pairs(const, a.terms)


def neg(a: Expr) -> Expr:
    return scale(a, -1) if a.kind is int else floats.neg(a)


def sub(a: Expr, b: Expr) -> Expr:
    if a.kind is not int or b.kind is not int:
        return floats.sub(a, b)
    return add(a, scale(b, -1))


def scale(a: Expr, by: int) -> Expr:
    """`by * a` for an integer expression."""
    if by == 1:
        return a
    if by == 0:
        return ZERO
    if not a.terms:
        return Integer(a.const * by)
    pairs = tuple([(m, c * by) for m, c in a.terms])
    const = a.const * by
    if const == 0 and len(pairs) == 1 and pairs[0][1] == 1:
        return pairs[0][0]
    return _from_pairs(const, pairs)


def mul(a: Expr, b: Expr) -> Expr:
    key = (a, b)
    found = _mul_memo.get(key)
    if found is None:
        found = _mul(a, b)
        _remember(_mul_memo, key, found)
    return found


def _mul(a: Expr, b: Expr) -> Expr:
    if a.kind is not int or b.kind is not int:
        return floats.mul(a, b)
    if not b.terms:
        return scale(a, b.const)
    if not a.terms:
        return scale(b, a.const)
    if len(a.terms) * len(b.terms) > EXPAND_LIMIT or _stays_factored(a, b) or _stays_factored(b, a):
        return _intern(Factored, (a, b) if a.digest <= b.digest else (b, a))
    terms: dict[Expr, int] = {}
    for mono_a, coef_a in a.terms:
        if b.const:
            _accumulate(terms, mono_a, coef_a * b.const)
        for mono_b, coef_b in b.terms:
            _accumulate(terms, multiply_monomials(mono_a, mono_b), coef_a * coef_b)
    if a.const:
        for mono_b, coef_b in b.terms:
            _accumulate(terms, mono_b, a.const * coef_b)
    return from_terms(a.const * b.const, terms)


def _stays_factored(a: Expr, b: Expr) -> bool:
    """A factored product times a sum is not distributed: it would grow again."""
    return len(b.terms) > 1 and any(type(atom) is Factored for mono, _ in a.terms for atom in atoms_of(mono))


def _accumulate(terms: dict[Expr, int], mono: Expr, coef: int) -> None:
    total = terms.get(mono, 0) + coef
    if total:
        terms[mono] = total
    else:
        terms.pop(mono, None)


def multiply_monomials(a: Expr, b: Expr) -> Expr:
    atoms = sorted(atoms_of(a) + atoms_of(b), key=_atom_order)
    return _intern(Product, tuple(atoms))


def _atom_order(atom: Expr) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", atom.order[1])


def atoms_of(mono: Expr) -> tuple[Expr, ...]:
    """The factors of one monomial."""
    return mono.args if type(mono) is Product else (mono,)


def monomial(atoms: tuple[Expr, ...]) -> Expr:
    """The product of sorted atoms; 1 if there are none."""
    if not atoms:
        return ONE
    return atoms[0] if len(atoms) == 1 else _intern(Product, atoms)


def _remember(memo: dict[Any, Expr], key: Any, value: Expr) -> None:
    if len(memo) >= _MEMO_LIMIT:
        memo.clear()
    memo[key] = value


def interned_atom(cls: type[Apply], *args: Expr) -> Expr:
    """An atom whose arguments a rule has put in canonical form."""
    return _intern(cls, args)


def rule_memo(rule: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """Remember a binary rule's results."""
    memo: dict[tuple[Expr, Expr], Expr] = {}

    def remembered(a: Expr, b: Expr) -> Expr:
        found = memo.get((a, b))
        if found is None:
            found = rule(a, b)
            _remember(memo, (a, b), found)
        return found

    remembered.__doc__ = rule.__doc__
    return remembered


# The rules and the printer build on the classes above, so they come last.
from pliant.symbolic import printer  # noqa: E402
from pliant.symbolic.rules import division, floats, powers, relations  # noqa: E402
