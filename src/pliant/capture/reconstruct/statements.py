"""Statements that make objects again, with their identity, sharing and cycles; recipes say how each kind is made.

In:     a value as the traced program saw it (`capture.trace` says what may be inside).
Out:    `Statements.value(obj)`: an expression; the statements it needs are appended to `lines`.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from pliant.capture.trace import Trace
from pliant.capture.value_kinds import LITERALS, ByKind
from pliant.errors import Unsupported
from pliant.guards.codegen import GuardWriter
from pliant.regular import pattern


class CannotReconstruct(Unsupported):
    """A value of the trace has no recipe: the tracer breaks earlier, or the function runs eagerly."""

    def __init__(self, kind: str, obj: object) -> None:
        super().__init__(f"a {type(obj).__qualname__} made while capturing cannot be made again", kind=kind)


class _ImmutableCycle(CannotReconstruct):
    """An immutable object is needed while it is being made: what needs it must be filled after it is there."""


_WORD = pattern(r"\w+")
_LITERAL = LITERALS - {float}

# Text of an empty container of each kind whose contents are made before it (if it does not hold itself).
_EMPTY: dict[type, str] = {list: "[]", dict: "{}"}


class Statements:
    """Statements that make the values of one trace; `writer` loads what existed, `outputs` names what the graph
    returns; `recipes` say how each kind of object is made again."""

    recipes: ByKind[Recipe]

    def __init__(self, trace: Trace, writer: GuardWriter, outputs: list[str]) -> None:
        self.lines: list[str] = []
        self.late: list[str] = []  # behind the effects
        self._late_names: set[str] = set()
        self.names = writer.names
        self.trace = trace
        self.writer = writer
        self.outputs = outputs
        self._made: dict[int, str] = {}
        self._deferred: collections.deque[Callable[[], None]] = collections.deque()
        self.keep: list[Any] = []  # ids stay unique while these live
        self._open: dict[
            int, str
        ] = {}  # being built -> text of an empty one, to bind early if it holds itself ("" if immutable)

    def value(self, obj: Any) -> str:
        """An expression for the object; the same text again for the same object."""
        known = self._existing(obj)
        if known is not None:
            return known
        if type(obj) in _LITERAL:
            return repr(obj)
        made = self._made.get(id(obj))
        if made is not None:
            return made
        text = self._make(obj)
        while self._deferred and not self._open:
            self._deferred.popleft()()
        return text

    def _existing(self, obj: Any) -> str | None:
        trace, key = self.trace, id(obj)
        if key in trace.outputs:
            return self.outputs[trace.outputs[key]]
        if key in trace.origins:
            return self.writer.read(trace.origins[key][1])
        return None

    def _make(self, obj: Any) -> str:
        if id(obj) in self._open:
            return self._bind_early(obj)
        self.keep.append(obj)
        self._open[id(obj)] = _EMPTY.get(type(obj), "")
        try:
            return self.recipes.of(obj)(self, obj)
        finally:
            self._open.pop(id(obj), None)

    def _bind_early(self, obj: Any) -> str:
        """The object is reached again while its contents are made: it holds itself."""
        empty = self._open[id(obj)]
        if not empty:
            raise _ImmutableCycle("immutable-cycle", obj)
        return self.bind(obj, empty)

    def is_open(self, obj: Any) -> bool:
        """Whether it is being made."""
        return id(obj) in self._open

    # ---- what recipes use
    def bind(self, obj: Any, text: str, hint: str = "") -> str:
        """Emit `name = text` as the object; from here on it can be referred to, so mutable objects are bound before
        they are filled."""
        name = self.names.fresh(hint or _name_of(type(obj)))
        self.emit(f"{name} = {text}", name)
        self._made[id(obj)] = name
        return name

    def bind_late(self, obj: Any, text: str) -> str:
        """The same of an iterator, which depends on what the effects leave behind."""
        name = self.names.fresh("iterator")
        self._late_names.add(name)
        self.late.append(f"{name} = {text}")
        self._made[id(obj)] = name
        return name

    def is_late(self, line: str) -> bool:
        """Whether a statement needs what is made behind the effects."""
        return bool(self._late_names) and not self._late_names.isdisjoint(_WORD.findall(line))

    def emit(self, line: str, name: str = "") -> None:
        """Add a statement, which makes `name`."""
        if not self.is_late(line):
            self.lines.append(line)
            return
        self.late.append(line)
        if name:
            self._late_names.add(name)

    def bind_contents(self, obj: Any, contents: Callable[[], str], literal: str, fill: str) -> str:
        """Emit `name = [contents]`, or fill the one that a cycle bound early. `literal` and `fill` have a `{}` for
        the contents."""
        try:
            text = contents()
        except _ImmutableCycle:
            self._made.get(id(obj)) or self.bind(obj, _EMPTY[type(obj)])
        name = self._made.get(id(obj))
        if name is None:
            return self.bind(obj, literal.format(text))
        self.fill(lambda: f"{name}{fill.format(contents())}")
        return name

    def fill(self, statement: Callable[[], str]) -> None:
        """Emit a statement that fills a bound object; later, if it needs an immutable object that is still being
        made."""
        try:
            self.emit(statement())
        except _ImmutableCycle:
            self._deferred.append(lambda: self.emit(statement()))

    def fill_each(self, pairs: Iterable[tuple[Any, Any]], statement: Callable[[Any, Any], str]) -> None:
        """The same for each key and value."""
        for key, value in pairs:
            self.fill(functools.partial(statement, key, value))

    def hold(self, obj: Any) -> str:
        return self.names(obj)

    def items(self, values: Iterable[Any]) -> str:
        return ", ".join([self.value(v) for v in values])

    def pairs(self, mapping: Iterable[tuple[Any, Any]]) -> str:
        return ", ".join([f"{self.value(k)}: {self.value(v)}" for k, v in mapping])


Recipe = Callable[[Statements, Any], str]


def expression(text: Recipe, hint: str = "") -> Recipe:
    """What an expression makes."""
    return lambda b, obj: b.bind(obj, text(b, obj), hint=hint)


def _name_of(cls: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
