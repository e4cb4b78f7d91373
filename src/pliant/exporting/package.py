"""Packages: an exported program with its compiled kernels, for processes that neither trace nor compile.

In:     `aot_compile(program, path)`: an `Exported`.
Out:    its file with the kernels and how they are called; `attach` makes a loaded program run them.
Holds:  kernels are machine code: they are used only where the caller says that the file may be trusted, and only by the
        release, the PyTorch and the processor that they were made for. Anywhere else the program runs by operators, which
        is told.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliant import config
from pliant.cache.key import machine
from pliant.cache.store import open_store
from pliant.debug import events
from pliant.entries.content import NotKept
from pliant.entries.objects import NotFound
from pliant.entries.program_writer import ProgramWriter
from pliant.entries.programs import ProgramReader
from pliant.errors import ExportError, FallbackWarning, FileError, PliantWarning
from pliant.exporting.bodies import bodies_in, own_bodies, prepared, run_by
from pliant.exporting.control_form import control_of
from pliant.exporting.exported import Exported
from pliant.exporting.form import PACKAGE
from pliant.exporting.running import Caller
from pliant.exporting.writing import save
from pliant.exporting.written_back import writing_graph
from pliant.runtime.build import build, quick
from pliant.runtime.compile_graph import compile_graph
from pliant.runtime.cuda.load import DeviceLibrary
from pliant.runtime.program import Library
from pliant.torch_adapter import VERSION
from pliant.wrappers.remade import call_that_made
from pliant.wrappers.shared_text import runtime_text

Json = Any
_STORE = "kernels"


def aot_compile(program: Exported, path: Any, options: Mapping[str, object]) -> None:
    """Write the package. NoKernels where this machine cannot build kernels."""
    with config.use(config.get().with_options({**options, "cache": True, "keep_entries": True, "cuda_graphs": "never"})):
        graph = writing_graph(program, optimized=True, prepare=own_bodies(program))
        runs = {"": compile_graph(graph).call}
        runs |= {name: compile_graph(prepared(aten)).call for name, _, aten in bodies_in(graph.graph)}
        try:
            writer = ProgramWriter({n.target for n in program.graph.nodes if control_of(n) and "kept" not in n.meta})
            forms = {name: writer.written(run) for name, run in runs.items()}
        except NotKept as refused:
            raise ExportError(
                f"the compiled program cannot be packaged: {refused}", kind="unsaved", why="a file has no form for it",
                do="save the program (`save`), and compile it where it runs",
            ) from None  # fmt: skip
        digests = [*dict.fromkeys(one for run in runs.values() for one in _kernels_of(run)), build([runtime_text()], quick(config.get().build)).parent.name]
        files = {f"{_STORE}/{digest}/{name}": content for digest in digests for name, content in _files(digest).items()}
    text = json.dumps({"made_for": environment(), "run": forms.pop(""), "bodies": forms, "entries": digests})
    save(program, path, {PACKAGE: text.encode(), **files})


def _kernels_of(run: Any) -> list[str]:
    made = call_that_made(run)
    assert made is not None  # else it had no form
    if any(isinstance(one, DeviceLibrary) for one in made.args):
        raise ExportError("kernels of a GPU cannot be packaged", kind="unsaved", do="save the program, and compile it where it runs")
    return [one.digest for one in made.args if isinstance(one, Library)]


def _files(digest: str) -> dict[str, bytes]:
    """An entry of the store."""
    path = open_store(_STORE).at(digest, ".so")
    if path is None:
        raise ExportError("the kernels left the store while they were packaged", kind="unsaved", do="raise `cache_bytes`")
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


def environment() -> dict[str, str]:
    """What kernels and the code around them depend on."""
    return {
        "pliant": _sources(), "torch": VERSION, "python": ".".join(map(str, sys.version_info[:2])),
        "processor": machine(), "platform": sys.platform,
    }  # fmt: skip


@functools.cache
def _sources() -> str:
    """Of every file of the package, wherever it is installed."""
    root, found = Path(__file__).resolve().parents[1], hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        found.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return found.hexdigest()[:24]


# ---- loading
def attach(program: Exported, path: Any, archive: zipfile.ZipFile, trusted: bool) -> None:
    """Have the program run the file's kernels, if it has any that may be used here."""
    if PACKAGE not in archive.namelist():
        if trusted:
            raise FileError(
                f"`{Path(path).name}` has no kernels", kind="no-package", why="it was written by `save`",
                do="make it with pliant.aot_compile, or compile the loaded program",
            )  # fmt: skip
        return
    if not trusted:
        why = "machine code of a file is run only where it is trusted"
        _tell(path, "its kernels are not used", why, "pass kernels=True if the file is yours", PliantWarning)
        return
    said = json.loads(archive.read(PACKAGE))
    here = environment()
    other = [f"{name} is {here[name]} and was {said['made_for'].get(name)}" for name in here if said["made_for"].get(name) != here[name]]
    if other:
        _tell(path, "its kernels are for another place", "\n       ".join(other), "package it for this one", FallbackWarning)
        return
    for digest in said["entries"]:
        files = {n.rpartition("/")[2]: archive.read(n) for n in archive.namelist() if n.startswith(f"{_STORE}/{digest}/")}
        (data,) = [name for name in files if name.startswith("data")]
        open_store(_STORE).adopt(digest, data, files[data], json.loads(files["key.json"]))
    try:
        _run_bodies(program, said["bodies"])
        program._caller = Caller(program, ProgramReader().made(said["run"]))
    except NotFound as missing:
        raise FileError(f"`{Path(path).name}` cannot be loaded", kind="damaged", why=str(missing)) from None


def _run_bodies(program: Exported, forms: Mapping[str, Json]) -> None:
    """Have the branches and loops that the kernels name run kernels, too."""
    graph = writing_graph(program, prepare=own_bodies(program)).graph
    for name, body, aten in list(bodies_in(graph)):
        run_by(body, aten, ProgramReader().made(forms[name]))


def _tell(path: Any, what: str, why: str, do: str, kind: type[PliantWarning]) -> None:
    """Say why the program runs by operators."""
    if kind is FallbackWarning and config.get().general.strict:
        raise FileError(f"`{Path(path).name}`: {what}", kind="no-package", why=why, do=do)
    events.record("fallback", name=Path(path).name, why=f"{what}: {why}", reason="package")
    events.warn_once(f"package:{path}:{what}", f"`{Path(path).name}` runs by operators: {what}\n  why  {why}\n  do   {do}", kind, stacklevel=5)
