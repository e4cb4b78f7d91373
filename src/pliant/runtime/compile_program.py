"""From a loop program to a function that runs it: schedule, codegen, build, load.

In:     a `LoopProgram` and the configuration in force.
Out:    a `CompiledGraph`: call it with the list of inputs (which it empties), it returns the list of outputs.
Holds:  it runs below autograd: the caller turns recording off. Stages are timed under the names above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pliant import config
from pliant.codegen.native import Entry, write_rows
from pliant.codegen.profiled import range_names
from pliant.codegen.wrapper import listed_inputs, runs_of, write_row_wrapper, write_wrapper
from pliant.debug import events
from pliant.ir.loops import Buffer, Extern, LoopProgram
from pliant.records import dataclass
from pliant.runtime import auxiliary, random_draws
from pliant.runtime.backend import WrittenCode, backend_of
from pliant.runtime.load import NativeEntry, load, reads_lists, takes_tensors
from pliant.runtime.objects import build_native
from pliant.runtime.program import KeptCode, Library, wrapped, wrapper_of
from pliant.schedule.dependencies import forget_accesses
from pliant.schedule.kernel import Kernel, Schedule
from pliant.schedule.schedule import schedule, schedule_text
from pliant.symbolic.expr import Number, Symbol
from pliant.targets.registry import target_of
from pliant.together import later
from pliant.torch_adapter import OpOverload
from pliant.wrappers.remade import MakingCall, noted
from pliant.wrappers.wrapper import WrapperCode, compile_wrapper, supply


class CompiledGraph:
    """A compiled graph; `call` is the generated wrapper. `texts`: units of kernels and entries, `wrapper_source`: Python
    text, `kernels`: how many distinct ones."""

    __slots__ = ("call", "kernels", "name", "texts", "wrapper_source")

    def __init__(
        self, name: str, call: Callable[[list[Any]], list[Any]], codes: Sequence[WrittenCode], wrapper_source: str
    ) -> None:
        self.name, self.call, self.wrapper_source = name, call, wrapper_source
        self.texts = [text for code in codes for text in code.texts]
        self.kernels = sum(code.kernels for code in codes)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        return self.call(inputs)

    @property
    def source(self) -> str:
        return "\n".join(self.texts)

    def add(self, rest: CompiledGraph) -> None:
        """What this graph's call does beside its own work."""
        self.wrapper_source += rest.wrapper_source
        self.texts += rest.texts
        self.kernels += rest.kernels


@dataclass(frozen=True, slots=True)
class WrittenProgram:
    """A loop program as text, which nobody has built yet.

    codes: by the kind of their target; entries: of all runs, in order; wrapper: without the entries among its names;
    ranges: what profilers call the entries.
    """

    name: str
    codes: dict[str, WrittenCode]
    entries: list[Entry]
    wrapper: WrapperCode
    ranges: dict[str, str]

    def making_call(self, kept: Sequence[KeptCode]) -> MakingCall:
        """What makes the function of the text, where the store has its code as `kept` says."""
        return MakingCall(wrapper_of.__name__, (self.name, self.wrapper.source, dict(self.wrapper.names), self.ranges, *kept))


def write_program(program: LoopProgram, options: config.Config) -> WrittenProgram:
    """Write a loop program. NoKernels where a device has no code generator."""
    _check_devices(program)
    with events.stage("schedule", graph=program.name):
        planned = schedule(program, options.schedule)
    if events.wants("schedule"):
        events.record("schedule", name=program.name, text=schedule_text(planned))
    with events.stage("codegen", graph=program.name):
        listed = listed_inputs(program, planned) if reads_lists() else {}
        runs = runs_of(planned)
        codes = _write(runs, listed, planned, program.hints)
        written = {kind: iter(code.entries) for kind, code in codes.items()}
        entries = [next(written[run[0].target.kind]) for run in runs]
        wrapper = write_wrapper(program, planned, entries, listed, takes_tensors=takes_tensors())
    texts = [text for code in codes.values() for text in code.texts]
    if events.wants("output_code"):
        events.record("output_code", name=program.name, text="\n".join([*texts, wrapper.source]))
    ranges = range_names(program.name, entries, runs)
    if events.wants("kernels"):
        _tell_kernels(program, planned, entries, texts, wrapper, ranges, options.schedule)
    return WrittenProgram(program.name, codes, entries, wrapper, ranges)


def _tell_kernels(
    program: LoopProgram, planned: Schedule, entries: Sequence[Entry], texts: Sequence[str], wrapper: WrapperCode,
    ranges: Mapping[str, str], options: config.Schedule,
) -> None:  # fmt: skip
    from pliant.schedule.costs import results_of
    from pliant.schedule.told import step_rows

    rows = step_rows(program, planned, entries, options)
    events.record(
        "kernels", name=program.name, count=len(rows), rows=rows, hints=dict(program.hints), texts=tuple(texts),
        wrapper=wrapper.source, ranges=dict(ranges), results=results_of(program),
    )  # fmt: skip


def compile_program(program: LoopProgram, options: config.Config | None = None) -> CompiledGraph:
    """Compile a loop program. NoKernels where a device has no code generator, or this machine cannot build its kernels."""
    options = options or config.get()
    written = write_program(program, options)
    codes, wrapper, ranges = written.codes, written.wrapper, written.ranges
    names = dict(wrapper.names)

    def load_entries() -> dict[str, NativeEntry]:
        with events.stage("build", graph=program.name):
            loaded = {kind: backend_of(kind).load(code, options.build) for kind, code in codes.items()}
        return {e.name: f for kind, code in codes.items() for e, f in zip(code.entries, loaded[kind], strict=True)}

    def note(call: Callable[[list[Any]], list[Any]]) -> None:
        if (kept := _kept(codes, options)) is not None:
            noted(call, wrapper_of, program.name, wrapper.source, names, ranges, *kept)

    def complete() -> None:
        supply(call, load_entries())
        note(call)

    call: Callable[[list[Any]], list[Any]]
    if (build := _builder(codes, options.build)) is not None and later(build, complete):
        _build_auxiliary(names)
        call = wrapped(wrapper, program.name, ranges)
    else:
        wrapper.names.update(load_entries())
        call = wrapped(wrapper, program.name, ranges)
        note(call)
    forget_accesses()
    return CompiledGraph(program.name, call, list(codes.values()), wrapper.source)


def _build_auxiliary(names: Mapping[str, Any]) -> None:
    """Begin with what the operators among a wrapper's names may call."""
    if any(value is random_draws.DRAWN for value in names.values()):
        auxiliary.build_beside(auxiliary.BERNOULLI)
    if any(isinstance(value, OpOverload) and value.namespace == "pliant" for value in names.values()):
        auxiliary.build_beside(auxiliary.FINGERPRINT)


def _write(
    runs: Sequence[Sequence[Kernel]],
    listed: Mapping[Buffer, int],
    planned: Schedule,
    hints: Mapping[Symbol, Number],
) -> dict[str, WrittenCode]:
    """The code of all runs by the kind of their target."""
    kinds: dict[str, list[Sequence[Kernel]]] = {}
    for run in runs:
        kinds.setdefault(run[0].target.kind, []).append(run)
    memory = planned.scratch, planned.in_place
    return {kind: backend_of(kind).write(own, listed, *memory, hints) for kind, own in kinds.items()}


def _builder(codes: Mapping[str, WrittenCode], options: config.Build) -> Callable[[], object] | None:
    """What builds the codes ahead of their loading, in any thread; None: one of them cannot be, or there are none."""
    found = [backend_of(kind).builder(code, options) for kind, code in codes.items()]
    builders = [build for build in found if build is not None]
    return (lambda: [build() for build in builders]) if builders and len(builders) == len(found) else None


def _kept(codes: Mapping[str, WrittenCode], options: config.Config) -> list[KeptCode] | None:
    """What another process loads the codes by; None: it cannot, or nobody asked for that."""
    if not (options.cache.cache and options.cache.keep_entries):
        return None
    found = [backend_of(kind).kept(code, options.build) for kind, code in codes.items()]
    return None if None in found else [one for each in found for one in each or ()]


def _takes_rows(program: LoopProgram) -> bool:
    """Whether the backends of all kernels have entries for rows."""
    devices = {c.out.device for c in program.computations if not isinstance(c, Extern)}
    return all(backend_of(target_of(device).kind).writes_rows for device in devices)


def _check_devices(program: LoopProgram) -> None:
    """Raise NoKernels where a kernel would run on a device that has no code generator."""
    for device in {c.out.device for c in program.computations if not isinstance(c, Extern)}:
        target_of(device)


def compile_row_program(
    program: LoopProgram, rows: list[list[int]], numbers: list[int]
) -> Callable[[list[Any]], None] | None:
    """Compile a loop program that runs for many rows of tensors, one call for all: see `write_row_wrapper`. None if it
    does more than run kernels that write its inputs."""
    options = config.get()
    if program.outputs or program.constants or not reads_lists() or not _takes_rows(program):
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
    ranges = range_names(program.name, native.entries, [kernels])
    if events.wants("kernels"):
        _tell_kernels(program, planned, native.entries, native.texts, wrapper, ranges, options.schedule)
    names = dict(wrapper.names)
    with events.stage("build", graph=program.name):
        path = build_native(native, options.build)
        (wrapper.names["entry0"],) = load(path, ["entry0"], threaded=options.build.openmp)
    forget_accesses()
    call = compile_wrapper(wrapper, program.name, ranges)
    if options.cache.cache:
        library = Library(path.parent.name, ["entry0"], options.build.openmp)
        noted(call, wrapper_of, program.name, wrapper.source, names, ranges, library)
    return call  # type: ignore[return-value]  # the row wrapper returns nothing
