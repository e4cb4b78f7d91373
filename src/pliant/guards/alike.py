"""Tensors compared natively with ones that passed the guards: tens of nanoseconds each.

In:     the statements of an entry's check, and which variables hold what they read.
Out:    `arguments`, `others`: the statements, those of tensors in blocks that run only if a native function does not
        know the tensors; `define`: the names that blocks use. `Learner` makes the function from tensors that passed;
        `KnownTensors` the same outside of such checks.
Holds:  tensors are known if all words that describe a tensor are equal to those of one that passed (`tensor_words`).
        Others are checked by the statements themselves; which of the two ran makes no difference.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pliant.guards.kinds import Guard, Kind
from pliant.guards.sources import ArgSource, Source

if TYPE_CHECKING:
    from pliant.guards.steps import Step

Block = tuple[list[str], list[int]]  # the statements, and the indexes of the tensors to learn


def arguments(steps: Sequence[Step]) -> Block:
    """The statements with those that test tensor arguments in a block of their own."""
    known = [step for step in _tests(steps) if isinstance(_source(step), ArgSource)]
    indexes = [source.index for step in known if isinstance(source := _source(step), ArgSource)]
    return _with_block(steps, known, "args", ARGUMENTS), indexes


def others(steps: Sequence[Step], variables: Mapping[Source, str]) -> Block:
    """The same for other tensors, which `variables` hold."""
    known = [step for step in _tests(steps) if _source(step) in variables]
    if len(known) < _FEW:
        known = []
    tensors = "".join(f"{variables[_source(step)]}, " for step in known)
    return _with_block(steps, known, f"({tensors})", OTHERS), list(range(len(known)))


ARGUMENTS, OTHERS = "alike", "alike_others"  # the native functions' names
_FEW = 4  # so few tests cost no more than the call


def _tests(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.text.startswith("if ") and _describable(step.guard)]


def _source(step: Step) -> Source:
    assert step.guard is not None
    found: Source = step.guard.source
    return found


def _with_block(steps: Sequence[Step], tests: list[Step], tensors: str, name: str) -> list[str]:
    if not tests:
        return [step.text for step in steps]
    inside = set(map(id, tests))
    last = max(i for i, step in enumerate(steps) if id(step) in inside)
    block = [f"if not {name}({tensors}):", *(f"    {step.text}" for step in tests), f"    learn_{name}({tensors})"]
    before = [step.text for step in steps[: last + 1] if id(step) not in inside]
    return [*before, *block, *(step.text for step in steps[last + 1 :])]


def define(indexes: Mapping[str, Sequence[int]], check: Any) -> None:
    """Put into the globals of the check's function what its blocks call."""
    for name, wanted in indexes.items():
        check.__globals__[name], check.__globals__[f"learn_{name}"] = never, Learner(wanted, check, name)


def _describable(guard: Guard | None) -> bool:
    """Whether the guard is all about one tensor's sizes, strides, dtype..., none of them open."""
    if guard is None or guard.kind is not Kind.TENSOR:
        return False
    facts = guard.expected
    open_ = None in facts.sizes or facts.strides is None or None in facts.strides
    return not open_ and facts.dispatch_keys is None


def never(args: tuple[Any, ...]) -> bool:
    """Stands for a native function that is not there."""
    return False


class Learner:
    """Makes the native function once tensors have passed again; a few times, as they may be alike in several ways. What is
    called once would take longer to learn from than its checks take. The function of the check holds it, and is running when
    it is called."""

    def __init__(self, indexes: Sequence[int], check: Any, name: str) -> None:
        self._indexes = tuple(dict.fromkeys(indexes))
        self._check, self._name = weakref.ref(check), name
        self._left = _ATTEMPTS
        self._waits = True

    def __call__(self, args: tuple[Any, ...]) -> None:
        waits, self._waits = self._waits, False
        if waits or not self._left:
            return
        self._left -= 1
        found = _like(args, self._indexes)
        if found is not None:
            check: Any = self._check()
            check.__globals__[self._name] = found


class KnownTensors:
    """Tensors that passed a test. `known`: whether those of a tuple are like them."""

    __slots__ = ("_left", "known")

    def __init__(self) -> None:
        self.known: Callable[[tuple[Any, ...]], bool] = never
        self._left = _ATTEMPTS

    @property
    def learns(self) -> bool:
        """Whether further tensors are learnt."""
        return self._left > 0

    def learn(self, tensors: tuple[Any, ...]) -> None:
        """These passed."""
        if self._left:
            self._left -= 1
            self.known = _like(tensors, range(len(tensors))) or self.known


def _like(args: tuple[Any, ...], indexes: Iterable[int]) -> Callable[[tuple[Any, ...]], bool] | None:
    """The native function that knows arguments like these; None where there is none."""
    if sys.is_finalizing():  # nothing is imported any more
        return None
    from pliant.guards import native_watch  # which what is called once does not need
    from pliant.guards.tensor_words import description

    known = description() if native_watch.available() else None
    if known is None or not all(known.describes(args[i]) for i in indexes):
        return None
    if any(known.kind_of_record(args[i]) is None for i in indexes):
        return None
    return native_watch.native_alike(known, {i: args[i] for i in indexes})


_ATTEMPTS = 4
