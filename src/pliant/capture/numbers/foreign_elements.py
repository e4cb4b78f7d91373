"""Arrays, buffers and their like from outside that no tensor stands for: PyTorch would read elements that no guard knows."""

from __future__ import annotations

from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Tracer
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import has_method


def refuse_elements(t: Tracer, *values: Any) -> None:
    """Break where PyTorch would read the elements of an array from outside which no tensor stands for."""
    for value in leaves(*values):
        if t.world.is_opaque(value) and _has_elements(value):
            raise GraphBreak("unknown-object", f"the elements of a {type(value).__name__} from outside")


def _has_elements(value: Any) -> bool:
    if any(has_method(type(value), name) for name in ("__array__", "__array_interface__", "__dlpack__")):
        return True
    try:
        memoryview(value).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True
