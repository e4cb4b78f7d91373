"""Calls that change PyTorch's global settings while they are traced.

In:     the setters that the trace calls (rows of the table of handlers).
Out:    nodes that call them; what casts are kept.
Holds:  after a capture every setting is what it was. A graph that ends inside a block leaves settings as it found them; the
        code behind it sets them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.trace import CallEffect
from pliant.capture.value_kinds import concrete
from pliant.graph.contracts import GraphInput
from pliant.guards import kept_casts
from pliant.guards.settings import NESTED, SETTINGS, nesting, set_nesting
from pliant.guards.sources import PlainTensorSource
from pliant.torch_adapter import CUDNN_SETTINGS


class Casts:
    """To which dtypes parameters may have been cast since the outermost block of autocast was entered. Until it is left
    PyTorch keeps each cast, and takes it whatever dtype an inner block asks for.
    """

    def __init__(self) -> None:
        self.kept: set[tuple[str, Any]] = set()
        self.begins_nested, self.are_forgotten = nesting() > 0, False
        if self.begins_nested:
            self.note()
        self.from_before = frozenset(self.kept)  # PyTorch has those that eager code made, compiled code leaves none

    def note(self) -> None:
        self.kept |= {(d, torch.get_autocast_dtype(d)) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d)}

    def after(self, function: Callable[..., Any]) -> None:
        if function is torch.autocast_increment_nesting:
            self.note()
        elif function is torch.clear_autocast_cache or function is torch.autocast_decrement_nesting and not nesting():
            self.kept.clear()
            self.are_forgotten = True
            self.from_before = frozenset()

    @property
    def are_mixed(self) -> bool:
        """Whether what is kept decides about dtypes: a graph break would lose it."""
        return len({device for device, _ in self.kept}) < len(self.kept)

    @property
    def meet_others(self) -> bool:
        """Whether casts that were kept before the trace may decide about dtypes: the graph would not know them."""
        return bool(self.from_before) and self.are_mixed


def cast_of(one: GraphInput) -> torch.dtype | None:
    """The dtype to which autocast has cast an input in the block that the trace is in, if it keeps that."""
    is_leaf = one.kind == "tensor" and one.example.is_leaf and not isinstance(one.source, PlainTensorSource)
    return kept_casts.dtype_kept(one.fake) if is_leaf else None


def on_casts(casts: Casts, kept: list[tuple[torch.dtype, torch.Tensor]]) -> list[CallEffect]:
    """The calls that forget casts of blocks that the program has left, and that note those of its tensors which the graph
    made, for eager code behind it."""
    forget = [CallEffect(torch.clear_autocast_cache, (), {})] if casts.begins_nested and casts.are_forgotten else []
    kinds = dict.fromkeys((leaf.device.type, dtype) for dtype, leaf in kept)
    return forget + [CallEffect(kept_casts.note, (*one, *(t for d, t in kept if one == (t.device.type, d))), {}) for one in kinds]


def _recorded(function: Callable[..., Any], t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    args, kwargs = tuple(map(concrete, args)), {name: concrete(value) for name, value in kwargs.items()}
    t.recorder.graph.call_function(function, args, kwargs)
    t.recorder.count += 1
    result = function(*args, **kwargs)
    t.casts.after(function)
    if t.casts.meet_others:
        raise GraphBreak("mutated-global-state", "autocast to a dtype in a block of another")
    return result


_SETTERS = {one.setter for one in SETTINGS if one.setter is not set_nesting}
# What sets several choices of kernels, which a graph does not make while it runs: one break, not one for each choice.
_AT_ONCE: list[Callable[..., Any]] = [torch.backends.mkldnn.set_flags]
if any(setter not in _SETTERS for _, setter in CUDNN_SETTINGS):
    _AT_ONCE.append(torch.backends.cudnn.set_flags)

ROWS = Rows()
ROWS.each({*NESTED, *_SETTERS}, _recorded)
for _function in _AT_ONCE:
    ROWS.refuses((_function,), "mutated-global-state", f"a call of {_function.__module__}.set_flags")
