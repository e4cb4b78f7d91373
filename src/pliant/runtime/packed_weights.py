"""Weights of inference kept a second time, laid out as the library reads them fastest.

In:     at each call, the weights.
Out:    `bind(names)`: puts what runs `pliant::packed_convolution` and `pliant::packed_transpose` in a wrapper's names.
Holds:  a copy is used only while the weight holds what the copy was made from, which a fingerprint of its bytes tells
        at each call: neither its address nor its version would tell of `weight.data.mul_(2)`, of a write through NumPy,
        or by another process. A weight is packed at the second call that finds it the same, so one that changes all the
        time never is; anew for images of another size, for which the library may read another layout (it would change the
        layout at each call, which takes longer than the convolution). Copies that turn out the same are one; a weight has
        at most `MOST_LAYOUTS`. All copies together take at most the option `packed_bytes`; each is freed with its weight.
Units:  reading a weight takes a hundredth of a dense 3x3 convolution of 28x28 images, a tenth at 14x14. Without a copy the
        library lays out the weight at each call: for weights smaller than the image a few hundredths of the convolution,
        for 9 MB on images of 4x4 twice as long as it. The image laid out for eager's way of convolving takes up to 50
        times as long as a convolution of each channel alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant import background, config
from pliant.debug import events
from pliant.graph import packed_weights as plain
from pliant.runtime.auxiliary import fingerprint
from pliant.torch_adapter import (
    OpOverload,
    are_laid_out_alike,
    packed_convolution,
    packed_size,
    reorder_convolution_weight,
)

Make = Callable[..., torch.Tensor]
Fingerprint = Callable[[torch.Tensor, int], int]
MOST_LAYOUTS = 4  # copies of a weight; where another would be needed it is read as it is
_MOST_SEEN = 64  # sizes of images that are remembered


class _Kept:
    """What is known of a weight: its fingerprint, the copies, which of them is for which size (None: none of them), and
    what it was read with once."""

    __slots__ = ("__weakref__", "copies", "mark", "packed", "refused", "seen", "weight")

    def __init__(self, weight: weakref.ref[torch.Tensor], mark: int) -> None:
        self.weight, self.mark, self.refused = weight, mark, False
        self.copies: list[torch.Tensor] = []
        self.packed: dict[tuple[int, ...], torch.Tensor | None] = {}
        self.seen: set[tuple[int, ...]] = set()

    def is_met_again(self, size: tuple[int, ...]) -> bool:
        if size in self.seen:
            return True
        if len(self.seen) >= _MOST_SEEN:
            self.seen.clear()
        self.seen.add(size)
        return False


class _Budget:
    """How many bytes all copies of the process take."""

    def __init__(self) -> None:
        self.used = 0
        self.lock = background.reentrant_lock()  # what is freed meanwhile gives back

    def take(self, kept: _Kept, size: int, most: int) -> bool:
        """Count the bytes of a copy as long as it is kept; False if they are too many."""
        with self.lock:
            if self.used + size > most:
                return False
            self.used += size
        weakref.finalize(kept, self._give_back, size).atexit = False
        return True

    def _give_back(self, size: int) -> None:
        with self.lock:
            self.used -= size


BUDGET = _Budget()


class PackedWeights:
    """The copies of the weights that one operator of one graph has read."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._most = config.get().build.packed_bytes

    def get(self, weight: torch.Tensor, groups: int, size: tuple[int, ...], *facts: Any) -> torch.Tensor | None:
        """The copy, made for so many groups and images of this size with these facts; None where there is none yet."""
        if (read := fingerprint()) is None:
            return None
        mark = read(weight, weight.nbytes)
        key = id(weight), groups
        kept = self._kept.get(key)
        if kept is None or kept.mark != mark or kept.weight() is not weight:
            self._note(key, weight, mark).is_met_again(size)
            return None
        packed = kept.packed.get(size)
        return self._packed(kept, weight, size, (groups, size, *facts), read) if packed is None else packed

    def _note(self, key: tuple[int, int], weight: torch.Tensor, mark: int) -> _Kept:
        kept = self._kept
        made = kept[key] = _Kept(weakref.ref(weight, lambda _: kept.pop(key, None)), mark)
        return made

    def _packed(
        self, kept: _Kept, weight: torch.Tensor, size: tuple[int, ...], facts: Sequence[Any], read: Fingerprint
    ) -> torch.Tensor | None:
        """The copy of a weight that was found the same, for a size that was met before. Two threads may both make one."""
        if kept.refused or size in kept.packed or len(kept.packed) >= _MOST_SEEN or not kept.is_met_again(size):
            return None
        packed = self._make(weight, *facts)
        if read(weight, weight.nbytes) != kept.mark:  # written meanwhile
            return None
        found = kept.packed[size] = self._shared(kept, packed)
        return found

    def _shared(self, kept: _Kept, packed: torch.Tensor) -> torch.Tensor | None:
        """The copy that is the same; this one, if it may be kept."""
        same = next((one for one in kept.copies if packed.is_mkldnn and are_laid_out_alike(one, packed)), None)
        if same is not None or len(kept.copies) >= MOST_LAYOUTS:
            return same
        if not BUDGET.take(kept, _size(packed), self._most):
            kept.refused = True
            events.record("packed_weights", bytes=_size(packed), most=self._most)
            return None
        kept.copies.append(packed)
        return packed


def _size(packed: torch.Tensor) -> int:
    return packed_size(packed) if packed.is_mkldnn else packed.nbytes


class _Convolution:
    """`pliant::packed_convolution`."""

    __name__ = "packed_convolution"

    def __init__(self) -> None:
        self._weights = PackedWeights(_reordered)
        self._convolve = packed_convolution()

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
        padding: Sequence[int], dilation: Sequence[int], groups: int,
    ) -> torch.Tensor:  # fmt: skip
        packed = self._weights.get(weight, groups, tuple(x.shape), stride, padding, dilation)
        if packed is None:
            return _without_copy(x, weight, bias, stride, padding, dilation, groups)
        return self._convolve(x, packed, bias, padding, stride, dilation, groups, "none", [], "")


def _without_copy(x: torch.Tensor, weight: torch.Tensor, *facts: Any) -> torch.Tensor:
    """The library lays out either the weight or the image: the smaller one."""
    if weight.nbytes >= x.nbytes:
        return plain.convolution(x, weight, *facts)
    bias, stride, padding, dilation, groups = facts
    found = torch.convolution(x, weight, bias, stride, padding, dilation, False, [0, 0], groups)
    return found.contiguous(memory_format=torch.channels_last)


def _reordered(weight: torch.Tensor, groups: int, size: Any, stride: Any, padding: Any, dilation: Any) -> torch.Tensor:
    return reorder_convolution_weight(weight.detach(), padding, stride, dilation, groups, list(size))


class _Transpose:
    """`pliant::packed_transpose`; where there is no copy the weight itself, transposed."""

    __name__ = "packed_transpose"

    def __init__(self) -> None:
        self._weights = PackedWeights(lambda weight, *_: plain.transpose(weight.detach()))

    def __call__(self, weight: torch.Tensor) -> torch.Tensor:
        packed = self._weights.get(weight, 1, ())
        return weight.flatten(1).t() if packed is None else packed


_RUNS: dict[Any, Callable[[], Any]] = {plain.packed_convolution: _Convolution, plain.packed_transpose: _Transpose}


def bind(names: dict[str, Any]) -> None:
    """Put what keeps copies in place of the operators among a wrapper's names, for this graph alone."""
    for name, value in names.items():
        if isinstance(value, OpOverload) and value in _RUNS:
            names[name] = _RUNS[value]()
