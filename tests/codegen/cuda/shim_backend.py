"""Whole programs on CPU tensors through all that a GPU's program goes through but NVRTC and the driver: the writer, the
entries' tables and the native launcher, with kernels on the shim."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import cpu_launcher
from codegen.cuda import shim
from pliant.codegen.cuda import prelude
from pliant.codegen.cuda.entry import Function
from pliant.runtime import backend
from pliant.runtime.cuda.backend import CudaC
from pliant.targets import cpu, cuda, registry


@contextlib.contextmanager
def kernels_on_shim(capability: int = 90) -> Iterator[None]:
    """The CPU is a GPU: what is compiled meanwhile runs on the shim."""
    before = backend._BACKENDS.get("cuda")
    registry.provide("cpu", lambda device: cuda.target(capability))
    backend._BACKENDS["cuda"] = CudaC(lambda device: cpu_launcher.launcher(_built))
    try:
        yield
    finally:
        registry.provide("cpu", lambda device: cpu.target())
        del backend._BACKENDS["cuda"]
        if before is not None:
            backend._BACKENDS["cuda"] = before


def _built(functions: Sequence[Function]) -> Path:
    bodies = "\n".join(function.text for function in functions)
    # The shim has a prelude of its own.
    source = [shim.HEADER.read_text(), prelude.text_for(bodies, shim._REPLACED), bodies, *map(_driver, functions)]
    return shim.compiled("\n".join(source), ("-shared", "-fPIC"))


def _driver(function: Function) -> str:
    """C++ that calls the kernel for every thread of a grid."""
    name = function.name
    given = re.search(rf"{name}\((.*)\) \{{", function.text)
    assert given is not None
    types = [argument.rpartition(" ")[0] for argument in given[1].split(", ")]
    values = ", ".join(f"*(({kind}*){name}_a[{k}])" for k, kind in enumerate(types))
    return (
        f"static void** {name}_a;\nstatic void {name}_body() {{ {name}({values}); }}\n"
        f'extern "C" int {name}_run(unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared, void** a) {{\n'
        f"  const unsigned grid[] = {{x, y, z}};\n  {name}_a = a;\n"
        f"  return shim_run({name}_body, grid, threads, {shim.sharing(function.text)});\n}}\n"
    )
