"""Small loop programs built by hand, for tests of the scheduler, code generation and the run time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from pliant.ir.loops import Axis, Buffer, LoopProgram, Origin, Pointwise, Reduction, View
from pliant.ir.scalar import Scalar, apply, cast, const, load
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol, lit, symbol

_serial = itertools.count()
Index = tuple[Expr, ...]
Value = Callable[..., Scalar]


def contiguous(shape: Index) -> Index:
    """Row-major strides."""
    strides: list[Expr] = []
    step: Expr = ONE
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


class Program:
    """Builds a program: inputs, then computations, then `done(outputs)`."""

    def __init__(self) -> None:
        self.program = LoopProgram([], [], [])

    def tensor(
        self, *shape: int | Expr, dtype: torch.dtype = torch.float32, strides: tuple[int, ...] | None = None
    ) -> Buffer:
        sizes = tuple(lit(s) for s in shape)
        steps = tuple(lit(s) for s in strides) if strides else contiguous(sizes)
        b = Buffer(f"in{len(self.program.inputs)}", dtype, sizes, steps, torch.device("cpu"), "input")
        self.program.inputs.append(b)
        return b

    def size(self, name: str) -> Symbol:
        s = symbol(name)
        self.program.inputs.append(s)
        return s

    def _temporary(self, shape: Index, dtype: torch.dtype) -> Buffer:
        return Buffer(f"buf{next(_serial)}", dtype, shape, contiguous(shape), torch.device("cpu"), "temporary")

    def pointwise(self, shape: tuple[int | Expr, ...], value: Value, out: Buffer | None = None) -> Buffer:
        """out[i] = value(*i)"""
        sizes = tuple(lit(s) for s in shape)
        axes = tuple(Axis(symbol(f"i{next(_serial)}"), s) for s in sizes)
        x = value(*[a.symbol for a in axes])
        out = out or self._temporary(sizes, x.dtype)
        self.program.computations.append(Pointwise(out, axes, at(out, *[a.symbol for a in axes]), x, origin=Origin("test")))
        return out

    def reduce(
        self,
        op: str,
        shape: tuple[int | Expr, ...],
        over: tuple[int | Expr, ...],
        value: Value,
        dtype: torch.dtype | None = None,
    ) -> Buffer:
        """out[i] = op over r of value(*i, *r)"""
        sizes = tuple(lit(s) for s in shape)
        axes = tuple(Axis(symbol(f"i{next(_serial)}"), s) for s in sizes)
        folded = tuple(Axis(symbol(f"r{next(_serial)}"), lit(s)) for s in over)
        x = value(*[a.symbol for a in (*axes, *folded)])
        out = self._temporary(sizes, dtype or (torch.int64 if op.startswith("arg") else x.dtype))
        index = at(out, *[a.symbol for a in axes])
        self.program.computations.append(Reduction(out, axes, folded, op, index, x, x.dtype, origin=Origin("test")))
        return out

    def done(self, *outputs: Buffer) -> LoopProgram:
        self.program.outputs = [View(b, b.shape, b.strides, ZERO, b.dtype) for b in outputs]
        return self.program


def at(b: Buffer, *index: Expr) -> Expr:
    """Flat index of an element."""
    result: Expr = ZERO
    for i, step in zip(index, b.strides, strict=True):
        result = result + lit(i) * step
    return result


def get(b: Buffer, *index: Expr) -> Scalar:
    """The element."""
    return load(b, at(b, *index))


def softmax(rows: int | Expr, columns: int | Expr) -> LoopProgram:
    p = Program()
    for s in (rows, columns):
        if isinstance(s, Symbol):
            p.program.inputs.append(s)
    x = p.tensor(rows, columns)
    top = p.reduce("max", (rows,), (columns,), lambda i, r: get(x, i, r))
    e = p.pointwise((rows, columns), lambda i, j: apply("exp", apply("sub", get(x, i, j), get(top, i))))
    total = p.reduce("sum", (rows,), (columns,), lambda i, r: get(e, i, r))
    out = p.pointwise((rows, columns), lambda i, j: apply("div", get(e, i, j), get(total, i)))
    return p.done(out)


def layer_norm(rows: int | Expr, columns: int) -> LoopProgram:
    p = Program()
    if isinstance(rows, Symbol):
        p.program.inputs.append(rows)
    x, w, b = p.tensor(rows, columns), p.tensor(columns), p.tensor(columns)
    n = const(columns, torch.float32)
    total = p.reduce("sum", (rows,), (columns,), lambda i, r: get(x, i, r))
    mean = p.pointwise((rows,), lambda i: apply("div", get(total, i), n))

    def centred(i: Expr, j: Expr) -> Scalar:
        return apply("sub", get(x, i, j), get(mean, i))

    squares = p.reduce("sum", (rows,), (columns,), lambda i, r: apply("mul", centred(i, r), centred(i, r)))
    eps = const(1e-5, torch.float32)
    rstd = p.pointwise((rows,), lambda i: apply("rsqrt", apply("add", apply("div", get(squares, i), n), eps)))
    out = p.pointwise(
        (rows, columns),
        lambda i, j: apply("add", apply("mul", apply("mul", centred(i, j), get(rstd, i)), get(w, j)), get(b, j)),
    )
    return p.done(out, mean, rstd)


def gelu(x: Scalar) -> Scalar:
    half, one = const(0.5, torch.float32), const(1.0, torch.float32)
    inner = apply("erf", apply("mul", x, const(2**-0.5, torch.float32)))
    return apply("mul", apply("mul", x, half), apply("add", inner, one))


__all__ = ["Program", "at", "cast", "contiguous", "gelu", "get", "layer_norm", "softmax"]
