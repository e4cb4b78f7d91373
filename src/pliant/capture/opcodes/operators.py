"""Operators, subscripts, attributes, comparisons, calls: each asks the tracer, which knows the object model."""

from __future__ import annotations

from typing import Any

from pliant.bytecode.decode import Op
from pliant.bytecode.ops import call_pair
from pliant.capture.frame import Frame, Handlers, Returned
from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.data_dependent import for_test
from pliant.capture.numbers import selections
from pliant.capture.protocols.operators import UNARY
from pliant.capture.signatures import Tracer
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import is_function, is_iterable, misused, shown_callable

ROWS = Handlers()


@ROWS.row("TO_BOOL")
def to_bool(frame: Frame, op: Op) -> Returned | None:
    value, jump = frame.pop(), frame.program.ops[op.index + 1]
    if selections.can_be(frame, jump, value):
        return selections.select(frame, jump, value)
    frame.push(frame.tracer.truth(for_test(frame, jump, value), linked=True))
    return None


ROWS.on_operands(
    {
        "BINARY_OP": lambda t, op, left, right: t.binary(op.arg, left, right, linked=True),
        **dict.fromkeys(UNARY, lambda t, op, value: t.unary(op.name, value, linked=True)),
        "UNARY_NOT": lambda t, op, value: t.negation(value, linked=True),
        "COMPARE_OP": lambda t, op, left, right: t.compare(op.arg, left, right, linked=True),
        "IS_OP": lambda t, op, left, right: t.identical(left, right) is (op.arg == "is"),
        "CONTAINS_OP": lambda t, op, item, container: t.contains(container, item, op.arg == "in", linked=True),
        "BINARY_SUBSCR": lambda t, op, obj, key: t.subscript(obj, key, linked=True),
        "STORE_SUBSCR": lambda t, op, value, obj, key: t.store_subscript(obj, key, value, linked=True),
        "DELETE_SUBSCR": lambda t, op, obj, key: t.delete_subscript(obj, key, linked=True),
        "BINARY_SLICE": lambda t, op, obj, *ends: t.subscript(obj, slice(*ends), linked=True),
        "STORE_SLICE": lambda t, op, value, obj, *ends: t.store_subscript(obj, slice(*ends), value, linked=True),
        "LOAD_ATTR": lambda t, op, obj: t.get_attr(obj, op.arg, linked=True),
        "STORE_ATTR": lambda t, op, value, obj: t.set_attr(obj, op.arg, value, linked=True),
        "DELETE_ATTR": lambda t, op, obj: t.delete_attr(obj, op.arg, linked=True),
        "LOAD_SUPER_ATTR": lambda t, op, _, cls, obj: t.super_attr(cls, obj, op.arg, linked=True),
        # Always the bound attribute with a NULL: both layouts of CALL accept it.
        "LOAD_METHOD": lambda t, op, obj: call_pair(t.get_attr(obj, op.arg, linked=True), NULL),
        "LOAD_SUPER_METHOD": lambda t, op, _, cls, obj: call_pair(t.super_attr(cls, obj, op.arg, linked=True), NULL),
    }
)


# ---- calls: operands off the stack, then `tracer.call`
@ROWS.row("CALL")
def call(frame: Frame, op: Op) -> None:
    shape: Any = op.arg
    stack, kwargs = frame.stack, {}
    args = tuple(frame.popn(shape.count))
    if shape.names:
        split = shape.count - len(shape.names)
        args, kwargs = args[:split], dict(zip(shape.names, args[split:], strict=True))
    high, low = stack.pop(), stack.pop()
    if low is not NULL:
        high, args = low, args if high is NULL else (high, *args)
    stack.append(frame.tracer.call(high, args, kwargs, linked=True))


@ROWS.takes("CALL_FUNCTION_EX")
def call_function_ex(t: Tracer, op: Op, low: Any, high: Any, items: Any, mapping: Any = None) -> Any:
    kwargs = dict(t.mapping(mapping)) if op.arg else {}
    function = high if low is NULL else low
    if not is_iterable(items):
        raise misused(items, f"{shown_callable(function)} argument after * must be an iterable, not {{}}")
    if not all(isinstance(name, str) for name in kwargs):
        if not is_function(function):
            raise GraphBreak("bad-call", "keywords that are no strings")
        raise Raised(TypeError("keywords must be strings"))
    return t.call(function, tuple(t.sequence(items, is_made=True)), kwargs, linked=True)
