"""The statements of an entry's check, run again one by one: which one fails, and a short check of that one alone.

In:     the statements and the objects they name; the call's arguments.
Out:    `Replay.first_failing`, for explanations; `Replay.probe(index)`: whether this statement surely fails for a call.
Holds:  a probe has the reads that the statement needs, and the tests of what these reads lead to. So it runs no code
        that the whole check would not run, and where it fails, the whole check does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pliant.guards.facts import has_items, lacks_item
from pliant.guards.kinds import Guard, Kind
from pliant.guards.steps import READ_ERRORS, Step
from pliant.records import dataclass
from pliant.regular import pattern

Probe = Callable[[Sequence[Any], dict[str, Any]], bool]

# What makes it safe to read on from a value.
_BASIC = frozenset((Kind.TYPE, Kind.NUMBER_TYPE, Kind.IDENTITY, Kind.EQUALS, Kind.TENSOR, Kind.TYPE_LOOKUP))


_NAME = pattern(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Held:
    """How many statements are before and behind those about held objects, which are many, and a function that tells whether
    all of them hold."""

    before: int
    behind: int
    holds: Callable[[], bool]


class Replay:
    """Made when an entry first fails; the functions are compiled when they are first needed."""

    __slots__ = ("_assigned", "_finds", "_held", "_probes", "_steps", "values")

    def __init__(
        self, steps: Sequence[Step] | Callable[[], Sequence[Step]], values: Mapping[str, Any], held: Held | None = None
    ) -> None:
        """`steps` may be asked for when they are first needed. `held`: those that a function of its own checks."""
        self._steps = steps
        self.values = values
        self._held = held
        self._finds: dict[bool, tuple[Callable[..., Any], Sequence[int]]] = {}  # without the held ones, with them
        self._probes: dict[int, Probe] = {}
        self._assigned: set[str] = set()

    @property
    def steps(self) -> Sequence[Step]:
        if callable(self._steps):
            self._steps = self._steps()
        return self._steps

    def guards(self) -> list[Guard]:
        """The guards that the statements check."""
        return [step.guard for step in self.steps if step.guard is not None]

    def first_failing(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Index of the first statement that would return MISS or that cannot read, and the variables at that time."""
        apart = self._held is not None and self._held.holds()
        find = self._finds.get(apart)
        if find is None:
            chosen = self._but_held(self._held) if apart and self._held is not None else range(len(self.steps))
            find = self._finds[apart] = self._finder(chosen), chosen
        return self._found(*find, args, kwargs)

    def _finder(self, chosen: Sequence[int]) -> Callable[..., Any]:
        lines = [re.sub(r"return MISS$", f"return {i}, locals()", self.steps[i].text) for i in chosen]
        found: Callable[..., Any] = self._define("find", [*lines, "return None"])
        return found

    @staticmethod
    def _found(
        find: Callable[..., Any], chosen: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[int, dict[str, Any]] | None:
        try:
            result: tuple[int, dict[str, Any]] | None = find(args, kwargs)
            return result
        except READ_ERRORS as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_name != "find":
                trace = trace.tb_next
            assert trace is not None
            return chosen[trace.tb_lineno - 2], dict(trace.tb_frame.f_locals)

    def _but_held(self, held: Held) -> list[int]:
        """All statements but those that are known to hold, of which the others need the reads."""
        places = range(held.before, len(self.steps) - held.behind)
        rest = [i for i in range(len(self.steps)) if i not in places]
        reads = {self.steps[i].text.partition(" = ")[0]: i for i in places if self.steps[i].guard is None}
        needed: set[int] = set()
        waiting = list(rest)
        while waiting:
            text = self.steps[waiting.pop()].text
            named = {reads[name] for name in _NAME.findall(text) if name in reads} - needed
            needed |= named
            waiting += named
        return sorted([*rest, *needed])

    def probe(self, index: int) -> Probe:
        """A function of a call: True if this statement fails, so that the entry does not serve the call."""
        found = self._probes.get(index)
        if found is None:
            steps = [self.steps[i].text.replace("return MISS", "return True") for i in self._needed(index)]
            steps = [text.replace(f"not {has_items.__name__}(", f"{lacks_item.__name__}(") for text in steps]
            lines = ["try:", *(f"    {text}" for text in steps), "except READ_ERRORS:", "    return True"]
            found = self._probes[index] = self._define("probe", [*lines, "return False"])
        return found

    def _needed(self, index: int) -> list[int]:
        """The statement and those before it that it cannot do without."""
        wanted, chosen = self._variables(self.steps[index].text), [index]
        for i in range(index - 1, -1, -1):
            step = self.steps[i]
            if step.guard is None:
                name, equals, text = step.text.partition(" = ")
                if equals and name in wanted:
                    chosen.append(i)
                    wanted |= self._variables(text)
            elif step.guard.kind in _BASIC and not wanted.isdisjoint(_NAME.findall(step.text)):  # parsing takes long
                named = self._variables(step.text)
                if not wanted.isdisjoint(named):
                    chosen.append(i)
                    wanted |= named
        return chosen[::-1]

    def _variables(self, text: str) -> set[str]:
        """The local variables in the text."""
        self._assigned = self._assigned or {s.text.partition(" = ")[0] for s in self.steps if s.guard is None}
        found = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        return found & self._assigned

    def _define(self, name: str, lines: Sequence[str]) -> Any:
        text = f"def {name}(args, kwargs):\n" + "".join(f"    {line}\n" for line in lines)
        scope = {**self.values, "READ_ERRORS": READ_ERRORS, lacks_item.__name__: lacks_item}
        exec(compile(text, "<pliant explain>", "exec"), scope)
        return scope.pop(name)
