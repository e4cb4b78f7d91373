"""Text that shows numbers which vary, or tensors, as a value of the traced program.

In:     texts, symbolic numbers and tensors that the program puts together (`format`, `%`, `+`, `join`).
Out:    `Text`, which the entry makes with the numbers and tensors of the call.
Holds:  it only flows (to output, results, attributes, messages). Whoever asks what it says gets a plain text, under guards
        on the numbers (`concrete`), or a break where only running the graph tells them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.value_kinds import is_str
from pliant.capture.varying_values import Part, Text
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.records import dataclass
from pliant.regular import pattern

# Formats that every number of a type has, whatever its value.
_FORMAT = pattern(r"(.?[<>=^])?[-+ ]?z?#?0?\d*[,_]?(\.\d+)?[bdoxXeEfFgG%]?")
_EXAMPLES = {torch.SymInt: 2, torch.SymFloat: 2.5, torch.SymBool: True}


@dataclass(frozen=True, slots=True, eq=False)
class Shown(Part):
    """A number as `format(number, spec)` shows it, or `spec % (number,)`."""

    number: Any
    spec: str
    percent: bool = False

    def of(self, number: Any) -> str:
        return self.spec % (number,) if self.percent else format(number, self.spec)

    def marked(self, mark: Callable[[Any, str], str]) -> str:
        return mark(self.number, self.spec)

    def made(self, hold: Callable[[Any], str], value: Callable[[Any], str]) -> str:
        number = value(self.number)
        return f"({self.spec!r} % ({number},))" if self.percent else f"{hold(format)}({number}, {self.spec!r})"


@dataclass(frozen=True, slots=True, eq=False)
class ShownTensor(Part):
    """A tensor, or NumPy's array over it, as `shown` makes a text of it; `number` is a copy, which nothing changes."""

    number: Any
    shown: Callable[[Any], str]
    is_array: bool

    def of(self, tensor: Any) -> str:
        if is_fake(tensor):
            raise GraphBreak("data-dependent", "the text of a tensor is used")
        return self.shown(tensor.numpy() if self.is_array else tensor)

    def made(self, hold: Callable[[Any], str], value: Callable[[Any], str]) -> str:
        return f"{hold(self.shown)}({value(self.number)}{'.numpy()' if self.is_array else ''})"


@dataclass(slots=True, eq=False)
class Unread:
    """A text that the call is given, of which nobody has asked what it says. `guard` fixes that."""

    text: str
    guard: Callable[[], None]


@dataclass(frozen=True, slots=True, eq=False)
class Given(Part):
    """A text that the call is given, as it is."""

    number: Unread
    is_never_empty: ClassVar[bool] = False

    def of(self, unread: Unread) -> str:
        unread.guard()
        return unread.text

    def marked(self, mark: Callable[[Any, str], str]) -> str:
        return self.of(self.number)

    def made(self, hold: Callable[[Any], str], value: Callable[[Any], str]) -> str:
        return value(self.number)


def text_given(text: str, guard: Callable[[], None]) -> tuple[Text, Unread]:
    """A text from outside that varies, and what in it has a place there."""
    unread = Unread(text, guard)
    return Text((Given(unread),)), unread


def text_of_tensor(copy: FakeTensor, shown: Callable[[Any], str], is_array: bool) -> Text:
    return Text((ShownTensor(copy, shown, is_array),))


def text_of(number: Any, spec: Any, percent: bool = False) -> Text | None:
    """The text of a symbolic number; None if that depends on its value in other ways, or is an error."""
    one = Shown(number, spec, percent)
    try:
        if not is_str(spec) or not (percent or _FORMAT.fullmatch(spec)):
            return None
        one.of(_EXAMPLES[type(number)])
    except (TypeError, ValueError):
        return None
    return Text((one,))
