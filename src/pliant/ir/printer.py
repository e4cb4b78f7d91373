"""The printed form of scalars, computations and whole loop programs.

In:     any object of `scalar.py` or `loops.py`.
Out:    text, one line a computation, made for reading, for golden tests and for the debug folder.
Holds:  structurally equal programs print the same text; a store index is shown only where it is not the row-major one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import torch

from pliant.ir.loops import Axis, Buffer, Computation, Extern, LoopProgram, Pointwise, Reduction, Scan, View
from pliant.ir.scalar import Apply, Const, IndexValue, Load, Scalar
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol

DTYPE_NAMES: dict[torch.dtype, str] = {
    torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.uint16: "u16",
    torch.uint32: "u32", torch.uint64: "u64", torch.bool: "bool", torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip


def dtype_name(dtype: torch.dtype) -> str:
    return DTYPE_NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def scalar_text(x: Scalar) -> str:
    """`add(load(buf0, 64*i0 + i1), 1.0)`"""
    match x:
        case Const():
            return f"{x.value:.9g}" if x.dtype is torch.float32 and x.value % 1 else repr(x.value)
        case IndexValue():
            suffix = "" if x.dtype is torch.int64 else f"<{dtype_name(x.dtype)}>"
            return f"index{suffix}({x.expr})"
        case Load():
            bound = "".join(f", {symbol} = {scalar_text(value)}" for symbol, value in x.indirect)
            return f"load({x.buffer.name}, {x.index}{bound})"
        case Apply():
            name = f"cast<{dtype_name(x.dtype)}>" if x.op == "cast" else x.op
            return f"{name}({', '.join(map(scalar_text, x.args))})"
        case _:
            raise TypeError(f"not a scalar: {x!r}")


def _axes_text(axes: Sequence[Axis]) -> str:
    return ", ".join(f"{axis.symbol} < {axis.extent}" for axis in axes)


def row_major_index(axes: Sequence[Axis]) -> Expr:
    """The flat index of a dense buffer that has exactly these axes."""
    index: Expr = ZERO
    stride: Expr = ONE
    for axis in reversed(axes):
        index = index + axis.symbol * stride
        stride = stride * axis.extent
    return index


def _target_text(computation: Pointwise | Reduction | Scan) -> str:
    axes = (*computation.axes, computation.axis) if isinstance(computation, Scan) else computation.axes
    arrow = "" if computation.index is row_major_index(axes) else f" -> {computation.index}"
    return f"{computation.out.name}[{_axes_text(axes)}{arrow}]"


def _pointwise_text(c: Pointwise) -> str:
    sign = f"{c.accumulate}=" if c.accumulate else "="
    bound = "".join(f"; {symbol} = {scalar_text(value)}" for symbol, value in c.indirect)
    return f"{_target_text(c)} {sign} {scalar_text(c.value)}{bound}"


def _reduction_text(c: Reduction) -> str:
    return f"{_target_text(c)} = {c.op}({_axes_text(c.reduce_axes)}) {scalar_text(c.value)}"


def _scan_text(c: Scan) -> str:
    return f"{_target_text(c)} = running {c.op}({c.axis.symbol}) {scalar_text(c.value)}"


def _extern_text(c: Extern) -> str:
    outs = ", ".join("_" if out is None else out.name for out in c.outs)
    args = [_argument_text(a) for a in c.args] + [f"{k}={_argument_text(v)}" for k, v in c.kwargs.items()]
    defines = f"; defines {', '.join(str(b.symbol) for b in c.defines)}" if c.defines else ""
    return f"{outs} = {c.target}({', '.join(args)}){defines}" if outs else f"{c.target}({', '.join(args)}){defines}"


def _argument_text(value: Any) -> str:
    match value:
        case View():
            return view_text(value)
        case Buffer():
            return value.name
        case list() | tuple():
            return f"[{', '.join(map(_argument_text, value))}]"
        case torch.dtype():
            return dtype_name(value)
        case _:
            return str(value)


def view_text(view: View) -> str:
    """The buffer's name, followed by the view's sizes and strides where they differ from the buffer's."""
    buffer = view.buffer
    if view.shape == buffer.shape and view.strides == buffer.strides and view.offset is ZERO:
        return buffer.name
    offset = "" if view.offset is ZERO else f" + {view.offset}"
    return f"{buffer.name}[{', '.join(map(str, view.shape))}]{{{', '.join(map(str, view.strides))}}}{offset}"


def buffer_text(buffer: Buffer) -> str:
    """`buf0: f32[s0, 64]`, with strides in braces where the buffer is not row-major."""
    expected: Expr = ONE
    dense = True
    for size, stride in zip(reversed(buffer.shape), reversed(buffer.strides)):
        dense = dense and (stride is expected or size is ONE)
        expected = expected * size
    strides = "" if dense else f"{{{', '.join(map(str, buffer.strides))}}}"
    return f"{buffer.name}: {dtype_name(buffer.dtype)}[{', '.join(map(str, buffer.shape))}]{strides}"


def computation_text(c: Computation) -> str:
    """One line without indentation."""
    match c:
        case Pointwise():
            return _pointwise_text(c)
        case Reduction():
            return _reduction_text(c)
        case Scan():
            return _scan_text(c)
        case Extern():
            return _extern_text(c)
        case _:
            assert_never(c)


def _input_text(value: Buffer | Symbol | None) -> str:
    return buffer_text(value) if isinstance(value, Buffer) else str(value)


def program_text(program: LoopProgram) -> str:
    """The whole program: its signature, a line a computation, its outputs."""
    head = f"{program.name}({', '.join(map(_input_text, program.inputs))})"
    constants = [f"  constant {buffer_text(b)}" for b in program.constants]
    body = [f"  {computation_text(c)}" for c in program.computations]
    tail = f"  return {', '.join(map(_argument_text, program.outputs))}".rstrip()
    return "\n".join([head, *constants, *body, tail])
