"""Calls of torch functions on fakes; symbolic numbers for arguments that are plain numbers in C++.

In:     `call_on_fakes`: a torch function and its arguments, fakes and symbols among them.
Out:    its result. Where C++ wants a symbolic number as a plain float, it gets one that stands for it: one that nothing
        else equals, so that it is known again wherever C++ passes it on, in derivative formulas too. A derivative that
        asks is asked for after the call: the call itself gets the number.
Holds:  it is lent only if the function was tried with other numbers, its derivative included, and made the same calls
        of operators with just that number in other places. Where that holds on one side of 0, 1, 2, another argument,
        or not for NaN, a guard says so; elsewhere the symbol is fixed to its value.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from pliant import torch_adapter
from pliant.graph import given_warnings
from pliant.graph.concrete_sizes import call_specialized, concrete
from pliant.graph.fake_mode import FakeMode, ShapeOnlyMode
from pliant.graph.fake_tensor import FakeTensor
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.symbolic.expr import Expr, Float, Number
from pliant.symbolic.loans import ArgumentAsked, refuse, swap
from pliant.symbolic.rules import floats
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import substitute
from pliant.torch_adapter import current_dispatch_mode

Warnings: TypeAlias = "list[given_warnings.GivenWarning]"
Calls: TypeAlias = "list[tuple[Any, ...]]"
Form: TypeAlias = "Callable[[Any], Any]"

# Numbers for which C++ code may do something else; it may, too, for constants among the arguments.
_SPECIAL = (-math.inf, 0.0, 1.0, 2.0, math.inf)
_APART, _INSIDE = 0.734375, 0.390625  # of single precision, as C++ code rounds
# What C++ code is known to make of such a number before it passes it on.
_FORMS: tuple[Form, ...] = (
    lambda n: n,
    lambda n: -n,
    lambda n: 1.0 - n,
    lambda n: n - 1.0,
    lambda n: n - 2.0,
    lambda n: n + 1.0,
    lambda n: n * n,
    lambda n: n / 2.0,
    lambda n: 1.0 / n,
    lambda n: 1.0 / n - 1.0,
    lambda n: 1.0 / (1.0 - n),
    lambda n: _math("sqrt", n),
    lambda n: _math("log", n),
)
# The same of an integer, which C++ also takes as a float.
_FORMS_OF_INTEGERS: tuple[Form, ...] = (
    lambda n: n,
    lambda n: -n,
    lambda n: 1 - n,
    lambda n: n - 1,
    lambda n: n - 2,
    lambda n: n + 1,
)
_FIRST_INTEGER = 10_368_889  # which single precision has, and no size is
_STEP, _TRIES = 2.0**-20, 64  # a number lent is its hint but for a few such parts
_NO_NUMBER = 1.2345678901234e-300  # none that C++ makes of another
_NOT_FOR_SYMBOLS = "NYI"  # what C++ says of a number that has no symbolic form there
_DEEPEST = 3  # of derivatives of derivatives
_SYMBOLIC = (torch.SymFloat, torch.SymInt)
_NEVER_ASKED: set[tuple[Any, ...]] = set()  # calls, by their arguments, whose derivatives want no plain numbers


def call_on_fakes(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tell: Callable[[Warnings], None] | None = None,
    depth: int = 0,
) -> Any:
    """`func(*args, **kwargs)`, specialized as little as C++ code allows. `tell` gets what it warned of; without one that is
    dropped: a graph's functions are called again, whose warnings its capture was told. `depth`: how many derivatives, one of
    another, the caller will ask for."""
    with given_warnings.collected() as told:
        result = _called(func, args, kwargs, depth)
    if told and tell is not None:
        tell(told)
    return result


def _called(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], depth: int) -> Any:
    outer, told = swap(refuse), given_warnings.mark()
    try:
        if depth and torch.is_grad_enabled() and _may_be_asked(func, args, kwargs):
            args, kwargs = _as_derivative_takes(func, args, kwargs, depth)
            swap(refuse)
            given_warnings.forget(told)
        return call_specialized(func, args, kwargs)
    except ArgumentAsked:
        swap(None)
        loans = _loans_of(func, args, kwargs, max(depth, 1), as_symbols=True)
        given_warnings.forget(told)
        swap(lambda node: loans.get(node.expr))
        return call_specialized(func, args, kwargs)
    finally:
        swap(outer)


def _kinds(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return (func, *map(_kind, args), *((name, _kind(one)) for name, one in kwargs.items()))


def _is_lasting(func: Any) -> bool:
    """Whether it is a function of a library, no method of an object nor a function made by the program."""
    module = getattr(func, "__module__", None) or "torch"  # descriptors have none
    return module.split(".")[0] in ("torch", "_operator") and type(getattr(func, "__self__", None)) is not FakeTensor


def _kind(value: Any) -> Any:
    return (value.dtype_, value.requires_grad) if type(value) is FakeTensor else type(value)


def _may_be_asked(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether there are numbers among the arguments that a derivative may ask for. Most integers are sizes."""
    varies = any(type(one) in _SYMBOLIC for one in args) or any(type(one) in _SYMBOLIC for one in kwargs.values())
    return varies and _kinds(func, args, kwargs) not in _NEVER_ASKED


def _as_derivative_takes(func: Any, args: Any, kwargs: Any, depth: int) -> tuple[Any, Any]:
    """The arguments with plain numbers in place of symbols that the call's derivative asks for."""
    mode = mode_of(args, kwargs)
    env = None if mode is None else mode.shape_env
    if mode is None or env is None or not any(t.requires_grad for t in tree_leaves((args, kwargs)) if type(t) is FakeTensor):
        return args, kwargs
    asked: set[Expr] = set()

    def note(node: Any) -> Number | None:
        asked.add(node.expr)
        return env.hint(node.expr)

    errors: list[Exception] = []
    found = _tried(mode, env, func, args, kwargs, note, depth, errors)
    if found is not None and not asked or any(_NOT_FOR_SYMBOLS not in str(error) for error in errors):
        if _is_lasting(func):
            _NEVER_ASKED.add(_kinds(func, args, kwargs))
        return args, kwargs
    if found is None:  # there are no symbols for it
        asked.update(one.node.expr for one in (*args, *kwargs.values()) if isinstance(one, _SYMBOLIC))
    loans = _loans_of(func, args, kwargs, depth, as_symbols=False, known=asked) if depth <= _DEEPEST else {}
    takes_symbols = found is not None or _Trial(mode, env, (func, args, kwargs), depth, False).calls(note) is None

    def given(number: Any) -> Any:
        lent = loans.get(number.node.expr)
        return lent if lent is not None else number if takes_symbols else concrete(number)

    return tree_map_only(_SYMBOLIC, given, (tuple(args), dict(kwargs)))  # type: ignore[no-any-return]


def mode_of(args: Any, kwargs: Any) -> FakeMode | None:
    """The mode that the call runs in."""
    mode = current_dispatch_mode()
    if isinstance(mode, FakeMode):
        return mode
    return next((t.fake_mode for t in tree_leaves((args, kwargs)) if type(t) is FakeTensor), None)


def _loans_of(
    func: Any, args: Any, kwargs: Any, depth: int, as_symbols: bool, known: Collection[Expr] = (), fixed: frozenset[Expr] = frozenset()
) -> dict[Expr, Number]:
    """What may be lent in this call; guarded as far as that depends on it. `as_symbols`: see `_Trial`; if not, `known` are the
    integers that are asked for. `fixed`: what is not lent."""
    mode = mode_of(args, kwargs)
    env = None if mode is None else mode.shape_env
    if mode is None or env is None:
        return {}
    asked: dict[Expr, _Marker] = {}
    forms = _forms_for(args, kwargs)
    fixed = fixed or frozenset(_counts(mode, env, func, args, kwargs))

    def mark(node: Any) -> Number | None:
        e = node.expr
        is_size = e.kind is int and not as_symbols and e not in known
        if e.kind is bool or is_size or e in fixed or not e.free or env.hint(e) is None:
            return None
        marker = asked.get(e) or _marker(env, e, asked.values(), forms)
        return None if marker is None else asked.setdefault(e, marker).number

    trial = _Trial(mode, env, (func, args, kwargs), depth, as_symbols)
    if trial.calls(mark) is None:  # it may teach what sizes are, so it is not the one to compare
        return {}
    trial.markers, trial.wanted = asked, trial.calls(mark) or []
    if as_symbols and (counts := {e for e, marker in asked.items() if e.kind is int and not _is_computed_with(marker, trial.wanted)}):
        return _loans_of(func, args, kwargs, depth, as_symbols, known, fixed | counts)
    specials = {*_SPECIAL, *_constants(args, kwargs)}
    found = {e: marker for e, marker in asked.items() if _guarded(trial, e, specials)}
    for one, other in itertools.combinations(list(found), 2):
        if not _guarded_order(trial, one, other):
            return {}
    for e, marker in found.items():
        env.loans.update((made, form(e)) for made, form in marker.forms.items())
    return {e: marker.number for e, marker in found.items()}


def _counts(mode: FakeMode, env: ShapeEnv, func: Any, args: Any, kwargs: Any) -> set[Expr]:
    """The integers that C++ takes as no float: it refuses one. To try others there could take as long as they are large."""

    def as_float(number: Any, e: Expr) -> Any:
        hint = env.hint(e) if number.node.expr is e else None  # no symbol: one in a list is asked for its value, which fixes it
        return number if hint is None else float(hint)

    def takes_float(e: Expr) -> bool:
        ours, named = tree_map_only(torch.SymInt, lambda number: as_float(number, e), (tuple(args), dict(kwargs)))
        return _tried(mode, env, func, ours, named, lambda node: env.hint(node.expr), 0) is not None

    integers = {one.node.expr for one in tree_leaves((args, kwargs)) if isinstance(one, torch.SymInt)}
    return {e for e in integers if not takes_float(e)}


def _is_computed_with(marker: _Marker, calls: Calls) -> bool:
    """Whether operators get an integer as a number to compute with, a float. C++ code that takes a dimension or a count passes it
    on as an integer, or does arithmetic of its own with it (of how many parts there are: `chunk`), which no trial can tell."""
    got = {(type(one), one) for call in calls for one in call if type(one) in (int, float)}
    return {kind for kind, _ in got & marker.forms.keys()} == {float}


def _math(name: str, n: Any) -> Any:
    return floats.math_call(name, n) if isinstance(n, Expr) else getattr(math, name)(n)


def _forms_for(args: Any, kwargs: Any) -> tuple[Form, ...]:
    """What C++ code may make of a number in this call: a share of it for each class, for one."""
    tensors = [t for t in tree_leaves((args, kwargs)) if type(t) is FakeTensor]
    sizes = {n for t in tensors for n in t.size_ if type(n) is int and n > 2}
    return (*_FORMS, *[lambda n, size=float(size): n / size for size in sorted(sizes)])


def _formed(form: Form, number: Number) -> Number | None:
    """What a form makes of a number; None where Python has an error."""
    try:
        return form(number)  # type: ignore[no-any-return]
    except (ArithmeticError, ValueError):
        return None


def _constants(args: Any, kwargs: Any) -> set[float]:
    """The numbers among the arguments, which C++ code may compare with others."""
    return {float(n) for n in tree_leaves((args, kwargs)) if type(n) in (int, float) and math.isfinite(n)}


class _Marker(NamedTuple):
    """A number that stands for a symbol, and what C++ may make of it."""

    number: Number
    forms: dict[tuple[type, Number], Form]


def _marker(env: ShapeEnv, e: Expr, others: Iterable[_Marker], forms: tuple[Form, ...]) -> _Marker | None:
    """A number that is known again among `others`, in each of its forms: `-x` and `x` may be arguments of one call."""
    hint: Any = env.hint(e) or 0
    forms = forms if e.kind is float else (*_FORMS_OF_INTEGERS, *map(_of_float, forms))
    taken = {made for other in others for made in other.forms}
    for k in range(1, _TRIES):
        if e.kind is int:
            number: Number = (_FIRST_INTEGER + 2 * k) * (-1 if hint < 0 else 1)
        else:
            number = _rounded(hint * (1 - k * _STEP) if hint else k * _STEP * 1.3)
        known = {(type(made), made): form for form in reversed(forms) if (made := _told(form, number, hint)) is not None}
        ours = all(env.loans.get(made, form(e)) is form(e) for made, form in known.items())
        if (type(number), number) in known and ours and taken.isdisjoint(known):
            return _Marker(number, known)
    return None


def _of_float(form: Form) -> Form:
    """The same of an integer as a float."""
    return lambda n: form(floats.to_float(n) if isinstance(n, Expr) else float(n))


def _told(form: Form, number: Number, hint: Number) -> Number | None:
    """What a form makes of a number; None where it makes the same of others."""
    made = _formed(form, number)
    return None if made is None or made == _formed(form, hint) or not math.isfinite(made) else made


def _rounded(number: float) -> float:
    """In single precision, where it can be."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0]) or number
    except OverflowError:
        return number


def _between(low: float, high: float, kind: type) -> float:
    """A number between two, none of which need be finite; one of the two where there is none."""
    if kind is int:
        return math.floor(high) - 3 if math.isinf(low) else math.floor(low) + 3 if math.isinf(high) else math.floor(low + high) // 2
    if math.isinf(low):
        return -_APART if math.isinf(high) else _rounded(high - _APART)
    return _rounded(low + (_APART if math.isinf(high) else (high - low) * _INSIDE))


def _guarded(trial: _Trial, e: Expr, at_which: set[float]) -> bool:
    """Whether the symbol may be lent: all numbers between those that were tried around its hint did the same."""
    hint = float(trial.env.hint(e) or 0.0)
    if not math.isfinite(hint):
        return False
    specials = sorted(int(n) if e.kind is int and math.isfinite(n) else n for n in at_which if e.kind is float or math.isinf(n) or n == int(n))
    probes = [specials[0]]
    for low, high in itertools.pairwise(specials):
        probes += [_between(low, high, e.kind), high]
    at = 2 * sum(p < hint for p in specials) - (hint not in specials)  # the place among probes of what holds the hint

    def same(place: int) -> bool:
        if place % 2 and not probes[place - 1] < probes[place] < probes[place + 1] or e.kind is int and place in (0, last):
            return e.kind is int  # there is no such number
        return trial.is_passed_on({e: probes[place]})

    last = len(probes) - 1
    if not same(at):
        return False
    low, high = at, at
    while low > 0 and same(low - 1):
        low -= 1
    while high < last and same(high + 1):
        high += 1
    env = trial.env
    if low > 0:
        env.evaluate(e.gt(probes[low - 1]) if low % 2 else e.ge(probes[low]))
    if high < last:
        env.evaluate(e.lt(probes[high + 1]) if high % 2 else e.le(probes[high]))
    if e.kind is float and low == 0 and high == last and not trial.is_passed_on({e: math.nan}):
        env.evaluate(e.le(math.inf))
    return True


def _guarded_order(trial: _Trial, one: Expr, other: Expr) -> bool:
    """Whether two symbols may be lent to the same call, which may compare them; guarded as far as it does."""
    env, (low, high) = trial.env, sorted((one, other), key=lambda e: trial.markers[e].number)
    less, more = trial.markers[low].number, trial.markers[high].number
    equal = trial.is_passed_on({low: less, high: less})
    if not trial.is_passed_on({low: more, high: less}):
        return bool(env.evaluate(low.le(high) if equal else low.lt(high)))
    return equal or not env.evaluate(low.eq(high))


# -- trying -----------------------------------------------------------------------------------------------------------


class _Log(ShapeOnlyMode):  # type: ignore[no-untyped-call]  # torch's base has no types
    """Computes on fakes and notes the calls."""

    def __init__(self, owner: FakeMode) -> None:
        super().__init__(owner)
        self.calls: Calls = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves, tree = tree_flatten(_all_arguments(func, args, kwargs or {}))
        self.calls.append((func, str(tree), *map(_noted, leaves)))
        self.owner.shape_env.lent = None  # type: ignore[union-attr]  # whether that is passed on, the real call tells
        return super().__torch_dispatch__(func, types, args, kwargs)


def _all_arguments(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Those that are left out, as they equal their defaults, too."""
    given = dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
    return [given.get(a.name, a.default_value) for a in func._schema.arguments]


def _noted(value: Any) -> Any:
    if type(value) is FakeTensor:
        return (tuple(map(str, value.shape)), value.dtype)
    if isinstance(value, torch.Tensor):  # which C++ may have made of a number
        return ("constant", value.dtype, value.item() if value.numel() == 1 and not value.is_meta else id(value))
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.expr
    return value


def _is_same(becomes: dict[tuple[type, Number], Number]) -> Callable[[Any, Any], bool]:
    def same(wanted: Any, found: Any) -> bool:
        if type(wanted) is not type(found):
            return False
        if type(wanted) in (float, int):
            wanted = becomes.get((type(wanted), wanted), wanted)
            return bool(wanted == found) or (math.isnan(wanted) and math.isnan(found))
        if isinstance(wanted, Expr):  # of sizes too
            return substitute(wanted, {Float(one): Float(other) for (kind, one), other in becomes.items() if kind is float}) is found
        return wanted is found or bool(wanted == found)

    return same


@dataclass(slots=True, eq=False)
class _Trial:
    """A call that is tried. `as_symbols`: it gets symbols where it can take them; else plain numbers. `markers`: what stands for
    each symbol in the calls of operators that are `wanted`."""

    mode: FakeMode
    env: ShapeEnv
    call: tuple[Any, Any, Any]
    depth: int
    as_symbols: bool
    markers: dict[Expr, _Marker] = field(default_factory=dict)
    wanted: Calls = field(default_factory=list)

    def calls(self, give: Callable[[Any], Number | None]) -> Calls | None:
        """The operators reached if C++ gets these numbers."""
        func, args, kwargs = self.call

        def given(number: Any) -> Any:
            lent = give(number.node)
            return number if lent is None else lent

        if not self.as_symbols:
            args, kwargs = tree_map_only(_SYMBOLIC, given, (tuple(args), dict(kwargs)))
        return _tried(self.mode, self.env, func, args, kwargs, give, self.depth)

    def is_passed_on(self, numbers: dict[Expr, Number]) -> bool:
        """Whether with these numbers the calls are as wanted, the numbers in the places of their markers."""
        numbers = {**{e: marker.number for e, marker in self.markers.items()}, **numbers}
        found = self.calls(lambda node: numbers.get(node.expr))
        if found is None or len(found) != len(self.wanted):
            return False
        becomes: dict[tuple[type, Number], Number] = {}
        for e, marker in self.markers.items():
            for made, form in marker.forms.items():
                value = _formed(form, numbers[e])
                becomes[made] = _NO_NUMBER if value is None else value
        return all(len(a) == len(b) and all(map(_is_same(becomes), a, b)) for a, b in zip(self.wanted, found))


def _tried(
    mode: FakeMode, env: ShapeEnv, func: Any, args: Any, kwargs: Any, give: Any, depth: int,
    errors: list[Exception] | None = None,
) -> Calls | None:  # fmt: skip
    """The operators that the call and its derivatives reach on other fakes; None if it raises: `errors` gets what."""
    receiver = getattr(func, "__self__", None)
    if type(receiver) is FakeTensor:
        func, args = getattr(torch.Tensor, func.__name__), (receiver, *args)
    leaves: list[torch.Tensor] = []

    def fresh(one: FakeTensor) -> FakeTensor:
        made = mode.new(one.size_, one.stride_, one.dtype_, one.device_, one.requires_grad, one.offset_)
        if not one.requires_grad:
            return made
        leaves.append(made)
        return mode._as_non_leaf(made)

    before = (list(env.fresh), env.replayed and list(env.replayed), env.lends)
    log = _Log(mode)
    try:
        swap(give)
        given = tree_map_only(FakeTensor, fresh, (tuple(args), dict(kwargs)))
        env.lends = True
        with log:
            outputs = call_specialized(func, *given)
            log.calls.append(tuple(_noted(one) for one in tree_leaves((outputs, given))))
            roots = _differentiable(outputs)
            for order in range(depth if leaves else 0):
                if not roots:
                    break
                tangents: list[torch.Tensor] = [torch.empty_like(r) for r in roots]
                roots = _differentiable(torch_adapter.gradients(roots, leaves, tangents, create_graph=order + 1 < depth))
    except Exception as error:  # whatever it is, the numbers are not to be lent
        pass_on(error)
        if errors is not None:
            errors.append(error)
        return None
    finally:
        swap(None)
        env.fresh, env.replayed, env.lends = before
        env.lent = None
    return log.calls


def _differentiable(outputs: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(outputs) if type(t) is FakeTensor and t.requires_grad]
