"""`torch.istft`, composed of operators that take symbolic sizes.

In:     calls of the function.
Out:    recorded calls of ordinary operators.
Holds:  the formula is PyTorch's own. That windows leave no gap is assumed: where they do, eager says so. Other forms of the call, and
        wrong ones, break: PyTorch's function for symbolic sizes does not look for gaps.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.data_dependent import take_for_granted
from pliant.capture.handlers.table import Rows
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import concrete, is_int, varying
from pliant.graph.fake_tensor import is_fake

ROWS = Rows()
_put_together = torch.ops.aten.unfold_backward.default
_REFUSED = ("data-dependent", "whether the windows of istft leave a gap")
_TINY = 1e-11  # an overlap that PyTorch refuses to divide by


@ROWS.takes(torch.istft, torch.Tensor.istft)
def _istft(
    t: Tracer, input: Any, n_fft: Any, hop_length: Any = None, win_length: Any = None, window: Any = None, center: Any = True,
    normalized: Any = False, onesided: Any = None, length: Any = None, return_complex: Any = False,
) -> Any:  # fmt: skip
    spectra, window = t.internalize(input), t.internalize(window)
    size, width = n_fft, n_fft if win_length is None else win_length
    hop = size // 4 if hop_length is None and is_int(size) else hop_length
    changed = t.recorder.overrides.modes or t.recorder.overrides.has_subclasses
    if changed or return_complex or not (length is None or is_int(length) or varying(length) is int):
        raise GraphBreak(*_REFUSED)
    if not _is_usual(t, spectra, window, (size, hop, width), onesided):
        raise GraphBreak(*_REFUSED)
    total = size + hop * (spectra.size_[-1] - 1)
    start = size // 2 if center else 0
    end = total - start if length is None else start + length
    if not concrete(end <= total) or not concrete(end > start):  # the first has a warning
        raise GraphBreak(*_REFUSED)
    norm = "ortho" if normalized else "backward"
    signals, overlaps, is_dense = t.call(_overlapped, (spectra, window, size, hop, width, total, start, end, norm), {})
    take_for_granted(t, is_dense, *_REFUSED)
    return t.call(torch.div, (signals, overlaps), {})


def _is_usual(t: Tracer, spectra: Any, window: Any, numbers: tuple[Any, ...], one_sided: Any) -> bool:
    """Whether PyTorch takes these arguments, of its usual form."""
    if not t.mode.allow_unbacked or one_sided not in (None, True) or not all(map(is_int, numbers)):
        return False
    size, hop, width = numbers
    if not is_fake(spectra) or not spectra.dtype_.is_complex or spectra.dim() not in (2, 3) or not 0 < hop <= width <= size:
        return False
    if not is_fake(window) or not window.dtype_.is_floating_point or window.dim() != 1:  # without one it warns
        return False
    return bool(concrete(window.size_[0] == width) and concrete(spectra.size_[-2] == size // 2 + 1) and all(concrete(n > 0) for n in spectra.size_))


def _overlapped(
    spectra: Any, window: Any, size: int, hop: int, width: int, total: int, start: int, end: int, norm: str
) -> Any:
    """The frames put together, what their windows come to at each place, and whether that is nowhere nothing."""
    frames = torch.fft.irfft(spectra.transpose(-1, -2), size, norm=norm)
    before = (size - width) // 2
    window = torch.nn.functional.pad(window, (before, size - width - before)) if width != size else window
    signals = _put_together(frames * window, [*frames.shape[:-2], total], -1, size, hop)
    squares = window.pow(2).expand(frames.shape[-2], size)
    overlaps = _put_together(squares, [total], -1, size, hop)[start:end]
    return signals[..., start:end], overlaps, (overlaps.abs().min() >= _TINY).item()
