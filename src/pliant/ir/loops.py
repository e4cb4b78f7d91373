"""The loop IR: what lowering produces and the scheduler consumes.

In:     lowering turns each ATen node into `Computation`s over `Buffer`s.
Out:    a `LoopProgram`: inputs, computations in a valid order, outputs.
Holds:  extents, strides and indices are `symbolic.Expr`; each buffer is written by one computation (inputs that are
        updated in place excepted: their `Pointwise` store comes after every other read of them in program order, or is a
        `part`; calls that write places of them may come anywhere).
Text:   `buf1[i0 < s0] = sum(r0 < 64) load(buf0, 64*i0 + r0)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import torch

from pliant.graph.unbacked import Binding
from pliant.ir.scalar import Scalar
from pliant.records import dataclass
from pliant.symbolic.expr import ZERO, Expr, Symbol


@dataclass(slots=True, eq=False)
class Buffer:
    """A dense or strided region of memory; identity is equality.

    shape and strides are in elements. `role`: "input" (given by the caller), "constant" (a tensor known when
    compiling),
    "temporary" (allocated by the program; may become a register or part of an arena), or "extern" (result of an extern
    call).
    """

    name: str
    dtype: torch.dtype
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    device: torch.device
    role: str
    value: torch.Tensor | None = None  # constants only


@dataclass(frozen=True, slots=True)
class View:
    """A tensor seen in a buffer: element `offset + sum(i*stride)`; how externs and outputs name tensors."""

    buffer: Buffer
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr
    dtype: torch.dtype


def whole(buffer: Buffer) -> View:
    """All of a buffer, as it lies."""
    return View(buffer, buffer.shape, buffer.strides, ZERO, buffer.dtype)


@dataclass(frozen=True, slots=True)
class Origin:
    """What a computation comes from. text: the operator and the program's call, for comments and profiles; node: the name of
    the ATen node."""

    text: str = ""
    node: str = ""


NOWHERE = Origin()


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop: `symbol` runs over 0 <= symbol < extent."""

    symbol: Symbol
    extent: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Pointwise:
    """out[index] = value (or, with `accumulate`, out[index] += value / max / min) for all points of `axes`.

    text:   buf1[i0 < s0, i1 < 64] = add(load(buf0, 64*i0 + i1), 1)
    checks: without `accumulate` no two points store to one index unless `indirect` says so; `index` uses axes, size
    symbols and `indirect` symbols only. A buffer has one loop that stores to it, or several of which each is a `part`.
    """

    out: Buffer
    axes: tuple[Axis, ...]
    index: Expr
    value: Scalar
    accumulate: str | None = None  # "sum" | "max" | "min": scatter; duplicates combine
    indirect: tuple[tuple[Symbol, Scalar], ...] = ()
    origin: Origin = NOWHERE
    part: bool = False  # other loops store to other places of the buffer


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """out[index] = op over all points of `reduce_axes` of value, for all points of `axes`.

    op: sum, prod, max, min (NaN-propagating), any, all, argmax, argmin (first index of the flattened reduce space, NaN
    wins).
    text:   buf1[i0 < s0] = sum(r0 < 64) load(buf0, 64*i0 + r0)
    """

    out: Buffer
    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    op: str
    index: Expr
    value: Scalar
    accumulate_dtype: torch.dtype = torch.float32
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """out[index] = op over all points of `axis` up to this one of value, for all points of `axes` and `axis`.

    op: sum, prod. What lies behind a point is no part of its result.
    text:   buf1[i0 < s0, i1 < 64] = running sum(i1) load(buf0, 64*i0 + i1)
    """

    out: Buffer
    axes: tuple[Axis, ...]
    axis: Axis
    op: str
    index: Expr
    value: Scalar
    accumulate_dtype: torch.dtype = torch.float32
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Extern:
    """outs = target(*args, **kwargs), an eager ATen call.

    args hold `View`s in place of tensors and `Expr`s in place of symbolic integers, nested as the schema has them.
    `outs[i]` is None where the operator returns a non-tensor or the result is unused. `mutates`: buffers written in
    place.
    `out_variant`: overload that writes into preallocated `outs`, where one exists (mm.out, addmm.out, bmm.out...).
    `defines`: unbacked symbols bound by this call: numbers that it returns, or sizes of what it returns.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: tuple[Buffer | None, ...]
    mutates: tuple[Buffer, ...] = ()
    out_variant: Any | None = None
    defines: tuple[Binding, ...] = ()
    origin: Origin = NOWHERE


Computation = Pointwise | Reduction | Scan | Extern


@dataclass(slots=True)
class LoopProgram:
    """A whole graph. `inputs[k]` is the buffer or symbol that the k-th argument binds; `outputs` in graph order:
    views, expressions (integers), or plain Python constants / None. For estimates only: `hints`, sizes seen when the
    program was compiled; `held`, positions of inputs that live on after their last use, since the caller keeps them."""

    inputs: list[Buffer | Symbol | None]
    computations: list[Computation]
    outputs: list[View | Expr | Any]
    name: str = "graph"
    constants: list[Buffer] = field(default_factory=list)
    hints: Mapping[Symbol, Any] = field(default_factory=dict)
    held: frozenset[int] = frozenset()
