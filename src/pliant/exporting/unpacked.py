"""Have a program that was loaded from a package run the package's kernels.

In:     the program, its file, whether the caller trusts it.
Out:    the program with a caller that runs the kernels of the best variant that this machine can run; else it runs by
        operators, which is told.
Holds:  kernels are machine code: they are used only where the caller says that the file may be trusted, and only by the
        release, the PyTorch and a processor and GPU that they were made for. Nothing is built: what all programs share
        comes from the file, too.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pliant import config
from pliant.cache.store import open_store
from pliant.debug import events
from pliant.entries.objects import NotFound
from pliant.entries.programs import ProgramReader
from pliant.errors import FallbackWarning, FileError, PliantWarning
from pliant.exporting.bodies import bodies_in, own_bodies, run_by
from pliant.exporting.exported import Exported
from pliant.exporting.form import CUBINS, KERNELS, PACKAGE, upgraded_package
from pliant.exporting.processors import environment, why_no_gpu, why_not
from pliant.exporting.running import Caller
from pliant.exporting.written_back import writing_graph
from pliant.runtime.build import key_of, quick
from pliant.runtime.load import process_text
from pliant.wrappers.launches import launcher_text
from pliant.wrappers.shared_text import AUXILIARY, auxiliary_text

Json = Any
# Units that all programs share; the launcher those of GPUs, the auxiliary ones those that call them.
SHARED: dict[str, Callable[[], str]] = {
    "runtime": process_text, "launcher": launcher_text, **{name: partial(auxiliary_text, name) for name in AUXILIARY},
}


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
    said = upgraded_package(json.loads(archive.read(PACKAGE)))
    variant, reasons = _chosen(said)
    if variant is None:
        do = "package it for this one (`targets` of pliant.aot_compile)"
        _tell(path, "its kernels are for another place", "\n       ".join(reasons), do, FallbackWarning)
        return
    _adopt(archive, variant)
    try:
        _run_bodies(program, variant["bodies"])
        program._caller = Caller(program, ProgramReader().made(variant["run"]))
    except NotFound as missing:
        raise FileError(f"`{Path(path).name}` cannot be loaded", kind="damaged", why=str(missing)) from None
    gpu = "" if variant["gpu"] is None else f" and sm_{variant['gpu']}"
    events.record("package", name=Path(path).name, processor=variant["processor"]["name"] + gpu)


def _chosen(said: Json) -> tuple[Json | None, list[str]]:
    """The first variant that this machine can run; else why it can run none."""
    made_for, here = said["made_for"], environment()
    other = [f"{name} is {here[name]} and was {made_for.get(name)}" for name in here if made_for.get(name) != here[name]]
    if other:
        return None, other
    reasons = dict[str, None]()
    for variant in said["variants"]:
        why = why_not(variant["processor"])
        if variant["gpu"] is not None:
            why = why or why_no_gpu(variant["gpu"], capabilities())
        if not why:
            return variant, []
        reasons[why] = None
    return None, list(reasons)


def capabilities() -> list[int]:
    """Of the GPUs that are here."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [10 * major + minor for major, minor in map(torch.cuda.get_device_capability, range(count))]


def _adopt(archive: zipfile.ZipFile, variant: Json) -> None:
    """Put what it loads into the stores of this machine."""
    names = archive.namelist()
    for store in (KERNELS, CUBINS):
        for digest in variant[store]:
            _adopt_as(archive, names, store, digest, digest)
    for name, digest in variant["shared"].items():  # where this machine's compiler, or none, looks for them
        key = key_of([SHARED[name]()], quick(config.get().build))
        _adopt_as(archive, names, KERNELS, digest, key.digest)


def _adopt_as(archive: zipfile.ZipFile, names: list[str], store: str, digest: str, place: str) -> None:
    files = {n.rpartition("/")[2]: archive.read(n) for n in names if n.startswith(f"{store}/{digest}/")}
    (data,) = [name for name in files if name.startswith("data")]
    open_store(store).adopt(place, data, files[data], json.loads(files["key.json"]))


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
    events.warn_once(f"package:{path}:{what}", f"`{Path(path).name}` runs by operators: {what}\n  why  {why}\n  do   {do}", kind)
