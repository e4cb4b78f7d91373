"""Where a tensor's object keeps the address of its data: native code reads it in a few loads, where a call takes 50 ns.

In:     small tensors made for the experiment.
Out:    `layout()`: the words that `p_direct` of the generated C goes by; None if an experiment fails.
Holds:  nothing is assumed of PyTorch's layout: words are found by experiment, and tried on tensors of many kinds.
        `p_direct` answers only for objects of the classes Tensor and Parameter whose C++ object is of the class that
        ordinary tensors have, that start where their storage starts, and whose storage is not copied on write: for all
        others torch itself is asked.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Sequence

import torch

from pliant.cpython import LIST_ITEMS, TYPE, WORD, word, words
from pliant.guards.memory import object_place, only_word, usable
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch, lazy_clone

_MOST_WORDS = 24


class Layout(ctypes.Structure):
    """Numbers of words (in the Python object, the tensor, its storage), and what some of them hold."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("tensor", "parameter", "object", "kind", "storage", "offset", "data", "owner", "lazy")
    )


@functools.cache
def layout() -> Layout | None:
    """Found by experiment; None if it fails."""
    with DisableTorchFunction(), below_python_dispatch(), torch.inference_mode(False), torch.no_grad():
        tensors, lazy = _ordinary(), _copied_on_write()
        found = _found(tensors, lazy) if lazy else None
        return found if found is not None and _right(found, tensors, lazy) else None


def _found(tensors: Sequence[torch.Tensor], lazy: Sequence[torch.Tensor]) -> Layout | None:
    place = object_place(tensors)
    count = min(usable(t._cdata, _MOST_WORDS) for t in tensors)
    kept = min(usable(t.untyped_storage()._cdata, _MOST_WORDS) for t in tensors)
    kinds = {word(t._cdata) for t in tensors}
    storage = only_word(tensors, count, lambda t: (t._cdata, t.untyped_storage()._cdata))
    offset = only_word(tensors, count, lambda t: (t._cdata, int(t.storage_offset())))
    data = only_word(tensors, kept, lambda t: (t.untyped_storage()._cdata, t.untyped_storage().data_ptr()))
    if place is None or len(kinds) != 1 or None in (storage, offset, data):
        return None
    assert data is not None
    for owner in (data + 1, data + 2):  # what frees the data lies beside its address
        others = {word(t.untyped_storage()._cdata + WORD * owner) for t in tensors}
        marks = {word(t.untyped_storage()._cdata + WORD * owner) for t in lazy}
        if len(marks) == 1 and marks.isdisjoint(others):
            classes = id(torch.Tensor), id(torch.nn.Parameter)
            return Layout(*classes, place // WORD, *kinds, storage, offset, data, owner, *marks)
    return None


def lists_work() -> bool:
    """Whether a list refers to its items where CPython has it."""
    lists = [[object() for _ in range(n)] for n in (1, 5, 100)]
    return all(words(word(id(one) + LIST_ITEMS), len(one)) == tuple(map(id, one)) for one in lists)


def _right(found: Layout, tensors: Sequence[torch.Tensor], lazy: Sequence[torch.Tensor]) -> bool:
    """Whether going by the layout gives the addresses that torch gives, and none where torch has to be asked."""
    if word(id(tensors[0]) + TYPE) != id(torch.Tensor):
        return False
    written = torch.zeros(3) if lazy_clone is None else lazy_clone(torch.zeros(3))
    written.zero_()
    asked = [
        *(t for t in tensors if t.storage_offset()),
        *lazy,
        torch.empty(2, 2, layout=torch.sparse_coo),
        torch.zeros(2, device="meta"),
    ]
    direct = [written] + [t for t in tensors if not t.storage_offset()]
    return all(read(found, t) == t.data_ptr() for t in direct) and not any(read(found, t) for t in asked)


def read(found: Layout, tensor: torch.Tensor) -> int:
    """What `p_direct` reads; 0 where torch has to be asked."""
    if id(type(tensor)) not in (found.tensor, found.parameter):
        return 0
    address = word(id(tensor) + WORD * found.object)
    if word(address) != found.kind or word(address + WORD * found.offset):
        return 0
    storage = word(address + WORD * found.storage)
    if not storage or word(storage + WORD * found.owner) == found.lazy:
        return 0
    return word(storage + WORD * found.data)


def _ordinary() -> list[torch.Tensor]:
    """Tensors of several dtypes, ranks, offsets, and owners of the data; by calls that take little time when they are a process'
    first."""
    kept = torch.zeros(64)
    mapped = mmap.mmap(-1, 4096)
    made = [torch.zeros(n, dtype=d) for n in (1, 5, 1000) for d in (torch.float32, torch.int64, torch.bool)]
    made += [torch.zeros(3, 5).clone(), torch.nn.Parameter(torch.zeros(3, 5)), torch.zeros(2, 3, 4, 5, 6, 7)]
    made += [
        torch.tensor(2.0),
        torch.frombuffer(bytearray(60), dtype=torch.float32),
        torch.frombuffer(mapped, dtype=torch.int32),
    ]
    made += [kept.as_strided(*facts) for facts in (((55,), (1,), 9), ((31, 1), (1, 1), 33), ((2, 3), (5, 2), 17))]
    return [*made, torch.empty_strided((6, 4), (1, 6)), kept.detach(), torch.zeros(3, requires_grad=True).clone()]


def _copied_on_write() -> list[torch.Tensor]:
    """Tensors that share memory until one is written; none where this torch cannot make them."""
    if lazy_clone is None:
        return []
    originals = [torch.zeros(n) for n in (3, 50, 1000)]
    return originals + [lazy_clone(t) for t in originals]
