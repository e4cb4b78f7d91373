"""Texts made by patterns, `%` and `str.format`: each field is found, converted and formatted by the program's own rules.

In:     a pattern and traced values.
Out:    a text, or a `Text` where numbers in it vary.
Holds:  C code formats plain numbers and texts alone; everything else is first asked for its text, or for its number.
Source: Python's library reference, "printf-style String Formatting" and "Format String Syntax"; `Objects/unicodeobject.c`.
"""

from __future__ import annotations

import operator
import re
from typing import Any

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.numbers.numpy_scalars import fixed, is_scalar
from pliant.capture.numbers.varying_text import text_of
from pliant.capture.outside.identity import HookId, TracedId
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.operators import python_method
from pliant.capture.protocols.tail_calls import TailCall
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import LITERALS, concrete, has_method, is_symbolic, is_text
from pliant.capture.varying_values import join
from pliant.graph.fake_tensor import is_fake
from pliant.regular import pattern
from pliant.unpatched import BUILTINS

# ---- pattern % value
_FIELD = pattern(r"%(?:\((?P<key>[^()]*)\))?(?P<flags>[#0\- +]*\d*(?:\.\d+)?)(?P<kind>[diouxXeEfFgGcrsa%])")
_CONVERSIONS = {"s": str, "r": repr, "a": BUILTINS.ascii}
_NUMBERS: dict[str, tuple[Any, tuple[str, ...]]] = {  # how an object becomes a number, and the methods that it has then
    **dict.fromkeys("diu", (int, ("__int__", "__index__"))),
    **dict.fromkeys("oxXc", (operator.index, ("__index__",))),
    **dict.fromkeys("eEfFgG", (float, ("__float__", "__index__"))),
}


def by_percent(t: Tracer, pattern: str, value: Any) -> Any:
    """pattern % value"""
    several = issubclass(type(value), tuple)
    is_mapping = not several and has_method(type(value), "__getitem__") and not is_text(value)
    given = list(tuple.__iter__(value)) if several else [value]
    if LITERALS.issuperset(map(type, given)):
        return t.native(str.__mod__, pattern, value)
    if "%" in _FIELD.sub("", pattern):  # a width that is an argument, or an error
        raise GraphBreak("unknown-call", "a pattern with a field of another form")
    pieces, end = [], 0
    for found in _FIELD.finditer(pattern):
        pieces.append(pattern[end : found.start()])
        end = found.end()
        if found["kind"] == "%":
            pieces[-1] += "%"
        elif found["key"] is None:
            pieces.append(_field(t, found, _next(given)))
        elif is_mapping:
            pieces.append(_field(t, found, t.subscript(value, found["key"])))
        else:
            raise Raised(TypeError("format requires a mapping"))
    pieces.append(pattern[end:])
    if given and not is_mapping:
        raise Raised(TypeError("not all arguments converted during string formatting"))
    return join("", pieces)


def _next(given: list[Any]) -> Any:
    if not given:
        raise Raised(TypeError("not enough arguments for format string"))
    return given.pop(0)


def _field(t: Tracer, found: re.Match[str], value: Any) -> Any:
    """The text of a value as a field of a pattern shows it."""
    flags, kind = found["flags"], found["kind"]
    if is_fake(value):
        raise GraphBreak("data-dependent", "formatting a tensor")
    value = fixed(value) if is_scalar(value) else value
    if is_symbolic(value) and kind != "c" and (text := text_of(value, f"%{flags}{kind}", percent=True)) is not None:
        return text
    if kind in _CONVERSIONS:
        text = t.call(_CONVERSIONS[kind], (value,), {})
        return f"%{flags}s" % concrete(text) if flags else text
    if isinstance(value, (TracedId, HookId)):
        raise GraphBreak("unknown-call", "the number of an object made here is used in a text")
    convert, methods = _NUMBERS[kind]
    if any(python_method(t, value, special) is not None for special in methods):
        return _field(t, found, t.call(convert, (value,), {}))
    value = t.plain(value)
    t.refuse_opaque(value)
    return t.native(str.__mod__, f"%{flags}{kind}", (value,))


# ---- pattern.format(...)
def format_text(t: Tracer, receiver: str, name: str, args: Args, kwargs: Kwargs) -> Any:
    if LITERALS.issuperset(map(type, (*args, *kwargs.values()))):
        return t.native(receiver.format, *args, **kwargs)
    return TailCall(polyfills.formatted, (receiver, args, kwargs))
