"""Building and taking apart: containers, strings, functions, slices, unpacking."""

from __future__ import annotations

import types
from typing import Any

from pliant.bytecode.decode import Op
from pliant.bytecode.versions import NULL_BELOW_CALLABLE
from pliant.capture.frame import Frame, Handlers
from pliant.capture.graph_breaks import GraphBreak, NoAttribute, Raised
from pliant.capture.iterators.generators import not_stop_iteration
from pliant.capture.numbers.given_numbers import made_key
from pliant.capture.numbers.progressions import is_progression
from pliant.capture.opcodes.names import known_globals
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.iteration import asks_for_length, hashables, is_driven
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import (
    class_in_numpy,
    is_iterable,
    is_list,
    is_str,
    is_tuple,
    misused,
    plain_class,
    shown_callable,
)
from pliant.capture.varying_values import join
from pliant.guards.kinds import MISSING
from pliant.unpatched import BUILTINS

ROWS = Handlers()
opcode, takes = ROWS.row, ROWS.takes
_SEQUENCE, _MAPPING = 1 << 5, 1 << 6  # Py_TPFLAGS_SEQUENCE and Py_TPFLAGS_MAPPING, by which CPython matches


ROWS.on_operands(
    {
        "BUILD_TUPLE": lambda t, op, *items: items,
        "BUILD_LIST": lambda t, op, *items: list(items),
        "BUILD_SET": lambda t, op, *items: t.native(set, [*map(t.hashable, items)]),
        "BUILD_MAP": lambda t, op, *items: t.native(dict, [*zip([made_key(t, k) for k in items[::2]], items[1::2])]),
        "BUILD_CONST_KEY_MAP": lambda t, op, *items: dict(zip(items[-1], items[:-1])),
        "BUILD_STRING": lambda t, op, *items: join("", items),
        "BUILD_SLICE": lambda t, op, *parts: slice(*parts),
        # Of a list under construction, which behind a break comes from outside.
        "LIST_TO_TUPLE": lambda t, op, items: (
            t.call(tuple, (items,), {}) if is_progression(items) else tuple(t.world.adopt(items))
        ),
        "GET_LEN": lambda t, op: t.call(len, (t.frames[-1].stack[-1],), {}),
        "MATCH_CLASS": lambda t, op, subject, cls, names: _match_class(t, subject, cls, op.arg, names),
        "MATCH_MAPPING": lambda t, op: _is_marked(t.frames[-1].stack[-1], _MAPPING),
        "MATCH_SEQUENCE": lambda t, op: _is_marked(t.frames[-1].stack[-1], _SEQUENCE),
        "LIST_APPEND": lambda t, op, value: _add(t, op, value, "append"),
        "SET_ADD": lambda t, op, value: _add(t, op, t.hashable(value), "add"),
        "MAKE_FUNCTION": lambda t, op, *parts: _function(t, parts[-1], dict(zip(op.arg or (), parts))),
        "CONVERT_VALUE": lambda t, op, value: t.call(_CONVERSIONS[op.arg], (value,), {}, linked=True),
        "FORMAT_WITH_SPEC": lambda t, op, value, spec: t.call(BUILTINS.format, (value, spec), {}, linked=True),
        "FORMAT_SIMPLE": lambda t, op, value: (
            value if is_str(value) else t.call(BUILTINS.format, (value, ""), {}, linked=True)
        ),
    }
)
_CONVERSIONS: dict[str, Any] = {"str": str, "repr": repr, "ascii": ascii}


def _target(t: Tracer, op: Op) -> Any:
    """The container under construction; after a break it comes from outside, and the trace works on its own copy."""
    stack, place = t.frames[-1].stack, -op.arg  # type: ignore[operator]
    stack[place] = adopted = t.world.adopt(stack[place])
    return adopted


def _add(t: Tracer, op: Op, value: Any, method: str) -> None:
    """Add to the list or set under construction, which is not read."""
    if not t.world.add_unread(t.frames[-1].stack[-op.arg], [value]):  # type: ignore[operator]
        t.native(getattr(_target(t, op), method), value)


@takes("MAP_ADD")
def map_add(t: Tracer, op: Op, key: Any, value: Any) -> None:
    target = t.frames[-1].stack[-op.arg]  # type: ignore[operator]
    if t.world.needs_guards(target):
        t.world.dict_set(target, t.hashable(key), value)
    else:
        t.native(_target(t, op).__setitem__, made_key(t, key), value)


def _taken(t: Tracer, value: Any, polyfill: Any = polyfills.all_items, *more: Any) -> Any:
    """An iterable, whose items are taken here if that runs code of the program."""
    return t.call(polyfill, (value, *more), {}, linked=True) if is_driven(t, value) else value


@takes("LIST_EXTEND")
def list_extend(t: Tracer, op: Op, value: Any) -> None:
    if not is_iterable(value):
        raise misused(value, "Value after * must be an iterable, not {}")
    stack, place = t.frames[-1].stack, -op.arg  # type: ignore[operator]
    if is_progression(value) and is_list(stack[place]) and not stack[place]:
        stack[place] = t.call(list, (value,), {})  # nothing else has the list under construction
        return
    polyfill = polyfills.listed_items if asks_for_length(t, value) else polyfills.all_items
    t.native(_target(t, op).extend, t.listed(_taken(t, value, polyfill)))


@takes("SET_UPDATE")
def set_update(t: Tracer, op: Op, value: Any) -> None:
    value = _taken(t, value)
    t.native(_target(t, op).update, hashables(t, value))


@takes("DICT_UPDATE", "DICT_MERGE")
def dict_update(t: Tracer, op: Op, value: Any) -> None:
    target, called = _target(t, op), ""
    if op.name == "DICT_MERGE":
        called = shown_callable(t.frames[-1].stack[-op.arg - (2 if NULL_BELOW_CALLABLE else 3)])  # type: ignore[operator]
    try:
        given = t.mapping(value)
    except NoAttribute:
        text = f"{called} argument after ** must be a mapping, not {{}}" if called else "'{}' object is not a mapping"
        raise misused(value, text) from None
    twice = [k for k in given if k in target] if called else []
    if twice:
        raise Raised(TypeError(f"{called} got multiple values for keyword argument '{twice[0]}'"))
    target.update(given)


@takes("CALL_INTRINSIC_1")
def call_intrinsic_1(t: Tracer, op: Op, error: Any) -> Any:
    if op.arg != "STOPITERATION_ERROR":
        raise GraphBreak("unsupported-opcode", f"the interpreter operation {op.arg}")
    return not_stop_iteration(error)


# ---- strings
@opcode("CONVERT_VALUE_BELOW")
def convert_value_below(frame: Frame, op: Op) -> None:
    frame.stack[-2] = frame.tracer.call(_CONVERSIONS[op.arg], (frame.stack[-2],), {})  # type: ignore[index]


# ---- functions
def _function(t: Tracer, code: types.CodeType, parts: dict[str, Any]) -> types.FunctionType:
    if code.co_flags & 0x80 or code.co_flags & 0x200:
        raise GraphBreak("coroutine", f"the coroutine {code.co_name}")
    closure = parts.get("closure")
    if closure is None and code.co_freevars:
        closure = tuple(types.CellType() for _ in code.co_freevars)  # 3.13 sets the closure afterwards
    namespace = known_globals(t.frames[-1])
    function = types.FunctionType(code, namespace, code.co_name, parts.get("defaults"), closure)
    t.world.functions[id(function)] = function
    if parts.get("kwdefaults"):
        function.__kwdefaults__ = parts["kwdefaults"]
    if parts.get("annotations"):
        function.__annotations__ = _annotations(parts["annotations"])
    return function


def _annotations(given: Any) -> Any:
    """A dict; up to 3.13 they are given as names and values in turn."""
    return dict(zip(given[::2], given[1::2], strict=True)) if is_tuple(given) else given


@takes("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(t: Tracer, op: Op, value: Any, function: Any) -> Any:
    if op.arg != "closure":
        setattr(function, f"__{op.arg}__", _annotations(value) if op.arg == "annotations" else value)
        return function
    parts = {"closure": value, "defaults": function.__defaults__, "kwdefaults": function.__kwdefaults__}
    made = _function(t, function.__code__, parts)
    made.__annotations__ = function.__annotations__
    return made


# ---- unpacking
@takes("UNPACK_SEQUENCE")
def unpack_sequence(t: Tracer, op: Op, value: Any) -> Any:
    count: Any = op.arg
    _refuse_unpacking(t, value)
    values = t.sequence(_taken(t, value, polyfills.first_items, count), count + 1)
    if len(values) > count:
        raise Raised(ValueError(f"too many values to unpack (expected {count})"))
    if len(values) < count:
        raise Raised(ValueError(f"not enough values to unpack (expected {count}, got {len(values)})"))
    return reversed(values)


@takes("UNPACK_EX")
def unpack_ex(t: Tracer, op: Op, value: Any) -> Any:
    ends: Any = op.arg
    before, after = ends
    _refuse_unpacking(t, value)
    values = list(t.sequence(_taken(t, value, polyfills.first_and_others, before)))
    if len(values) < before + after:
        raise Raised(ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(values)})"))
    end = len(values) - after
    return reversed([*values[:before], values[before:end], *values[end:]])


def _refuse_unpacking(t: Tracer, value: Any) -> None:
    cls = type(t.world.resolve(value))
    found = [t.world.type_lookup(cls, name) for name in ("__iter__", "__getitem__")]
    if found == [MISSING, MISSING] or not is_iterable(value):
        raise misused(value, "cannot unpack non-iterable {} object")


# ---- pattern matching
def _is_marked(value: Any, flag: int) -> bool:
    cls = class_in_numpy(value) or plain_class(value)
    return bool(cls.__flags__ & flag)


@takes("MATCH_KEYS")
def match_keys(t: Tracer, op: Op) -> Any:
    subject, keys = t.frames[-1].stack[-2:]
    values = []
    for key in keys:
        if not t.contains(subject, key):
            return None
        values.append(t.subscript(subject, key))
    return tuple(values)


def _match_class(tracer: Tracer, subject: Any, cls: Any, count: Any, names: tuple[str, ...]) -> Any:
    if not tracer.call(isinstance, (subject, cls), {}):
        return None
    values = []
    if count:
        fields = getattr(cls, "__match_args__", None)
        if fields is None and cls in (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple):
            values.append(subject)
            fields = ()
        elif fields is None or count > len(fields):
            raise Raised(
                TypeError(f"{cls.__name__}() accepts {len(fields or ())} positional sub-patterns ({count} given)")
            )
        names = (*fields[:count], *names)
    for name in names:
        try:
            values.append(tracer.get_attr(subject, name))
        except NoAttribute:
            return None
    return tuple(values)
