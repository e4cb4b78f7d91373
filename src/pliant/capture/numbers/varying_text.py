"""Text that shows numbers which vary, or tensors, as a value of the traced program.

In:     texts, symbolic numbers and tensors that the program puts together (`format`, `%`, `+`, `join`).
Out:    `Text`, which the entry makes with the numbers and tensors of the call.
Holds:  it only flows (to output, results, attributes, messages). Whoever asks what it says gets a plain text, under guards
        on the numbers (`concrete`), or a break where only running the graph tells them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.value_kinds import PLAIN_TYPES, concrete, is_text, varying
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.records import dataclass

# Formats that every number of a type has, whatever its value.
_FORMAT = re.compile(r"(.?[<>=^])?[-+ ]?z?#?0?\d*[,_]?(\.\d+)?[bdoxXeEfFgG%]?")
_EXAMPLES = {torch.SymInt: 2, torch.SymFloat: 2.5, torch.SymBool: True}


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A number as `format(number, spec)` shows it, or `spec % (number,)`."""

    number: Any
    spec: str
    percent: bool = False

    def of(self, number: Any) -> str:
        return self.spec % (number,) if self.percent else format(number, self.spec)

    def made(self, hold: Callable[[Any], str], number: str) -> str:
        """The expression of the text, in an entry where the number has a name."""
        return f"({self.spec!r} % ({number},))" if self.percent else f"{hold(format)}({number}, {self.spec!r})"


@dataclass(frozen=True, slots=True, eq=False)
class ShownTensor:
    """A tensor as `shown` makes a text of it; `number` is a copy, which nothing changes."""

    number: Any
    shown: Callable[[Any], str]
    spec: str = ""

    def of(self, tensor: Any) -> str:
        if is_fake(tensor):
            raise GraphBreak("data-dependent", "the text of a tensor is used")
        return self.shown(tensor)

    def made(self, hold: Callable[[Any], str], tensor: str) -> str:
        """The expression of the text, in an entry where the tensor has a name."""
        return f"{hold(self.shown)}({tensor})"


def array_str(tensor: torch.Tensor) -> str:
    return str(tensor.numpy())


def array_repr(tensor: torch.Tensor) -> str:
    return repr(tensor.numpy())


def array_format(tensor: torch.Tensor) -> str:
    return format(tensor.numpy())


# How NumPy's array over a tensor is shown.
ARRAY_TEXTS: dict[Any, Callable[[torch.Tensor], str]] = {str: array_str, repr: array_repr, format: array_format}


class Unread:
    """A text that the call is given, of which nobody has asked what it says. `guard` fixes that."""

    __slots__ = ("guard", "text")

    def __init__(self, text: str, guard: Callable[[], None]) -> None:
        self.text = text
        self.guard = guard


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A text that the call is given, as it is."""

    number: Unread

    def of(self, unread: Unread) -> str:
        unread.guard()
        return unread.text

    def made(self, hold: Callable[[Any], str], text: str) -> str:
        """The expression of the text, in an entry where it has a name."""
        return text


class Text:
    """A text that is made of texts, of numbers that vary, and of texts that do."""

    __slots__ = ("parts",)

    def __init__(self, parts: Iterable[Any]) -> None:
        self.parts: tuple[str | Shown | ShownTensor | Given, ...] = tuple(parts)

    def plain(self) -> str:
        return "".join([p if isinstance(p, str) else p.of(concrete(p.number)) for p in self.parts])

    def __bool__(self) -> bool:
        shows = any(type(part) is not Given for part in self.parts)  # a number has digits
        return shows or bool(self.plain())

    def __add__(self, other: Any) -> Any:
        return join("", (self, other)) if is_text(other) else self.plain() + other

    def __radd__(self, other: Any) -> Any:
        return join("", (other, self)) if isinstance(other, str) else NotImplemented


def _asked(name: str) -> Callable[..., Any]:
    """A special method of the plain text."""

    def method(self: Text, *others: Any) -> Any:
        return getattr(self.plain(), name)(*map(concrete, others))

    return method


for _name in "eq ne lt le gt ge hash len str repr format contains getitem iter mod rmod mul rmul".split():
    setattr(Text, f"__{_name}__", _asked(f"__{_name}__"))
PLAIN_TYPES[Text] = str


def text_given(text: str, guard: Callable[[], None]) -> tuple[Text, Unread]:
    """A text from outside that varies, and what in it has a place there."""
    unread = Unread(text, guard)
    return Text((Given(unread),)), unread


def text_of_tensor(copy: FakeTensor, shown: Callable[[Any], str]) -> Text:
    return Text((ShownTensor(copy, shown),))


def text_of(number: Any, spec: Any, percent: bool = False) -> Text | None:
    """The text of a symbolic number; None if that depends on its value in other ways, or is an error."""
    one = Shown(number, spec, percent)
    try:
        if type(spec) is not str or not (percent or _FORMAT.fullmatch(spec)):
            return None
        one.of(_EXAMPLES[type(number)])
    except (TypeError, ValueError):
        return None
    return Text((one,))


def join(separator: Any, items: Sequence[Any]) -> Any:
    """separator.join(items)"""
    if not any(varying(one) is str for one in (separator, *items)):
        return separator.join(items)
    parts: list[Any] = []
    for place, item in enumerate(items):
        for one in (separator, item) if place else (item,):
            parts += one.parts if varying(one) is str else (one,)
    return Text(p for p in parts if not isinstance(p, str) or p)
