"""Scalar expressions: what a loop nest computes at one point of its iteration space.

In:     lowering builds them with `const`, `index_value`, `load`, `apply`, `cast`.
Out:    interned immutable trees (`is` is equality), walked by the interpreter, the scheduler and the C printer.
Holds:  every node has a torch dtype; an operator's arguments were already promoted, `cast` (`Apply("cast", (x,))`) is
        explicit.
        `where(c, x, y)` evaluates only the chosen one of x and y: a load in the other may be out of its buffer's range.
        bf16 and f16 values occur only as loads, constants, casts and choices; operators compute in f32.
        Constructors simplify only where IEEE arithmetic gives the same bits (NaN payloads aside).
Text:   `load(buf0, 64*i0 + r0)`, `add(x, y)`, `cast<f32>(x)`.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from pliant.background import give_way
from pliant.ir.ops import OPS
from pliant.records import dataclass
from pliant.symbolic.expr import ZERO, Expr, Symbol
from pliant.symbolic.traverse import substitute as replaced

if TYPE_CHECKING:
    from pliant.ir.loops import Buffer


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Scalar:
    """Base of scalar expressions; `dtype` is the dtype of the value."""

    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Const(Scalar):
    """A literal: Python int, float or bool (inf and nan allowed)."""

    value: int | float | bool


@dataclass(frozen=True, slots=True, eq=False)
class IndexValue(Scalar):
    """The value of a shape expression (may use loop symbols), as a number of `dtype`."""

    expr: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Load(Scalar):
    """Element `index` (flat, in elements from the buffer's first) of `buffer`.

    `index` uses loop symbols, size symbols and the symbols of `indirect`: pairs (symbol, integer scalar that gives its
    value at this point), as in an embedding lookup. Indirect values are already wrapped (negative) and in range.
    """

    buffer: Buffer
    index: Expr
    indirect: tuple[tuple[Symbol, Scalar], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Apply(Scalar):
    """Operator `op` (a row of the operator table) on `args`. `below`: what `walk` found in these, once it was asked for."""

    op: str
    args: tuple[Scalar, ...]
    below: tuple[Scalar, ...] | None = field(default=None, init=False, repr=False)


_interned: dict[tuple[Any, ...], Scalar] = {}


def clear_interned() -> None:
    """Forget interned nodes, so that buffers can be freed. Nodes made before and after are equal but not the same.

    Lowering calls it when a program is complete: within a program sharing is exact unless another thread ends one.
    """
    _interned.clear()


# -- constructors -----------------------------------------------------------------------------------------------------

S = TypeVar("S", bound=Scalar)
Number = int | float | bool
_FLOATS = frozenset((torch.float32, torch.float64, torch.bfloat16, torch.float16))
_BITS = {torch.int8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64}
_UNSIGNED = {torch.uint8: 8, torch.uint16: 16, torch.uint32: 32, torch.uint64: 64}


def _intern(key: tuple[Any, ...], make: Callable[..., S], *args: Any) -> S:
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = make(*args)
    return found  # type: ignore[return-value]  # the key begins with the class


def const(value: Number, dtype: torch.dtype) -> Const:
    """A literal, converted to `dtype` as eager converts a Python number: floats rounded, integers wrapped."""
    value = as_dtype(value, dtype)
    key = (Const, dtype, value.hex() if type(value) is float else value)
    return _intern(key, Const, dtype, value)


def index_value(expr: Expr | int, dtype: torch.dtype = torch.int64) -> Scalar:
    """The value of an index expression as a number."""
    if isinstance(expr, int):
        return const(expr, dtype)
    number = expr.as_int()
    if number is not None:
        return const(number, dtype)
    return _intern((IndexValue, dtype, expr), IndexValue, dtype, expr)


def load(buffer: Buffer, index: Expr, indirect: tuple[tuple[Symbol, Scalar], ...] = ()) -> Load:
    return _intern((Load, buffer, index, indirect), Load, buffer.dtype, buffer, index, indirect)


def apply(op: str, *args: Scalar, dtype: torch.dtype | None = None) -> Scalar:
    """`op` on `args`; `dtype` only for `cast`."""
    row = OPS[op]
    if dtype is None:
        match row.result:
            case "bool":
                dtype = torch.bool
            case "second":
                dtype = args[1].dtype
            case _:
                dtype = args[0].dtype
    key = (Apply, op, dtype, args)
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = _simplified(op, args, dtype) or Apply(dtype, op, args)
    return found


def cast(x: Scalar, dtype: torch.dtype) -> Scalar:
    return x if x.dtype is dtype else apply("cast", x, dtype=dtype)


def where(condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
    return apply("where", condition, x, y)


# -- exact simplifications --------------------------------------------------------------------------------------------


def as_dtype(value: Number, dtype: torch.dtype) -> Number:
    """`value` as a Python number that `dtype` represents exactly."""
    if dtype is torch.float32:
        return ctypes.c_float(value).value
    if dtype is torch.float64:
        return float(value)
    if dtype is torch.bool:
        return bool(value)
    if dtype in _BITS or dtype in _UNSIGNED:
        if type(value) is float and not math.isfinite(value):
            return int(torch.tensor(value, dtype=torch.float64).to(dtype).item())
        return _wrapped(int(value), dtype)
    result: Number = torch.tensor(value, dtype=torch.float64).to(dtype).item()
    return result


def _wrapped(value: int, dtype: torch.dtype) -> int:
    unsigned = _UNSIGNED.get(dtype)
    if unsigned is not None:
        return value & ((1 << unsigned) - 1)
    half = 1 << (_BITS[dtype] - 1)
    return (value + half) % (2 * half) - half


def is_const(x: Scalar, value: Number) -> bool:
    """True if x is the literal `value`; zero means positive zero."""
    if type(x) is not Const or x.value != value:
        return False
    return value != 0 or type(x.value) is not float or math.copysign(1.0, x.value) > 0


def _simplified(op: str, args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
    """A simpler scalar of the same value, or None."""
    rule = _RULES.get(op)
    if rule is not None:
        simpler = rule(args, dtype)
        if simpler is not None:
            return simpler
    for a in args:
        if type(a) is not Const:
            return None
    return _folded(op, args, dtype)


def _folded(op: str, args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
    """The value of an operator on literals, as the reference computes it."""
    if op in ("check_index", "cast"):
        return None  # the one may fail, the other has a rule
    try:
        tensors = [torch.tensor(a.value, dtype=a.dtype) for a in args if isinstance(a, Const)]
        return const(OPS[op].meaning(*tensors).item(), dtype)
    except (RuntimeError, ZeroDivisionError):
        return None  # an integer division by zero fails at run time, where eager fails


def _add(args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
    x, y = args
    if dtype in _FLOATS:  # x + -0.0 = x; x + 0.0 is 0.0 for x = -0.0
        return x if _is_negative_zero(y) else y if _is_negative_zero(x) else None
    return x if is_const(y, 0) else y if is_const(x, 0) else None


def _is_negative_zero(x: Scalar) -> bool:
    return type(x) is Const and type(x.value) is float and x.value == 0 and math.copysign(1.0, x.value) < 0


def _sub(args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
    return args[0] if is_const(args[1], 0) else None  # x - 0 = x, for -0.0 too


def _mul(args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
    x, y = args
    if type(x) is Const and type(y) is not Const:
        x, y = y, x
    if is_const(y, 1):
        return x
    if is_const(y, -1) and dtype is not torch.bool:
        return apply("neg", x)
    return y if dtype not in _FLOATS and is_const(y, 0) else None


def _div(args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
    x, y = args
    if type(y) is not Const:
        return None
    if y.value == 1:
        return x
    # x / 2**k = x * 2**-k: both are the rounded value of the same real number
    if (
        y.value != 0
        and math.isfinite(y.value)
        and abs(math.frexp(y.value)[0]) == 0.5
        and 2.0**-60 < abs(y.value) < 2.0**60
    ):
        return apply("mul", x, const(1.0 / y.value, dtype))
    return None


_Rule = Callable[[tuple[Scalar, ...], torch.dtype], Scalar | None]


def _involution(op: str) -> _Rule:
    def rule(args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
        x = args[0]
        return x.args[0] if type(x) is Apply and x.op == op else None

    return rule


def _where_rule(args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
    condition, x, y = args
    if type(condition) is Const:
        return x if condition.value else y
    if type(x) is Const and type(y) is Const and dtype is torch.bool and x.value != y.value:
        return condition if x.value else apply("bit_not", condition)
    return x if x is y else None


def _connective(neutral: bool) -> _Rule:
    """`and` (neutral: True) and `or` of a value with itself, of truth values with a constant."""

    def rule(args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
        x, y = args
        if x is y:
            return x
        if dtype is not torch.bool:
            return None
        for a, b in ((x, y), (y, x)):
            if type(a) is Const:
                return b if bool(a.value) is neutral else a
        return None

    return rule


# widenings that lose nothing, so a narrowing cast back is the identity
_WIDER: dict[torch.dtype, frozenset[torch.dtype]] = {
    torch.bool: frozenset((*_BITS, *_UNSIGNED, *_FLOATS)),
    torch.uint8: frozenset((torch.int16, torch.int32, torch.int64, *_FLOATS)),
    torch.int8: frozenset((torch.int16, torch.int32, torch.int64, *_FLOATS)),  # bf16 has 8 bits, the first one implied
    torch.int16: frozenset((torch.int32, torch.int64, torch.float32, torch.float64)),
    torch.int32: frozenset((torch.int64, torch.float64)),
    torch.bfloat16: frozenset((torch.float32, torch.float64)),
    torch.float16: frozenset((torch.float32, torch.float64)),
    torch.float32: frozenset((torch.float64,)),
}


def _cast(args: tuple[Scalar, ...], dtype: torch.dtype) -> Scalar | None:
    x = args[0]
    if x.dtype is dtype:
        return x
    match x:
        case Const():
            return const(x.value, dtype)
        case IndexValue() if dtype in (torch.float32, torch.float64) and x.dtype is torch.int64:
            return index_value(x.expr, dtype)
        case Apply(op="cast") if x.dtype in _WIDER.get(x.args[0].dtype, ()):
            if x.args[0].dtype is dtype or dtype in _WIDER.get(x.dtype, ()):
                return cast(x.args[0], dtype)
    return None


_RULES: dict[str, _Rule] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _involution("neg"), "bit_not": _involution("bit_not"),
    "where": _where_rule, "bit_and": _connective(True), "bit_or": _connective(False), "cast": _cast,
}  # fmt: skip


# -- walks ------------------------------------------------------------------------------------------------------------


def children(x: Scalar) -> tuple[Scalar, ...]:
    """The scalars x is made of: arguments, or the values of a load's indirect symbols."""
    if isinstance(x, Apply):
        return x.args
    return tuple([value for _, value in x.indirect]) if isinstance(x, Load) else ()


def walk(x: Scalar) -> Iterator[Scalar]:
    """Each distinct node once, children first. Remembered where x is an operator: each stage asks a dozen times."""
    give_way()
    if type(x) is not Apply:
        return _walked(x)
    if x.below is None:
        *below, _ = _walked(x)
        object.__setattr__(x, "below", tuple(below))
    return itertools.chain(x.below or (), (x,))


def _walked(x: Scalar) -> Iterator[Scalar]:
    seen: set[Scalar] = set()
    stack: list[tuple[Scalar, bool]] = [(x, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            below = children(node)
            if below:
                stack.append((node, True))
                stack += [(c, False) for c in reversed(below) if c not in seen]
            else:
                yield node


def loads(x: Scalar) -> Iterator[Load]:
    return (node for node in walk(x) if isinstance(node, Load))


def index_expressions(x: Scalar) -> list[Expr]:
    """The distinct places that `x` loads from, and positions that it computes with."""
    found = [node.index if isinstance(node, Load) else node.expr for node in walk(x) if isinstance(node, (Load, IndexValue))]
    return list(dict.fromkeys(found))


def substitute(
    x: Scalar,
    place: Mapping[Symbol, Expr],
    moved: Mapping[Buffer, tuple[Buffer, Expr]] | None = None,
    chosen: Sequence[tuple[Symbol, Scalar]] = (),
) -> Scalar:
    """`x` with index symbols replaced. `moved`: buffers whose elements are read from another one, so much further on.
    `chosen`: indirect symbols of `place`, and their values."""
    made: dict[Scalar, Scalar] = {}
    for node in walk(x):
        match node:
            case IndexValue():
                made[node] = index_value(replaced(node.expr, place), node.dtype)
            case Load():
                buffer, further = (moved or {}).get(node.buffer, (node.buffer, ZERO))
                index = replaced(node.index, place) + further
                indirect = [(s, made[value]) for s, value in node.indirect]
                indirect += [(s, value) for s, value in chosen if s in index.free]
                made[node] = load(buffer, index, tuple(indirect))
            case _:
                made[node] = rebuilt(node, made)
    return made[x]


def replace(x: Scalar, new: Mapping[Scalar, Scalar]) -> Scalar:
    """`x` with whole parts of it replaced."""
    made: dict[Scalar, Scalar] = {}
    for node in walk(x):
        made[node] = new[node] if node in new else rebuilt(node, made)
    return made[x]


def rebuilt(node: Scalar, made: Mapping[Scalar, Scalar]) -> Scalar:
    """The same of what its parts were made."""
    match node:
        case Load():
            return load(node.buffer, node.index, tuple((s, made[value]) for s, value in node.indirect))
        case Apply():
            return apply(node.op, *(made[a] for a in node.args), dtype=node.dtype if node.op == "cast" else None)
        case Const():
            return const(node.value, node.dtype)
        case IndexValue():
            return index_value(node.expr, node.dtype)
        case _:
            return node
