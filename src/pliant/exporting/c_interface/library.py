"""A program's shared library, header and weights, in a folder.

In:     an `Exported`, the folder.
Out:    `libprogram.so`, `weights`, `pliant_program.h`, and `program.cpp` to read.
Holds:  the library needs libtorch_cpu of the installed PyTorch, where it finds it, and no Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from pliant.errors import ExportError
from pliant.exporting.c_interface.writer import NoForm, ProgramText
from pliant.exporting.program import Program
from pliant.exporting.writing import weights_of
from pliant.torch_adapter import PACKAGE

_HERE = Path(__file__).parent
LIBRARY, WEIGHTS, HEADER, TEXT = "libprogram.so", "weights", "pliant_program.h", "program.cpp"


def write_library(program: Program, path: object) -> None:
    """Write the folder; a compiler for C++ is needed."""
    program.form.refuse_one()
    folder = Path(str(path))
    content, at = weights_of(program)
    try:
        text = ProgramText(program, at, len(content)).text()
    except NoForm as refused:
        raise ExportError(
            f"the program has no C interface: {refused}", kind="unsaved", why="the library cannot say it",
            do="package it for Python (`interface=\"python\"`)", doc="docs/export.md#without-python",
        ) from None  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TEXT).write_text(text)
    (folder / WEIGHTS).write_bytes(content)
    shutil.copyfile(_HERE / HEADER, folder / HEADER)
    _build(folder)


def _build(folder: Path) -> None:
    root = Path(PACKAGE)
    compiler = os.environ.get("CXX", "g++")
    abi = int(torch.compiled_with_cxx11_abi())
    with tempfile.TemporaryDirectory() as place:
        beside = Path(place) / LIBRARY
        command = [
            compiler, "-std=c++20", "-O1", "-fPIC", "-shared", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-fvisibility-inlines-hidden",
            "-isystem", str(root / "include"), f"-I{_HERE}", str(_HERE / "runner.cc"), str(folder / TEXT), "-o", str(beside),
            f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-Wl,-Bsymbolic", "-ltorch_cpu", "-lc10",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise _no_build(f"`{compiler}` cannot be run: {error}") from None
        if done.returncode:
            raise _no_build(done.stderr[-2000:])
        shutil.move(beside, folder / LIBRARY)


def _no_build(why: str) -> ExportError:
    return ExportError("the library cannot be built", kind="no-compiler", why=why, do="install g++, or name another in CXX")
