"""Launches of one kernel for many tensors as one launch: a row of blocks for each, by a table of pointers and numbers.

In:     the kernels of a run, in order.
Out:    as many or fewer, which do the same.
Holds:  kernels change places only where none of them writes what another reads or writes. A launch takes kernels of one text,
        whose numbers of blocks, known as the code is written, are alike: the rows of a grid are equally long.

A step of an optimizer is a kernel a parameter, and so are casts of weights: small ones take less time than their launches.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence, Set

from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.ir.loops import Buffer
from pliant.schedule.kernel import memory_of
from pliant.symbolic.expr import ONE, lit
from pliant.wrappers.launches import ROW_WORDS

LEAST_ROWS = 4
MOST_BLOCKS = 4096  # of a kernel whose launch takes a notable part of its time
_HEAD = re.compile(r'extern "C" __global__ void (?P<bounds>__launch_bounds__\(\d+\)) @\((?P<arguments>.*)\) \{\n')
_ALONE = ("gridDim", "blockIdx.y", "blockIdx.z")  # what a text that runs for a row of blocks does not ask for


def in_rows(run: Sequence[DeviceKernel], in_place: Mapping[Buffer, Buffer]) -> list[DeviceKernel]:
    """The launches of a run. `in_place`: buffers in the memory of others."""
    found: list[DeviceKernel] = []
    together: list[DeviceKernel] = []  # kernels that may run in any order
    read, written = set[Buffer](), set[Buffer]()
    for kernel in run:
        writes = {memory_of(b, in_place) for b in kernel.written}
        touches = {memory_of(b, in_place) for b in kernel.buffers}
        if not (writes.isdisjoint(read) and touches.isdisjoint(written)):
            found += _joined(together)
            together, read, written = [], set(), set()
        together.append(kernel)
        read |= touches
        written |= writes
    return found + _joined(together)


def _joined(kernels: Sequence[DeviceKernel]) -> list[DeviceKernel]:
    """The launches of kernels that may run in any order."""
    alike: dict[object, list[DeviceKernel]] = {}
    for kernel in kernels:
        alike.setdefault(_kind(kernel), []).append(kernel)
    found: list[DeviceKernel] = []
    for group in alike.values():
        most = ROW_WORDS // (len(group[0].buffers) + len(group[0].sizes) or 1)
        if len(group) < LEAST_ROWS or most < LEAST_ROWS or _HEAD.match(group[0].text) is None:
            found += group
        else:
            found += [_row_kernel(group[k : k + most]) for k in range(0, len(group), most)]
    return found


def _kind(kernel: DeviceKernel) -> object:
    """Equal for kernels that one launch may run; the kernel itself for one that runs alone."""
    x, y, z = kernel.blocks
    blocks = x.as_int()
    alone = kernel.shared or any(word in kernel.text for word in _ALONE)
    if not blocks or blocks > MOST_BLOCKS or y is not ONE or z is not ONE or alone:
        return kernel
    return kernel.text, kernel.threads, blocks.bit_length()


def _row_kernel(kernels: Sequence[DeviceKernel]) -> DeviceKernel:
    first = kernels[0]
    blocks = max(kernel.blocks[0].as_int() or 0 for kernel in kernels)
    return dataclasses.replace(
        first,
        text=_row_text(first),
        comment="".join(dict.fromkeys(kernel.comment for kernel in kernels)),
        buffers=tuple([b for kernel in kernels for b in kernel.buffers]),
        sizes=tuple([s for kernel in kernels for s in kernel.sizes]),
        blocks=(lit(blocks), lit(len(kernels)), ONE),
        written=_union([kernel.written for kernel in kernels]),
        work=sum([kernel.work for kernel in kernels[1:]], first.work),
        rows=len(kernels),
    )


def _union(sets: Sequence[Set[Buffer]]) -> frozenset[Buffer]:
    return frozenset(b for one in sets for b in one)


def _row_text(kernel: DeviceKernel) -> str:
    """The kernel's text with its arguments from the words of its row."""
    head = _HEAD.match(kernel.text)
    assert head is not None  # `_joined` saw to that
    arguments = [argument.rpartition(" ")[::2] for argument in head["arguments"].split(", ")]
    lines = [f"  const int64_t* const row = rows.words + (int)blockIdx.y * {len(arguments)};"]
    for k, (kind, name) in enumerate(arguments):
        value = f"((const double*)row)[{k}]" if kind == "double" else f"({kind})row[{k}]"
        lines.append(f"  {kind} const {name} = {value};")
    begin = f'extern "C" __global__ void {head["bounds"]} @(const __grid_constant__ p_rows rows) {{'
    return "\n".join([begin, *lines, kernel.text[head.end() :]])
