"""Typed refusals of this layer: whoever traces catches them and falls back."""

from __future__ import annotations

from pliant.errors import Unsupported


class UnsupportedTensor(Unsupported):
    """A tensor that a fake cannot stand for (sparse, quantized, subclass, lazy conjugate or negative)."""


class UnsupportedOperator(Unsupported):
    """An operator whose output description is not known for these arguments."""
