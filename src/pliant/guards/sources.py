"""Sources: how the entry code reaches a value again, from the arguments of the call or from an object the entry holds.

In:     capture makes one for each value it reads from outside the trace.
Out:    `source.code(namer)` is a Python expression; guards, inputs, side effects and explanations all use it.
Holds:  sources are interned by value (equal sources are equal), so they are dictionary keys. Reading a source never runs
        user code: attributes are read through `__dict__`, items only from exact builtin containers (or as their base
        class holds them).
"""

from __future__ import annotations

import enum
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeVar, dataclass_transform

import torch

from pliant.cpython import kept_result, stored_item, table_of
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.torch_adapter import as_in_memory, plain_tensor

T = TypeVar("T")
Namer = Callable[[object], str]  # gives a variable name under which the entry holds an object


@dataclass_transform(frozen_default=True)
def source_class(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass whose hash, which follows the whole chain, is computed once; pickles do not
    carry it (it differs by process)."""
    made = dataclass(frozen=True, slots=True)(cls)
    type.__setattr__(made, "__hash__", _cached_hash)
    type.__setattr__(made, "__reduce__", _reduce)
    return made


class _Readers(dict[type, Callable[[Any], Any]]):
    """What reads the fields of an object of a class."""

    def __missing__(self, cls: Any) -> Callable[[Any], Any]:
        names = cls.__match_args__
        self[cls] = read = operator.attrgetter(*names) if names else lambda source: ()
        return read


_readers = _Readers()


def _cached_hash(self: Any) -> int:
    if not self._hash:
        cls = type(self)
        object.__setattr__(self, "_hash", hash((cls, _readers[cls](self))) or 1)
    return self._hash  # type: ignore[no-any-return]


def _reduce(self: Any) -> tuple[type, tuple[Any, ...]]:
    return type(self), tuple([getattr(self, name) for name in self.__match_args__])


@dataclass(frozen=True, slots=True)
class Source:
    """Base. `code`: Python text over `args` (tuple), `kwargs` (dict) and held objects. `describe`: for people."""

    _hash: int = field(init=False, compare=False, repr=False, default=0)
    is_held: ClassVar[bool] = False  # an object that the entry keeps alive
    is_given: ClassVar[bool] = False  # an argument of the call
    is_registered: ClassVar[bool] = False  # an object that programs put there, and take away, between calls

    @property
    def is_members(self) -> bool:
        """A module's table of parameters, buffers or submodules."""
        return False

    @property
    def is_buffer(self) -> bool:
        """A buffer of a module."""
        return False

    @property
    def is_namespace(self) -> bool:
        """A namespace that its owner stands for: an object's, a module's, a table of members."""
        return self.is_held or self.is_members

    def code(self, hold: Namer) -> str:
        raise NotImplementedError

    def describe(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.describe()

    @property
    def base(self) -> Source | None:
        return None


@source_class
class ArgSource(Source):
    """args[index] of the call; `name` is the parameter's name (for people)."""

    index: int
    name: str
    is_given = True

    def code(self, hold: Namer) -> str:
        return f"args[{self.index}]"

    def describe(self) -> str:
        return self.name


@source_class
class KwargSource(Source):
    """kwargs[name] of the call."""

    name: str
    is_given = True

    def code(self, hold: Namer) -> str:
        return f"kwargs[{self.name!r}]"

    def describe(self) -> str:
        return self.name


class _Held:
    """An object compared by identity, so that sources over unhashable objects are hashable."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@source_class
class HeldSource(Source):
    """An object the entry keeps alive (the compiled function, a globals dict, a class). `name` is for people."""

    held: _Held
    name: str
    is_held = True

    def code(self, hold: Namer) -> str:
        return hold(self.held.value)

    def describe(self) -> str:
        return self.name


def held(value: Any, name: str) -> HeldSource:
    return HeldSource(_Held(value), name)


@source_class
class ChainedSource(Source):
    """A value read from its parent's. `text` and `words` (the same, if there are none) are templates of `code` and
    `describe`: `{parent}` stands for the parent's, `{self.name}` for a field, `{function}` for what the entry holds."""

    parent: Source
    text: ClassVar[str]
    words: ClassVar[str] = ""
    function: ClassVar[Callable[..., Any] | None] = None

    @property
    def base(self) -> Source:
        return self.parent

    def below(self, parent: Source) -> Source:
        """The same of another parent."""
        names: Any = self.__match_args__
        return type(self)(parent, *[getattr(self, name) for name in names[1:]])

    def code(self, hold: Namer) -> str:
        function = "" if self.function is None else hold(type(self).function)
        return self.text.format(self=self, parent=self.parent.code(hold), function=function)

    def describe(self) -> str:
        return (self.words or self.text).format(self=self, parent=self.parent.describe())


@source_class
class DictAttributeSource(ChainedSource):
    """parent.__dict__[name]: an instance attribute (of an object or a module object)."""

    name: str
    text = "{parent}.__dict__[{self.name!r}]"
    words = "{parent}.{self.name}"

    @property
    def is_members(self) -> bool:
        return self.name in ("_parameters", "_buffers", "_modules")


@source_class
class AttributeSource(ChainedSource):
    """parent.name read by a getset/member descriptor of a type implemented in C (`__class__`, `__closure__`, slots):
    runs no user code."""

    name: str
    text = "{parent}.{self.name}"

    @property
    def is_namespace(self) -> bool:
        return self.name == "__dict__"


def failure_of(obj: Any, name: str) -> type[BaseException] | None:
    """The class of the exception that reading an attribute raises; None if it is there."""
    try:
        getattr(obj, name)
    except Exception as error:
        pass_on(error)
        return type(error)
    return None


@source_class
class FailureSource(ChainedSource):
    """What reading parent.name raises, of a module that looks names up in its own way: this one runs its code."""

    name: str
    text = "{function}({parent}, {self.name!r})"
    words = "what {parent}.{self.name} raises"
    function = failure_of


@source_class
class ModuleMemberSource(ChainedSource):
    """parent.__dict__[table][name] of an nn.Module; table is "_parameters", "_buffers" or "_modules"."""

    table: str
    name: str
    text = "{parent}.__dict__[{self.table!r}][{self.name!r}]"
    words = "{parent}.{self.name}"

    @property
    def is_buffer(self) -> bool:
        return self.table == "_buffers"


_SPELLED = (int, str, bool, float, complex, bytes, type(None), torch.dtype, torch.device)


def _words_of_key(key: Any) -> str:
    """Runs nothing of the program, and spells no number that stands for an address."""
    if type(key) is tuple:
        return f"({', '.join(map(_words_of_key, key))})"
    if isinstance(key, enum.Enum):
        return f"{type(key).__name__}.{key._name_}"
    return repr(key) if type(key) in _SPELLED else f"<{type(key).__name__}>"


@source_class
class ItemSource(ChainedSource):
    """parent[key] for builtin list, tuple, dict (exact, or through the base class' __getitem__ where `via` names
    it)."""

    key: Any
    via: str | None = None  # "list" | "tuple" | "dict" for subclasses

    def __eq__(self, other: object) -> bool:
        """Tensors as keys are compared by identity: their own comparison computes."""
        if type(other) is not ItemSource or self.via != other.via or self.parent != other.parent:
            return False
        return self.key is other.key or not isinstance(self.key, torch.Tensor) and bool(self.key == other.key)

    def code(self, hold: Namer) -> str:
        key = repr(self.key) if type(self.key) in (int, str, bool, type(None)) else hold(self.key)
        if self.via:
            read = hold(stored_item) if self.via == "dict" else f"{self.via}.__getitem__"
            return f"{read}({self.parent.code(hold)}, {key})"
        return f"{self.parent.code(hold)}[{key}]"

    def describe(self) -> str:
        if isinstance(self.parent, AttributeSource) and self.parent.name == "__dict__" and isinstance(self.key, str):
            return f"{self.parent.parent.describe()}.{self.key}"
        name = self.parent.describe()
        if isinstance(self.parent, HeldSource) and isinstance(self.key, str):  # a global of a module
            return f"{name}.{self.key}" if name else self.key
        return f"{name}[{_words_of_key(self.key)}]"


@source_class
class CellSource(ChainedSource):
    """Contents of a closure cell; parent is the cell."""

    text = "{parent}.cell_contents"
    words = "{parent}"


@source_class
class TypeSource(ChainedSource):
    """type(parent)."""

    text = "type({parent})"


@source_class
class ReferentSource(ChainedSource):
    """parent() of a weak reference."""

    text = "{parent}()"


@source_class
class TableSource(ChainedSource):
    """How many slots the table of a set has; None where items were taken out of it."""

    text = "{function}({parent})"
    words = "the table of {parent}"
    function = table_of


@source_class
class KeptSource(ChainedSource):
    """What the cache of a function holds for arguments, `given`: those by place, those by name."""

    given: _Held
    function = kept_result

    def code(self, hold: Namer) -> str:
        args, kwargs = map(hold, self.given.value)
        return f"{hold(kept_result)}({self.parent.code(hold)}, {args}, dict({kwargs}))"

    def describe(self) -> str:
        return f"what {self.parent.describe()} keeps"


@source_class
class LengthSource(ChainedSource):
    """len(parent) of a list, or how many items it has by a base class, whatever `__len__` of its own says."""

    via: str | None = None  # "tuple" for subclasses

    def code(self, hold: Namer) -> str:
        return f"{f'{self.via}.__len__' if self.via else 'len'}({self.parent.code(hold)})"

    def describe(self) -> str:
        return f"len({self.parent.describe()})"


@source_class
class IteratorSource(ChainedSource):
    """iter(parent) or reversed(parent) of a list, whatever methods its class has."""

    method: str
    text = "list.{self.method}({parent})"
    words = "{parent}"


@source_class
class SizeSource(ChainedSource):
    """parent.size(dim) of a tensor: what a size symbol is bound to."""

    dim: int
    text = "{parent}.size({self.dim})"


@source_class
class StrideSource(ChainedSource):
    """parent.stride(dim) of a tensor."""

    dim: int
    text = "{parent}.stride({self.dim})"


@source_class
class GradSource(ChainedSource):
    """parent.grad of a tensor."""

    text = "{parent}.grad"


@source_class
class PlainTensorSource(ChainedSource):
    """A plain tensor on the memory of one of a subclass."""

    text = "{function}({parent})"
    words = "{parent}"
    function = plain_tensor


@source_class
class InMemorySource(ChainedSource):
    """A tensor that is conjugated or negated when it is read, as its memory has it."""

    text = "{function}({parent})"
    words = "{parent}"
    function = as_in_memory


@source_class
class ArrayTensorSource(ChainedSource):
    """A tensor on the memory of an array of NumPy's."""

    text = "{function}({parent})"
    words = "{parent}"
    function = torch.from_numpy


def _of_scalar(value: Any) -> torch.Tensor:
    return torch.from_numpy(value.reshape(1).copy())[0]


@source_class
class ScalarTensorSource(ChainedSource):
    """A tensor without dimensions that has the value of a scalar of NumPy's."""

    text = "{function}({parent})"
    words = "{parent}"
    function = _of_scalar


@source_class
class MethodSource(ChainedSource):
    """parent.name() of a type implemented in C (`storage_offset` of a tensor)."""

    name: str
    text = "{parent}.{self.name}()"


@source_class
class QuestionSource(Source):
    """The answer of a function that reads a setting of PyTorch or Python; arguments are constants or classes."""

    function: _Held
    args: tuple[Any, ...]

    def code(self, hold: Namer) -> str:
        given = [hold(a) if isinstance(a, type) else repr(a) for a in self.args]
        return f"{hold(self.function.value)}({', '.join(given)})"

    def describe(self) -> str:
        return f"{getattr(self.function.value, '__name__', 'question')}({', '.join(map(repr, self.args))})"


@source_class
class DrawSource(Source):
    """What the entry drew from a random generator, behind its guards; `part` of it, if it drew several numbers."""

    index: int
    part: int | None = None

    def code(self, hold: Namer) -> str:
        return f"_draw{self.index}" if self.part is None else f"_draw{self.index}_{self.part}"

    def describe(self) -> str:
        return f"random number {self.index}"


def question(function: Any, *args: Any) -> QuestionSource:
    return QuestionSource(_Held(function), args)


@source_class
class HandledSource(Source):
    """The exception that the caller is handling, or None."""

    def code(self, hold: Namer) -> str:
        return f"{hold(sys.exc_info)}()[1]"

    def describe(self) -> str:
        return "the exception being handled"


@source_class
class StateSource(Source):
    """A piece of global state, by name (a row of guards.state: "grad_enabled", "autocast_cpu", "default_dtype",
    ...)."""

    name: str

    def code(self, hold: Namer) -> str:
        return f"state_{self.name}()"

    def describe(self) -> str:
        return self.name.replace("_", " ")


def value_of(source: Source, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the source leads to in a call; an error where it cannot be read."""
    scope: dict[str, Any] = {"args": args, "kwargs": kwargs}

    def hold(value: object) -> str:
        name = f"held{len(scope)}"
        scope[name] = value
        return name

    return eval(source.code(hold), scope)  # our own text
