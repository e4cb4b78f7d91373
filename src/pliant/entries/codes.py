"""Code that an entry names: where it lies in the functions that have names.

In:     code that capture went through, objects with names.
Out:    `codes_of(obj)`: the code whose content is part of the object's; `places_of(obj)`: with where it lies;
        `at_place(obj, place)`: the code that lies there in another process. LookupError.
Holds:  an object whose content is the same has the same code at the same places.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Sequence
from typing import Any

from pliant.guards.standard import LRU_CACHE


def codes_of(obj: Any) -> Iterator[types.CodeType]:
    """The code whose content is part of the object's."""
    match obj:
        case types.CodeType():
            yield obj
        case types.FunctionType():
            yield obj.__code__
        case types.MethodType() | staticmethod() | classmethod():
            yield from codes_of(obj.__func__)
        case property():
            for part in (obj.fget, obj.fset, obj.fdel):
                yield from codes_of(part)
        case functools.cached_property() | functools.partial():
            yield from codes_of(obj.func)
        case _ if isinstance(obj, LRU_CACHE):
            yield from codes_of(obj.__wrapped__)


def places_of(obj: Any) -> Iterator[tuple[types.CodeType, tuple[int, ...]]]:
    """All code of the object, with its places."""
    for number, code in enumerate(codes_of(obj)):
        yield from _places(code, (number,))


def _places(code: types.CodeType, place: tuple[int, ...]) -> Iterator[tuple[types.CodeType, tuple[int, ...]]]:
    yield code, place
    for number, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType):
            yield from _places(constant, (*place, number))


def at_place(obj: Any, place: Sequence[int]) -> types.CodeType:
    """The code there. LookupError."""
    number, *inner = place
    code = list(codes_of(obj))[number]
    for one in inner:
        code = code.co_consts[one]
    return code
