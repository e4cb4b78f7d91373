"""Scalar expressions: what a loop nest computes at one point of its iteration space.

In:     lowering builds them with `const`, `index_value`, `load`, `apply`.
Out:    interned immutable trees (`is` is equality), walked by the interpreter, the scheduler and the C printer.
Holds:  every node has a torch dtype; an operator's arguments were already promoted, `cast` is explicit.
Text:   `load(buf0, 64*i0 + r0)`, `add(x, y)`, `cast<f32>(x)`.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pliant.symbolic.expr import Expr, Symbol

if TYPE_CHECKING:
    from pliant.ir.loops import Buffer


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Scalar:
    """Base of scalar expressions; `dtype` is the dtype of the value."""

    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Const(Scalar):
    """A literal: Python int, float or bool (inf and nan allowed)."""

    value: int | float | bool


@dataclass(frozen=True, slots=True, eq=False)
class IndexValue(Scalar):
    """The value of a shape expression (may use loop symbols), as a number of `dtype`."""

    expr: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Load(Scalar):
    """Element `index` (flat, in elements from the buffer's first) of `buffer`.

    `index` uses loop symbols, size symbols and the symbols of `indirect`: pairs (symbol, integer scalar that gives its
    value at this point), as in an embedding lookup. Indirect values are already wrapped (negative) and in range.
    """

    buffer: Buffer
    index: Expr
    indirect: tuple[tuple[Symbol, Scalar], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Apply(Scalar):
    """Operator `op` (a row of the operator table) on `args`."""

    op: str
    args: tuple[Scalar, ...]


_interned: dict[tuple[Any, ...], Scalar] = {}


def clear_interned() -> None:
    """Forget interned nodes; called between graphs so that buffers can be freed."""
    _interned.clear()
