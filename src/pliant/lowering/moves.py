"""Halves that are chosen among and stored as they are.

In:     the value that a loop stores.
Out:    the same value: where nothing is computed of halves but a choice, the choice is of halves.
Holds:  operators compute in f32, so that a choice of halves would convert both sides, and then round what is a half already:
        several times the work of moving it.
"""

from __future__ import annotations

import torch

from pliant.ir.scalar import Apply, Const, Scalar, const, where
from pliant.lowering.tensors import HALF


def moved(value: Scalar) -> Scalar:
    """`value` without conversions around choices, where it needs none."""
    if type(value) is not Apply or value.op != "cast" or value.dtype not in HALF:
        return value
    (source,) = value.args
    if type(source) is not Apply or source.op != "where":
        return value
    return _as_half(source, value.dtype, {}) or value


def _as_half(x: Scalar, dtype: torch.dtype, known: dict[Scalar, Scalar | None]) -> Scalar | None:
    """The half that `x` is, None if it is computed."""
    if x not in known:
        known[x] = _half_of(x, dtype, known)
    return known[x]


def _half_of(x: Scalar, dtype: torch.dtype, known: dict[Scalar, Scalar | None]) -> Scalar | None:
    if type(x) is Const:
        return const(x.value, dtype)
    if type(x) is not Apply:
        return None
    if x.op == "cast":
        return x.args[0] if x.args[0].dtype is dtype else None
    if x.op != "where":
        return None
    a, b = (_as_half(side, dtype, known) for side in x.args[1:])
    return None if a is None or b is None else where(x.args[0], a, b)
