"""Packages: an exported program with its compiled kernels, for processes that neither trace nor compile.

In:     `aot_compile(program, path)`: an `Exported`, names of machines.
Out:    its file with the kernels for each machine and how they are called; `unpacked.py` has a loaded program run them.
Holds:  a program is written once for each kind of GPU, and once if it uses none; each of its texts is built for each processor.
        Nothing that is built is loaded, so kernels may be for machines that are not here.

`package.json`: `version`; `made_for`, what the code around kernels depends on; `variants`, the best first. Each has the
`processor` (name, architecture, features that it must have, or the model that it must be) and the compute capability `gpu`
(or null) that it is for; how its graph is called (`run`) and those of branches and loops (`bodies`); the members of the
archive that it loads: `kernels`, `cubins`, and those `shared` by all programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from pliant import config
from pliant.cache.store import open_store
from pliant.entries.content import NotKept
from pliant.entries.program_writer import ProgramWriter
from pliant.errors import ConfigError, ExportError
from pliant.exporting.bodies import bodies_in, own_bodies, prepared
from pliant.exporting.control_form import control_of
from pliant.exporting.exported import Exported
from pliant.exporting.form import CUBINS, KERNELS, PACKAGE, PACKAGES
from pliant.exporting.processors import NATIVE, Processor, environment, machines
from pliant.exporting.unpacked import SHARED
from pliant.exporting.writing import save
from pliant.exporting.written_back import writing_graph
from pliant.graph.fake_tensor import FakeTensor
from pliant.runtime.backend import backend_of
from pliant.runtime.build import build, quick
from pliant.runtime.compile_graph import write_graph
from pliant.runtime.compile_program import WrittenProgram
from pliant.runtime.program import KeptCode
from pliant.targets.registry import writing_for

Json = Any
_SUFFIXES = {KERNELS: ".so", CUBINS: ".cubin"}


def aot_compile(program: Exported, path: Any, options: Mapping[str, object], targets: Sequence[str] = (NATIVE,)) -> None:
    """Write the package. NoKernels where this machine cannot build kernels."""
    processors, capabilities = machines(targets)
    gpus = _gpus_for(program, capabilities)
    with config.use(config.get().with_options({**options, "cache": True, "keep_entries": True, "cuda_graphs": "never"})):
        written = {gpu: _written(program, gpu) for gpu in gpus}
        variants = [_variant(program, written[gpu], processor, gpu) for gpu in gpus for processor in processors]
        files = dict(_files(variants))
    text = json.dumps({"version": PACKAGES, "made_for": environment(), "variants": variants})
    save(program, path, {PACKAGE: text.encode(), **files})


def _gpus_for(program: Exported, capabilities: list[int]) -> list[int | None]:
    """The compute capabilities to write the program for; None for one that uses no GPU."""
    values = (node.meta.get("val") for node in program.graph.nodes)
    if not any(isinstance(one, FakeTensor) and one.device_.type == "cuda" for one in values):
        if capabilities:
            raise ConfigError(
                f"the program has nothing for sm_{capabilities[0]}", kind="wrong-value", why="it computes on the CPU alone",
                do="export the model with tensors on a GPU, or leave the target out",
            )  # fmt: skip
        return [None]
    if torch.version.cuda is None:
        raise ConfigError(
            "the program computes on a GPU, and this PyTorch knows none", kind="wrong-value", why="it is a build without CUDA",
            do="package it where PyTorch is built for CUDA; a GPU is not needed there",
        )  # fmt: skip
    if capabilities:
        return [*capabilities]
    if not torch.cuda.is_available():
        raise ConfigError(
            "the program computes on a GPU, and none is here", kind="wrong-value", why="kernels are for one compute capability",
            do='say which: targets=["sm_90"]',
        )  # fmt: skip
    major, minor = torch.cuda.get_device_capability()
    return [10 * major + minor]


def _written(program: Exported, gpu: int | None) -> dict[str, WrittenProgram]:
    """The program's graph as text, under "", and those of its branches and loops."""
    if gpu is not None:
        from pliant.targets import cuda

        with writing_for(cuda.target(gpu)):
            return _texts(program)
    return _texts(program)


def _texts(program: Exported) -> dict[str, WrittenProgram]:
    graph = writing_graph(program, optimized=True, prepare=own_bodies(program))
    found = {"": write_graph(graph)}
    return found | {name: write_graph(prepared(aten)) for name, _, aten in bodies_in(graph.graph)}


def _variant(program: Exported, written: Mapping[str, WrittenProgram], processor: Processor, gpu: int | None) -> Json:
    """What `package.json` says of the texts as they are built for one machine."""
    options = processor.build_options(config.get().build)
    libraries = {name: [*_built(one, options, gpu)] for name, one in written.items()}
    places = [one for of in libraries.values() for library in of for one in _places(library)]
    shared = {name: build([text()], quick(options)).parent.name for name, text in SHARED.items() if name != "launcher" or gpu}
    writer = ProgramWriter({n.target for n in program.graph.nodes if control_of(n) and "kept" not in n.meta})
    try:
        forms = {name: writer.called(one.making_call(libraries[name])) for name, one in written.items()}
    except NotKept as refused:
        raise ExportError(
            f"the compiled program cannot be packaged: {refused}", kind="unsaved", why="a file has no form for it",
            do="save the program (`save`), and compile it where it runs",
        ) from None  # fmt: skip
    members = {store: [*dict.fromkeys(digest for of, digest in places if of == store)] for store in (KERNELS, CUBINS)}
    return {"processor": processor.said(), "gpu": gpu, "run": forms.pop(""), "bodies": forms, "shared": shared, **members}


def _built(written: WrittenProgram, options: config.Build, gpu: int | None) -> Iterator[KeptCode]:
    for kind, code in written.codes.items():
        if kind == "cuda":
            from pliant.runtime.cuda.backend import packaged

            assert gpu is not None  # the program has tensors there
            yield from packaged(code, gpu)
        else:
            yield from backend_of(kind).kept(code, options) or ()


def _places(library: Any) -> list[tuple[str, str]]:
    """Stores and digests of what it loads."""
    if hasattr(library, "kernels"):  # of a GPU
        return [(CUBINS, place) for place, *_ in library.kernels]
    return [(KERNELS, library.digest)]


def _files(variants: Iterable[Json]) -> Iterator[tuple[str, bytes]]:
    """Members of the archive: entries of the stores."""
    for variant in variants:
        for store, digests in ((KERNELS, (*variant[KERNELS], *variant["shared"].values())), (CUBINS, variant[CUBINS])):
            for digest in digests:
                path = open_store(store).at(digest, _SUFFIXES[store])
                if path is None:
                    raise ExportError(
                        "the kernels left the store while they were packaged", kind="unsaved", do="raise `cache_bytes`"
                    )
                yield from ((f"{store}/{digest}/{file.name}", file.read_bytes()) for file in path.parent.iterdir())
