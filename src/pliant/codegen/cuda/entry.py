"""The host's side of kernels of GPUs: what is launched with which arguments, as tables that one native function reads.

In:     runs of consecutive kernels, as `DeviceKernel`s.
Out:    `DeviceCode`: the distinct kernels' texts, and for each run its arguments and its table.
Holds:  equal kernels are one text, named by its digest, so equal texts are equal in every process.
Reads on: `wrappers/launches.py`, the native function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import torch

from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.codegen.native import Entry
from pliant.errors import InternalError
from pliant.ir.loops import Buffer
from pliant.records import dataclass
from pliant.symbolic.expr import Expr, Number, Symbol
from pliant.symbolic.traverse import evaluate
from pliant.wrappers.launches import MOST_BLOCKS, MOST_THREADS, Launches


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel to build, without its prelude. name: what it is called in its text; shared: bytes of dynamic shared memory
    at most; expected: whether the sizes at hand launch it."""

    name: str
    text: str
    shared: int
    expected: bool


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What a program's kernels need: distinct kernels in order, an entry and a table for each run.

    prelude: what texts of kernels, one or several, need before them. texts: the kernels', as they are shown. kernels: how
    many of them there are.
    """

    prelude: Callable[[str], str]
    functions: tuple[Function, ...]
    entries: tuple[Entry, ...]
    tables: tuple[Launches, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self.prelude(function.text) + function.text for function in self.functions)

    @property
    def kernels(self) -> int:
        return len(self.functions)


def write_native(
    runs: Sequence[Sequence[DeviceKernel]],
    listed: Mapping[Buffer, int],
    prelude: Callable[[str], str],
    hints: Mapping[Symbol, Number],
) -> DeviceCode:
    """The code of all runs. `listed`: inputs of the graph that entries read from its list, and their places in it.
    `prelude`: what a kernel's text needs before it. `hints`: the sizes at hand."""
    kernels: dict[str, list[DeviceKernel]] = {}
    for kernel in (kernel for run in runs for kernel in run):
        kernels.setdefault(kernel.text, []).append(kernel)
    places = {text: k for k, text in enumerate(kernels)}
    written = [_run(f"launch{k}", run, listed, places) for k, run in enumerate(runs)]
    functions = tuple(_function(alike, hints) for alike in kernels.values())
    return DeviceCode(prelude, functions, tuple(entry for entry, _ in written), tuple(table for _, table in written))


def _function(alike: Sequence[DeviceKernel], hints: Mapping[Symbol, Number]) -> Function:
    """The function of kernels with one text."""
    kernel, shared = alike[0], max(one.shared for one in alike)
    name = _name_of(kernel.text)
    expected = any(_is_launched(one, hints) for one in alike)
    return Function(name, kernel.comment + kernel.text.replace("@", name) + "\n", shared, expected)


def _name_of(text: str) -> str:
    return f"pliant_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _is_launched(kernel: DeviceKernel, hints: Mapping[Symbol, Number]) -> bool:
    """Whether its grid has blocks at the sizes at hand. Where only running the program tells a size it may have."""
    try:
        return all(evaluate(extent, hints) for extent in kernel.blocks)
    except (KeyError, ZeroDivisionError):
        return True


def _run(
    name: str, kernels: Sequence[DeviceKernel], listed: Mapping[Buffer, int], functions: Mapping[str, int]
) -> tuple[Entry, Launches]:
    used = dict.fromkeys(b for kernel in kernels for b in kernel.buffers)
    read = sorted((b for b in used if b in listed), key=listed.__getitem__)
    passed = [b for b in used if b not in listed]
    needed = dict.fromkeys(s for kernel in kernels for s in (*kernel.sizes, *kernel.blocks, kernel.threads))
    numbers = [s for s in needed if s.as_int() is None]
    constants = {s: known for s in needed if (known := s.as_int()) is not None}
    called = {k: m for m, k in enumerate(dict.fromkeys(functions[kernel.text] for kernel in kernels))}
    place = {b: k for k, b in enumerate([*read, *passed])}
    number = {s: k for k, s in enumerate([*numbers, *constants])}
    table = Launches(
        tuple(called),
        tuple(listed[b] for b in read),
        len(passed),
        tuple(s.kind is not int for s in numbers),
        tuple(constants.values()),
        tuple(_call(kernel, called[functions[kernel.text]], place, number) for kernel in kernels),
    )
    names = tuple([_name_of(kernel.text) for kernel in kernels])
    return Entry(name, bool(read), tuple(passed), tuple(numbers), _device(kernels), names), table


def _call(kernel: DeviceKernel, function: int, place: Mapping[Buffer, int], number: Mapping[Expr, int]) -> tuple[int, ...]:
    for extent, most in zip(kernel.blocks, MOST_BLOCKS, strict=True):
        if (known := extent.as_int()) is not None and not 0 <= known <= most:
            raise InternalError(f"a kernel's grid has {known} blocks where {most} are allowed", kind="launch-grid")
    threads = kernel.threads.as_int()
    if threads is not None and not 0 < threads <= MOST_THREADS:
        raise InternalError(f"a kernel's blocks have {threads} threads where {MOST_THREADS} are allowed", kind="launch-grid")
    head = (function, len(kernel.buffers), len(kernel.sizes), number[kernel.threads], kernel.shared)
    blocks = tuple(number[b] for b in kernel.blocks)
    return (*head, *blocks, kernel.rows, *(place[b] for b in kernel.buffers), *(number[s] for s in kernel.sizes))


def _device(kernels: Sequence[DeviceKernel]) -> torch.device:
    """The one device of a run's tensors."""
    devices = {b.device for kernel in kernels for b in kernel.buffers}
    if len(devices) != 1:
        raise InternalError(f"a run of kernels has tensors on {sorted(map(str, devices))}", kind="launch-devices")
    return devices.pop()
