"""The nodes of symbolic expressions: the base class with Python's operators, leaves, sums and products, and interning.

Out:    `Expr` and the nodes that others are made of; equal expressions are the same object.
Reads on: `expr.py`, which has these names and all others, and says what holds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, cast

from pliant.errors import Unsupported
from pliant.records import dataclass

Kind: TypeAlias = "type[int] | type[float] | type[bool]"
Number: TypeAlias = "int | float | bool"
Term: TypeAlias = "tuple[Expr, int]"

_MEMO_LIMIT = 1 << 16

_table: dict[tuple[object, ...], Expr] = {}


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
        return _rules.add(self, other if isinstance(other, Expr) else lit(other))

    def __radd__(self, other: ExprLike) -> Expr:
        return _rules.add(lit(other), self)

    def __sub__(self, other: ExprLike) -> Expr:
        return _rules.sub(self, lit(other))

    def __rsub__(self, other: ExprLike) -> Expr:
        return _rules.sub(lit(other), self)

    def __mul__(self, other: ExprLike) -> Expr:
        return _rules.mul(self, other if isinstance(other, Expr) else lit(other))

    def __rmul__(self, other: ExprLike) -> Expr:
        return _rules.mul(lit(other), self)

    def __neg__(self) -> Expr:
        return _rules.neg(self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return _rules.floordiv(self, lit(other))

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return _rules.floordiv(lit(other), self)

    def __mod__(self, other: ExprLike) -> Expr:
        return _rules.mod(self, lit(other))

    def __rmod__(self, other: ExprLike) -> Expr:
        return _rules.mod(lit(other), self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return _rules.truediv(self, lit(other))

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return _rules.truediv(lit(other), self)

    def __pow__(self, other: ExprLike) -> Expr:
        return _rules.power(self, lit(other))

    def __rpow__(self, other: ExprLike) -> Expr:
        return _rules.power(lit(other), self)

    # -- comparisons and logic (`==` itself is identity) --------------------------------------------------------------
    def eq(self, other: ExprLike) -> Expr:
        return _rules.eq(self, lit(other))

    def ne(self, other: ExprLike) -> Expr:
        return _rules.ne(self, lit(other))

    def lt(self, other: ExprLike) -> Expr:
        return _rules.lt(self, lit(other))

    def le(self, other: ExprLike) -> Expr:
        return _rules.le(self, lit(other))

    def gt(self, other: ExprLike) -> Expr:
        return _rules.lt(lit(other), self)

    def ge(self, other: ExprLike) -> Expr:
        return _rules.le(lit(other), self)

    def and_(self, other: ExprLike) -> Expr:
        return _rules.and_(self, lit(other))

    def or_(self, other: ExprLike) -> Expr:
        return _rules.or_(self, lit(other))

    def not_(self) -> Expr:
        return _rules.not_(self)

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
        return _rules.text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _intern, (type(self), self.args)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Expr:
        return self


ExprLike: TypeAlias = "Expr | int | float | bool"
Unary: TypeAlias = "Callable[[Expr], Expr]"
Binary: TypeAlias = "Callable[[Expr, Expr], Expr]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the operators of expressions do: they build on the nodes, so `expr.py` hands them in."""

    add: Binary
    sub: Binary
    mul: Binary
    neg: Unary
    floordiv: Binary
    mod: Binary
    truediv: Binary
    power: Binary
    eq: Binary
    ne: Binary
    lt: Binary
    le: Binary
    and_: Binary
    or_: Binary
    not_: Unary
    text: Callable[[Expr], str]


_rules: Rules


def use(rules: Rules) -> None:
    """Have operators of expressions follow these rules."""
    global _rules
    _rules = rules


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


def interned_atom(cls: type[Apply], *args: Expr) -> Expr:
    """An atom whose arguments a rule has put in canonical form."""
    return _intern(cls, args)


def rule_memo(rule: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """Remember a binary rule's results."""
    memo: dict[tuple[Expr, Expr], Expr] = {}

    def remembered(a: Expr, b: Expr) -> Expr:
        key = (a, b)
        found = memo.get(key)
        if found is None:
            found = rule(a, b)
            if len(memo) >= _MEMO_LIMIT:
                memo.clear()
            memo[key] = found
        return found

    remembered.__doc__ = rule.__doc__
    return remembered
