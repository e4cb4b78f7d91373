"""Exact comparison of constants, for guards that generated code cannot spell inline.

In:     a value of the program and the value seen at capture.
Out:    whether they are the same constant.
Holds:  same types all the way down; floats bit for bit (NaN equals NaN, -0.0 is not 0.0); no user `__eq__` runs.
"""

from __future__ import annotations

import operator
import struct
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant.guards.kinds import ConstantItems
from pliant.torch_adapter import minds_writes, storage_of

# Types whose `==` between two instances of exactly that type is right as it is.
PLAIN: frozenset[type] = frozenset(
    {
        int,
        bool,
        str,
        bytes,
        type(None),
        type(...),
        type(NotImplemented),
        range,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
    }
)


class CacheToken(int):
    """How often classes had been registered with abstract ones in this process when those in `asked` were asked about others."""

    asked: list[type]

    def __new__(cls, count: Any, asked: Iterable[type] = ()) -> CacheToken:
        made = super().__new__(cls, count)
        made.asked = list(asked)
        return made


def _same_float(a: float, b: float) -> bool:
    return struct.pack("d", a) == struct.pack("d", b)


def _same_complex(a: complex, b: complex) -> bool:
    return _same_float(a.real, b.real) and _same_float(a.imag, b.imag)


def _same_items(a: Iterable[Any], b: Iterable[Any]) -> bool:
    a, b = tuple(a), tuple(b)
    return len(a) == len(b) and all(map(same, a, b))


def same_items(a: Iterable[Any], b: Iterable[Any]) -> bool:
    """Whether the collections have the same members in any order."""
    a, b = tuple(a), tuple(b)
    return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)


def _same_dict(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    return _same_items(a.keys(), b.keys()) and _same_items(a.values(), b.values())


def _same_slice(a: slice, b: slice) -> bool:
    return same(a.start, b.start) and same(a.stop, b.stop) and same(a.step, b.step)


def storages(tensors: Iterable[torch.Tensor]) -> frozenset[int]:
    """The memory that the tensors refer to. Those without memory of their own (sparse ones) count as none."""
    tensors = tuple(tensors)
    try:
        return frozenset(map(storage_of, tensors))
    except NotImplementedError:
        return frozenset(storage_of(t) for t in tensors if t.layout is torch.strided)


def separate(written: Iterable[torch.Tensor], others: Iterable[torch.Tensor], held: frozenset[int]) -> bool:
    """Whether no two of the tensors share memory, of which one is among `written` (or in the held memory)."""
    mine = list(map(storage_of, written))
    seen = held.union(mine)
    if len(seen) == len(held) + len(mine) and seen.isdisjoint(map(storage_of, others)):
        return True
    written, others = tuple(written), tuple(others)
    if not held.isdisjoint(map(storage_of, (*written, *others))):
        return False
    together: dict[int, list[tuple[torch.Tensor, bool]]] = {}
    for tensors, is_written in ((written, True), (others, False)):
        for tensor in tensors:
            together.setdefault(storage_of(tensor), []).append((tensor, is_written))
    return not any(len(group) > 1 and _is_shared(group) for group in together.values())


def _is_shared(group: list[tuple[torch.Tensor, bool]]) -> bool:
    """Whether a write of one of these tensors of one storage concerns another: the stretches of memory between the first and the last
    element of both meet, or autograd minds it nevertheless."""
    if not any(is_written for _, is_written in group):
        return False
    if any(minds_writes(tensor) for tensor, _ in group):
        return True
    reach = reach_of_written = -1
    for first, end, is_written in sorted((*_stretch(tensor), is_written) for tensor, is_written in group):
        if first < (reach if is_written else reach_of_written):
            return True
        reach = max(reach, end)
        if is_written:
            reach_of_written = max(reach_of_written, end)
    return False


def _stretch(t: torch.Tensor) -> tuple[int, int]:
    """First byte and the byte behind the last one."""
    span = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True)) + 1
    return t.data_ptr(), t.data_ptr() + span * t.element_size()


def all_empty(table: dict[str, Any], names: Iterable[str]) -> bool:
    """Whether all of these items are dicts, of no class of the program's, without entries."""
    for name in names:  # asked of every module that a program calls
        item = table.get(name)
        if type(item) not in (dict, OrderedDict) or item:
            return False
    return True


def unset(descriptor: Any, value: Any) -> bool:
    """Whether a slot or a cell is empty."""
    try:
        descriptor.__get__(value)
    except (AttributeError, ValueError):
        return True
    return False


_BY_TYPE: dict[type, Callable[[Any, Any], bool]] = {
    float: _same_float,
    complex: _same_complex,
    tuple: _same_items,
    list: _same_items,
    torch.Size: _same_items,
    set: same_items,
    frozenset: same_items,
    dict: _same_dict,
    slice: _same_slice,
}


def own_reference(value: Any) -> weakref.ref[Any]:
    """The compiler's weak reference to an object. It is none of the program's, which would otherwise share it: the end of
    what the program has references to is seen."""
    return next(filter(is_own_reference, weakref.getweakrefs(value)), None) or weakref.ref(value, _gone)


def is_own_reference(reference: Any) -> bool:
    return type(reference) is weakref.ref and reference.__callback__ is _gone


def _gone(_: Any) -> None:
    """Nobody waits for it."""


class Itself:
    """Stands for an object that is equal to itself alone, and does not keep it alive."""

    __slots__ = ("reference",)

    def __init__(self, value: Any) -> None:
        self.reference = own_reference(value)


def same(a: Any, b: Any) -> bool:
    """Whether the constants are equal exactly; objects of other types must be identical. `b` is what was seen."""
    if a is b:
        return True
    if type(b) is Itself:
        return b.reference() is a
    cls = type(a)
    if cls is not type(b):
        return False
    if cls in PLAIN or is_native_enum(cls):
        return bool(a == b)
    if cls.__module__ == "numpy" and hasattr(cls, "tobytes"):  # a scalar
        return bool(a.tobytes() == b.tobytes())
    compare = _BY_TYPE.get(cls)
    return compare is not None and compare(a, b)


def lacks_item(container: Any, e: ConstantItems) -> bool:
    """Whether the constant is not there that was missing in another container before: all that a short check looks at."""
    return bool(e.values) and not same(container[e.place(e.failed)], e.values[e.failed])


def has_items(container: Any, e: ConstantItems) -> bool:
    """Whether a list, deque or tuple holds the constants. Mostly they are the same objects, or of the same types."""
    if lacks_item(container, e):  # a container too short is a miss
        return False
    found = tuple(container) if e.places is None else operator.itemgetter(*e.places)(container)
    if len(found) != len(e.values):
        return False
    if all(map(operator.is_, found, e.values)) or _same_constants(found, e):
        return True
    e.failed = next((i for i, (a, b) in enumerate(zip(found, e.values, strict=True)) if not same(a, b)), 0)
    return False


def _same_constants(found: tuple[Any, ...], e: ConstantItems) -> bool:
    if not all(map(operator.is_, map(type, found), e.types)):
        return False
    return found == e.values if e.comparable else all(map(same, found, e.values))


def is_native_enum(cls: type) -> bool:
    """Whether it is an enumeration of PyTorch's, whose members are made anew each time."""
    return type(cls).__name__ == "pybind11_type" and hasattr(cls, "__members__")


def spelled_exactly(value: Any) -> bool:
    """Whether `type(v) is T and v == literal` means `same(v, value)`."""
    return type(value) in PLAIN or (type(value) is float and value == value and value != 0.0)
