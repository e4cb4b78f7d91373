"""Building and taking apart: containers, strings, functions, slices, unpacking."""

from __future__ import annotations

import collections.abc
import types
from typing import TYPE_CHECKING, Any

from pliant.capture import spelled_out
from pliant.capture.bytecode.decode import Op
from pliant.capture.bytecode.versions import NULL_BELOW_CALLABLE
from pliant.capture.frame import Frame, Handlers
from pliant.capture.graph_breaks import GraphBreak, NoAttribute, Raised
from pliant.capture.iteration import hashables, is_driven
from pliant.capture.opcodes.names import known_globals
from pliant.capture.value_kinds import class_name
from pliant.capture.varying_text import join

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

ROWS = Handlers()
opcode = ROWS.opcode


ROWS.on_operands(
    {
        "BUILD_TUPLE": lambda t, op, *items: items,
        "BUILD_LIST": lambda t, op, *items: list(items),
        "BUILD_SET": lambda t, op, *items: t.native(set, [*map(t.hashable, items)]),
        "BUILD_MAP": lambda t, op, *items: t.native(dict, [*zip(map(t.hashable, items[::2]), items[1::2])]),
        "BUILD_CONST_KEY_MAP": lambda t, op, *items: dict(zip(items[-1], items[:-1])),
        "BUILD_STRING": lambda t, op, *items: join("", items),
        "BUILD_SLICE": lambda t, op, *parts: slice(*parts),
        "LIST_TO_TUPLE": lambda t, op, items: tuple(t.world.adopt(items)),  # behind a break it comes from outside
        "MATCH_CLASS": lambda t, op, subject, cls, names: _match_class(t, subject, cls, op.arg, names),
        "CONVERT_VALUE": lambda t, op, value: t.call(_CONVERSIONS[op.arg], (value,), {}, linked=True),
        "FORMAT_WITH_SPEC": lambda t, op, value, spec: t.call(format, (value, spec), {}, linked=True),
        "FORMAT_SIMPLE": lambda t, op, value: (
            value if type(value) is str else t.call(format, (value, ""), {}, linked=True)
        ),
    }
)
_CONVERSIONS: dict[str, Any] = {"str": str, "repr": repr, "ascii": ascii}


def _target(frame: Frame, op: Op) -> Any:
    """The container under construction; after a break it comes from outside, and the trace works on its own copy."""
    place = -op.arg  # type: ignore[operator]
    frame.stack[place] = adopted = frame.tracer.world.adopt(frame.stack[place])
    return adopted


def _add(frame: Frame, op: Op, value: Any, method: str) -> None:
    """Add to the list or set under construction, which is not read."""
    if not frame.tracer.world.add_unread(frame.stack[-op.arg], [value]):  # type: ignore[operator]
        frame.tracer.native(getattr(_target(frame, op), method), value)


@opcode("LIST_APPEND")
def list_append(frame: Frame, op: Op) -> None:
    _add(frame, op, frame.pop(), "append")


@opcode("SET_ADD")
def set_add(frame: Frame, op: Op) -> None:
    _add(frame, op, frame.tracer.hashable(frame.pop()), "add")


@opcode("MAP_ADD")
def map_add(frame: Frame, op: Op) -> None:
    key, value = frame.popn(2)
    tracer, target = frame.tracer, frame.stack[-op.arg]  # type: ignore[operator]
    if tracer.world.needs_guards(target):
        tracer.world.dict_set(target, tracer.hashable(key), value)
    else:
        tracer.native(_target(frame, op).__setitem__, tracer.hashable(key), value)


def _taken(frame: Frame, count: int | None = None) -> Any:
    """The iterable on top, whose items are taken here if that runs code of the program."""
    value, t = frame.pop(), frame.tracer
    if not is_driven(t, value):
        return value
    if count is None:
        return t.call(spelled_out.all_items, (value,), {}, linked=True)
    return t.call(spelled_out.first_items, (value, count), {}, linked=True)


@opcode("LIST_EXTEND")
def list_extend(frame: Frame, op: Op) -> None:
    value = _taken(frame)
    try:
        items = frame.tracer.iterable(value)
    except Raised as raised:
        if isinstance(raised.error, TypeError) and not hasattr(value, "__iter__") and not hasattr(value, "__getitem__"):
            raise Raised(TypeError(f"Value after * must be an iterable, not {class_name(value)}")) from None
        raise
    frame.tracer.native(_target(frame, op).extend, items)


@opcode("SET_UPDATE")
def set_update(frame: Frame, op: Op) -> None:
    value = _taken(frame)
    frame.tracer.native(_target(frame, op).update, hashables(frame.tracer, value))


@opcode("DICT_UPDATE", "DICT_MERGE")
def dict_update(frame: Frame, op: Op) -> None:
    value = frame.tracer.mapping(frame.pop())
    target = _target(frame, op)
    if op.name == "DICT_MERGE":
        twice = [k for k in value if k in target]
        if twice:
            called = _shown(frame.stack[-op.arg - (2 if NULL_BELOW_CALLABLE else 3)])  # type: ignore[operator]
            raise Raised(TypeError(f"{called} got multiple values for keyword argument '{twice[0]}'"))
    target.update(value)


def _shown(function: Any) -> str:
    """A callable as CPython's errors of calls name it."""
    name, module = getattr(function, "__qualname__", None), getattr(function, "__module__", None)
    if name is None:
        return str(type(function))
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


@opcode("CALL_INTRINSIC_1")
def call_intrinsic_1(frame: Frame, op: Op) -> None:
    if op.arg == "STOPITERATION_ERROR":
        error = frame.pop()
        if isinstance(error, StopIteration):
            new = RuntimeError("generator raised StopIteration")
            new.__cause__ = new.__context__ = error
            error = new
        frame.push(error)
        return
    raise GraphBreak("unsupported-opcode", f"the interpreter operation {op.arg}")


@opcode(
    "ASYNC_GEN_WRAP",
    "GET_AITER",
    "GET_ANEXT",
    "END_ASYNC_FOR",
    "BEFORE_ASYNC_WITH",
)
def not_captured(frame: Frame, op: Op) -> None:
    raise GraphBreak(
        "coroutine" if "A" in op.name[:5] else "unsupported-opcode", f"the interpreter operation {op.name}"
    )


# ---- strings
@opcode("CONVERT_VALUE_BELOW")
def convert_value_below(frame: Frame, op: Op) -> None:
    frame.stack[-2] = frame.tracer.call(_CONVERSIONS[op.arg], (frame.stack[-2],), {})  # type: ignore[index]


# ---- functions
@opcode("MAKE_FUNCTION")
def make_function(frame: Frame, op: Op) -> None:
    code = frame.pop()
    parts: Any = op.arg or ()
    values = dict(zip(reversed(parts), [frame.pop() for _ in parts], strict=True))
    frame.push(_function(frame, code, values))


def _function(frame: Frame, code: types.CodeType, parts: dict[str, Any]) -> types.FunctionType:
    if code.co_flags & 0x80 or code.co_flags & 0x200:
        raise GraphBreak("coroutine", f"the coroutine {code.co_name}")
    closure = parts.get("closure")
    if closure is None and code.co_freevars:
        closure = tuple(types.CellType() for _ in code.co_freevars)  # 3.13 sets the closure afterwards
    function = types.FunctionType(code, known_globals(frame), code.co_name, parts.get("defaults"), closure)
    frame.tracer.world.functions[id(function)] = function
    if parts.get("kwdefaults"):
        function.__kwdefaults__ = parts["kwdefaults"]
    if parts.get("annotations"):
        function.__annotations__ = _annotations(parts["annotations"])
    return function


def _annotations(given: Any) -> Any:
    """A dict; up to 3.13 they are given as names and values in turn."""
    return dict(zip(given[::2], given[1::2], strict=True)) if isinstance(given, tuple) else given


@opcode("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(frame: Frame, op: Op) -> None:
    value, function = frame.popn(2)
    match op.arg:
        case "defaults":
            function.__defaults__ = value
        case "kwdefaults":
            function.__kwdefaults__ = value
        case "annotations":
            function.__annotations__ = _annotations(value)
        case _:
            parts = {"closure": value, "defaults": function.__defaults__, "kwdefaults": function.__kwdefaults__}
            made = _function(frame, function.__code__, parts)
            made.__annotations__ = function.__annotations__
            function = made
    frame.push(function)


# ---- unpacking
@opcode("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, op: Op) -> None:
    count: Any = op.arg
    values = frame.tracer.sequence(_taken(frame, count), count + 1)
    if len(values) > count:
        raise Raised(ValueError(f"too many values to unpack (expected {count})"))
    if len(values) < count:
        raise Raised(ValueError(f"not enough values to unpack (expected {count}, got {len(values)})"))
    frame.stack.extend(reversed(values))


@opcode("UNPACK_EX")
def unpack_ex(frame: Frame, op: Op) -> None:
    before, after = op.arg  # type: ignore[misc]
    values = list(frame.tracer.sequence(frame.pop()))
    if len(values) < before + after:  # type: ignore[has-type, has-type]
        raise Raised(ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(values)})"))  # type: ignore[has-type, has-type]
    end = len(values) - after  # type: ignore[has-type]
    parts = [*values[:before], values[before:end], *values[end:]]  # type: ignore[has-type]
    frame.stack.extend(reversed(parts))


# ---- pattern matching
@opcode("GET_LEN")
def get_len(frame: Frame, op: Op) -> None:
    frame.push(frame.tracer.call(len, (frame.stack[-1],), {}))


@opcode("MATCH_MAPPING")
def match_mapping(frame: Frame, op: Op) -> None:
    frame.push(isinstance(frame.stack[-1], collections.abc.Mapping))


@opcode("MATCH_SEQUENCE")
def match_sequence(frame: Frame, op: Op) -> None:
    value = frame.stack[-1]
    frame.push(isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes, bytearray)))


@opcode("MATCH_KEYS")
def match_keys(frame: Frame, op: Op) -> None:
    keys, subject = frame.stack[-1], frame.stack[-2]
    values = []
    for key in keys:
        if not frame.tracer.contains(subject, key):
            frame.push(None)
            return
        values.append(frame.tracer.subscript(subject, key))
    frame.push(tuple(values))


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
