"""Calls of torch functions on fakes; symbolic floats for arguments that are `double` in C++.

In:     `call_on_fakes`: a torch function and its arguments, fakes and symbols among them.
Out:    its result. Where C++ wants a symbolic float as a plain number, it gets one that stands for it: one that nothing
        else equals, so that it is known again wherever C++ passes it on, in derivative formulas too.
Holds:  it is lent only if the function was tried with other numbers, its derivative included, and made the same calls
        of operators with just that number in other places. Where that holds on one side of 0, 1 or 2 only, a guard says
        so; elsewhere the symbol is fixed to its value.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from pliant import torch_adapter
from pliant.graph import given_warnings
from pliant.graph.concrete_sizes import call_specialized
from pliant.graph.fake_mode import FakeMode, ShapeOnlyMode
from pliant.graph.fake_tensor import FakeTensor
from pliant.interruptions import pass_on
from pliant.symbolic.expr import Expr, Number
from pliant.symbolic.loans import ArgumentAsked, refuse, swap
from pliant.symbolic.rules import floats
from pliant.symbolic.shape_env import ShapeEnv
from pliant.torch_adapter import current_dispatch_mode

Warnings: TypeAlias = "list[given_warnings.GivenWarning]"
Calls: TypeAlias = "list[tuple[Any, ...]]"

# Numbers for which C++ code may do something else, and one of each open interval between them.
_SPECIAL = (0.0, 1.0, 2.0)
_BETWEEN = (-0.734375, 0.390625, 1.390625, 2.734375)  # of single precision, as C++ code rounds
_PROBES = tuple(sorted((*_SPECIAL, *_BETWEEN)))
# What C++ code is known to make of such a number before it passes it on.
_FORMS: tuple[Callable[[Any], Any], ...] = (
    lambda n: n,
    lambda n: -n,
    lambda n: 1.0 - n,
    lambda n: n * n,
    lambda n: 1.0 / (1.0 - n) if isinstance(n, Expr) or n != 1.0 else math.inf,
    lambda n: floats.math_call("sqrt", n) if isinstance(n, Expr) else math.sqrt(n) if n >= 0 else math.nan,
)
_STEP = 2.0**-20  # a number lent is its hint but for a few such parts


def call_on_fakes(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tell: Callable[[Warnings], None] | None = None
) -> Any:
    """`func(*args, **kwargs)`, specialized as little as C++ code allows. `tell` gets what it warned of; without one that is
    dropped: a graph's functions are called again, whose warnings its capture was told."""
    with given_warnings.collected() as told:
        result = _called(func, args, kwargs)
    if told and tell is not None:
        tell(told)
    return result


def _called(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    outer, told = swap(refuse), given_warnings.mark()
    try:
        return call_specialized(func, args, kwargs)
    except ArgumentAsked:
        swap(None)
        loans = _loans_of(func, args, kwargs)
        given_warnings.forget(told)
        swap(lambda node: loans.get(node.expr))
        return call_specialized(func, args, kwargs)
    finally:
        swap(outer)


def mode_of(args: Any, kwargs: Any) -> FakeMode | None:
    """The mode that the call runs in."""
    mode = current_dispatch_mode()
    if isinstance(mode, FakeMode):
        return mode
    return next((t.fake_mode for t in tree_leaves((args, kwargs)) if type(t) is FakeTensor), None)


def _loans_of(func: Any, args: Any, kwargs: Any) -> dict[Expr, Number]:
    """What may be lent in this call; guarded as far as that depends on it."""
    mode = mode_of(args, kwargs)
    env = None if mode is None else mode.shape_env
    if mode is None or env is None:
        return {}
    asked: dict[Expr, Number] = {}

    def mark(node: Any) -> Number | None:
        e = node.expr
        if e.kind is float and e.free and env.hint(e) is not None:
            return asked.get(e) or asked.setdefault(e, _marker(env, e, set(asked.values())))
        return None

    if (
        _tried(mode, env, func, args, kwargs, mark) is None
    ):  # it may teach what sizes are, so it is not the one to compare
        return {}
    wanted = _tried(mode, env, func, args, kwargs, mark) or []
    found: dict[Expr, Number] = {}
    for e, marker in asked.items():
        same = [p for p in _PROBES if _is_passed_on(mode, env, (func, args, kwargs), wanted, {**asked, e: p}, asked)]
        if _guarded(env, e, same):
            found[e] = marker
            env.loans.update((form(marker), form(e)) for form in _FORMS)
    return found


def _marker(env: ShapeEnv, e: Expr, others: set[Number]) -> float:
    """A number that is known again among `others`, in each of its forms: `-x` and `x` may be arguments of one call."""
    hint, taken = float(env.hint(e) or 0.0), {form(other) for other in others for form in _FORMS}
    for k in itertools.count(1):
        number = _rounded(hint * (1 - k * _STEP) if hint else k * 1.3e-30)
        if env.loans.get(number, e) is e and taken.isdisjoint(form(number) for form in _FORMS):
            return number
    raise AssertionError("unreachable")


def _rounded(number: float) -> float:
    """In single precision, where it can be."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0]) or number
    except OverflowError:
        return number


def _guarded(env: ShapeEnv, e: Expr, same: Sequence[float]) -> bool:
    """Whether the symbol may be lent: all numbers between those that were tried around its hint did the same."""
    hint = float(env.hint(e) or 0.0)
    at = sum(p < hint for p in _SPECIAL) * 2 + (hint in _SPECIAL)  # the place among probes of what holds the hint
    if not math.isfinite(hint) or _PROBES[at] not in same:
        return False
    low, high = at, at
    while low > 0 and _PROBES[low - 1] in same:
        low -= 1
    while high < len(_PROBES) - 1 and _PROBES[high + 1] in same:
        high += 1
    if low > 0:
        env.evaluate(e.ge(_PROBES[low]) if low % 2 else e.gt(_PROBES[low - 1]))
    if high < len(_PROBES) - 1:
        env.evaluate(e.le(_PROBES[high]) if high % 2 else e.lt(_PROBES[high + 1]))
    return True


# -- trying -----------------------------------------------------------------------------------------------------------


class _Log(ShapeOnlyMode):  # type: ignore[no-untyped-call]  # torch's base has no types
    """Computes on fakes and notes the calls."""

    def __init__(self, owner: FakeMode) -> None:
        super().__init__(owner)
        self.calls: Calls = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves, tree = tree_flatten(_all_arguments(func, args, kwargs or {}))
        self.calls.append((func, str(tree), *map(_noted, leaves)))
        return super().__torch_dispatch__(func, types, args, kwargs)


def _all_arguments(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Those that are left out, as they equal their defaults, too."""
    given = dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
    return [given.get(a.name, a.default_value) for a in func._schema.arguments]


def _noted(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (tuple(map(str, value.shape)), value.dtype)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.expr
    return value


def _is_passed_on(
    mode: FakeMode, env: ShapeEnv, call: tuple[Any, Any, Any], wanted: Calls, numbers: dict[Expr, Number],
    markers: dict[Expr, Number],
) -> bool:  # fmt: skip
    """Whether with these numbers the calls are as `wanted`, the numbers in the places of their markers."""
    found = _tried(mode, env, *call, lambda node: numbers.get(node.expr))
    if found is None or len(found) != len(wanted):
        return False
    becomes = {form(marker): form(numbers[e]) for e, marker in markers.items() for form in _FORMS}
    return all(len(a) == len(b) and all(map(_is_same(becomes), a, b)) for a, b in zip(wanted, found))


def _is_same(becomes: dict[Number, Number]) -> Callable[[Any, Any], bool]:
    def same(wanted: Any, found: Any) -> bool:
        if type(wanted) is not type(found):
            return False
        wanted = becomes.get(wanted, wanted) if type(wanted) is float else wanted
        return wanted is found or bool(wanted == found)

    return same


def _tried(mode: FakeMode, env: ShapeEnv, func: Any, args: Any, kwargs: Any, give: Any) -> Calls | None:
    """The operators that the call and its derivative reach on other fakes; None if it raises."""
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

    before = (list(env.fresh), env.replayed and list(env.replayed))
    log = _Log(mode)
    try:
        swap(give)
        given = tree_map_only(FakeTensor, fresh, (tuple(args), dict(kwargs)))
        with log:
            outputs = call_specialized(func, *given)
            log.calls.append(tuple(_noted(one) for one in tree_leaves((outputs, given))))
            roots: list[torch.Tensor] = [t for t in tree_leaves(outputs) if type(t) is FakeTensor and t.requires_grad]
            if roots and leaves:
                torch_adapter.gradients(roots, leaves, [torch.empty_like(r) for r in roots])
    except Exception as error:  # whatever it is, the numbers are not to be lent
        pass_on(error)
        return None
    finally:
        swap(None)
        env.fresh, env.replayed = before[0], before[1]
    return log.calls
