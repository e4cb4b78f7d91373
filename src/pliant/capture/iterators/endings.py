"""Objects from outside whose end the program notices.

In:     an object that a store is about to let go of.
Out:    a graph break, if its end runs code of the program: a generator that stands in a `try` or `with`, a finalizer.
Holds:  stores into what comes from outside are replayed when a captured piece ends, so the object that is replaced
        would end there, behind all that is printed and called meanwhile. A break before the store ends it in place.
"""

from __future__ import annotations

import types
from collections.abc import Collection
from typing import Any

from pliant.capture.graph_breaks import GraphBreak


def runs_code_at_end(value: Any) -> bool:
    """Whether code of the program may run when `value` is dropped, and the trace does not run it itself."""
    if type(value) is types.GeneratorType:
        return value.gi_suspended
    cls = type(value)
    if cls.__module__.startswith("pliant."):  # the traced form of a generator
        return False
    return any(type(vars(base).get("__del__")) is types.FunctionType for base in cls.__mro__)


def let_go(value: Any) -> GraphBreak:
    itself = runs_code_at_end(value) or type(value) is types.GeneratorType
    what = f"a {type(value).__name__}" if itself else f"a {type(value).__name__} that is seen or holds others"
    return GraphBreak("unknown-object", f"{what} is let go of, whose end the program may notice")


def check_let_go(values: Collection[Any]) -> None:
    """Break before a store that may let go of such objects."""
    of_each_class = {id(value if type(value) is types.GeneratorType else type(value)): value for value in values}
    for value in of_each_class.values():
        if runs_code_at_end(value):
            raise let_go(value)
