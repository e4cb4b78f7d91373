"""Kernels of one form are written once: the layers of a model mostly differ in which buffers they take.

In:     how a kernel is written, then the kernels of a graph.
Out:    the texts of each, with its own buffers.
Holds:  a form is all that a writer reads of a kernel but names: buffers are numbered in order of first use, loops of the
        kernel are named in the order of their symbols, which sums are sorted by. What differs in sizes differs in form.
        Comments are those of the first kernel of a form.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from pliant.ir.loops import Buffer, Reduction, Scan
from pliant.ir.scalar import Apply, Const, IndexValue, Load, Scalar, walk
from pliant.schedule.kernel import Kernel, Loops, Member
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.traverse import substitute

if TYPE_CHECKING:
    from pliant.codegen.c import KernelText
    from pliant.codegen.cuda.kernel_text import DeviceKernel

Written = TypeVar("Written", "KernelText", "DeviceKernel")


class WrittenOnce(Generic[Written]):
    """`write`, called once for all kernels of a form, or groups of kernels that are written `how`."""

    def __init__(self, write: Callable[..., Sequence[Written]]) -> None:
        self._write: Callable[..., Sequence[Written]] = write
        self._known: dict[Hashable, tuple[list[Buffer], Sequence[Written]]] = {}

    def __call__(self, *kernels: Kernel, **how: Hashable) -> Sequence[Written]:
        form = _Form(kernels)
        buffers, key = list(form.buffers), (form.key, *how.items())
        found = self._known.get(key)
        if found is None:
            _, written = self._known[key] = buffers, self._write(*kernels, **how)
            return written
        own = dict(zip(found[0], buffers, strict=True))
        return [_with_buffers(one, own) for one in found[1]]


def _with_buffers(written: Written, own: dict[Buffer, Buffer]) -> Written:
    buffers = tuple([own[b] for b in written.buffers])
    return replace(written, buffers=buffers, written=frozenset([own[b] for b in written.written]))


class _Form:
    """The form of kernels as `key`, and their `buffers` in order of first use."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.kernels = kernels
        self.buffers: dict[Buffer, int] = {}
        self.kinds: list[Hashable] = []  # of buffers
        self.scalars: dict[Scalar, int] = {}
        self.rows: list[Hashable] = []  # of scalars
        own = sorted([axis.symbol for kernel in kernels for axis in kernel.axes], key=lambda symbol: symbol.order)
        self.loops: dict[Symbol, Expr] = {symbol: Symbol(f"x{k}") for k, symbol in enumerate(own)}
        parts = [self._kernel(kernel) for kernel in kernels]
        self.key = (tuple(parts), tuple(self.rows), tuple(self.kinds))

    def _kernel(self, kernel: Kernel) -> Hashable:
        axes = [(self.loops[a.symbol], a.symbol.name[0], a.extent, a.symbol in kernel.reduced) for a in kernel.axes]
        return tuple(axes), tuple([self._member(member) for member in kernel.members])

    def _member(self, member: Member) -> Hashable:
        place = tuple([(symbol, substitute(e, self.loops)) for symbol, e in member.place.items()])
        return self._loops(member.loops), place, member.inner, member.phase

    def _loops(self, loops: Loops) -> Hashable:
        out, value = self._buffer(loops.out), self._scalar(loops.value)
        if isinstance(loops, Reduction):
            return out, loops.axes, loops.index, value, loops.reduce_axes, loops.op, loops.accumulate_dtype
        if isinstance(loops, Scan):
            return out, loops.axes, loops.index, value, loops.axis, loops.op, loops.accumulate_dtype
        indirect = tuple([(symbol, self._scalar(one)) for symbol, one in loops.indirect])
        return out, loops.axes, loops.index, value, loops.accumulate, indirect

    def _buffer(self, b: Buffer) -> int:
        found = self.buffers.get(b)
        if found is None:
            found = self.buffers[b] = len(self.buffers)
            stored = tuple([b in kernel.stored for kernel in self.kernels])
            self.kinds.append((b.dtype, b.shape, b.strides, b.device, stored))
        return found

    def _scalar(self, value: Scalar) -> int:
        """Its number; what it is made of has numbers before."""
        for one in walk(value):
            if one not in self.scalars:
                self.rows.append(self._row(one))
                self.scalars[one] = len(self.scalars)
        return self.scalars[value]

    def _row(self, one: Scalar) -> Hashable:
        match one:
            case Apply():
                return one.op, one.dtype, *[self.scalars[a] for a in one.args]
            case Load():
                indirect = tuple([(symbol, self.scalars[index]) for symbol, index in one.indirect])
                return self._buffer(one.buffer), one.index, indirect
            case Const():
                return one.dtype, repr(one.value)
            case IndexValue():
                return one.dtype, one.expr
            case _:
                return one
