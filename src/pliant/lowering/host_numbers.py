"""Numbers that lie in memory of the CPU, for kernels of other devices: a step's count, a loss's scale.

In:     a CPU tensor without dimensions that a kernel of another device is to read.
Out:    `HostNumbers`: the same number as an argument of the kernel, and the calls that read them.
Holds:  it is read when the operators before it have run, as eager's kernels of GPUs are given such tensors. Its dtype, and what
        that says of the dtype of a result, stay those of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import torch

from pliant.graph.unbacked import Binding
from pliant.ir.loops import Buffer, Computation, Extern
from pliant.ir.scalar import cast, index_expressions, index_value
from pliant.lowering.context import Lowering
from pliant.lowering.tensors import Tensor
from pliant.symbolic.expr import Symbol

_aten = torch.ops.aten
_READ = _aten._local_scalar_dense.default
_WIDE = (torch.uint64,)  # do not fit into an int64


def is_host_number(value: object, device: torch.device) -> bool:
    """Whether it is a tensor that kernels of `device` take as a number."""
    return (
        isinstance(value, Tensor)
        and not value.shape
        and value.device.type == "cpu" != device.type
        and not value.dtype.is_complex
        and value.dtype not in _WIDE
    )


class HostNumbers:
    """The numbers of a program. Each is read once."""

    def __init__(self, low: Lowering) -> None:
        self._low = low
        self._reads: set[Computation] = set()
        self._numbers: dict[Tensor, Tensor] = {}

    def of(self, t: Tensor) -> Tensor:
        """The tensor's value as a symbol's."""
        found = self._numbers.get(t)
        if found is None:
            found = self._numbers[t] = self._read(t)
        return found

    def _read(self, t: Tensor) -> Tensor:
        low, (kind, wide) = self._low, _kind(t.dtype)
        symbol = Symbol(f"host{len(self._numbers)}", kind)  # of this program alone: no size can be made of it
        call = Extern(_READ, (low.realize(t),), {}, (), defines=(Binding(symbol, None, None),), origin=low.origin)
        low.computations.append(call)
        self._reads.add(call)
        number = cast(index_value(symbol, wide), t.dtype)
        return Tensor(low, t.dtype, (), lambda index: number)

    def read_late(self, computations: Iterable[Computation]) -> Iterator[Computation]:
        """The computations in an order in which loops of the CPU that use no such number come before calls that read some:
        the loops are then one native call, not one for each number."""
        waiting, read, told = list[Extern](), set[Buffer](), set[Symbol]()
        for c in computations:
            if isinstance(c, Extern) and c in self._reads:
                waiting.append(c)
                read.add(c.args[0].buffer)
                told.update([binding.symbol for binding in c.defines])
                continue
            if waiting and not _may_come_before(c, read, told):
                yield from waiting
                waiting, read, told = [], set(), set()
            yield c
        yield from waiting


def _may_come_before(c: Computation, read: Set[Buffer], told: Set[Symbol]) -> bool:
    """Whether a computation is loops of the CPU that neither write what calls read nor use what they tell."""
    if isinstance(c, Extern) or c.out.device.type != "cpu" or c.out in read:
        return False
    return all(told.isdisjoint(e.free) for e in index_expressions(c.value))  # a number may come back from the device


def _kind(dtype: torch.dtype) -> tuple[type, torch.dtype]:
    """What Python reads the number as, and the dtype that holds it."""
    if dtype is torch.bool:
        return bool, torch.bool
    return (float, torch.float64) if dtype.is_floating_point else (int, torch.int64)
