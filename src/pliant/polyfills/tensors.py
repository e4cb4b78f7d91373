"""Functions of PyTorch in operators that graphs record: of what its C++ code asks for values, or for plain sizes.

Holds:  the formulas are PyTorch's own.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from pliant.torch_adapter import assert_async


def batch_norm_averaging(
    x: Any, mean: Any, var: Any, weight: Any, bias: Any, training: Any, momentum: Any, eps: Any
) -> Any:
    """`batch_norm` in training, with its running statistics changed by operators on tensors."""
    with torch.no_grad():
        dims = [d for d in range(x.dim()) if d != 1]
        var_now, mean_now = torch.var_mean(x, dims, correction=1)
        mean.copy_((1 - momentum) * mean + momentum * mean_now)
        var.copy_((1 - momentum) * var + momentum * var_now)
    return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)


def selected(x: Any, mask: Any) -> Any:
    x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    return x[mask]


def parts_at(x: Any, places: Any, dim: int) -> Any:
    ends = [0, *places.tolist(), x.size(dim)]
    before = (slice(None),) * (dim % x.dim())
    return tuple([x[(*before, slice(ends[i], ends[i + 1]))] for i in range(len(ends) - 1)])


class Left(Exception):
    """What the operator itself is to warn of or to refuse."""


def weighted(x: Any, weights: Any, importance: Any, correction: Any) -> Any:
    """`cov` of float rows with a weight a column."""
    for one in (weights, importance):
        if one is not None and one.lt(0).any():
            raise Left
    if weights is None or importance is None:
        both = importance if weights is None else weights
    else:
        both = weights * importance
    total = both.sum()
    if total == 0:
        raise Left
    degrees = total - correction
    if importance is not None and correction != 0:
        degrees = total - correction * (both * importance).sum() / total
    if degrees <= 0:
        raise Left
    x = x - ((x * both).sum(1) / total).unsqueeze(1)
    return torch.true_divide(x @ (x * both).t().conj(), degrees).squeeze()


def dense_mask(mask: Any, broadcast: tuple[int, ...]) -> Any:
    for d in broadcast:
        mask = mask.narrow(d, 0, 1)
    return mask.contiguous()


def classes_of_data(tensor: torch.Tensor) -> torch.Tensor:
    many = int(tensor.max()) + 1
    if tensor.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    return _marked(tensor, many)


def _marked(tensor: torch.Tensor, many: int) -> torch.Tensor:
    found = tensor.unsqueeze(-1) == torch.arange(many, device=tensor.device)
    return found.to(torch.int64, memory_format=torch.contiguous_format)


def classes(tensor: torch.Tensor, many: int) -> torch.Tensor:
    assert_async((tensor >= 0).all(), "Class values must be non-negative.")
    assert_async((tensor < many).all(), "Class values must be smaller than num_classes.")
    return _marked(tensor, many)


# ---- istft
_put_together = torch.ops.aten.unfold_backward.default
_TINY = 1e-11  # an overlap that PyTorch refuses to divide by


def overlapped(
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


# ---- `flex_attention`, whose functions see one score at a time. Rows without a place to attend to give zeros.
_AXES = 4  # batch, head, query, key


def attend(query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, scale: Any) -> Any:
    batch, heads, groups = query.size(0), query.size(1), query.size(1) // key.size(1)
    dtype, precision = query.dtype, torch.float64 if query.dtype is torch.float64 else torch.float32
    query, key, value = query.to(precision), *(_spread(one.to(precision), batch, groups) for one in (key, value))
    scores = query @ key.transpose(-2, -1) * scale
    sizes = (batch, heads, query.size(2), key.size(2))
    places = [torch.arange(size, device=query.device) for size in sizes]
    scores = _each(score_mod, True)(scores, *places).to(precision)
    scores = torch.where(_each(block_mask[-1], False)(*places), scores, -math.inf)
    lse, greatest = scores.logsumexp(-1), scores.amax(-1)
    weights = torch.softmax(scores, -1).masked_fill((greatest == -math.inf).unsqueeze(-1), 0.0)
    return (weights @ value).to(dtype), lse / math.log(2.0), greatest / math.log(2.0)


def _spread(tensor: Any, batch: Any, groups: Any) -> Any:
    """Heads of keys and values serve several heads of queries."""
    if tensor.size(0) != batch:
        tensor = tensor.expand(batch, -1, -1, -1)
    return tensor if groups == 1 else tensor.repeat_interleave(groups, 1)


def _each(function: Any, scored: bool) -> Any:
    """The function of single places, and of a score if `scored`, for all of them at once."""
    for axis in reversed(range(_AXES)):
        dims = tuple(0 if axis == other else None for other in range(_AXES))
        function = torch.vmap(function, in_dims=(0, *dims) if scored else dims)
    return function
