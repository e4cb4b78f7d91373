"""Tensors made of numbers: where these vary, of one dimension each, filled and put together.

Holds:  the C functions would ask for the numbers' values. They get them where a number may not fit into the data type, which
        is then an error, and where they are told more than type and device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.data_dependent import to_int
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_list_or_tuple
from pliant.capture.value_kinds import NUMBERS, SYMBOLIC_TYPES, concrete, is_size, is_symbolic, plain_class, varying
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.unbacked import is_unbacked

ROWS = Rows()


def _of_numbers(function: Callable[..., Any], t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`function(data, dtype=, device=)`, which may give a tensor back as it is."""
    data = t.internalize(args[0]) if len(args) == 1 else None
    is_copied = function is torch.tensor or not is_fake(data)
    made = _made(t, data, kwargs) if is_copied and kwargs.keys() <= {"dtype", "device"} else None
    return call_torch(t, function, args, kwargs) if made is None else made


ROWS.each((torch.tensor, torch.as_tensor, torch.asarray), _of_numbers)


@ROWS.handles(torch.Tensor.new_tensor)
def _like_tensor(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`like.new_tensor(data, dtype=, device=)`"""
    made = None
    if len(args) == 2 and is_fake(args[0]) and not is_fake(args[1]) and kwargs.keys() <= {"dtype", "device"}:
        own = {"dtype": args[0].dtype_, "device": args[0].device}
        given = {name: value for name, value in kwargs.items() if value is not None}
        made = _made(t, t.internalize(args[1]), {**own, **given})
    return call_torch(t, torch.Tensor.new_tensor, args, kwargs) if made is None else made


def _made(t: Tracer, data: Any, kwargs: Kwargs) -> Any:
    """The tensor of numbers some of which vary, or are read from tensors; None of others."""
    numbers = _numbers_in(t, data)
    if _UNKNOWN.isdisjoint(map(type, numbers)) or any(is_fake(one) and one.size_ for one in numbers):
        return None
    if not all(_fits(one, kwargs.get("dtype")) for one in numbers):
        return None
    if is_symbolic(data):
        return _scalar(t, data, kwargs)
    return _stacked(t, data, {**kwargs, "dtype": kwargs.get("dtype") or _common_dtype(numbers)})


def _fits(number: Any, dtype: Any) -> bool:
    """Whether a number is one that the type has, as a guard says if need be."""
    if varying(number) is not int or is_unbacked(number) or dtype not in _INTEGERS:
        return True
    limits = torch.iinfo(dtype)
    return bool(concrete(number >= limits.min) and concrete(number <= limits.max))


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32)


def _numbers_in(t: Tracer, data: Any) -> list[Any]:
    """All items of lists of lists."""
    data = _plain(t, data)
    return [one for part in data for one in _numbers_in(t, part)] if is_list_or_tuple(data) else [data]


def _plain(t: Tracer, data: Any) -> Any:
    data = t.world.resolve(data)
    return tuple(data) if is_size(data) else data


def _stacked(t: Tracer, data: Any, kwargs: Kwargs) -> Any:
    data = _plain(t, data)
    if not is_list_or_tuple(data):
        return _scalar(t, data, kwargs)
    parts = [_stacked(t, part, kwargs) for part in data]
    return call_torch(t, torch.stack, (parts,), {}) if parts else call_torch(t, torch.empty, ((0,),), kwargs)


def _scalar(t: Tracer, number: Any, kwargs: Kwargs) -> Any:
    if is_fake(number):
        return call_torch(t, torch.Tensor.to, (call_torch(t, torch.Tensor.detach, (number,), {}),), kwargs)
    dtype = kwargs.get("dtype") or _common_dtype([number])
    value = to_int(t, number) if varying(number) is bool else number
    return call_torch(t, torch.full, ((), value), {**kwargs, "dtype": dtype})


def _common_dtype(numbers: list[Any]) -> torch.dtype:
    of_tensors = [number.dtype_ for number in numbers if is_fake(number)]
    if of_tensors:
        rest = [number for number in numbers if not is_fake(number)]
        return functools.reduce(torch.promote_types, of_tensors + ([_common_dtype(rest)] if rest else []))
    kinds = set(map(plain_class, numbers))
    if not kinds <= NUMBERS:
        raise GraphBreak("data-dependent", "a tensor made of symbolic numbers and other things")
    return torch.get_default_dtype() if float in kinds else torch.int64 if int in kinds else torch.bool


_UNKNOWN = SYMBOLIC_TYPES | {FakeTensor}
