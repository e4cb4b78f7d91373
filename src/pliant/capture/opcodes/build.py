"""Building and taking apart: containers, strings, functions, slices, unpacking."""

from __future__ import annotations

import types
from typing import Any

from pliant.capture import spelled_out
from pliant.capture.bytecode.decode import Op
from pliant.capture.bytecode.versions import NULL_BELOW_CALLABLE
from pliant.capture.frame import Frame, Handlers
from pliant.capture.graph_breaks import GraphBreak, NoAttribute, Raised
from pliant.capture.iteration import hashables, is_driven
from pliant.capture.value_kinds import class_name
from pliant.capture.varying_text import join
from pliant.guards.sources import held

ROWS = Handlers()
opcode = ROWS.opcode


@opcode("BUILD_TUPLE")
def build_tuple(frame: Frame, op: Op) -> None:
    frame.push(tuple(frame.popn(op.arg)))  # type: ignore[arg-type]


@opcode("BUILD_LIST")
def build_list(frame: Frame, op: Op) -> None:
    frame.push(frame.popn(op.arg))  # type: ignore[arg-type]


@opcode("BUILD_SET")
def build_set(frame: Frame, op: Op) -> None:
    keys = [frame.tracer.hashable(v) for v in frame.popn(op.arg)]  # type: ignore[arg-type]
    frame.push(frame.tracer.native(set, keys))


@opcode("BUILD_MAP")
def build_map(frame: Frame, op: Op) -> None:
    items = frame.popn(2 * op.arg)  # type: ignore[operator]
    keys = [frame.tracer.hashable(k) for k in items[::2]]
    frame.push(frame.tracer.native(dict, list(zip(keys, items[1::2], strict=True))))


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: Frame, op: Op) -> None:
    keys = frame.pop()
    frame.push(dict(zip(keys, frame.popn(op.arg), strict=True)))  # type: ignore[arg-type]


@opcode("BUILD_STRING")
def build_string(frame: Frame, op: Op) -> None:
    frame.push(join("", frame.popn(op.arg)))  # type: ignore[arg-type]


@opcode("BUILD_SLICE")
def build_slice(frame: Frame, op: Op) -> None:
    frame.push(slice(*frame.popn(op.arg)))  # type: ignore[arg-type]


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


@opcode("LIST_TO_TUPLE")
def list_to_tuple(frame: Frame, op: Op) -> None:
    frame.push(tuple(frame.tracer.world.adopt(frame.pop())))  # behind a break the list comes from outside


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
@opcode("CONVERT_VALUE")
def convert_value(frame: Frame, op: Op) -> None:
    convert = {"str": str, "repr": repr, "ascii": ascii}[op.arg]  # type: ignore[index]
    frame.push(frame.tracer.call(convert, (frame.pop(),), {}, linked=op.name == "CONVERT_VALUE"))


@opcode("CONVERT_VALUE_BELOW")
def convert_value_below(frame: Frame, op: Op) -> None:
    spec = frame.pop()
    convert_value(frame, op)
    frame.push(spec)


@opcode("FORMAT_SIMPLE")
def format_simple(frame: Frame, op: Op) -> None:
    value = frame.pop()
    frame.push(value if type(value) is str else frame.tracer.call(format, (value, ""), {}, linked=True))


@opcode("FORMAT_WITH_SPEC")
def format_with_spec(frame: Frame, op: Op) -> None:
    value, spec = frame.popn(2)
    frame.push(frame.tracer.call(format, (value, spec), {}, linked=True))


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
    frame.tracer.world.set_origin(frame.globals, held(frame.globals, ""))
    function = types.FunctionType(code, frame.globals, code.co_name, parts.get("defaults"), closure)
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
    import collections.abc

    frame.push(isinstance(frame.stack[-1], collections.abc.Mapping))


@opcode("MATCH_SEQUENCE")
def match_sequence(frame: Frame, op: Op) -> None:
    import collections.abc

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


@opcode("MATCH_CLASS")
def match_class(frame: Frame, op: Op) -> None:
    names = frame.pop()
    subject, cls = frame.popn(2)
    frame.push(_match_class(frame, subject, cls, op.arg, names))


def _match_class(frame: Frame, subject: Any, cls: Any, count: Any, names: tuple[str, ...]) -> Any:
    tracer = frame.tracer
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
