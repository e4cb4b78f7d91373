"""A program's shared library, header and weights, in a folder, for processes that have neither Python nor PyTorch.

In:     an `Exported`, the folder.
Out:    `libprogram.so` (of a compiler for WebAssembly `libprogram.wasm`), `weights`, `pliant_standalone.h`, and `kernels.c`
        and `program.c` to read.
Holds:  the library needs libc and libm; it is for processors that have the instructions of this one, unless the option
        `opt_flags` says otherwise, which `pliant_create` checks.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pliant import config
from pliant.errors import ExportError
from pliant.exporting.exported import Exported
from pliant.exporting.standalone.control import parts_of
from pliant.exporting.standalone.operators import NoForm
from pliant.exporting.standalone.writer import ProgramText
from pliant.exporting.writing import weights_of
from pliant.exporting.written_back import writing_graph
from pliant.lowering.lower import lower
from pliant.runtime.build import MEANING_FLAGS
from pliant.runtime.compilers import find_compiler
from pliant.schedule.dependencies import forget_accesses

HERE = Path(__file__).parent
WEIGHTS, HEADER, KERNELS, TEXT = "weights", "pliant_standalone.h", "kernels.c", "program.c"
# What a machine calls: name, how units are compiled, how they are linked. A module of WebAssembly exports what the header
# declares, and how its caller gets memory for arguments.
SHARED = ("libprogram.so", ("-fPIC",), ("-shared", "-Wl,-Bsymbolic", "-lm", "-lpthread"))
MODULE = (
    "libprogram.wasm", ("-D_WASI_EMULATED_MMAN",),
    ("-mexec-model=reactor", "-Wl,--export-dynamic", "-Wl,--export=malloc", "-Wl,--export=free", "-lm", "-lwasi-emulated-mman"),
)  # fmt: skip
_ATTENTION = ("aten._scaled_dot_product_flash_attention_for_cpu",)


def write_library(program: Exported, path: object, options: Mapping[str, object]) -> None:
    """Write the folder; a C compiler is needed."""
    program.form.refuse_one()
    folder = Path(str(path))
    with config.use(config.get().with_options(options)):
        try:
            kernels, text, weights = texts_of(program)
        except NoForm as refused:
            raise ExportError(
                f"the program has no library of its own: {refused}", kind="unsaved", why="the library cannot do it",
                do='use PyTorch\'s operators (`interface="c"`), or package it for Python', doc="docs/export.md#without-python",
            ) from None  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        (folder / KERNELS).write_text(kernels)
        (folder / TEXT).write_text(text)
        (folder / WEIGHTS).write_bytes(weights)
        shutil.copyfile(HERE / HEADER, folder / HEADER)
        _build(folder, config.get().build)


def texts_of(program: Exported) -> tuple[str, str, bytes]:
    """The unit of kernels, that of the program, the weights' bytes."""
    program = program.decompose(*_ATTENTION)
    graph = writing_graph(program)
    for node in graph.graph.nodes:
        if "where" in node.meta:
            node.meta["origin"] = str(node.meta["where"])  # for what has no loops
    parts = parts_of(lower(graph), config.get().schedule)
    constants = [b.value for of in parts.values() for part in of for b in part.loops.constants if b.value is not None]
    content, at = weights_of(program, constants)
    found = ProgramText(program, parts, at, len(content)).texts()
    forget_accesses()
    return *found, content


def _build(folder: Path, options: config.Build) -> None:
    found = find_compiler(options.compiler)
    if found.linker:
        raise _unbuilt("clang is alone here: the library is linked with the C library, whose headers it needs")
    compiler = found.command
    name, own, linking = MODULE if _run([*compiler, "-dumpmachine"]).startswith("wasm") else SHARED
    common = [*options.opt_flags, *MEANING_FLAGS, *own, "-fvisibility=hidden", "-pipe", "-w", f"-I{HERE}"]
    units = {folder / KERNELS: [], folder / TEXT: ["-O1"], HERE / "runtime.c": [], HERE / "products.c": ["-O3", "-ffp-contract=fast"]}
    with tempfile.TemporaryDirectory() as place:
        objects = [str(Path(place) / f"{source.stem}.o") for source in units]
        for (source, flags), made in zip(units.items(), objects):
            _run([*compiler, *common, *flags, "-c", str(source), "-o", made])
        library = Path(place) / name
        _run([*compiler, *options.opt_flags, *objects, *linking, "-o", str(library)])
        shutil.move(library, folder / name)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _unbuilt(done.stderr[-2000:])
    return done.stdout


def _unbuilt(why: str) -> ExportError:
    do = "install gcc or clang with the C library's headers, or name another compiler in PLIANT_CC"
    return ExportError("the library cannot be built", kind="no-compiler", why=why, do=do)
