"""What writes, builds and loads the kernels of a kind of device.

In:     the kind of a target.
Out:    its `Backend`.
Holds:  a backend is `codegen/<kind>/`, `runtime/<kind>/` and a row of `_BACKENDS`; the CPU's are the modules beside this one.
        What is shared (lowering, fusion, memory, the wrapper) knows only the target.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pliant import config
from pliant.codegen.native import Entry, NativeCode, write_native
from pliant.ir.loops import Buffer
from pliant.runtime.compilers import CompilerNotFound, find_compiler
from pliant.runtime.load import NativeEntry, load
from pliant.runtime.objects import build_native
from pliant.runtime.program import KeptCode, Library
from pliant.schedule.kernel import Kernel
from pliant.symbolic.expr import Number, Symbol


class WrittenCode(Protocol):
    """The texts of a graph's kernels and entries; `kernels`: how many distinct ones."""

    @property
    def texts(self) -> tuple[str, ...]: ...
    @property
    def entries(self) -> tuple[Entry, ...]: ...
    @property
    def kernels(self) -> int: ...


class Backend(Protocol):
    """`write`: the code of runs of kernels, an entry each, that read the inputs `listed` from the graph's list; `scratch`:
    buffers that an entry has on its stack; `in_place`: buffers in the memory of others; `hints`: the sizes at hand.
    `builder`: what builds the code ahead of `load`, in any thread; None: `load` alone can. `load`: its entries as
    functions, built now if the store does not have them. `kept`: what another process loads the code by, from the store
    alone; None: it cannot. `writes_rows`: whether there are entries that run for many rows of tensors
    (`codegen.native.write_rows`).
    """

    writes_rows: bool

    def write(
        self,
        runs: Sequence[Sequence[Kernel]],
        listed: Mapping[Buffer, int],
        scratch: Mapping[Buffer, int],
        in_place: Mapping[Buffer, Buffer],
        hints: Mapping[Symbol, Number],
    ) -> WrittenCode: ...
    def builder(self, code: WrittenCode, options: config.Build) -> Callable[[], object] | None: ...
    def load(self, code: WrittenCode, options: config.Build) -> list[NativeEntry]: ...
    def kept(self, code: WrittenCode, options: config.Build) -> Sequence[KeptCode] | None: ...


class _C:
    """C for the host's processor."""

    writes_rows = True

    def write(
        self,
        runs: Sequence[Sequence[Kernel]],
        listed: Mapping[Buffer, int],
        scratch: Mapping[Buffer, int],
        in_place: Mapping[Buffer, Buffer],
        hints: Mapping[Symbol, Number],
    ) -> NativeCode:
        return write_native(runs, listed, scratch, in_place)

    def builder(self, code: WrittenCode, options: config.Build) -> Callable[[], object] | None:
        native = _native(code)
        try:
            find_compiler(options.compiler)
        except CompilerNotFound:  # the store may have it; if not, `load` says so where its graph is compiled
            return None
        return lambda: build_native(native, options)

    def load(self, code: WrittenCode, options: config.Build) -> list[NativeEntry]:
        path = build_native(_native(code), options)
        return load(path, [entry.name for entry in code.entries], threaded=options.openmp)

    def kept(self, code: WrittenCode, options: config.Build) -> list[Library]:
        path = build_native(_native(code), options)  # the store has it once it is loaded
        return [Library(path.parent.name, [entry.name for entry in code.entries], options.openmp)]


def _native(code: WrittenCode) -> NativeCode:
    assert isinstance(code, NativeCode)  # what this backend wrote
    return code


_BACKENDS: dict[str, Backend] = {"cpu": _C()}
_NAMED = {"cuda": "pliant.runtime.cuda.backend"}  # modules with `backend()`, loaded when a program needs them


def backend_of(kind: str) -> Backend:
    """The backend of targets of this kind."""
    if kind not in _BACKENDS:
        _BACKENDS[kind] = importlib.import_module(_NAMED[kind]).backend()
    return _BACKENDS[kind]
