"""How containers, functions and objects of the standard library are made again.

In:     a value and the `Statements` it is for.
Out:    its expression; `RECIPES` by type. Recipes run no user code.
"""

from __future__ import annotations

import gc
import io
import itertools
import random
import types
import weakref
from typing import Any

import torch

from pliant.capture.handlers import modes, warning_filters
from pliant.capture.handlers.threads import TracedToken
from pliant.capture.iterators.carried import DequeItems, LooseItems
from pliant.capture.iterators.generators import OURS
from pliant.capture.iterators.standing_iterators import (
    OF_DEQUES,
    OF_DICTS,
    OF_LISTS,
    OF_ORDERED,
    OF_SETS,
    PLAIN_ITERATORS,
    at_left,
    container_of,
    of_changed,
    over_dict,
    put_at,
    way_over,
)
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.numbers.numpy_scalars import is_scalar
from pliant.capture.outside.identity import HookId, TracedId, take_hook_id
from pliant.capture.reconstruct.classes import owner_of
from pliant.capture.reconstruct.instances import fill_dict, fill_set, frozen_items, referent_text
from pliant.capture.reconstruct.statements import CannotReconstruct, Recipe, Statements, expression
from pliant.capture.tracebacks import copied, is_live
from pliant.capture.value_kinds import DICT_VIEWS, HOLDS_FUNCTIONS, LOCKS, SYMBOLIC_TYPES, is_function, times_held
from pliant.capture.varying_values import PROGRESSIONS, Progression, TensorOrNumber, Text
from pliant.unpatched import FUNCTOOLS as functools


def atom(b: Statements, obj: Any) -> str:
    return b.hold(obj)


def _frame(b: Statements, obj: types.FrameType) -> str:
    """Of a traceback."""
    if is_live(obj):
        raise CannotReconstruct("frame", obj)
    return b.hold(obj)


def _set(b: Statements, obj: set[Any]) -> str:
    name = b.bind(obj, "set()")
    fill_set(b, obj, name)
    return name


def struct_sequence(b: Statements, obj: Any) -> str:
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
    if obj.__kwdefaults__:
        b.fill(lambda: f"{name}.__kwdefaults__ = {b.value(obj.__kwdefaults__)}")
    if obj.__annotations__:
        b.fill(lambda: f"{name}.__annotations__ = {b.value(obj.__annotations__)}")
    for attribute in ("__qualname__", "__doc__", "__module__"):
        value = getattr(obj, attribute)
        if value != _default_attribute(obj, attribute):
            b.emit(f"{name}.{attribute} = {b.value(value)}")
    return fill_dict(b, obj, name)


def _default_attribute(function: types.FunctionType, attribute: str) -> Any:
    """What a function made of the same code has without being told."""
    plain = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, function.__closure__)
    return getattr(plain, attribute)


def _reduced(b: Statements, obj: Any) -> str:
    """An iterator of the standard library, by its own `__reduce__`: (function, args[, state])."""
    made = obj.__reduce__()
    b.keep.append(made)
    name = b.bind(obj, f"{b.hold(made[0])}({b.items(made[1])})", hint="iterator")
    if len(made) > 2 and made[2] is not None:
        b.emit(f"{name}.__setstate__({b.value(made[2])})")
    return name


def _over_list(b: Statements, obj: Any) -> str:
    """An iterator over a list, which takes its place when the list has its items."""
    made = obj.__reduce__()
    if len(made) == 2:
        return _reduced(b, obj)
    name = b.bind(obj, f"{b.hold(made[0])}({b.items(made[1])})", hint="iterator")
    b.late.append(f"{b.hold(put_at)}({name}, {made[2]})")
    return name


def _over_unordered(b: Statements, obj: Any) -> str:
    """An iterator over a dict or set, which is made when that has its items."""
    container, cls = container_of(obj), b.hold(type(obj))
    if container is None:
        return _reduced(b, obj)
    try:
        rest = obj.__reduce__()[1][0]
    except RuntimeError:
        return b.bind(obj, f"{b.hold(of_changed)}({cls})", hint="iterator")
    b.keep.append(rest)
    if isinstance(container, set):
        return b.bind_late(obj, f"{b.hold(at_left)}({cls}, {b.value(container)}, {len(rest)}, [{b.items(rest)}])")
    if (way := way_over(obj, container)) is None:
        raise CannotReconstruct("changed-while-iterated", obj)
    return b.bind_late(obj, f"{b.hold(over_dict)}({way}, {b.value(container)}, {len(rest)})")


def _over_deque(b: Statements, obj: DequeItems) -> str:
    try:
        next(obj.real, None)
    except RuntimeError:
        return b.bind(obj, f"{b.hold(of_changed)}({b.hold(OF_DEQUES)})", hint="iterator")
    left = len(obj.container) - obj.taken
    return b.bind_late(obj, f"{b.hold(at_left)}({b.hold(OF_DEQUES)}, {b.value(obj.container)}, {left})")


def _over_loose(b: Statements, obj: LooseItems) -> str:
    if obj.ended:
        return b.bind(obj, "iter(set())", hint="iterator")
    if obj.world.has_changes(obj.container):
        raise CannotReconstruct("changed-while-iterated", obj)
    return b.bind_late(obj, f"{b.hold(at_left)}({b.hold(OF_SETS)}, {b.value(obj.container)}, {len(obj.items) - obj.taken})")


def _string_io(b: Statements, obj: io.StringIO) -> str:
    name = b.bind(obj, f"{b.hold(io.StringIO)}({obj.getvalue()!r})", hint="text")
    b.lines.append(f"{name}.seek({obj.tell()})")
    return name


def _lock(b: Statements, obj: Any) -> str:
    name = b.bind(obj, f"{b.hold(LOCKS[type(obj)].make)}()", hint="lock")
    b.lines += [f"{name}.acquire()"] * times_held(obj)
    return name


def _random(b: Statements, obj: random.Random) -> str:
    name = b.bind(obj, f"{b.hold(random.Random)}()")
    b.lines.append(f"{name}.setstate({b.hold(obj.getstate())})")
    return name


def array(b: Statements, obj: Any) -> str:
    """An array of NumPy's on the memory of a tensor; what NumPy gives as a scalar is one."""
    return b.bind(obj, f"{b.value(obj.tensor)}.numpy(){'[()]' if is_scalar(obj) else ''}", hint="array")


_OF_ITERTOOLS = """count groupby repeat chain cycle islice accumulate product permutations combinations starmap takewhile
dropwhile compress zip_longest"""
_ITERATORS: tuple[type, ...] = (
    *(one for one in PLAIN_ITERATORS if one not in (*OF_LISTS, *OF_DICTS, OF_ORDERED, OF_SETS)),
    enumerate, zip, map, filter, type(next(itertools.groupby("a"))[1]),
    *(getattr(itertools, name) for name in _OF_ITERTOOLS.split()),
)  # fmt: skip


RECIPES: dict[type, Recipe] = {
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
    TensorOrNumber: lambda b, obj: obj.settle(),
    io.StringIO: _string_io,
    **dict.fromkeys(LOCKS, _lock),
    random.Random: _random,
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
    **dict.fromkeys(OF_LISTS, _over_list),
    **dict.fromkeys((*OF_DICTS, OF_ORDERED, OF_SETS), _over_unordered),
    DequeItems: _over_deque,
    LooseItems: _over_loose,
}
