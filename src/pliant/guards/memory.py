"""Words in the memory of tensors: where one lies that has a known value in each of them.

Out:    `object_place`, `only_word`: by experiment; `usable`: how far an object may be read.
Reads on: `tensor_words.py`, `runtime/tensor_address.py`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

import torch

from pliant.cpython import WORD, word, words
from pliant.interruptions import pass_on
from pliant.torch_adapter import BYTES_OF_TENSOR


def object_place(tensors: Sequence[torch.Tensor]) -> int | None:
    """Where a tensor's Python object refers to its C++ object."""
    places = range(16, BYTES_OF_TENSOR - 7, WORD)
    found = [place for place in places if all(word(id(t) + place) == t._cdata for t in tensors)]
    return found[0] if len(found) == 1 else None


def only_word(
    tensors: Sequence[torch.Tensor], count: int, look: Callable[[torch.Tensor], tuple[int, int]]
) -> int | None:
    """The one word that has the wanted value in all tensors; `look`: the address of the first word, and the value."""
    found = set(range(2, count))  # behind the kind and the counts of references
    for tensor in tensors:
        address, wanted = look(tensor)
        found &= {i for i, value in enumerate(words(address, count)) if value == wanted}
    return found.pop() if len(found) == 1 else None


def usable(address: int, most: int) -> int:
    """Words that the allocator says belong to the object, 0 if it does not say."""
    ask = _allocator()
    return 0 if ask is None else min(int(ask(address)) // WORD, most)


@functools.cache
def _allocator() -> Callable[[int], int] | None:
    """The allocator's function that says how many bytes an object has; None where it has none."""
    try:
        ask = ctypes.CDLL(None).malloc_usable_size
    except (OSError, AttributeError) as error:
        pass_on(error)
        return None
    ask.restype, ask.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    return ask
