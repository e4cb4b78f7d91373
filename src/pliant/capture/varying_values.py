"""Values of the trace that vary from call to call, where the program sees plain ones.

Out:    `PLAIN_TYPES`: their classes, each with the class that the program sees; `concrete`: the plain value.
Holds:  C code that knows of no other class gets what the plain value answers, under guards that fix it.
Reads on: `numbers/varying_text.py`, `numbers/progressions.py`, `numbers/number_domains.py`: how they are made, and what they
        answer without being fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NoReturn

import torch

from pliant.capture.graph_breaks import needs_value
from pliant.errors import DataDependentError
from pliant.graph.fake_tensor import FakeTensor
from pliant.records import dataclass

NUMBERS: frozenset[type] = frozenset((int, float, bool))
Settling = Callable[[], BaseException]


def plain_class(value: Any) -> type:
    """The class that the program sees of a number that may vary; of other values their type."""
    return PLAIN_TYPES.get(type(value), type(value))  # type: ignore[no-any-return]


def varying(value: Any) -> type | None:
    """The class that the program sees of what varies from call to call (int, float, bool, str, range, list, tuple); None of
    all other values."""
    return PLAIN_TYPES.get(type(value))


def is_text(value: Any) -> bool:
    return issubclass(plain_class(value), str)


def concrete(value: Any) -> Any:
    """A symbolic number, or what is made of such, specialized to its value (adds a guard); a break where only running the
    graph tells it."""
    plain: Any = varying(value)
    if plain is None:
        return value
    if plain not in NUMBERS:
        return value.plain()
    try:
        return plain(value.node.shape_env.evaluate(value.node.expr))
    except DataDependentError as error:
        raise needs_value(error) from None


def plain_text(value: Any) -> Any:
    """A text as C code of PyTorch reads it, which would take what varies for a sequence; all else as it is."""
    return concrete(value) if varying(value) is str else value


def answers_as_plain(cls: type, names: str) -> None:
    """Give a class of what varies these special methods of its plain value, for C code that knows of no other."""
    for name in names.split():
        setattr(cls, f"__{name}__", _of_plain(f"__{name}__"))


def _of_plain(name: str) -> Callable[..., Any]:
    return lambda self, *others: getattr(self.plain(), name)(*map(concrete, others))


# ---- texts
class Part:
    """What stands in a text that varies: `of(number)` is what it shows, once the number is known."""

    __slots__ = ()
    number: Any
    is_never_empty: ClassVar[bool] = True

    def of(self, number: Any) -> str:
        raise NotImplementedError

    def plain(self) -> str:
        return self.of(concrete(self.number))

    def marked(self, mark: Callable[[Any, str], str]) -> str:
        """As it stands in a message whose numbers only running the graph tells: `mark` stands for one of them."""
        return mark(self.number, "")

    def made(self, hold: Callable[[Any], str], value: Callable[[Any], str]) -> str:
        """The expression of the text, in an entry where `value` names the number."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Part):
    """A text that does not vary; it is not empty."""

    number: str

    def of(self, text: str) -> str:
        return text

    def marked(self, mark: Callable[[Any, str], str]) -> str:
        return self.number

    def made(self, hold: Callable[[Any], str], value: Callable[[Any], str]) -> str:
        return repr(self.number)


class Text:
    """A text that is made of texts, of numbers that vary, and of texts that do."""

    __slots__ = ("parts",)

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = tuple(parts)

    def plain(self) -> str:
        return "".join([part.plain() for part in self.parts])

    def __bool__(self) -> bool:
        return any(part.is_never_empty for part in self.parts) or bool(self.plain())

    def __add__(self, other: Any) -> Any:
        return join("", (self, other)) if is_text(other) else self.plain() + other

    def __radd__(self, other: Any) -> Any:
        return join("", (other, self)) if is_text(other) else NotImplemented


answers_as_plain(Text, "eq ne lt le gt ge hash len str repr format contains getitem iter mod rmod mul rmul")


def join(separator: Any, items: Sequence[Any]) -> Any:
    """separator.join(items)"""
    if not any(varying(one) is str for one in (separator, *items)):
        return separator.join(items)
    parts: list[Part] = []
    for place, item in enumerate(items):
        for one in (separator, item) if place else (item,):
            parts += one.parts if varying(one) is str else (Literal(one),) if one else ()
    return Text(parts)


# ---- what any use settles, or some uses
class _Unsettled:
    """`settling`: what has the capture start again, with another value in its place."""

    __slots__ = ("settling",)

    def __init__(self, settling: Settling) -> None:
        self.settling = settling

    def settle(self) -> NoReturn:
        raise self.settling()

    def plain(self) -> Any:
        self.settle()

    def __bool__(self) -> bool:
        return bool(self.plain())

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.settle()


class TensorOrNumber(_Unsettled):
    """A tensor or a number. Started again, the capture breaks where only running the graph tells which it is."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: FakeTensor, settling: Settling) -> None:
        super().__init__(settling)
        self.tensor = tensor


class HookNumber(_Unsettled):
    """The key of a hook from outside: another number each time that the same hook is registered. Started again, the capture
    has the plain number. It may be asked for in a dict that is empty."""

    __slots__ = ()


# ---- ranges, and lists and tuples of numbers
class Progression(_Unsettled):
    """`ends`: start, stop and step; `count`: how many items it has, at least one. Started again, the capture has a plain one."""

    __slots__ = ("count", "ends", "made")
    cls: ClassVar[type]

    def __init__(self, ends: tuple[Any, ...], count: Any, settling: Settling) -> None:
        super().__init__(settling)
        self.ends, self.count = ends, count
        self.made: Any = None

    @property
    def step(self) -> int:
        return self.ends[2]  # type: ignore[no-any-return]

    @property
    def kind(self) -> type:
        """The class of an item."""
        return plain_class(self.ends[0])

    def at(self, place: Any) -> Any:
        return self.ends[0] + place * self.step if self.step else self.ends[0]

    def end(self, largest: bool) -> Any:
        return self.at(self.count - 1) if largest is (self.step > 0) else self.ends[0]

    def plain(self) -> Any:
        """The same one each time: the program may ask whether it is."""
        if self.made is None:
            numbers = range(*map(concrete, self.ends))
            self.made = numbers if self.cls is range else self.cls(numbers)
        return self.made

    def __bool__(self) -> bool:
        return True


answers_as_plain(Progression, "eq ne lt le gt ge hash len str repr format contains getitem iter")


class VaryingRange(Progression):
    __slots__ = ()
    cls = range


class VaryingTuple(Progression):
    __slots__ = ()
    cls = tuple


class VaryingList(Progression):
    __slots__ = ()
    cls = list

    plain = _Unsettled.settle


PROGRESSIONS: frozenset[type] = frozenset((VaryingRange, VaryingTuple, VaryingList))
UNSETTLED: frozenset[type] = PROGRESSIONS | {TensorOrNumber, HookNumber}
PLAIN_TYPES: dict[type, Any] = {
    torch.SymInt: int,
    torch.SymFloat: float,
    torch.SymBool: bool,
    Text: str,
    VaryingRange: range,
    VaryingTuple: tuple,
    VaryingList: list,
    TensorOrNumber: object,
    HookNumber: object,
}
