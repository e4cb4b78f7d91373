"""Which tensors computed by the graph are alive at the end of a trace: they become its outputs.

Holds:  found by a dry run of the code that rebuilds values, so both always agree; CannotReconstruct comes up here first.
"""

from __future__ import annotations

from typing import Any

from pliant.capture.reconstruct import Rebuilder
from pliant.capture.trace import (
    DELETED,
    NULL,
    Break,
    CallEffect,
    Effect,
    ReplaceContents,
    Return,
    SetAttribute,
    SetItem,
    Trace,
)
from pliant.graph.fake_tensor import FakeTensor
from pliant.guards.codegen import GuardWriter
from pliant.guards.names import Names


class _Collector(Rebuilder):
    """Notes tensors instead of naming graph outputs."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace, GuardWriter(Names(), {}), [])
        self.tensors: list[FakeTensor] = []
        self._seen: set[int] = set()

    def _existing(self, obj: Any) -> str | None:
        if id(obj) in self._trace.origins:
            return "origin"
        if isinstance(obj, FakeTensor):
            if id(obj) not in self._seen:
                self._seen.add(id(obj))
                self.tensors.append(obj)
            return "tensor"
        if hasattr(obj, "node") and type(obj).__name__ in ("SymInt", "SymFloat", "SymBool"):
            return "number"
        return None


def collect_tensors(trace: Trace) -> list[FakeTensor]:
    """Tensors to return from the graph, in the order in which the entry needs them."""
    collector = _Collector(trace)
    for effect in trace.effects:
        for value in _effect_values(effect):
            collector.value(value)
    match trace.end:
        case Return(value):
            collector.value(value)
        case Break(frames):
            for frame in frames:
                for value in (*frame.stack, frame.handled, *frame.locals.values(), *frame.cells):
                    if value is not NULL:
                        collector.value(value)
    return collector.tensors


def _effect_values(effect: Effect) -> list[Any]:
    match effect:
        case SetAttribute(obj, _, value):
            owner = [obj] if isinstance(obj, FakeTensor) else []
            return owner if value is DELETED else [*owner, value]
        case SetItem(_, key, value):
            return [key] if value is DELETED else [key, value]
        case ReplaceContents(_, contents):
            return list(contents.items()) if isinstance(contents, dict) else list(contents)
        case CallEffect(_, args, kwargs):
            return [*args, *kwargs.values()]
