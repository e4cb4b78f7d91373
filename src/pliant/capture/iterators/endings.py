"""Objects from outside whose end the program notices.

In:     an object that a store is about to let go of.
Out:    a graph break, if its end runs code of the program: a generator that stands in a `try` or `with`, a finalizer.
Holds:  stores into what comes from outside are replayed when a captured piece ends, so the object that is replaced
        would end there, behind all that is printed and called meanwhile. A break before the store ends it in place.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection
from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.value_kinds import ByKind, by_kind
from pliant.guards.standard import can_change, is_immutable


def has_finalizer(cls: type) -> bool:
    """Whether objects of the class end by code of the program's: its own, or what C code calls, as files call their `close`."""
    return not is_immutable(cls) and can_change(cls) and any("__del__" in vars(base) for base in cls.__mro__)


def _ends_by_code(value: Any) -> bool:
    cls = type(value)
    return not cls.__module__.startswith("pliant.") and has_finalizer(cls)  # else the traced form of a generator


def let_go(value: Any) -> GraphBreak:
    what = f"a {type(value).__name__}" if ends_itself(value) else f"a {type(value).__name__} that is seen or holds others"
    return GraphBreak("unknown-object", f"{what} is let go of, whose end the program may notice")


def check_let_go(values: Collection[Any]) -> None:
    """Break before a store that may let go of such objects."""
    of_each_class = {id(_ALIKE.of(value)(value)): value for value in values}
    for value in of_each_class.values():
        if _RUNS_CODE.of(value)(value):
            raise let_go(value)


# Generators differ in whether they were started; other objects end as their class says. Python warns of coroutines that
# were never started; memory that is viewed cannot be resized.
_NOTICED: dict[type, Callable[[Any], bool]] = dict.fromkeys((types.CoroutineType, types.AsyncGeneratorType, memoryview), lambda value: True)
_RUNS_CODE: ByKind[Callable[[Any], bool]] = ByKind(
    _ends_by_code, {types.GeneratorType: lambda value: value.gi_suspended, **_NOTICED}
)
# Whether the end of an object runs code of the program, be it a generator, which may have been started by then.
ends_itself: Callable[[Any], bool] = by_kind(_ends_by_code, {types.GeneratorType: lambda value: True, **_NOTICED})
_ALIKE: ByKind[Callable[[Any], Any]] = ByKind(type, {types.GeneratorType: lambda value: value})
