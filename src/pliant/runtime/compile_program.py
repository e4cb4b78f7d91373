"""From a loop program to a function that runs it: schedule, codegen, build, load.

In:     a `LoopProgram` and the configuration in force.
Out:    a `CompiledGraph`: call it with the list of inputs (which it empties), it returns the list of outputs.
Holds:  it runs below autograd: the caller turns recording off. Stages are timed under the names above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant import config
from pliant.codegen.native import NativeCode, write_native, write_rows
from pliant.codegen.prelude import vector_math
from pliant.codegen.profiled import range_names
from pliant.codegen.wrapper import (
    WrapperCode,
    compile_wrapper,
    listed_inputs,
    runs_of,
    write_row_wrapper,
    write_wrapper,
)
from pliant.debug import events
from pliant.errors import NoKernels
from pliant.graph.remade import noted
from pliant.ir.loops import Buffer, Extern, LoopProgram
from pliant.runtime.build import build, built
from pliant.runtime.load import NativeEntry, load, reads_lists, takes_tensors
from pliant.schedule.kernel import Kernel, forget_loads
from pliant.schedule.schedule import schedule, schedule_text


class CompiledGraph:
    """A compiled graph; `call` is the generated wrapper. `source`: C text, `wrapper_source`: Python text."""

    __slots__ = ("call", "kernels", "name", "native", "wrapper_source")

    def __init__(
        self, name: str, call: Callable[[list[Any]], list[Any]], native: NativeCode, wrapper_source: str
    ) -> None:
        self.name, self.call, self.native, self.wrapper_source = name, call, native, wrapper_source
        self.kernels = native.kernels

    def __call__(self, inputs: list[Any]) -> list[Any]:
        return self.call(inputs)

    @property
    def source(self) -> str:
        return "\n".join(self.native.texts)


def _check_devices(program: LoopProgram) -> None:
    """Kernels are C for CPU memory; other devices have no code generator here."""
    for computation in program.computations:
        if not isinstance(computation, Extern) and computation.out.device.type != "cpu":
            raise NoKernels(
                f"no kernels for device {computation.out.device}",
                kind="device",
                why="this code generator writes C for CPU memory only",
                do="none: the graph runs operator by operator",
            )


def compile_program(program: LoopProgram, options: config.Config | None = None) -> CompiledGraph:
    """Compile a loop program."""
    options = options or config.get()
    _check_devices(program)
    with events.stage("schedule", graph=program.name):
        planned = schedule(program, options.schedule)
    if events.wants("schedule"):
        events.record("schedule", name=program.name, text=schedule_text(planned))
    with events.stage("codegen", graph=program.name):
        listed = listed_inputs(program, planned) if reads_lists() else {}
        runs = runs_of(planned)
        native = write_native(runs, listed, planned.scratch)
        wrapper = write_wrapper(program, planned, native.entries, listed, takes_tensors=takes_tensors())
    if events.wants("output_code"):
        events.record("output_code", name=program.name, text="\n".join([*native.texts, wrapper.source]))
    names, library = dict(wrapper.names), None
    with events.stage("build", graph=program.name):
        if native.entries:
            path = build(native.texts, options.build)
            library = Library(path.parent.name, [entry.name for entry in native.entries], options.build.openmp)
            wrapper.names.update(library.functions(path))
    forget_loads()
    ranges = range_names(program.name, native.entries, runs)
    call = compile_wrapper(wrapper, program.name, ranges)
    noted(call, wrapper_of, program.name, wrapper.source, names, ranges, library)
    return CompiledGraph(program.name, call, native, wrapper.source)


@dataclass(frozen=True, slots=True)
class Library:
    """Built code: its place in the store, the names of its entries."""

    digest: str
    entries: list[str]
    threaded: bool

    def functions(self, path: Path) -> dict[str, NativeEntry]:
        """Its entries, loaded; first what it may take functions from, as when its text was written."""
        vector_math()
        found = load(path, self.entries, threaded=self.threaded)
        return dict(zip(self.entries, found, strict=True))


def wrapper_of(
    name: str, source: str, names: dict[str, Any], ranges: dict[str, str], library: Library | None
) -> Callable[[list[Any]], list[Any]]:
    """The function of a wrapper's text with the library as the store has it; `names` are without its entries. NoKernels
    if the store has it no more."""
    entries = library.functions(built(library.digest)) if library is not None else {}
    return compile_wrapper(WrapperCode(source, {**names, **entries}), name, ranges)


def compile_row_program(
    program: LoopProgram, rows: list[list[int]], numbers: list[int]
) -> Callable[[list[Any]], None] | None:
    """Compile a loop program that runs for many rows of tensors, one call for all: see `write_row_wrapper`. None if it
    does more than run kernels that write its inputs."""
    options = config.get()
    _check_devices(program)
    if program.outputs or program.constants or not reads_lists():
        return None
    with events.stage("schedule", graph=program.name):
        planned = schedule(program, options.schedule)
    kernels = [step for step in planned.steps if isinstance(step, Kernel)]
    if len(kernels) < len(planned.steps) or any(planned.allocate):
        return None
    with events.stage("codegen", graph=program.name):
        listed = {b: k for k, b in enumerate(program.inputs) if isinstance(b, Buffer)}
        native, sizes = write_rows(kernels, listed, planned.scratch)
        wrapper = write_row_wrapper(program, sizes, rows, numbers)
    if events.wants("output_code"):
        events.record("output_code", name=program.name, text="\n".join([*native.texts, wrapper.source]))
    with events.stage("build", graph=program.name):
        path = build(native.texts, options.build)
        (wrapper.names["entry0"],) = load(path, ["entry0"], threaded=options.build.openmp)
    forget_loads()
    ranges = range_names(program.name, native.entries, [kernels])
    return compile_wrapper(wrapper, program.name, ranges)  # type: ignore[return-value]  # the row wrapper returns nothing
