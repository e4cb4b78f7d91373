"""`flex_attention`: the operator that PyTorch's own Python calls, written out as operators that fuse.

In:     queries, keys and values, functions of single scores and of places.
Out:    what the operator gives: the result, and the logarithm of each row's sum and its greatest score, to base 2.
Holds:  the functions see one score at a time (`vmap`). All is computed in double precision for double inputs and in
        single precision otherwise; rows without a place to attend to give zeros.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.handlers.table import Rows
from pliant.capture.signatures import Tracer
from pliant.torch_adapter import PEER

ROWS = Rows()
SPECIAL_MODULES = ROWS.modules

_AXES = 4  # batch, head, query, key


def attend(t: Tracer, _: Any, *operands: Any) -> Any:
    """The operator's call."""
    return t.call(_attend, operands[:6], {})


def _attend(query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, scale: Any) -> Any:
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


def _find_marker(function: types.FunctionType) -> Callable[..., Any] | None:
    """Sizes are what they are where a graph is recorded."""
    known = function.__name__ in ("mark_static", "mark_dynamic", "maybe_mark_dynamic")
    ours = known and function.__globals__["__name__"] == f"{PEER}.decorators"
    return (lambda t, function, args, kwargs: None) if ours else None


SPECIAL_MODULES[PEER] = _find_marker
