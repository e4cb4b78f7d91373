"""Ranges whose ends vary, lists and tuples of such ranges, and lists that repeat a number, as values of the traced program.

In:     `range(...)` of sizes, `list` and `tuple` of it, `[number] * size`.
Out:    a `Progression`, and what is answered without its items: how many they are, which stands at a place, their sum, the
        least and the largest, whether one is among them, the tensor or the array of them.
Holds:  it has items, as guards say where it is made. Whoever asks for anything else gets the plain range or tuple, under
        guards on the ends. For a plain list the capture starts again: several places may hold it, and one may write it.
"""

from __future__ import annotations

import itertools
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, StartAgain
from pliant.capture.iterators import carried
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import (
    NUMBERS,
    SIZES,
    concrete,
    exactly,
    is_builtin,
    is_int,
    is_list,
    is_module,
    is_mutable_container,
    is_slice,
    is_symbolic,
    is_tuple,
    plain_class,
)
from pliant.capture.varying_values import PROGRESSIONS, Progression, Settling, VaryingList, VaryingRange, VaryingTuple
from pliant.graph.unbacked import is_unbacked
from pliant.guards.sources import held
from pliant.unpatched import BUILTINS

_OF_CLASS: dict[type, type[Progression]] = {kind.cls: kind for kind in (VaryingRange, VaryingTuple, VaryingList)}
is_progression = exactly(*PROGRESSIONS)
_is_range = exactly(VaryingRange)


# ---- made
def parts_of_range(ends: list[Any]) -> tuple[Any, Any, Any] | None:
    """Start, stop and step of `range(*ends)`, of sizes; None of others, and of a step that is no such step."""
    if not 1 <= len(ends) <= 3 or not SIZES.issuperset(map(type, ends)):
        return None
    start, stop, step = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
    return None if is_unbacked(step) or not concrete(step != 0) else (start, stop, step)


def varying_range(t: Tracer, start: Any, stop: Any, step: Any) -> VaryingRange | None:
    """Such a range if an end varies; None where it is a plain one, and where the step varies."""
    varies = is_int(step) and _varies(start, stop)
    made: Any = _made(t, range, (start, stop, step)) if varies else NotImplemented
    return None if made is NotImplemented else made


def repeated(t: Tracer, left: Any, right: Any) -> VaryingList | None:
    """`left * right` if that is a list of one number as often as a number that varies says; None elsewhere."""
    items, times = (left, right) if is_list(left) else (right, left)
    if not is_list(items) or len(items) != 1 or plain_class(items[0]) not in NUMBERS or plain_class(times) is not int:
        return None
    if not _varies(times) or not _varies(times, items[0]):
        return None
    if (settling := _settling(t)) is None or not concrete(times > 0):
        return None
    return VaryingList((items[0], None, 0), times, settling)


def joined(t: Tracer, left: Any, right: Any) -> Any:
    """`left + right` if one goes on where the other ends; NotImplemented elsewhere."""
    numbers = [one for one in (left, right) if is_progression(one)]
    if not numbers or numbers[0].cls is range or not numbers[0].step:
        return NotImplemented
    step, cls = numbers[0].step, numbers[0].cls
    first, second = (_run(t, one, cls, step) for one in (left, right))
    if first is None or second is None or not concrete(first[1] == second[0]):
        return NotImplemented
    return _made(t, cls, (first[0], second[1], step))


def _run(t: Tracer, value: Any, cls: type, step: int) -> tuple[Any, Any] | None:
    """The first of numbers with this step, and what would come after the last; None if they are no such numbers."""
    if is_progression(value):
        return (value.ends[0], value.at(value.count)) if value.cls is cls and value.step == step else None
    if not (is_list(value) if cls is list else is_tuple(value)):
        return None
    value = t.world.whole(value)
    if not value or any(plain_class(one) is not int or is_unbacked(one) for one in value):
        return None
    goes_on = all(concrete(one + step == other) for one, other in itertools.pairwise(value))
    return (value[0], value[-1] + step) if goes_on else None


def _varies(*numbers: Any) -> bool:
    symbolic = [n for n in numbers if is_symbolic(n)]
    return bool(symbolic) and not any(map(is_unbacked, symbolic))


def _settling(t: Tracer) -> Settling | None:
    """What starts the capture again with a plain value here; None if it is to be one."""
    frame, plain = t.frames[-1], t.inputs.policy.plain_places
    place = held(frame.code, f"the numbers at {frame.op.offset}")
    return None if place in plain else lambda: StartAgain(lambda: plain.add(place))


def _made(t: Tracer, cls: type, ends: Args) -> Any:
    """NotImplemented where it has no items, or is to be a plain one."""
    start, stop, step = ends
    settling = _settling(t)
    if settling is None or not concrete(start < stop if step > 0 else start > stop):
        return NotImplemented
    return _OF_CLASS[cls](ends, (stop - start + step - (1 if step > 0 else -1)) // step, settling)


# ---- gone through
def items(value: Any) -> Any:
    """What has the items of a varying range for one who takes them in turn and sees nothing else; other values as they are."""
    return counted(*value.ends) if _is_range(value) and value.made is None else value


def length_now(start: Any, stop: Any, step: Any) -> int:
    """How many items such a range has at this call."""
    first, last, by = (n.node.require_hint() if is_symbolic(n) else n for n in (start, stop, step))
    return max(0, int(-((first - last) // by)))


def counted(start: Any, stop: Any, step: Any) -> range | list[Any]:
    """The items of `range(start, stop, step)`, under guards on how many they are alone."""
    length = length_now(start, stop, step)
    if length and is_int(step) and abs(step) == 1:  # one distance has so many
        assert concrete(stop == start + length * step)
    else:
        up = concrete(step > 0)
        for number in (length, length - 1)[: 1 + bool(length)]:
            end = start + number * step
            assert concrete(end < stop if up else end > stop) is (number < length)
    if is_symbolic(start) or is_symbolic(step):
        return [start + i * step for i in range(length)]
    return range(start, start + length * step, step)


def turns(t: Tracer, start: Any, stop: Any, step: Any) -> Any:
    """What a loop counts by if an end varies, None elsewhere: turn by turn where a graph broke in its body, one turn in a
    graph where their number has had several values, else all of them, under guards on how many they are."""
    frame, symbolic = t.frames[-1], list(filter(is_symbolic, (start, stop, step)))
    try:
        for unknown in filter(is_unbacked, symbolic):
            concrete(unknown)
    except GraphBreak as stop_here:
        stop_here.again = True
        raise
    place, policy = carried.place_of(frame), t.inputs.policy
    by_turn = bool(symbolic) and is_int(step)
    if by_turn and place in policy.broken_loops:
        return carried.CountedTurns(start, stop, step, turns=None)
    if policy.turns_vary(place, length_now(start, stop, step)):
        return carried.CountedTurns(start, stop, step) if by_turn else None
    if not symbolic:
        return None
    numbers = iter(counted(start, stop, step))
    return carried.all_turns(t, numbers, place) if by_turn else numbers


def _backwards(t: Tracer, numbers: Progression) -> Any:
    """`reversed(numbers)` for a loop."""
    if not _is_range(numbers) or numbers.made is not None or not carried.begins_next(t.frames[-1]):
        return NotImplemented
    made = turns(t, numbers.at(numbers.count - 1), numbers.ends[0] - numbers.step, -numbers.step)
    return NotImplemented if made is None else made


# ---- asked for items
def item(t: Tracer, numbers: Progression, key: Any) -> Any:
    """numbers[key]; NotImplemented where the plain value is to say it."""
    if is_slice(key):
        return _part(t, numbers, key)
    if plain_class(key) is not int or is_unbacked(key):
        return NotImplemented
    place = key if concrete(key >= 0) else key + numbers.count
    return numbers.at(place) if concrete(place >= 0) and concrete(place < numbers.count) else NotImplemented


def _part(t: Tracer, numbers: Progression, key: slice) -> Any:
    given = (key.start, key.stop, key.step)
    if not numbers.step or any(one is not None and (type(one) not in SIZES or is_unbacked(one)) for one in given):
        return NotImplemented
    if given == (None, None, -1):
        return _made(t, numbers.cls, (numbers.at(numbers.count - 1), numbers.at(-1), -numbers.step))
    step = 1 if key.step is None else key.step
    if not is_int(step) or step < 1:
        return NotImplemented
    ends = [_clamped(one, numbers.count, default) for one, default in ((key.start, 0), (key.stop, numbers.count))]
    return _made(t, numbers.cls, (*map(numbers.at, ends), numbers.step * step))


def _clamped(bound: Any, count: Any, default: Any) -> Any:
    """An end of a slice as a place among so many."""
    if bound is None:
        return default
    if concrete(bound < 0):
        bound = bound + count
    return 0 if concrete(bound < 0) else count if concrete(bound > count) else bound


def contains(numbers: Progression, one: Any) -> bool | None:
    """`one in numbers`, None where the plain value is to say it: guards say on which side of the ends it lies."""
    if plain_class(one) is not int or numbers.kind is not int or is_unbacked(one):
        return None
    if not concrete(one >= numbers.end(False)) or not concrete(one <= numbers.end(True)):
        return False
    return not numbers.step or bool(concrete((one - numbers.ends[0]) % abs(numbers.step) == 0))


# ---- given to functions
def answer(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """What a call gives, if no item need be looked at; else NotImplemented."""
    if not args or not is_progression(args[0]) or type(function) not in _LOOKED_UP:
        return NotImplemented
    rule = _ANSWERS.get(function)
    if rule is None and _makes_array(function):
        rule = _array
    return NotImplemented if rule is None else rule(t, args, kwargs)


def passes(function: Any) -> bool:
    """Whether a call hands its arguments on to the program as they are, or keeps them."""
    if is_builtin(function) and is_mutable_container(function.__self__):
        return True
    return type(function) in _PASSING or is_module(function) or function is BUILTINS.setattr


def tensor_of(t: Tracer, numbers: Progression, **device: Any) -> Any:
    """The numbers in a tensor, as `torch.tensor` has them."""
    kwargs = {"dtype": _DTYPES[numbers.kind] or torch.get_default_dtype(), **device}
    if not numbers.step:
        return t.call(torch.full, ((numbers.count,), numbers.ends[0]), kwargs)
    return t.call(torch.arange, numbers.ends[: 2 + (numbers.step != 1)], kwargs)


def _alone(rule: Callable[..., Any]) -> Callable[..., Any]:
    """For a call with nothing else."""
    return lambda t, args, kwargs: NotImplemented if kwargs or len(args) != 1 else rule(t, args[0])


def _as(cls: type, t: Tracer, numbers: Progression) -> Any:
    return _made(t, cls, numbers.ends) if numbers.step else NotImplemented


def _sum(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    numbers, start = args[0], (*args[1:], *kwargs.values(), 0)[0]
    if (
        len(args) + len(kwargs) > 2
        or not SIZES.issuperset(map(type, (start, numbers.ends[0])))
        or not kwargs.keys() <= {"start"}
    ):
        return NotImplemented
    count = numbers.count
    return start + numbers.ends[0] * count + numbers.step * (count * (count - 1) // 2)


def _sorted(t: Tracer, numbers: Progression) -> Any:
    if numbers.step >= 0:
        return _as(list, t, numbers)
    return _made(t, list, (numbers.end(False), numbers.at(-1), -numbers.step))


def _tensor(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    dtype = kwargs.get("dtype")
    if len(args) != 1 or not kwargs.keys() <= {"dtype", "device"} or not _fits(args[0], dtype):
        return NotImplemented
    device = {name: value for name, value in kwargs.items() if name == "device"}
    made = tensor_of(t, args[0], **device)
    return made if dtype in (None, made.dtype_) else t.call(torch.Tensor.to, (made, dtype), {})


def _fits(numbers: Progression, dtype: Any) -> bool:
    """Whether a tensor of the type has each of the numbers as it is, or rounded once: as the conversion of a tensor does."""
    if numbers.kind is float:
        return dtype in (None, torch.get_default_dtype())
    if dtype is not torch.int32 or numbers.kind is bool:
        return dtype in (None, torch.float32, torch.float64) or dtype is torch.int64
    return bool(concrete(numbers.end(False) >= -(2**31)) and concrete(numbers.end(True) < 2**31))


def _makes_array(function: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and (function is numpy.array or function is numpy.asarray)


def _array(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or kwargs or not args[0].step:
        return NotImplemented
    return t.call(sys.modules["numpy"].arange, args[0].ends, {})


_DTYPES: dict[type, torch.dtype | None] = {bool: torch.bool, int: torch.int64, float: None}
_PASSING = (types.FunctionType, types.MethodType)
_LOOKED_UP = (types.BuiltinFunctionType, types.FunctionType, type, type(torch.LongTensor))
_ANSWERS: dict[Any, Callable[..., Any]] = {
    BUILTINS.len: _alone(lambda t, numbers: numbers.count),
    bool: _alone(lambda t, numbers: True),
    BUILTINS.sum: _sum,
    BUILTINS.max: _alone(lambda t, numbers: numbers.end(True)),
    BUILTINS.min: _alone(lambda t, numbers: numbers.end(False)),
    list: _alone(lambda t, numbers: _as(list, t, numbers)),
    tuple: _alone(lambda t, numbers: numbers if numbers.cls is tuple else _as(tuple, t, numbers)),
    BUILTINS.sorted: _alone(_sorted),
    reversed: _alone(_backwards),
    operator.length_hint: _alone(lambda t, numbers: numbers.count),
    **dict.fromkeys((torch.tensor, torch.as_tensor, torch.asarray), _tensor),
    **{
        cls: _alone(lambda t, numbers, dtype=cls.dtype: _tensor(t, (numbers,), {"dtype": dtype}))
        for cls in (torch.LongTensor, torch.IntTensor, torch.FloatTensor, torch.DoubleTensor)
    },
}
