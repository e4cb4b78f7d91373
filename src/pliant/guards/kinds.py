"""Guards are data: a fact about a value reached through a source, checked before compiled code is reused.

In:     capture appends `Guard`s while it reads the world.
Out:    `guards.codegen` turns the list into a check, `guards.explain` into words, the cache into bytes.
Holds:  a guard may be too strong (a recompile), never too weak.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum, auto
from typing import Any

from pliant.records import dataclass
from pliant.source import SourceLocation


class Kind(Enum):
    """What is checked of the value `v` of the guard's source; `e` is `expected`."""

    __hash__ = object.__hash__  # a kind is itself alone; that of enumerations is a call of Python

    TYPE = auto()  # type(v) is e
    IDENTITY = auto()  # v is e (e kept alive by the entry)
    EQUALS = auto()  # type(v) is type(e) and v == e (bit-exact for floats: NaN equal, -0.0 not 0.0)
    NUMBER_TYPE = auto()  # type(v) is e; the value is symbolic (its facts are shape guards), or a text that nobody has read
    TENSOR = auto()  # e: TensorFacts
    LENGTH = auto()  # len(v) == e, v an exact builtin container or a subclass without __len__
    KEYS = auto()  # tuple(v) == e: ordered keys of a dict, or items of a set, that were iterated or unpacked
    ITEMS = auto()  # e: ConstantItems, what is at many places of v, an exact list, deque or a tuple
    HAS_KEY = auto()  # e in v (exact dict or set)
    NO_KEY = auto()  # e not in v (an instance's dict that does not shadow its class, for one)
    EMPTY = auto()  # not v
    ALL_EMPTY = auto()  # v is a dict, the items that e names are plain dicts without entries (hooks)
    SAME_AS = auto()  # v is the value of the source e (aliasing of two ways to one object)
    DISTINCT = auto()  # e: (sources, sources); no object of the first is another of the first or one of the second
    SEPARATE = auto()  # e: (sources, sources) of tensors; none of the first shares memory with one of the second
    UNSET = auto()  # e: a descriptor of C (a slot, a cell's contents) that finds nothing in v
    STATE = (
        auto()
    )  # the global state named by the source's StateSource equals e (grad mode, autocast, default dtype, ...)
    RANGE = auto()  # a range: (start, stop, step) equal e
    SHAPE = auto()  # e: boolean symbolic.Expr over symbols bound to sources (the guard's own source unused: None)
    KEPT = auto()  # v, a function of `functools.lru_cache`, gives for the arguments that e (`KeptFacts`) names what e says
    EXPRESSION = auto()  # v == e, e an integer symbolic.Expr (a stride that follows from symbolic sizes)
    TYPE_LOOKUP = (
        auto()
    )  # the guard's source is a class; e: (name, value): first hit of name along v.__mro__ is value (`MISSING`: none)


MISSING = object()


@dataclass(frozen=True, slots=True)
class NumberOf:
    """In place of the value of a type lookup: any number of the class, which has guards of its own."""

    cls: type


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """Facts about a tensor; None in sizes/strides means: not fixed by this guard (symbolic, or not needed)."""

    cls: type
    dtype: Any
    device: Any
    requires_grad: bool
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None
    storage_offset_zero: bool | None = None
    is_leaf: bool | None = None
    dispatch_keys: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class KeptFacts:
    """Arguments of a call and its result: constants, objects, integer expressions, and containers of these."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


@dataclass(slots=True, eq=False)
class ConstantItems:
    """Constants (of types whose `==` runs no code of the program) at these places, or at all.

    `failed`: which of them was another one in the last call that was told so; it is looked at first.
    """

    values: tuple[Any, ...]
    places: tuple[int, ...] | None = None
    types: tuple[type, ...] = field(init=False)
    comparable: bool = field(init=False)  # by `==`, once the types are known to be these
    failed: int = 0

    def __post_init__(self) -> None:
        self.types = tuple(map(type, self.values))
        self.comparable = set(self.types).isdisjoint((float, complex))

    def place(self, index: int) -> int:
        return index if self.places is None else self.places[index]


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """One fact. `source` is a `guards.sources.Source`; `origin` the user's line that needed it."""

    source: Any
    kind: Kind
    expected: Any
    origin: SourceLocation | None = None
