"""Numbers that a dtype cannot hold, which some operators refuse (`fill_(300)` of bytes) and others wrap or round (`x + 300`).

In:     a call on fakes, and its result.
Out:    eager's error, or a guard that a symbolic number is within the range of a dtype of integers.
Holds:  which operators refuse such numbers is asked of PyTorch itself, by a call on small tensors with a number that does not
        fit, and only where one may not fit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from pliant import torch_adapter
from pliant.graph.call_plan import CallPlan, argument
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import is_random

_REFUSED = "without overflow"  # how PyTorch's message ends
_TOO_LARGE = 2**62  # for each dtype that has a range


def refuse_unfit_numbers(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
    """Raise what eager raises for a number that the result's dtype cannot hold."""
    if type(result) is not FakeTensor or not (places := _numbers_of(plan.func)):
        return
    dtype = result.dtype_
    for place in places:
        number = argument(place, args, kwargs)
        kind = type(number)
        if kind is int or kind is float:
            if not _fits(number, dtype) and (error := _error(plan.func, place, args, kwargs, number)) is not None:
                raise error
        elif kind in (torch.SymInt, torch.SymFloat) and (held := _range(dtype)) is not None:
            if kind is torch.SymInt and dtype is torch.int64:
                continue
            error = _error(plan.func, place, args, kwargs, _TOO_LARGE)
            if error is not None and not (number >= held[0] and number <= held[1]):  # a guard
                raise error


@functools.cache
def _numbers_of(func: Any) -> tuple[tuple[int, str], ...]:
    """The arguments that are numbers of any type."""
    schema = getattr(func, "_schema", None)
    if schema is None or func.namespace != "aten":
        return ()
    return tuple((k, a.name) for k, a in enumerate(schema.arguments) if str(a.type) in ("number", "Optional[number]"))


def _fits(number: float, dtype: torch.dtype) -> bool:
    if dtype.is_floating_point:
        return not math.isfinite(number) or abs(number) <= torch.finfo(dtype).max
    held = _range(dtype)
    return held is None or held[0] <= number <= held[1]


@functools.cache
def _range(dtype: torch.dtype) -> tuple[int, int] | None:
    """What integers of the dtype are made of: those without a sign take negative ones, as they wrap."""
    if dtype is torch.bool or dtype.is_floating_point or dtype.is_complex:
        return None
    limits = torch.iinfo(dtype)
    return limits.min or -limits.max, limits.max


def _error(
    func: Any, place: tuple[int, str], args: Sequence[Any], kwargs: dict[str, Any], number: float
) -> RuntimeError | None:
    """What PyTorch raises for the number as this argument, in the place of others that are symbols some that are not."""
    if is_random(func):
        return None
    given, named = tree_map(_small, (list(args), dict(kwargs)))
    if place[0] < len(given):
        given[place[0]] = number
    else:
        named[place[1]] = number
    try:
        with torch_adapter.below_python_dispatch(), torch.no_grad():
            func(*given, **named)
    except RuntimeError as error:
        return error if str(error).endswith(_REFUSED) else None
    except (TypeError, ValueError, IndexError, NotImplementedError):
        return None
    return None


def _small(value: Any) -> Any:
    """In its place something small. Of one element PyTorch makes some tensors otherwise than of several."""
    if type(value) is FakeTensor:
        return torch.zeros((2,) * value.dim(), dtype=value.dtype_)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return 1
    return min(value, 2) if type(value) is int else value
