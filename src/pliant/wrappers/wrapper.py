"""The Python function of a wrapper's text, and what such texts call.

In:     `WrapperCode`, which `codegen.wrapper` writes.
Out:    `compile_wrapper(code, ...)`: `call(args)`; `telling_by_lines(run)`: the same, its errors say what was written.
Holds:  the names that a text refers to are as they were when it was written.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pliant.errors import AssumptionError
from pliant.records import dataclass
from pliant.torch_adapter import profiler
from pliant.wrappers import generated_code, profiled
from pliant.wrappers.remade import remade

# An attribute of an error of a running graph: inputs were written before it.
WROTE = "_pliant_wrote"

# A global of the wrapper: the line behind which an input may be written.
FIRST_WRITE = "_pliant_first_write"  # no name of a module: every frame of a traceback is asked


def has_written(error: BaseException) -> bool:
    """Whether a wrapper that raised `error` had written an input before. A call that failed itself wrote nothing."""
    traceback = error.__traceback__
    while traceback is not None:
        first = traceback.tb_frame.f_globals.get(FIRST_WRITE)
        if first is not None and traceback.tb_lineno > first:
            return True
        traceback = traceback.tb_next
    return False


@remade
def telling_by_lines(run: Callable[[list[Any]], Sequence[Any]]) -> Callable[[list[Any]], Sequence[Any]]:
    """`run`, whose errors say whether inputs were written before: the line of the wrapper that raised tells."""

    def told(inputs: list[Any]) -> Sequence[Any]:
        try:
            return run(inputs)
        except Exception as error:
            if has_written(error):
                setattr(error, WROTE, True)
            raise

    return told


@dataclass(slots=True)
class WrapperCode:
    """Source of the wrapper; `names`: what its free names are bound to. Native entries are bound when loaded."""

    source: str
    names: dict[str, Any]


class Address(int):
    """Where numbers lie in memory, for native code; they lie there as long as this lives."""

    table: Any


@remade
def numbers_in_memory(numbers: tuple[int, ...]) -> Address:
    """Numbers of 32 bits in a row."""
    table = (ctypes.c_int32 * len(numbers))(*numbers)
    found = Address(ctypes.addressof(table))
    found.table = table
    return found


def conform(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """`tensor` with the strides that kernels were written for; a copy where an operator gave others."""
    if tensor.dtype is not dtype:
        raise AssumptionError(f"an operator's result is {tensor.dtype}, not {dtype}", kind="assumption")
    if tensor.shape != tuple(size):
        raise AssumptionError(
            f"an operator's result has sizes {tuple(tensor.shape)}, not {tuple(size)}", kind="assumption"
        )
    if tensor.stride() == tuple(stride):
        return tensor
    result = torch.empty_strided(tuple(size), tuple(stride), dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)


def without_memory(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A tensor of these sizes that holds no memory."""
    made = torch.empty_strided(tuple(size), tuple(stride), dtype=dtype, device=device)
    made.untyped_storage().resize_(0)
    return made


Wrapper = Callable[[list[Any]], list[Any]]
_LATE = "__pliant_late__"  # among a function's globals: those of them that came later


def compile_wrapper(code: WrapperCode, name: str, ranges: Mapping[str, str]) -> Wrapper:
    """The function; tracebacks show its lines. `ranges`: what a profiler calls each native call."""
    names = dict(code.names)
    if FIRST_WRITE in names:
        names[FIRST_WRITE] += 1
    made: list[Wrapper] = []
    late: dict[str, Any] = {}

    def in_ranges(args: list[Any]) -> list[Any]:
        if not made:
            made.append(_defined(profiled.in_ranges(code.source, ranges), name, names | late))
        return made[0](args)

    names |= {_LATE: late, profiled.PROFILER: profiler, profiled.RANGE: profiler.record_function}
    return _defined(profiled.testing(code.source), name, names | {profiled.PROFILED: in_ranges})


def supply(call: Wrapper, names: Mapping[str, Any]) -> None:
    """Give the function what its text names and was not there yet; before its first call."""
    known = call.__globals__
    known.update(names)
    known[_LATE].update(names)


def _defined(source: str, name: str, names: dict[str, Any]) -> Wrapper:
    filename = f"<pliant {name} {next(_serial)}>"
    generated_code.define(source, filename, names)
    call: Wrapper = names.pop("call")  # no cycle: what it holds is freed with it
    return call


_serial = itertools.count()
