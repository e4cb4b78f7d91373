"""Values that guards tell by what they are: which object each of them is, where the program asks.

In:     such values as they are read (`_note_way`), and the questions of the trace: `is`, and finds of a NaN in a container.
Out:    guards that two ways lead to one object, or to two; the caller's own objects, where the entry gives them back.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pliant.capture.iterators.suspended import is_carried
from pliant.capture.numbers.numpy_scalars import is_scalar
from pliant.capture.outside.bringing import traced_form
from pliant.capture.outside.fields import Fields
from pliant.capture.outside.origins import Asked
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import ByKind, is_int, is_mutable_container, is_nan, is_numpy_scalar
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import Source
from pliant.source import SourceLocation

_MADE_BY_CALLS = (frozenset, range, slice, types.MethodType, types.MappingProxyType)
_IN_C = (float, complex, int, str, bytes, torch.device, types.BuiltinFunctionType, types.MethodWrapperType)
# Whether equal values are told from one another nowhere but by `is`.
_BY_VALUE: ByKind[bool] = ByKind(False, dict.fromkeys((*_IN_C, *_MADE_BY_CALLS), True), {tuple: True})


class ToldByValue(Fields):
    """The ways by which one capture came to values that are told by what they are."""

    def __init__(self, inputs: Any, location: Callable[[], SourceLocation | None]) -> None:
        super().__init__(inputs, location)
        self._ways: dict[int, tuple[Any, Any, list[Source]]] = {}  # to what is told by its value: made, real
        self.look: Callable[[Any, Source], None] | None = None  # told of each value that is read
        self._asked_which: list[Any] = []  # of these, it matters which objects they are

    def bring(self, value: Any, source: Source) -> Any:
        """The traced form of `value`, which was just read through `source`."""
        if self.look is not None:
            self.look(value, source)
        if self.log is not None:
            return self._bring_logged(self.log, value, source)
        known = self._memo.get(source, MISSING)
        return self._bring_anew(value, source) if known is MISSING else known

    def _bring_logged(self, log: list[Asked], value: Any, source: Source) -> Any:
        """The same; what it asks meanwhile follows from the value."""
        self.log = None
        try:
            result = self._memo[source] if source in self._memo else self._bring_anew(value, source)
        finally:
            self.log = log
        log.append(Asked("value", source, value, result, self.location()))
        return result

    def _bring_anew(self, value: Any, source: Source) -> Any:
        result = traced_form(self, value, source)  # type: ignore[arg-type]  # it is a `World`
        self._note_way(result, value, source)
        if not is_carried(value):  # a generator of the program ends when the loop drops it
            self._memo[source] = result
        return result

    @contextmanager
    def reads_seen_by(self, look: Callable[[Any, Source], None] | None) -> Iterator[None]:
        before, self.look = self.look, look
        try:
            yield
        finally:
            self.look = before

    def log_unlike(self, value: Any = None) -> None:
        """The same; what the trace has of a container is read."""
        super().log_unlike(value)
        if self.look is not None and is_mutable_container(value):
            shadow = self._stands.get(id(value), (value, value))[1]
            for part in leaves(*(shadow.values() if isinstance(shadow, dict) else shadow)):
                self.look(part, self.place_of(value))

    def note_asked(self, value: Any, answer: Any) -> None:
        """The trace asks what a container from outside holds, or what an object lacks, without reading a value."""
        if self.look is not None and self.needs_guards(value):  # type: ignore[attr-defined]  # it is a `World`
            self.look(answer, self.place_of(value))

    def _note_way(self, result: Any, value: Any, source: Source) -> None:
        """The trace read `value` through the source, and has `result` for it."""
        if _BY_VALUE.of(result) or is_scalar(result) or is_numpy_scalar(result):
            self._ways.setdefault(id(result), (result, value, []))[2].append(source)

    def guard_which(self, left: Any, right: Any) -> bool:
        """Two values that guards tell by what they are were found to be one object, or two. Whether it is one: outside,
        where the trace may have made a tuple of each way to it.
        """
        found = [known for one in (left, right) if (known := self._ways.get(id(one))) is not None]
        if len(found) < 2:
            return left is right
        (_, mine, ways), (_, other, others) = found
        if mine is not other:
            self.guard(ways[0], Kind.DISTINCT, ((ways[0], others[0]), ()))
            return False
        for way in [*ways[1:], *others]:
            if way != ways[0]:
                self.guard(way, Kind.SAME_AS, ways[0])
        return True

    def note_which(self, value: Any) -> Any:
        """The trace asks which object it is, of a value that guards tell by what it is: it is told from the others of which
        that was asked. The value that stands for all ways to it.
        """
        if id(value) not in self._ways:
            return value
        self.guard_which(value, value)
        for other in self._asked_which:
            if self.guard_which(value, other):
                return other
        self._asked_which.append(value)
        return value

    def note_nan(self, value: Any) -> None:
        """C code is about to find the value in a container, which it does for a NaN by which object it is."""
        if is_nan(value):
            self.note_which(value)

    def give_arguments_back(self) -> None:
        """The entry gives the caller's own objects back where it can have made equal ones: at the end of a trace."""
        for key, (value, _, ways) in self._ways.items():
            # All equal small numbers, and empty texts, are one object anyway.
            if not (isinstance(value, tuple) or is_int(value) and -5 <= value <= 256 or value in ("", b"")):
                self.origins.setdefault(key, (value, ways[0]))

    def guard_carried(self, times_reached: Callable[[Any], int]) -> None:
        """Code behind a break, which may ask which object a value is, gets one for all ways to it: outside it has to be one.
        In results equal values may be one object.
        """
        for value, _, ways in list(self._ways.values()):
            if len(ways) > 1 and id(value) in self.origins and times_reached(value):
                self.guard_which(value, value)
