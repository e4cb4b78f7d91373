"""Print an expression as Python or C text.

In:     an expression, names for its symbols (their own names by default), for C optionally what is known of ranges.
Out:    an expression in the target language. Python text (with `math`) has the value of `traverse.evaluate`.
Holds:  C text computes in `int64_t` and `double` and needs `C_PRELUDE`; `//` and `%` keep Python's meaning there,
        as plain `/` and `%` where `bounds` shows that both operands are not negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from pliant.symbolic import nodes
from pliant.symbolic import operations as x
from pliant.symbolic.polynomials import atoms_of

# Precedence levels of Python; the C table uses the same scale and parenthesizes where the languages differ.
_TERNARY, _OR, _AND, _NOT, _COMPARE, _BITOR, _BITXOR, _BITAND, _SHIFT, _ADD, _MUL, _UNARY, _POW, _ATOM = range(14)

Template = tuple[str, int, tuple[int, ...]]  # text, own level, level that each argument needs

C_PRELUDE = """\
static inline int64_t p_floordiv(int64_t a, int64_t b) {
  return a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
}
static inline int64_t p_mod(int64_t a, int64_t b) {
  int64_t r = a % b;
  return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r;
}
static inline int64_t p_min(int64_t a, int64_t b) { return b < a ? b : a; }
static inline int64_t p_max(int64_t a, int64_t b) { return b > a ? b : a; }
static inline int64_t p_pow(int64_t a, int64_t b) {
  int64_t r = 1;
  for (; b > 0; b--) r *= a;
  return r;
}
static inline double p_fmin(double a, double b) { return b < a ? b : a; }
static inline double p_fmax(double a, double b) { return b > a ? b : a; }
static inline double p_fmod(double a, double b) {
  double r = fmod(a, b);
  return r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : copysign(0.0, b);
}
"""


class Range(Protocol):
    """What the C printer asks of a value range."""

    @property
    def lo(self) -> float: ...


_PYTHON: dict[type[nodes.Expr], Template] = {
    x.Factored: ("{}*{}", _MUL, (_MUL, _UNARY)),
    x.FloorDiv: ("{} // {}", _MUL, (_MUL, _UNARY)),
    x.Mod: ("{} % {}", _MUL, (_MUL, _UNARY)),
    x.Pow: ("{}**{}", _POW, (_ATOM, _POW)),
    x.LeftShift: ("{} << {}", _SHIFT, (_SHIFT, _ADD)),
    x.RightShift: ("{} >> {}", _SHIFT, (_SHIFT, _ADD)),
    x.BitAnd: ("{} & {}", _BITAND, (_BITAND, _SHIFT)),
    x.BitOr: ("{} | {}", _BITOR, (_BITOR, _BITXOR)),
    x.BitXor: ("{} ^ {}", _BITXOR, (_BITXOR, _BITAND)),
    x.ToInt: ("math.trunc({})", _ATOM, (0,)),
    x.Floor: ("math.floor({})", _ATOM, (0,)),
    x.Ceil: ("math.ceil({})", _ATOM, (0,)),
    x.Round: ("round({})", _ATOM, (0,)),
    x.Select: ("({1} if {0} else {2})", _ATOM, (_OR, _OR, _OR)),
    x.ToFloat: ("float({})", _ATOM, (0,)),
    x.TrueDiv: ("{} / {}", _MUL, (_MUL, _UNARY)),
    x.IntTrueDiv: ("{} / {}", _MUL, (_MUL, _UNARY)),
    x.FloatAdd: ("{} + {}", _ADD, (_ADD, _MUL)),
    x.FloatSub: ("{} - {}", _ADD, (_ADD, _MUL)),
    x.FloatMul: ("{} * {}", _MUL, (_MUL, _UNARY)),
    x.FloatNeg: ("-{}", _UNARY, (_UNARY,)),
    x.FloatMod: ("{} % {}", _MUL, (_MUL, _UNARY)),
    x.FloatPow: ("{}**{}", _POW, (_ATOM, _POW)),
    x.FloatMin: ("min({}, {})", _ATOM, (0, 0)),
    x.FloatMax: ("max({}, {})", _ATOM, (0, 0)),
    x.FloatAbs: ("abs({})", _ATOM, (0,)),
    x.RoundDigits: ("round({}, {})", _ATOM, (0, 0)),
    x.FloatSelect: ("({1} if {0} else {2})", _ATOM, (_OR, _OR, _OR)),
    x.FloatEq: ("{} == {}", _COMPARE, (_BITOR, _BITOR)),
    x.FloatLt: ("{} < {}", _COMPARE, (_BITOR, _BITOR)),
    x.FloatLe: ("{} <= {}", _COMPARE, (_BITOR, _BITOR)),
    x.IsInteger: ("{}.is_integer()", _ATOM, (_ATOM,)),
    x.Not: ("not {}", _NOT, (_NOT,)),
    x.BoolEq: ("{} == {}", _COMPARE, (_BITOR, _BITOR)),
}
_ARGUMENTS = {1: "{}", 2: "{}, {}"}
_PYTHON.update({c: (f"math.{c.function}({_ARGUMENTS[c.arity]})", _ATOM, (0,) * c.arity) for c in x.MATH_CLASSES})

_C: dict[type[nodes.Expr], Template] = _PYTHON | {
    x.FloorDiv: ("p_floordiv({}, {})", _ATOM, (0, 0)),
    x.Mod: ("p_mod({}, {})", _ATOM, (0, 0)),
    x.Pow: ("p_pow({}, {})", _ATOM, (0, 0)),
    x.LeftShift: ("({} << {})", _ATOM, (_ATOM, _ATOM)),
    x.RightShift: ("({} >> {})", _ATOM, (_ATOM, _ATOM)),
    x.BitAnd: ("({} & {})", _ATOM, (_ATOM, _ATOM)),
    x.BitOr: ("({} | {})", _ATOM, (_ATOM, _ATOM)),
    x.BitXor: ("({} ^ {})", _ATOM, (_ATOM, _ATOM)),
    x.ToInt: ("(int64_t)trunc({})", _UNARY, (0,)),
    x.Floor: ("(int64_t)floor({})", _UNARY, (0,)),
    x.Ceil: ("(int64_t)ceil({})", _UNARY, (0,)),
    x.Round: ("(int64_t)nearbyint({})", _UNARY, (0,)),
    x.Select: ("({} ? {} : {})", _ATOM, (_OR, _OR, _OR)),
    x.ToFloat: ("(double)({})", _UNARY, (0,)),
    x.IntTrueDiv: ("(double)({}) / (double)({})", _MUL, (0, 0)),
    x.FloatMod: ("p_fmod({}, {})", _ATOM, (0, 0)),
    x.FloatPow: ("pow({}, {})", _ATOM, (0, 0)),
    x.FloatMin: ("p_fmin({}, {})", _ATOM, (0, 0)),
    x.FloatMax: ("p_fmax({}, {})", _ATOM, (0, 0)),
    x.FloatAbs: ("fabs({})", _ATOM, (0,)),
    x.FloatSelect: ("({} ? {} : {})", _ATOM, (_OR, _OR, _OR)),
    x.FloatEq: ("({} == {})", _ATOM, (_ADD, _ADD)),
    x.FloatLt: ("({} < {})", _ATOM, (_ADD, _ADD)),
    x.FloatLe: ("({} <= {})", _ATOM, (_ADD, _ADD)),
    x.IsInteger: ("({0} == trunc({0}))", _ATOM, (_ATOM,)),
    x.Not: ("!({})", _UNARY, (0,)),
    x.BoolEq: ("(!({}) == !({}))", _ATOM, (0, 0)),
}
_C.update({c: (f"{c.function}({_ARGUMENTS[c.arity]})", _ATOM, (0,) * c.arity) for c in x.MATH_CLASSES})
for _class in x.PYTHON_ALONE:  # asking for it raises
    del _C[_class]

# Python of values whose truth nobody can ask, as of proxies.
_CALLS: dict[type[nodes.Expr], Template] = _PYTHON | {
    **dict.fromkeys((x.Select, x.FloatSelect), ("select({}, {}, {})", _ATOM, (0, 0, 0))),
    x.Not: ("sym_not({})", _ATOM, (0,)),
}

_COMPARISONS: dict[type[nodes.Expr], str] = {x.Eq: "==", x.Ne: "!=", x.Le: "<="}

_PLAIN_DIVISION: dict[type[nodes.Expr], Template] = {
    x.FloorDiv: ("{} / {}", _MUL, (_MUL, _UNARY)),
    x.Mod: ("{} % {}", _MUL, (_MUL, _UNARY)),
}


def to_python(e: nodes.Expr, names: Mapping[nodes.Symbol, str] | None = None) -> str:
    """Python text of `e`; symbols without an entry in `names` print as themselves."""
    return _Writer(names or {}, _PYTHON, c=False).write(e, 0)


def to_calls(e: nodes.Expr, names: Mapping[nodes.Symbol, str]) -> str:
    """The same with `&` and `|` for `and` and `or`, and calls of `sym_not` and `select` for `not` and `if`."""
    return _Writer(names, _CALLS, c=False).write(e, 0)


def to_c(
    e: nodes.Expr,
    names: Mapping[nodes.Symbol, str] | None = None,
    bounds: Callable[[nodes.Expr], Range] | None = None,
) -> str:
    """C text of `e` (`int64_t`, `double` or a truth value). Raises NotImplementedError for what C cannot say."""
    return _Writer(names or {}, _C, c=True, bounds=bounds).write(e, 0)


class _Writer:
    def __init__(
        self,
        names: Mapping[nodes.Symbol, str],
        table: Mapping[type[nodes.Expr], Template],
        *,
        c: bool,
        bounds: Callable[[nodes.Expr], Range] | None = None,
    ) -> None:
        self.names, self.table, self.c, self.bounds = names, table, c, bounds
        self._texts: dict[nodes.Expr, tuple[str, int]] = {}  # a sum asks twice for its parts, to sort and to join them

    def write(self, e: nodes.Expr, level: int) -> str:
        found = self._texts.get(e)
        if found is None:
            found = self._texts[e] = self._text(e)
        text, own = found
        return f"({text})" if own < level else text

    def _text(self, e: nodes.Expr) -> tuple[str, int]:
        match e:
            case nodes.Constant():
                return self._constant(e.value)
            case nodes.Symbol():
                return self.names.get(e, e.name), _ATOM
            case nodes.Sum():
                return self._sum(e.const, e.terms)
            case nodes.Product():
                return "*".join([self.write(a, _UNARY) for a in e.args]), _MUL
            case x.Min() | x.Max():
                return self._extremum(e), _ATOM
            case x.Eq() | x.Ne() | x.Le():
                return self._comparison(e)
            case x.And() | x.Or():
                return self._joined(e)
            case _:
                return self._operation(e)

    def _joined(self, e: nodes.Expr) -> tuple[str, int]:
        both = type(e) is x.And
        if self.table is _CALLS:
            level = _BITAND if both else _BITOR
            return (" & " if both else " | ").join([self.write(a, level + 1) for a in e.args]), level
        words = (" && ", " || ") if self.c else (" and ", " or ")
        return words[not both].join([self.write(a, _NOT) for a in e.args]), _AND if both else _OR

    def _operation(self, e: nodes.Expr) -> tuple[str, int]:
        template = self.table.get(type(e))
        if template is None:
            raise NotImplementedError(f"{type(e).__name__} has no C form")
        if type(e) in _PLAIN_DIVISION and self._no_negative_operand(e):
            template = _PLAIN_DIVISION[type(e)]
        text, own, levels = template
        return text.format(*[self.write(a, level) for a, level in zip(e.args, levels, strict=True)]), own

    def _no_negative_operand(self, e: nodes.Expr) -> bool:
        return self.bounds is not None and self.bounds(e.args[0]).lo >= 0 and self.bounds(e.args[1]).lo > 0

    def _constant(self, value: nodes.Number) -> tuple[str, int]:
        if isinstance(value, bool):
            return (str(int(value)) if self.c else str(value)), _ATOM
        level = _UNARY if value < 0 or (value == 0 and math.copysign(1, value) < 0) else _ATOM
        if isinstance(value, int):
            wide = self.c and not -(2**31) < value < 2**31
            return (f"INT64_C({value})" if wide else str(value)), level
        if math.isfinite(value):
            return repr(value), level
        if math.isnan(value):
            return ("NAN" if self.c else "math.nan"), _ATOM
        return ("-" if value < 0 else "") + ("INFINITY" if self.c else "math.inf"), level

    def _sum(self, const: int, terms: tuple[nodes.Term, ...]) -> tuple[str, int]:
        """Positive parts first, so that no text starts with a sign unless it must."""
        ordered = list(self._in_order(terms))
        parts = sorted([(coef < 0, self._term(mono, abs(coef))) for mono, coef in ordered], key=lambda p: p[0])
        if const:
            literal = self._constant(abs(const))[0]
            parts.insert(len(parts) if const < 0 else sum(not negative for negative, _ in parts), (const < 0, literal))
        if parts[0][0]:  # every part is negative: `-a // b` would negate a alone
            parts[0] = (True, self._term(ordered[0][0], -ordered[0][1], _UNARY) if ordered else parts[0][1])
        text = ("-" if parts[0][0] else "") + parts[0][1]
        for negative, part in parts[1:]:
            text += (" - " if negative else " + ") + part
        return text, _ADD if len(parts) > 1 else _MUL

    def _in_order(self, terms: tuple[nodes.Term, ...]) -> Iterable[nodes.Term]:
        """In C, what is no product of symbols comes last, by its text: its place in `terms` is that of a hash of names that
        equal kernels do not share."""
        if not self.c:
            return terms
        plain = [all(isinstance(a, nodes.Symbol) for a in atoms_of(mono)) for mono, _ in terms]
        others = [term for term, is_plain in zip(terms, plain) if not is_plain]
        others.sort(key=lambda term: self._term(term[0], abs(term[1])))
        return [*(term for term, is_plain in zip(terms, plain) if is_plain), *others]

    def _term(self, mono: nodes.Expr, coef: int, level: int = _MUL) -> str:
        if type(mono) is nodes.Product:
            level = _MUL
        if coef == 1:
            return self.write(mono, level)
        return f"{self._constant(coef)[0]}*{self.write(mono, _MUL if type(mono) is nodes.Product else _UNARY)}"

    def _extremum(self, e: nodes.Expr) -> str:
        items = [self.write(a, 0) for a in e.args]
        name = "min" if type(e) is x.Min else "max"
        if not self.c:
            return f"{name}({', '.join(items)})"
        text = items[-1]
        for item in reversed(items[:-1]):
            text = f"p_{name}({item}, {text})"
        return text

    def _comparison(self, e: nodes.Expr) -> tuple[str, int]:
        """`p <= 0` with what is negative on the other side."""
        p = e.args[0]
        operator = _COMPARISONS[type(e)]
        left = tuple([(m, c) for m, c in p.terms if c > 0])
        right = tuple([(m, -c) for m, c in p.terms if c < 0])
        const = -p.const
        if not left:  # 0 <= right + const
            left, right, const = right, (), -const
            operator = ">=" if operator == "<=" else operator
        elif operator == "<=" and const == -1 and right:  # left + 1 <= right
            operator, const = "<", 0
        left_const, right_const = (0, const) if const >= 0 or not right else (-const, 0)
        text = f"{self._side(left_const, left)} {operator} {self._side(right_const, right)}"
        return (f"({text})", _ATOM) if self.c else (text, _COMPARE)

    def _side(self, const: int, terms: tuple[nodes.Term, ...]) -> str:
        text, level = self._sum(const, terms) if terms else self._constant(const)
        return f"({text})" if level < _ADD else text
