"""Objects of a trace -> Python statements of the entry that make them again.

In:     a value as the traced program saw it.
Out:    `Rebuilder.value(obj)`: an expression; the statements it needs are appended to `lines`.
Holds:  what existed before the trace is loaded by its source, once; what the trace made is made anew, with its
        identity, sharing and cycles; no user code runs (no `__init__`, `__setitem__`, `__setattr__` of the program's
        classes). Anything else raises `CannotReconstruct`.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import gc
import inspect
import io
import itertools
import re
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pliant.bytecode.resume import generator_code, point_at
from pliant.capture.handlers import modes, warning_filters
from pliant.capture.handlers.given import EachIterable
from pliant.capture.handlers.threads import TracedToken
from pliant.capture.iterators.carried import CarriedItems, CountedTurns, DequeItems, Numbered, turns_left
from pliant.capture.iterators.generators import (
    OURS,
    TracedCallable,
    TracedCallback,
    TracedGenerator,
    kept_cells,
    kept_locals,
)
from pliant.capture.iterators.standing_iterators import (
    OF_DICTS,
    OF_LISTS,
    OF_ORDERED,
    OF_SETS,
    PLAIN_ITERATORS,
    at_left,
    container_of,
    over_dict,
    place,
    put_at,
    reduced,
    set_state,
    way_over,
)
from pliant.capture.iterators.suspended import Carried, Carry, Suspended, finished, place_of, revive
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.numbers.numpy_scalars import is_scalar
from pliant.capture.outside.identity import HookId, TracedId, take_hook_id
from pliant.capture.protocols.given_to_c import GroupingKey
from pliant.capture.reconstruct.instances import (
    class_,
    fill_dict,
    fill_set,
    frozen_items,
    instance,
    owner_of,
    referent_text,
)
from pliant.capture.reconstruct.statements import CannotReconstruct, Recipe, Statements, expression
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import (
    DICT_VIEWS,
    HOLDS_FUNCTIONS,
    LOCKS,
    SYMBOLIC_TYPES,
    ByKind,
    by_kind,
    exactly,
    has_method,
    is_function,
    is_numpy_scalar,
    times_held,
)
from pliant.capture.varying_values import PROGRESSIONS, HookNumber, Progression, TensorOrNumber, Text
from pliant.dispatch.tracebacks import copied, is_live
from pliant.guards.facts import PLAIN
from pliant.guards.standard import SENTINEL_TYPES, can_change
from pliant.torch_adapter import OpOverload, OpOverloadPacket


def _frame(b: Statements, obj: types.FrameType) -> str:
    """Of a traceback."""
    if is_live(obj):
        raise CannotReconstruct("frame", obj)
    return b.hold(obj)


def _set(b: Statements, obj: set[Any]) -> str:
    name = b.bind(obj, "set()")
    fill_set(b, obj, name)
    return name


def _struct_sequence(b: Statements, obj: Any) -> str:
    """What `torch.max(x, 1)` returns: a tuple whose fields have names, made from all of them."""
    contents, hidden = obj.__reduce__()[1]
    if hidden:
        raise CannotReconstruct("builtin-instance", obj)
    return b.bind(obj, f"{b.hold(type(obj))}(({b.items(contents)},))")


def _one_behind(b: Statements, obj: Any) -> str:
    """What a view or a proxy refers to."""
    return b.value(gc.get_referents(obj)[0])


def _of_fields(names: str) -> Recipe:
    """Its class, called with its own fields."""
    fields = names.split()
    return lambda b, obj: b.bind(obj, f"{b.hold(type(obj))}({b.items([getattr(obj, name) for name in fields])})")


def _progression(b: Statements, obj: Progression) -> str:
    if not obj.step:
        return f"[{b.value(obj.ends[0])}] * {b.value(obj.count)}"
    numbers = f"{b.hold(range)}({b.items(obj.ends)})"
    return numbers if obj.cls is range else f"{b.hold(obj.cls)}({numbers})"


def _partial(b: Statements, obj: functools.partial[Any]) -> str:
    parts = [b.value(obj.func), *[b.value(a) for a in obj.args]]
    if obj.keywords:
        parts.append(f"**{{{b.pairs(obj.keywords.items())}}}")
    name = b.bind(obj, f"{b.hold(functools.partial)}({', '.join(parts)})")
    return fill_dict(b, obj, name)


def _method(b: Statements, obj: types.MethodType) -> str:
    if type(obj.__self__) in OURS or is_array(obj.__self__):  # the program sees a method of a real generator
        return b.bind(obj, f"{b.value(obj.__self__)}.{obj.__name__}", hint=obj.__name__)
    return b.bind(obj, f"{b.names(types.MethodType, 'MethodType')}({b.items((obj.__func__, obj.__self__))})")


def _builtin(b: Statements, obj: types.BuiltinFunctionType) -> str:
    """A C function is itself; a method of an object made by the trace is taken from that object."""
    owner = obj.__self__
    if HOLDS_FUNCTIONS.of(owner):
        return b.hold(obj)
    name = obj.__name__
    if is_function(getattr(type(owner), name, None)):  # `super()` gave it: its class overrides it
        base = next(base for base in type(owner).__mro__ if not isinstance(vars(base).get(name), _OVERRIDES))
        return _bound(b, obj, vars(base)[name])
    return b.bind(obj, f"({b.value(owner)}).{name}", hint=name)


def _bound(b: Statements, obj: Any, descriptor: Any) -> str:
    if obj.__self__ is None:  # whose `__get__` means no object at all
        return b.bind(obj, f"(None).{obj.__name__}", hint=obj.__name__)
    return b.bind(obj, f"{b.hold(descriptor)}.__get__({b.value(obj.__self__)})", hint=obj.__name__)


_OVERRIDES = (types.NoneType, types.FunctionType)


def _cell(b: Statements, obj: types.CellType) -> str:
    name = b.bind(obj, f"{b.names(types.CellType, 'Cell')}()", hint="cell")
    for contents in gc.get_referents(obj):  # none: it is empty
        b.fill(lambda contents=contents: f"{name}.cell_contents = {b.value(contents)}")  # type: ignore[misc]
    return name


def _function(b: Statements, obj: types.FunctionType) -> str:
    if obj.__globals__.get("__name__", "").startswith("pliant."):  # none that the trace made
        return b.hold(obj)
    if (owner := owner_of(b, obj)) is not None:
        b.value(owner)  # under its guards
        return b.hold(obj)
    make = b.names(types.FunctionType, "FunctionType")
    closure = f"({b.items(obj.__closure__)},)" if obj.__closure__ else "None"
    parts = [b.hold(obj.__code__), b.hold(obj.__globals__), repr(obj.__name__), b.value(obj.__defaults__), closure]
    name = b.bind(obj, f"{make}({', '.join(parts)})", hint=obj.__name__)
    plain = types.FunctionType(obj.__code__, obj.__globals__, obj.__name__, None, obj.__closure__)
    fields = ("__kwdefaults__", "__annotations__", "__qualname__", "__doc__", "__module__")
    told = [(field, value) for field in fields if (value := getattr(obj, field)) != getattr(plain, field)]
    b.fill_each(told, lambda field, value: f"{name}.{field} = {b.value(value)}")
    return fill_dict(b, obj, name)


def _reduced(b: Statements, obj: Any) -> str:
    """An iterator of the standard library, by its own `__reduce__`: (function, args[, state])."""
    made = reduced(obj)
    if type(obj) is itertools.groupby and len(made) == 2 and _has_keys(obj) and not _is_at_end(made[1][0]):
        raise CannotReconstruct("builtin-instance", obj)  # it stands within a group, whose key it does not tell
    b.keep.append(made)
    name = b.bind(obj, f"{b.hold(made[0])}({b.items(made[1])})", hint="iterator")
    if len(made) > 2 and type(obj) in OF_LISTS:  # which takes its place when the list has its items
        b.late.append(f"{b.hold(put_at)}({name}, {made[2]})")
    elif len(made) > 2 and made[2] is not None:
        b.emit(f"{b.hold(set_state)}({name}, {b.value(made[2])})")
    return name


def _map(b: Statements, obj: map[Any]) -> str:
    """One that a `chain` takes its iterables from: it asks what that takes them from for itself."""
    function, *sources = reduced(obj)[1]
    return b.value(sources[0]) if _is_each_iterable(function) else _reduced(b, obj)


def _name_of_calling(obj: filter[Any] | map[Any]) -> str | None:
    """For `name_of_lazy`: containers alone, which a `chain` goes through, run no code."""
    function, source, *_ = reduced(obj)[1]
    if not _is_each_iterable(function):
        return type(obj).__name__
    return None if _is_over_items(source) and all(map(_is_container, place(source)[0])) else "chain"


_is_each_iterable = exactly(EachIterable)
_is_over_items = exactly(OF_LISTS[0], type(iter(())))
_is_container = exactly(list, tuple, range, dict, set, frozenset, str, bytes)


def _pairs(b: Statements, obj: itertools.pairwise[Any]) -> str:
    """It does not say what it is made of: the iterator, and the item that it gave last. Neither at its end."""
    source, *last = [one for one in gc.get_referents(obj) if one is not itertools.pairwise][:2] or [()]
    rest: Any = itertools.chain(last, source) if last else source
    b.keep.append(rest)
    return b.bind(obj, f"{b.hold(itertools.pairwise)}({b.value(rest)})", hint="iterator")


def _has_keys(groups: itertools.groupby[Any, Any]) -> bool:
    """Whether it refers to keys beside the iterator and the function."""
    return len([one for one in gc.get_referents(groups) if one is not type(groups)]) > 2


def _is_at_end(iterator: Any) -> bool:
    """Whether nothing is left, as far as iterators tell: one over a sequence gave that back, others have one that did."""
    if isinstance(iterator, CarriedItems):
        return iterator.ended
    if isinstance(iterator, Numbered):
        return _is_at_end(iterator.items)
    made = reduced(iterator)
    if made[0] is iter:
        return len(made) == 2 and not made[1][0]
    return type(iterator) in (enumerate, zip, map, filter) and any(_is_at_end(one) for one in made[1] if isinstance(one, Iterator))


def _over_unordered(b: Statements, obj: Any) -> str:
    """An iterator over a dict or set, which is made when that has its items."""
    container = container_of(obj)
    if container is None:
        return _reduced(b, obj)
    try:
        rest = obj.__reduce__()[1][0]
    except RuntimeError:
        raise CannotReconstruct("changed-while-iterated", obj) from None
    b.keep.append(rest)
    if isinstance(container, set):
        return b.bind_late(obj, f"{b.hold(at_left)}({b.value(container)}, {len(rest)}, [{b.items(rest)}])")
    if (way := way_over(obj, container)) is None:
        raise CannotReconstruct("changed-while-iterated", obj)
    return b.bind_late(obj, f"{b.hold(over_dict)}({way}, {b.value(container)}, {len(rest)})")


def _over_deque(b: Statements, obj: DequeItems) -> str:
    try:
        next(obj.real, None)
    except RuntimeError:
        raise CannotReconstruct("changed-while-iterated", obj) from None
    return b.bind_late(obj, f"{b.hold(at_left)}({b.value(obj.container)}, {len(obj.container) - obj.taken})")


def _buffer(b: Statements, obj: io.StringIO | io.BytesIO) -> str:
    """With what it holds, where it stands, and how it ends lines."""
    if obj.closed or vars(obj):
        raise CannotReconstruct("cannot-rebuild", obj)
    state: Any = obj.__getstate__()
    name = b.bind(obj, f"{b.hold(type(obj))}()", hint="buffer")
    b.lines.append(f"{name}.__setstate__({b.hold(state) if len(state[0]) > _LONG else repr(state)})")
    return name


_LONG = 1000  # letters or bytes, which are no part of the text


def _lock(b: Statements, obj: Any) -> str:
    name = b.bind(obj, f"{b.hold(LOCKS[type(obj)].make)}()", hint="lock")
    b.lines += [f"{name}.acquire()"] * times_held(obj)
    return name


def _array(b: Statements, obj: Any) -> str:
    """An array of NumPy's on the memory of a tensor; what NumPy gives as a scalar is one."""
    return b.bind(obj, f"{b.value(obj.tensor)}.numpy(){'[()]' if is_scalar(obj) else ''}", hint="array")


_OF_ITERTOOLS = """count groupby repeat chain cycle islice accumulate product permutations combinations starmap takewhile
dropwhile compress zip_longest filterfalse combinations_with_replacement"""
_ITERATORS: tuple[type, ...] = (
    *(one for one in PLAIN_ITERATORS if one not in (*OF_DICTS, OF_ORDERED, OF_SETS)),
    enumerate, zip, map, filter, type(next(itertools.groupby("a"))[1]),
    *(getattr(itertools, name) for name in _OF_ITERTOOLS.split()),
)  # fmt: skip


# ---- generators, iterators that a loop still needs, traced callables
def _generator(b: Statements, obj: TracedGenerator) -> str:
    if obj.is_broken:  # the code behind the break says where it stands next
        return _revived(b, obj, f"{b.hold(Suspended)}()")
    if obj.finished:
        return b.bind(obj, f"{b.hold(finished)}()", hint="generator")
    if obj.started:
        return _suspended(b, obj) if obj.is_owned else _revived(b, obj, _suspended(b, obj))
    return _new_generator(b, obj)


def _revived(b: Statements, obj: TracedGenerator, state: str) -> str:
    name, qualified = obj.named()
    return b.bind(obj, f"{b.hold(revive)}({state}, {name!r}, {qualified!r})", hint="generator")


def _suspended(b: Statements, obj: TracedGenerator) -> str:
    """Text of the state of a generator that stands at a `yield`."""
    frame = obj.frame
    stack = [*frame.stack, None]
    index = frame.program.index_of(frame.op.offset)
    kept = kept_locals(frame)
    point = point_at(frame.program, index, [v is not NULL for v in stack], frame.locals, kept)
    if point.handled or obj.running:
        raise CannotReconstruct("started-generator", obj)
    generator_code(point)
    cells = kept_cells(frame, index, kept)
    values = [*(v for v in stack if v is not NULL), *(frame.locals[n] for n in point.locals)]
    b.keep.append(cells)
    place = b.names(place_of(point, frame.globals, obj.named()), "place")
    return f"{b.hold(Suspended)}({place}, ({b.items(cells)}{',' * (len(cells) == 1)}), ({b.items(values)},))"


def _new_generator(b: Statements, obj: TracedGenerator) -> str:
    """A generator that has not started: its function is called again with the bound parameters."""
    frame, code = obj.frame, obj.frame.code
    names, placed, own = _parameters(code), code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    values = frame.locals | {n: frame.cells[n].cell_contents for n in code.co_cellvars if n in names and n in frame.cells}
    closure = f"({b.items([frame.cells[n] for n in code.co_freevars])},)" if code.co_freevars else "None"
    name, qualified = obj.named()
    make = f"{b.names(types.FunctionType, 'FunctionType')}({b.hold(code)}, {b.hold(frame.globals)}, {name!r}, None, {closure})"
    args = [b.value(values[n]) for n in names[:placed]]
    keywords = [f"{n}={b.value(values[n])}" for n in names[placed:own]]
    stars = ["*" * (1 + (i > 0 or not code.co_flags & 0x04)) + b.value(values[n]) for i, n in enumerate(names[own:])]
    made = b.bind(obj, f"{make}({', '.join([*args, *keywords, *stars])})", hint="generator")
    if qualified != code.co_qualname:
        b.emit(f"{made}.__qualname__ = {qualified!r}")
    return made


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    extra = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]


def _carry(b: Statements, obj: Carry) -> str:
    text = _CARRIED.of(obj.real)(b, obj.real)
    name = b.names.fresh("loop")
    b.emit(f"{name} = [{b.hold(Carried)}({text}, {turns_left(obj)})]", name)
    return f"{name}.pop()"  # the entry keeps none: what the loop drops is gone


def _carried_items(b: Statements, obj: CarriedItems) -> str:
    """Of a loop that has just begun; others existed before."""
    source: Any = obj.source
    name = b.bind(obj, f"list.{source.method}({b.value(obj.container)})", hint="iterator")
    b.late.append(f"{b.hold(put_at)}({name}, {obj.index_of(obj.steps)})")
    return name


_CARRIED: ByKind[Callable[[Statements, Any], str]] = ByKind(Statements.value, {TracedGenerator: _suspended})


# The name of an object of which code of the program runs once somebody asks it for items; None of others.
name_of_lazy: Callable[[Any], str | None] = by_kind(
    lambda obj: None,
    {TracedGenerator: lambda generator: None if generator.finished else generator.frame.name},
    dict.fromkeys((map, filter), _name_of_calling),
)


# ---- the table
_OBJECTS: dict[type, Recipe] = {
    float: lambda b, obj: repr(obj) if obj - obj == 0.0 else b.hold(obj),  # inf and nan have no literal
    list: lambda b, obj: b.bind_contents(obj, lambda: b.items(obj), "[{}]", ".extend([{}])"),
    tuple: expression(lambda b, obj: f"({b.items(obj)}{',' * (len(obj) == 1)})"),
    dict: lambda b, obj: b.bind_contents(obj, lambda: b.pairs(obj.items()), "{{{}}}", ".update({{{}}})"),
    set: _set,
    frozenset: expression(lambda b, obj: f"frozenset({frozen_items(b, obj)})"),
    **dict.fromkeys((slice, range), _of_fields("start stop step")),
    torch.Size: expression(lambda b, obj: f"{b.names(torch.Size, 'Size')}(({b.items(obj)}{',' * (len(obj) == 1)}))"),
    functools.partial: _partial,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    types.MethodWrapperType: lambda b, obj: _bound(b, obj, vars(obj.__objclass__)[obj.__name__]),
    types.CellType: _cell,
    types.TracebackType: expression(lambda b, obj: f"{b.hold(copied)}({b.hold(obj)})", "traceback"),
    types.FrameType: _frame,
    types.FunctionType: _function,
    **dict.fromkeys((staticmethod, classmethod), _of_fields("__func__")),
    property: _of_fields("fget fset fdel __doc__"),
    super: _of_fields("__thisclass__ __self__"),
    weakref.ref: expression(lambda b, obj: f"{b.hold(weakref.ref)}({referent_text(b, obj)})"),
    **dict.fromkeys(  # a number computed from sizes: evaluated in Python from the inputs' sizes
        SYMBOLIC_TYPES,
        expression(lambda b, obj: b.writer.expression(obj.node.shape_env.simplify(obj.node.expr)), "size"),
    ),
    Text: expression(lambda b, obj: f"''.join(({', '.join([part.made(b.hold, b.value) for part in obj.parts])},))", "text"),
    **dict.fromkeys(PROGRESSIONS, expression(_progression, "numbers")),
    **dict.fromkeys((TensorOrNumber, HookNumber), lambda b, obj: obj.settle()),
    **dict.fromkeys((io.StringIO, io.BytesIO), _buffer),
    **dict.fromkeys(LOCKS, _lock),
    types.MappingProxyType: expression(lambda b, obj: f"{b.hold(types.MappingProxyType)}({_one_behind(b, obj)})"),
    bytearray: expression(lambda b, obj: f"{b.hold(bytearray)}({bytes(obj)!r})"),
    TracedId: expression(lambda b, obj: f"id({b.value(obj.obj)})", "address"),
    TracedToken: expression(lambda b, obj: f"{b.value(obj.var)}.set({b.value(obj.value)})", "token"),
    HookId: expression(lambda b, obj: f"{b.hold(take_hook_id)}()", "hook_id"),
    modes.InferenceBlock: modes.real_block,
    warning_filters.Block: warning_filters.real_block,
    **{
        cls: expression(lambda b, obj, name=name: f"{_one_behind(b, obj)}.{name}()", "view")  # type: ignore[misc]
        for cls, name in DICT_VIEWS.items()
    },
    **dict.fromkeys(_ITERATORS, _reduced),
    itertools.pairwise: _pairs,
    map: _map,
    **dict.fromkeys((*OF_DICTS, OF_ORDERED, OF_SETS), _over_unordered),
    DequeItems: _over_deque,
    TracedGenerator: _generator,
    **dict.fromkeys((TracedCallable, GroupingKey, TracedCallback), lambda b, obj: b.value(obj.function)),
    Carry: _carry,
    CarriedItems: _carried_items,
    CountedTurns: expression(
        lambda b, obj: (
            f"iter(range({b.value(obj.start)} + {obj.step * obj.steps}, {b.value(obj.stop)}, {obj.step}))"
        ),
        "iterator",
    ),
    Numbered: expression(lambda b, obj: f"enumerate({b.items((obj.items, obj.count))})", "iterator"),
}
# Kept by reference: immutable, or global by nature.
_ATOMS: tuple[type, ...] = (
    *PLAIN, *SENTINEL_TYPES, complex, enum.Enum, types.ModuleType, types.CodeType, re.Pattern, re.Match,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal, inspect.Signature,
    inspect.Parameter, types.GenericAlias, OpOverload, OpOverloadPacket, torch.finfo, torch.iinfo,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)  # fmt: skip


def _object(b: Statements, obj: Any) -> str:
    if obj is NULL:
        raise CannotReconstruct("null-on-stack", obj)
    if has_method(type(obj), "n_sequence_fields"):
        return _struct_sequence(b, obj)
    if is_array(obj):
        return _array(b, obj)
    return b.hold(obj) if is_numpy_scalar(obj) else instance(b, obj)


def _scalar(b: Statements, obj: Any) -> str:
    """A string or a number: itself, but of a class of the program each call makes its own."""
    shared = not can_change(type(obj)) or isinstance(obj, enum.Enum)
    return b.hold(obj) if shared else instance(b, obj)


def _tensor(b: Statements, obj: torch.Tensor) -> str:
    raise CannotReconstruct("unknown-tensor", obj)


class Rebuilder(Statements):
    recipes = ByKind(
        _object,
        _OBJECTS,
        {
            **dict.fromkeys(_ATOMS, Statements.hold),
            torch.Tensor: _tensor,
            type: class_,
            **dict.fromkeys((int, str, bytes), _scalar),
        },
    )
