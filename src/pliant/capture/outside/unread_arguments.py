"""Arguments that the function has and does not read: a name for the caller's logs, an option of another implementation.

In:     the callable of a root, and its arguments by place and by name.
Out:    those that need no guard, as long as the trace begins with the code that does not read them.
Holds:  tensors, numbers and objects with parts are guarded where they are read anyway; these are texts, members of enums,
        classes, functions, None and the like, whose one guard says which they are.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pliant.bytecode.cfg import unread_locals
from pliant.bytecode.decode import decode
from pliant.capture.outside.bringing import fixing_guard
from pliant.capture.value_kinds import by_kind, is_function
from pliant.guards.sources import Source

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer


class UnreadArguments:
    """Those of one call."""

    def __init__(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._left: list[tuple[Any, Source]] = []
        self.code = _code_of(fn)
        self._unread: frozenset[int | str] = frozenset()
        if self.code is not None:
            self._unread = _unread(self.code, len(args), kwargs, not is_function(fn))

    def leaves(self, key: int | str, value: Any, source: Source) -> bool:
        """Whether the argument is left without a guard."""
        if key not in self._unread or fixing_guard(value) is None:
            return False
        self._left.append((value, source))
        return True

    def check(self, t: Tracer) -> None:
        """Where something else than this code got the arguments, it may have read them."""
        if next(iter(t.codes.values()), None) is not self.code:
            self.guard(t)

    def show(self, t: Tracer, code: types.CodeType) -> None:
        """Code outside of the function looks at the locals of a frame of this code."""
        if code is self.code:
            self.guard(t)

    def guard(self, t: Tracer) -> None:
        """They are read after all."""
        for value, source in self._left:
            kind = fixing_guard(value)
            assert kind is not None
            t.world.guard(source, kind, value)
        self._left.clear()


# The code that a call of the callable enters, as a rule.
_code_of: Callable[[Any], types.CodeType | None] = by_kind(
    lambda fn: None,
    {types.FunctionType: lambda fn: fn.__code__, types.MethodType: lambda method: _code_of(method.__func__)},
    {
        torch.nn.Module: lambda module: (
            None if "forward" in module.__dict__ else _code_of(inspect.getattr_static(type(module), "forward", None))
        )
    },
)


def _unread(
    code: types.CodeType, count: int, kwargs: Mapping[str, Any], is_bound: bool
) -> frozenset[int | str]:
    """Places of arguments, and names, that land in parameters which are not read."""
    unread = unread_locals(decode(code))
    named = code.co_argcount + code.co_kwonlyargcount
    rest = list(code.co_varnames[named:])
    several = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else None
    keywords = rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else None
    parameters = code.co_varnames[: code.co_argcount]
    own = frozenset(code.co_varnames[code.co_posonlyargcount : named])
    names = (name for name in kwargs if (name if name in own else keywords) in unread)
    places = (
        place for place in range(count)
        if (parameters[place + is_bound] if place + is_bound < len(parameters) else several) in unread
    )  # fmt: skip
    return frozenset((*names, *places))
