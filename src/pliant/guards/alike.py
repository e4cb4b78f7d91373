"""Tensor arguments compared natively with ones that passed the guards: tens of nanoseconds each.

In:     the statements of an entry's check.
Out:    `split(steps)`: those that are left, and a block that runs the checks of tensor arguments only if a native function
        does not know the arguments; `Learner`: makes that function from arguments that passed.
Holds:  arguments are known if all words that describe a tensor are equal to those of one that passed (`tensor_words`).
        Others are checked by the statements themselves; which of the two ran makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pliant.guards import native_watch
from pliant.guards.codegen import Step
from pliant.guards.kinds import Guard, Kind
from pliant.guards.native_watch import native_alike
from pliant.guards.sources import ArgSource
from pliant.guards.tensor_words import description


def split(steps: Sequence[Step]) -> tuple[list[str], list[int]]:
    """The text of the check, and the indexes of the arguments whose tests stand in a block of their own."""
    known = [step for step in steps if step.text.startswith("if ") and _describable(step.guard)]
    if not known:
        return [step.text for step in steps], []
    last = max(i for i, step in enumerate(steps) if step in known)
    block = ["if not alike(args):", *(f"    {step.text}" for step in known), "    learn(args)"]
    before = [step.text for step in steps[: last + 1] if step not in known]
    after = [step.text for step in steps[last + 1 :]]
    return [*before, *block, *after], [step.guard.source.index for step in known if step.guard is not None]


def _describable(guard: Guard | None) -> bool:
    """Whether the guard is all about one argument's sizes, strides, dtype..., none of them open."""
    if guard is None or guard.kind is not Kind.TENSOR or not isinstance(guard.source, ArgSource):
        return False
    facts = guard.expected
    open_ = None in facts.sizes or facts.strides is None or None in facts.strides
    return not open_ and not facts.requires_grad and facts.dispatch_keys is None


def never(args: tuple[Any, ...]) -> bool:
    """Stands for a native function that is not there."""
    return False


class Learner:
    """Makes the native function once arguments have passed; a few times, as arguments may be alike in several ways."""

    def __init__(self, indexes: Sequence[int], scope: dict[str, Any]) -> None:
        self._indexes = tuple(dict.fromkeys(indexes))
        self._scope = scope
        self._left = _ATTEMPTS

    def __call__(self, args: tuple[Any, ...]) -> None:
        if not self._left:
            return
        self._left -= 1
        words = description() if native_watch.available() else None
        if words is None:
            self._left = 0
        elif all(words.describes(args[i]) for i in self._indexes):
            self._scope["alike"] = native_alike(words, {i: args[i] for i in self._indexes})


_ATTEMPTS = 4
