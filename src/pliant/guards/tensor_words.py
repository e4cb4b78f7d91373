"""Which words of a tensor's memory tell that a fact about it changed.

In:     a tensor.
Out:    `description()`: the words that are equal in all tensors of one dtype, device, sizes, strides and kind, and what
        follows requires_grad; `memory_word`: what follows the memory that a tensor refers to.
Holds:  nothing is assumed of PyTorch's layout: at first use the words are found by experiment on small tensors, among
        the bytes that the allocator gave to the object, and every kind of difference is tried; if one goes unseen nothing
        is offered (None).
        Words may change without a fact changing (then a check runs once more), never the other way round.
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Callable

import torch
from torch.autograd.graph import get_gradient_edge

from pliant.cpython import WORD, word, words
from pliant.guards.memory import object_place, only_word, usable
from pliant.records import dataclass
from pliant.torch_adapter import DisableTorchFunction, is_view, without_saved_tensor_hooks

_MOST_WORDS = 26  # read of the tensor's object
_MOST_META_WORDS = 64  # read of its autograd record
_INLINE_DIMS = 5  # up to this rank sizes and strides lie inside the object

Words = tuple[int, ...]


def _zeros(*sizes: int, requires_grad: bool = False) -> torch.Tensor:
    """Of the same kind whatever the program's default dtype and device are."""
    return torch.zeros(sizes, dtype=torch.float32, device="cpu", requires_grad=requires_grad)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Word numbers in the tensor's object that stay as long as its facts do, and where its autograd record is."""

    stable: tuple[int, ...]
    storage: int  # word that points to the memory's record
    autograd: int  # word that points to the autograd record, 0 if there is none
    requires_grad: int  # word of that record
    required: int  # bits of that word
    history: int  # word of that record which is 0 in leaves


def memory_word(tensor: torch.Tensor) -> tuple[int, int] | None:
    """The address and the value of a word that stays while the tensor refers to the same memory. None if it cannot be
    watched."""
    layout = _layout()
    if layout is None or not _is_plain(tensor):
        return None
    address = tensor._cdata + WORD * layout.storage
    return address, word(address)


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.dim() <= _INLINE_DIMS


# ---- words that describe a tensor, the same for all that are alike


@dataclass(frozen=True, slots=True)
class Description:
    """Where a tensor object refers to its C++ object, the word of its autograd record, in that the word of requires_grad
    with its bits, and the word that only leaves lack; the bits of the C++ object's words that are equal exactly in tensors
    of one dtype, device, sizes, strides, offset and kind (conjugate...)."""

    offset: int
    autograd: int
    requires_grad: int
    required: int
    history: int
    mask: Words

    def of(self, tensor: torch.Tensor) -> Words:
        return tuple(map(operator.and_, words(tensor._cdata, len(self.mask)), self.mask))

    def record_of(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Where its autograd record is, and the word of that which follows requires_grad; zeros without one."""
        record = word(tensor._cdata + WORD * self.autograd)
        return record, word(record + WORD * self.requires_grad) if record else 0

    def kind_of_record(self, tensor: torch.Tensor) -> int | None:
        """0 without an autograd record, else the word that says of what class the record is, and behind it 2 for a leaf that
        requires grad, 3 for what is no leaf. None of views and others whose history is found when it is asked for."""
        record, requires_grad = self.record_of(tensor)
        if not record:
            return 0
        kind = 3 if word(record + WORD * self.history) else 2 if requires_grad & self.required else 1
        if kind == 1 or kind == 2 and is_view(tensor):
            return None
        return (word(record) << 2 | kind) & (1 << 64) - 1

    def describes(self, tensor: torch.Tensor) -> bool:
        """Whether these words, and those of its record, say all of the tensor: its sizes lie inside the object."""
        return _is_plain(tensor)


@functools.cache
def description() -> Description | None:
    """Found by experiment; None if an experiment fails."""
    with DisableTorchFunction(), torch.inference_mode(False), torch.no_grad():
        layout = _layout()
        if layout is None:
            return None
        alike = [t for fill in (0xFF, 0, 0xAA, 0x55) for t in _on_dirty_memory(fill)]
        alike += [_zeros(3, 5) + 2, _zeros(15).view(3, 5), _zeros(30)[:15].reshape(3, 5).clone()]
        alike += [torch.frombuffer(bytearray(60), dtype=torch.float32).reshape(3, 5)]
        rows = [words(t._cdata, max(layout.stable) + 1) for t in alike]
        varying = [functools.reduce(int.__or__, (row[i] ^ rows[0][i] for row in rows)) for i in range(len(rows[0]))]
        # Pointers differ; a word with a few bits that do has gaps between its fields.
        which = {i for i in layout.stable if varying[i].bit_count() <= _GAPS and i != layout.autograd}
        mask = tuple(~varying[i] & _ALL if i in which else 0 for i in range(1 + max(which)))
        place = object_place(alike)
        if place is None:
            return None
        found = Description(place, layout.autograd, layout.requires_grad, layout.required, layout.history, mask)
        usual = found.of(alike[0])
        return found if all(_differs(found, usual, make()) for make in _OTHERS) else None


_ALL = (1 << 64) - 1
_GAPS = 8


def _on_dirty_memory(fill: int) -> list[torch.Tensor]:
    """Tensors whose objects lie where other things were, so that bits that nobody sets are seen."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    probes = [_zeros(3, 5) for _ in range(32)]  # some blocks are rounded up: of a size that no other object's has
    size = min(usable(probe._cdata, _MOST_WORDS) for probe in probes) * WORD
    chunks = [libc.malloc(size) for _ in range(32)]
    for chunk in chunks:
        ctypes.memset(chunk, fill, size)
    for chunk in chunks:
        libc.free(chunk)
    return [_zeros(3, 5) for _ in range(16)]


def _differs(found: Description, usual: Words, other: torch.Tensor) -> bool:
    return not found.describes(other) or found.record_of(other)[0] != 0 or found.of(other) != usual


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return _zeros(3, 5)


# Each differs in a fact from a usual tensor of shape (3, 5).
_OTHERS: tuple[Callable[[], torch.Tensor], ...] = (
    lambda: _zeros(5, 3),
    lambda: _zeros(15),
    lambda: _zeros(3, 5, 1),
    lambda: _zeros(1, 3, 5),
    lambda: _zeros(5, 3).t(),
    lambda: _zeros(3, 10)[:, ::2],
    lambda: _zeros(1, 5).expand(3, 5),
    lambda: _zeros(16)[1:].view(3, 5),
    lambda: _zeros(3, 5, requires_grad=True),
    lambda: torch.zeros(3, 5, dtype=torch.float64, device="cpu"),
    lambda: torch.zeros(3, 5, dtype=torch.int32, device="cpu"),
    lambda: torch.zeros(3, 5, dtype=torch.bfloat16, device="cpu"),
    lambda: torch.zeros(3, 5, dtype=torch.bool, device="cpu"),
    lambda: torch.zeros(3, 5, dtype=torch.float32, device="meta"),
    lambda: torch.empty(3, 5, dtype=torch.float32, device="cpu", layout=torch.sparse_coo),
    lambda: _zeros(3, 5)._neg_view(),
    lambda: _zeros(3, 5, 2)[..., 0],
    _inference,
)


@functools.cache
def _layout() -> _Layout | None:
    """The layout found by experiment; None if an experiment fails."""
    with DisableTorchFunction(), torch.inference_mode(False), torch.no_grad(), without_saved_tensor_hooks():
        # The allocator rounds some blocks up to what was free there; words behind the object belong to others.
        probes = [torch.nn.Parameter(_zeros(3, 5)) for _ in range(32)]
        count = min(usable(probe._cdata, _MOST_WORDS) for probe in probes)
        if count < 20:
            return None
        autograd = _autograd_word(count)
        if autograd is None:
            return None
        records = [word(probe._cdata + WORD * autograd) for probe in probes]
        length = min(usable(record, _MOST_META_WORDS) for record in records)
        flag, history = _requires_grad_word(autograd, length), _history_word(autograd, length)
        storage = only_word(probes, count, lambda t: (t._cdata, t.untyped_storage()._cdata))
        if flag is None or history is None or storage is None:
            return None
        return _Layout(_stable_words(count), storage, autograd, *flag, history)


def _autograd_word(count: int) -> int | None:
    """The word that becomes a pointer when a tensor first requires grad."""
    t = _zeros(3, 5)
    before = words(t._cdata, count)
    t.requires_grad_(True)
    after = words(t._cdata, count)
    changed = [i for i in range(2, count) if before[i] == 0 and after[i] > 1 << 16]
    return changed[0] if len(changed) == 1 else None


def _requires_grad_word(autograd: int, count: int) -> tuple[int, int] | None:
    """The word of the autograd record that follows requires_grad, there and back, and the bits that are set by it."""
    t = torch.nn.Parameter(_zeros(3, 5))
    record = word(t._cdata + WORD * autograd)
    states = []
    for flag in (True, False, True, False):
        t.requires_grad_(flag)
        states.append(words(record, count))
    on, off = states[0], states[1]
    changed = [i for i in range(count) if on[i] != off[i]]
    steady = states[2] == on and states[3] == off
    if len(changed) != 1 or not steady:
        return None
    word_on, word_off = on[changed[0]], off[changed[0]]
    return (changed[0], word_on ^ word_off) if word_on & word_off == word_off else None


def _history_word(autograd: int, count: int) -> int | None:
    """The word of the autograd record that is 0 in leaves alone: it is where a tensor with a history loses that."""
    found = set(range(count))
    with torch.enable_grad():
        leaf = torch.nn.Parameter(_zeros(3, 5))
        for made in (leaf * 2, leaf.view(15), _zeros(3, 5).mul_(leaf), leaf[1]):
            record = word(made._cdata + WORD * autograd)
            found &= {i for i, value in enumerate(words(record, count)) if value > 1 << 16}
        _give_gradient(leaf)
        made = leaf * 2
        record = word(made._cdata + WORD * autograd)
        made.detach_()
        found &= {i for i, value in enumerate(words(record, count)) if value == 0}
        leaf.register_hook(lambda gradient: None)  # type: ignore[no-untyped-call]
        leaves = [leaf, _zeros(3, 5, requires_grad=True), leaf.detach().requires_grad_()]
        leaves += [_zeros(15, requires_grad=True).detach().view(3, 5).requires_grad_()]
    for one in leaves:
        record = word(one._cdata + WORD * autograd)
        found &= {i for i, value in enumerate(words(record, count)) if value == 0}
    return min(found) if found else None


def _give_gradient(leaf: torch.Tensor) -> None:
    """What a backward does to a leaf, without one: the first of a process starts a thread for each GPU, which takes 0.1 s."""
    get_gradient_edge(leaf * 3)  # the leaf has what accumulates its gradient
    leaf.grad = torch.ones_like(leaf)


def _stable_words(count: int) -> tuple[int, ...]:
    """Words that ordinary use of a parameter leaves alone (its reference count, for one, does not belong to them)."""
    p = torch.nn.Parameter(_zeros(3, 5))
    first = words(p._cdata, count)
    unstable: set[int] = set()

    def note() -> None:
        unstable.update(i for i, (a, b) in enumerate(zip(first, words(p._cdata, count))) if a != b)

    kept = []
    for _ in range(3):
        with torch.enable_grad():
            kept += [p.detach(), p.view(15), p * 2, p.t()]
            note()
            _give_gradient(p)
        note()
        p.add_(1)
        note()
    del kept
    p.grad = None
    note()
    return tuple(i for i in range(count) if i not in unstable)
