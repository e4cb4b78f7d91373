"""Operations as calls of one function, so that a graph break inside that function can cut the frame of the operation.

In:     a frame that stands before an operation in which an earlier attempt of the trace broke.
Out:    `call_of(frame)`: the one function that the operation runs, with its arguments; None if it runs none, or more
        than the functions of `spelled_out` can say: the operation is then left to Python as a whole.
        `handler(call)`: does the operation by this call.
Holds:  the frame of the function is `linked`: its result is all that the operation still needs (`bytecode.ops.FORMS`).
        Only traces that have met a break come here; others do operations as `operators` and `attributes` say.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

from pliant.capture import calls, operators, spelled_out
from pliant.capture.bytecode.decode import Op
from pliant.capture.bytecode.ops import FORMS, Form, call_pair, operand_count
from pliant.capture.bytecode.versions import CallArgs
from pliant.capture.frame import HANDLERS, Frame, Handler
from pliant.capture.generators import TracedGenerator, own
from pliant.capture.graph_breaks import Exhausted, Raised
from pliant.capture.handlers.classes import find_class
from pliant.capture.handlers.questions import class_check
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import concrete
from pliant.graph.fake_tensor import FakeTensor
from pliant.guards.kinds import MISSING
from pliant.guards.sources import held

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """function(*args, **kwargs)"""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


def call_of(frame: Frame) -> Call | None:
    """The call that the operation before which the frame stands amounts to."""
    op = frame.op
    rule = _RULES.get(op.name)
    call = rule(frame, op, frame.stack[len(frame.stack) - operand_count(op) :]) if rule is not None else None
    if call is not None:
        triples = (part for value in call.args if type(value) is tuple for part in value)
        for value in (*call.args, *triples):
            if isinstance(value, types.FunctionType) and value.__globals__ is vars(spelled_out):
                frame.tracer.world.set_origin(value, held(value, value.__name__))
    return call


def handler(call: Call) -> Handler:
    """The operation, done by the call."""
    return lambda frame, op: _do(frame, op, call)


def _do(frame: Frame, op: Op, call: Call) -> Any:
    stack, form = frame.stack, FORMS[op.name]
    below = len(stack) - operand_count(op)
    try:
        if call.function in (_advance, _advance_loop):
            result = call.function(*call.args)
        else:
            result = frame.tracer.call(call.function, call.args, call.kwargs, linked=True)
    except Exhausted:
        if form is not Form.NEXT:
            raise
        del stack[below:]
        frame.ip = op.target  # type: ignore[assignment]
        return None
    match form:
        case Form.VALUE:
            stack[below:] = [result]
        case Form.NOTHING:
            del stack[below:]
        case Form.TEST:
            stack[below:] = [result]
            return HANDLERS[op.name](frame, op)
        case Form.KEEP:
            truth, value = result
            stack[below:] = [value]
            if concrete(truth) == (op.name == "JUMP_IF_TRUE_OR_POP"):
                frame.ip = op.target  # type: ignore[assignment]
            else:
                stack.pop()
        case Form.PAIR | Form.NEXT:
            stack[below:] = reversed(result)
        case Form.METHOD:
            stack[below:] = call_pair(result, NULL)
        case never:
            assert_never(never)
    return None


# ---- attributes
class _Entered(BaseException):
    """The function that a lookup is about to run."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call


def first_entered(t: Tracer, look_up: Callable[[], Any]) -> Call | None:
    """The first function of the program that `look_up` enters, which is not run."""

    def stop(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], linked: bool = False) -> Any:
        if isinstance(function, (types.FunctionType, types.MethodType)):
            raise _Entered(Call(function, args, kwargs))
        return type(t).call(t, function, args, kwargs, linked)

    t.call = stop  # type: ignore[method-assign]
    try:
        look_up()
    except _Entered as found:
        return found.call
    except Raised:
        pass
    finally:
        del t.call
    return None


def _looked_up(t: Tracer, obj: Any, name: str) -> Call | None:
    """What `obj.name` runs."""
    if isinstance(obj, (FakeTensor, threading.local)):
        return None
    found = first_entered(t, lambda: t.get_attr(obj, name))
    if found is None:
        return None
    cls = type(obj)
    member = t.world.type_lookup(cls, name)
    if isinstance(member, functools.cached_property) and found.function is member.func:
        found = Call(spelled_out.computed_once, (member.func, obj, str(member.attrname)))
    fallback = t.world.type_lookup(cls, "__getattr__")
    if fallback is MISSING or found.function is fallback or found.kwargs:
        return found
    return Call(spelled_out.attribute, (found.function, found.args, fallback, obj, name))


def _load_attr(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    return _looked_up(frame.tracer, operands[0], str(op.arg))


def _load_super_attr(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    t, name = frame.tracer, op.arg.name  # type: ignore[attr-defined]
    return first_entered(t, lambda: t.super_attr(operands[1], operands[2], name))


def _store_attr(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    t, (value, obj) = frame.tracer, operands
    return None if _is_native(obj) else first_entered(t, lambda: t.set_attr(obj, str(op.arg), value))


def _delete_attr(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    t, obj = frame.tracer, operands[0]
    return None if _is_native(obj) else first_entered(t, lambda: t.delete_attr(obj, str(op.arg)))


def _is_native(obj: Any) -> bool:
    return isinstance(obj, (FakeTensor, threading.local, types.ModuleType, types.FunctionType, type))


# ---- methods looked up on the class
def _method_of(frame: Frame, obj: Any, name: str, *args: Any) -> Call | None:
    method = operators.python_method(frame.tracer, frame.tracer.world.resolve(obj), name)
    return None if method is None else Call(method, (obj, *args))


def _subscript(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    container, key = operands
    found = _method_of(frame, container, "__getitem__", key)
    if found is not None or not isinstance(container, (type, dict)):
        return found
    found = first_entered(frame.tracer, lambda: frame.tracer.subscript(container, key))
    missing = operators.python_method(frame.tracer, container, "__missing__")
    return found if found is not None and (isinstance(container, type) or found.function is missing) else None


def _slice(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    return _method_of(frame, operands[0], "__getitem__", slice(*operands[1:]))


def _store_subscript(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    value, container, key = operands
    return _method_of(frame, container, "__setitem__", key, value)


def _store_slice(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    value, container, start, stop = operands
    return _method_of(frame, container, "__setitem__", slice(start, stop), value)


def _delete_subscript(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    return _method_of(frame, operands[0], "__delitem__", operands[1])


def _unary(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    return _method_of(frame, operands[0], operators.UNARY[op.name][0])


# ---- operators
def _binary(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    t, symbol, (left, right) = frame.tracer, str(op.arg), operands
    name, *_ = operators.BINARY[symbol.removesuffix("=")]
    direct, reflected = f"__{name}__", f"__r{name}__"
    methods = operators.ordered_methods(t, left, right, direct, reflected)
    if symbol.endswith("=") and (inplace := operators.python_method(t, left, f"__i{name}__")) is not None:
        methods.insert(0, (inplace, left, right))
    return _first_of(methods, spelled_out.unsupported, symbol, (left, direct), (right, reflected))


def _compare(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    t, symbol, (left, right) = frame.tracer, str(op.arg), operands
    name, other, _ = operators.COMPARE[symbol]
    direct, reflected = f"__{name}__", f"__{other}__"
    methods = operators.ordered_methods(t, left, right, direct, reflected, comparing=True)
    if symbol == "!=":
        methods = [(method, a, b) for a, b in _by_rank(left, right) if (method := _differs(t, a)) is not None]
    rest = {"==": spelled_out.same, "!=": spelled_out.not_same}.get(symbol, spelled_out.not_ordered)
    return _first_of(methods, rest, symbol, (left, direct), (right, reflected))


def _by_rank(left: Any, right: Any) -> list[tuple[Any, Any]]:
    """Who is asked first by a comparison."""
    pairs = [(left, right), (right, left)]
    return pairs[::-1] if type(left) is not type(right) and isinstance(right, type(left)) else pairs


def _differs(t: Tracer, obj: Any) -> Any:
    """The `__ne__` of the object; that of `object` asks its `__eq__`."""
    cls: Any = type(obj)
    derived = cls.__ne__ is object.__ne__ and operators.python_method(t, obj, "__eq__") is not None
    return spelled_out.differs if derived else operators.python_method(t, obj, "__ne__")


def _first_of(methods: list[Any], rest: Any, symbol: str, left: tuple[Any, str], right: tuple[Any, str]) -> Call | None:
    """Methods written in Python in their order, then those in C; `rest` if none of them implements the operator."""
    if not methods:
        return None
    for (obj, name), (other, _) in ((left, right), (right, left)):
        method = getattr(type(obj), name, None)
        if method is not None and not isinstance(method, types.FunctionType):
            if getattr(method, "__objclass__", None) is object:
                continue
            methods.append((method, obj, other))
    return Call(spelled_out.operated, (rest, symbol, left[0], right[0], *methods))


def _contains(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    item, container = operands
    wanted = op.arg == "in"
    found = _method_of(frame, container, "__contains__")
    if found is not None:
        return Call(spelled_out.contained, (found.function, container, item, wanted))
    if operators.python_method(frame.tracer, container, "__iter__") is not None:
        return Call(spelled_out.contained_by_iteration, (container, item, wanted))
    return None


# ---- truth, length, text
def _truth_of(frame: Frame, obj: Any) -> tuple[Any, ...] | None:
    """(test, method) of an object whose truth is the program's to say."""
    for name, test in (("__bool__", spelled_out.truth), ("__len__", spelled_out.is_not_empty)):
        found = _method_of(frame, obj, name)
        if found is not None:
            return test, found.function
    return None


def _truth(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    found = _truth_of(frame, operands[0])
    return None if found is None else Call(found[0], (found[1], operands[0]))


def _truth_and_value(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    found = _truth_of(frame, operands[0])
    return None if found is None else Call(spelled_out.truth_and_value, (*found, operands[0]))


def _convert(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    return _text(frame, f"__{op.arg}__", operands[0])


def _text(frame: Frame, name: str, value: Any) -> Call | None:
    found = _method_of(frame, value, name)
    if found is None and name == "__str__" and type(value).__str__ is object.__str__:  # type: ignore[comparison-overlap]
        found = _method_of(frame, value, "__repr__")
    return None if found is None else Call(spelled_out.text, (found.function, name, value))


def _format(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    value, *spec = operands
    found = _method_of(frame, value, "__format__", *(spec or ("",)))
    if found is not None:
        return found
    cls: Any = type(value)
    return _text(frame, "__str__", value) if cls.__format__ is object.__format__ and not any(spec) else None


# ---- iteration, `with`
def _advance(t: Tracer, generator: TracedGenerator, method: str, args: tuple[Any, ...]) -> Any:
    """A step of a generator, whose frame can be cut meanwhile."""
    frame = generator.frame
    frame.linked, frame.generator = True, generator  # and stays so at a break
    try:
        item = t.native(getattr(generator, method), *args)
    except Raised:
        frame.linked, frame.generator = False, None
        raise
    frame.linked, frame.generator = False, None
    return item


def _advance_loop(t: Tracer, generator: TracedGenerator) -> tuple[Any, TracedGenerator]:
    return _advance(t, generator, "__next__", ()), generator


def _iterator(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    found = _method_of(frame, operands[0], "__iter__")
    return None if found is None else Call(spelled_out.iterator, (found.function, operands[0]))


def _next(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    iterator = own(frame.tracer, operands[0])
    if type(iterator) is TracedGenerator:
        return Call(_advance_loop, (frame.tracer, iterator))
    found = _method_of(frame, operands[0], "__next__")
    return None if found is None else Call(spelled_out.step, (found.function, operands[0]))


def _enter(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    t, manager = frame.tracer, operands[0]
    enter, leave = (t.special_method(manager, name) for name in ("__enter__", "__exit__"))
    if not isinstance(enter, types.MethodType) or leave is None:
        return None
    return Call(spelled_out.entered, (enter, leave))


def _leave(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    error, leave = frame.stack[-1], frame.stack[-4]
    if not isinstance(leave, types.MethodType):
        return None
    return Call(leave, (type(error), error, error.__traceback__))


# ---- calls
def _call(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    assert isinstance(op.arg, CallArgs)
    count, names = op.arg.count, op.arg.names
    low, high, *args = operands
    function, leading = (high, ()) if low is NULL else (low, () if high is NULL else (high,))
    split = count - len(names)
    return _called(frame, function, (*leading, *args[:split]), dict(zip(names, args[split:], strict=True)))


def _called(frame: Frame, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    if isinstance(function, types.MethodType) and type(function.__self__) is TracedGenerator:
        return Call(_advance, (frame.tracer, function.__self__, function.__name__, args))
    if isinstance(function, (types.MethodWrapperType, types.WrapperDescriptorType)):
        return _of_slot(frame.tracer, function, args, kwargs)
    if not isinstance(function, (type, types.BuiltinFunctionType)):
        return None
    if args and function in _TAKING:
        spelled, *leading = _TAKING[function]
        return Call(spelled, (*leading, *args), kwargs) if _is_driven(frame, args[0]) else None
    if function in _BUILTINS:
        return _BUILTINS[function](frame, args) if args and not kwargs else None
    return _instance(frame.tracer, function, args, kwargs) if isinstance(function, type) else None


def _of_slot(t: Tracer, slot: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """A call of one of Python's own special methods, such as `super()` gives."""
    if slot.__objclass__ is type and slot.__name__ == "__call__":
        cls, *rest = (slot.__self__, *args) if isinstance(slot, types.MethodWrapperType) else args
        return _new_instance(t, cls, tuple(rest), kwargs)
    if slot.__name__ in ("__getattribute__", "__setattr__", "__delattr__"):
        return first_entered(t, lambda: calls.call(t, slot, args, kwargs))
    return None


def _instance(t: Tracer, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """cls(*args, **kwargs)"""
    meta_call = t.world.python_function(type(cls), "__call__")
    if meta_call is not None:
        return Call(meta_call, (cls, *args), kwargs)
    return _new_instance(t, cls, args, kwargs)


def _new_instance(t: Tracer, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """type.__call__"""
    if find_class(cls) is not None or t.world.type_lookup(cls, "__del__") is not MISSING:
        return None
    new = t.world.type_lookup(cls, "__new__")
    new = new.__func__ if isinstance(new, staticmethod) else new
    if isinstance(new, types.FunctionType):
        return Call(spelled_out.instance, (new, cls, args, kwargs))
    init = t.world.python_function(cls, "__init__")
    if init is None:
        return None
    return Call(spelled_out.initialized, (init, t.new_object(cls, new, args, kwargs), args, kwargs))


def _of_one(form: Callable[..., Call | None]) -> Callable[[Frame, tuple[Any, ...]], Call | None]:
    return lambda frame, args: form(frame, frame.op, list(args)) if len(args) == 1 else None


def _len(frame: Frame, args: tuple[Any, ...]) -> Call | None:
    found = _method_of(frame, args[0], "__len__")
    return None if found is None else Call(spelled_out.length, (found.function, args[0]))


def _next_of(frame: Frame, args: tuple[Any, ...]) -> Call | None:
    iterator = own(frame.tracer, args[0])
    if type(iterator) is TracedGenerator:
        return Call(_advance, (frame.tracer, iterator, "__next__", ())) if len(args) == 1 else None
    found = _method_of(frame, args[0], "__next__")
    if found is None or len(args) == 1:
        return found
    return Call(spelled_out.step_or, (found.function, *args))


def _getattr(frame: Frame, args: tuple[Any, ...]) -> Call | None:
    obj, name, *default = args
    found = _looked_up(frame.tracer, obj, name) if isinstance(name, str) else None
    if found is None or not default:
        return found
    return Call(spelled_out.attribute_or, (found.function, found.args, *default))


def _hasattr(frame: Frame, args: tuple[Any, ...]) -> Call | None:
    found = _looked_up(frame.tracer, *args)
    return None if found is None else Call(spelled_out.has_attribute, (found.function, found.args))


def _setattr(frame: Frame, args: tuple[Any, ...]) -> Call | None:
    t, (obj, name, value) = frame.tracer, args
    return None if _is_native(obj) else first_entered(t, lambda: t.set_attr(obj, name, value))


def _class_check(name: str, frame: Frame, args: tuple[Any, ...]) -> Call | None:
    value, wanted = args
    hook = class_check(frame.tracer, wanted, name)
    return None if hook is None or type(value) is wanted else Call(spelled_out.contained, (hook, wanted, value, True))


def _is_driven(frame: Frame, items: Any) -> bool:
    """Whether taking the items runs code of the program."""
    t = frame.tracer
    return type(own(t, items)) is TracedGenerator or operators.python_method(t, items, "__iter__") is not None


def _unpack(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    items = operands[0]
    return Call(spelled_out.first_items, (items, op.arg)) if _is_driven(frame, items) else None


def _extend(frame: Frame, op: Op, operands: list[Any]) -> Call | None:
    return Call(spelled_out.all_items, (operands[0],)) if _is_driven(frame, operands[0]) else None


# Functions that take the items of their first argument, spelled out.
_TAKING: dict[Any, tuple[Any, ...]] = {
    list: (spelled_out.all_items,),
    tuple: (spelled_out.made_of, tuple),
    set: (spelled_out.made_of, set),
    frozenset: (spelled_out.made_of, frozenset),
    sorted: (spelled_out.made_of, sorted),
    sum: (spelled_out.added,),
    any: (spelled_out.any_true,),
    all: (spelled_out.all_true,),
}
_BUILTINS: dict[Any, Callable[[Frame, tuple[Any, ...]], Call | None]] = {
    bool: _of_one(_truth),
    iter: _of_one(_iterator),
    len: _len,
    next: _next_of,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    isinstance: functools.partial(_class_check, "__instancecheck__"),
    issubclass: functools.partial(_class_check, "__subclasscheck__"),
    str: lambda frame, args: _text(frame, "__str__", args[0]) if len(args) == 1 else None,
    repr: lambda frame, args: _text(frame, "__repr__", args[0]),
    abs: lambda frame, args: _method_of(frame, args[0], "__abs__"),
}
Rule = Callable[[Frame, Op, list[Any]], Call | None]
_RULES: dict[str, Rule] = {
    "CALL": _call,
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), _load_attr),
    **dict.fromkeys(("LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD"), _load_super_attr),
    "STORE_ATTR": _store_attr,
    "DELETE_ATTR": _delete_attr,
    "BINARY_SUBSCR": _subscript,
    "BINARY_SLICE": _slice,
    "STORE_SUBSCR": _store_subscript,
    "STORE_SLICE": _store_slice,
    "DELETE_SUBSCR": _delete_subscript,
    **dict.fromkeys(("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_INVERT"), _unary),
    "BINARY_OP": _binary,
    "COMPARE_OP": _compare,
    "CONTAINS_OP": _contains,
    **dict.fromkeys(("TO_BOOL", "UNARY_NOT", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"), _truth),
    **dict.fromkeys(("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"), _truth_and_value),
    "CONVERT_VALUE": _convert,
    **dict.fromkeys(("FORMAT_SIMPLE", "FORMAT_WITH_SPEC"), _format),
    "UNPACK_SEQUENCE": _unpack,
    **dict.fromkeys(("LIST_EXTEND", "SET_UPDATE"), _extend),
    "GET_ITER": _iterator,
    "FOR_ITER": _next,
    "BEFORE_WITH": _enter,
    "WITH_EXCEPT_START": _leave,
}
