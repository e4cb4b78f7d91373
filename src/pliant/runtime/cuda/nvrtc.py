"""Text of kernels to machine code, by the compiler that PyTorch's CUDA wheels bring (NVRTC).

In:     CUDA C that includes nothing; an architecture, "sm_90".
Out:    a cubin. `library()`: the compiler, found once.
Holds:  no call of CUDA itself: a GPU is not needed, nor a driver, and a forked child may compile;
        the interpreter's lock is free while it compiles, so threads compile side by side.
Units:  a small kernel takes 55 to 200 ms.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pliant.errors import CompileError, NoKernels
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.runtime.kept import keep
from pliant.torch_adapter import PACKAGE

# The meaning of the text depends on the first; contraction is off for the reasons given in `runtime/build.py`.
FLAGS = ("--fmad=false", "--std=c++17", "-default-device")
# What only saves time, and only newer versions know: our own store keeps what is built; textures and the like are left
# out (a fifth less time).
QUICK = ("--no-cache", "--minimal")

_INVALID_OPTION = 5
_VERSION = re.compile(r"\.so\.(\d+)")


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """The loaded library. architectures: compute capabilities that it knows, ascending."""

    calls: Any
    path: str
    version: tuple[int, int]
    architectures: tuple[int, ...]


@functools.cache
def library() -> Nvrtc:
    """NVRTC; NoKernels if there is none, or only one of another major version than PyTorch's CUDA."""
    troubles = []
    for path in _candidates():
        try:
            return _opened(path)
        except OSError as error:
            pass_on(error)
            troubles.append(f"{path}: {error}")
    raise NoKernels(
        "NVRTC, which builds kernels for GPUs, was not found",
        kind="no-nvrtc",
        why="\n".join(troubles) or "neither PyTorch's wheels nor a system's CUDA bring libnvrtc here",
        do=f"install nvidia-cuda-nvrtc{_suffix()}, or set CUDA_HOME to a CUDA toolkit",
    )


def _suffix() -> str:
    """What the wheels for PyTorch's CUDA are called: from 13 on without a number."""
    major = _wanted_major()
    return f"-cu{major}" if major and major < 13 else ""


def _wanted_major() -> int:
    """The major version of PyTorch's CUDA; 0 for a build without."""
    return int((torch.version.cuda or "0").split(".")[0])


def _candidates() -> Iterator[str]:
    """Paths to try: of wheels, of a toolkit, and what the system's linker finds; of PyTorch's major version alone."""
    wanted = _wanted_major()
    found = [p for folder in _folders() for p in sorted(folder.glob("libnvrtc.so.*"), reverse=True)]
    for path in found:
        version = _VERSION.search(path.name)
        if ".alt." not in path.name and version and (not wanted or int(version[1]) == wanted):
            yield str(path)
    yield from (f"libnvrtc.so.{major}" for major in ((wanted,) if wanted else (13, 12)))


def _folders() -> Iterator[Path]:
    """Folders that may hold the library."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(root).glob("*/lib"), reverse=True)
    yield Path(PACKAGE) / "lib"
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for home in filter(None, homes):
        yield from (Path(home) / "lib64", Path(home) / "targets/x86_64-linux/lib")


def _opened(path: str) -> Nvrtc:
    # NVRTC opens its functions' library by name alone, which a folder off the linker's path needs to have been opened.
    for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    calls = ctypes.CDLL(path)
    major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    calls.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    calls.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    known = (ctypes.c_int * count.value)()
    calls.nvrtcGetSupportedArchs(known)
    return Nvrtc(calls, path, (major.value, minor.value), tuple(sorted(known)))


def architecture(capability: int) -> str:
    """What to build for a compute capability (90 for 9.0): itself, or the newest known one whose code runs on it."""
    known = library().architectures
    fitting = [a for a in known if a // 10 == capability // 10 and a <= capability]
    if not fitting:
        raise NoKernels(
            f"NVRTC {_text(library().version)} builds nothing for compute capability {capability / 10}",
            kind="no-nvrtc",
            why=f"it knows {', '.join(str(a / 10) for a in known)}",
            do="use a build of PyTorch for a newer CUDA",
        )
    return f"sm_{fitting[-1]}"


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def maker() -> str:
    """What builds: part of the key of what is built."""
    return f"nvrtc {_text(library().version)}"


def compile_text(text: str, architecture: str, *, keep_refused: bool = True) -> bytes:
    """The cubin. CompileError, with the text kept on disk, if the compiler refuses it."""
    code, log, cubin = _compiled(text, architecture, (*FLAGS, *_quick()))
    if code == _INVALID_OPTION and _quick():
        _known_to_be_older.append(True)
        code, log, cubin = _compiled(text, architecture, FLAGS)
    if code:
        raise CompileError(
            f"NVRTC refused generated text: {log.strip()[:2000]}",
            kind="nvrtc",
            where=keep([text], ".cu") if keep_refused else None,
            why=f"{maker()} {architecture} {' '.join(FLAGS)}: {_error(code)}",
            do="please report this with the kept text; the graph runs eagerly meanwhile",
        )
    return cubin


_known_to_be_older: list[bool] = []


def _quick() -> tuple[str, ...]:
    return () if _known_to_be_older else QUICK


def _error(code: int) -> str:
    describe = library().calls.nvrtcGetErrorString
    describe.restype = ctypes.c_char_p
    return str(describe(code).decode())


def _compiled(text: str, architecture: str, flags: tuple[str, ...]) -> tuple[int, str, bytes]:
    """NVRTC's answer: an error's number or 0, what it says, the machine code."""
    calls, program = library().calls, ctypes.c_void_p()
    given = [f.encode() for f in (f"--gpu-architecture={architecture}", *flags)]
    code = calls.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
    if code:
        return code, "", b""
    try:
        code = calls.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        log = _read(calls.nvrtcGetProgramLogSize, calls.nvrtcGetProgramLog, program)
        cubin = b"" if code else _read(calls.nvrtcGetCUBINSize, calls.nvrtcGetCUBIN, program)
    finally:
        calls.nvrtcDestroyProgram(ctypes.byref(program))
    return code, log.rstrip(b"\0").decode(errors="replace"), cubin


def _read(size_of: Any, get: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    if size_of(program, ctypes.byref(size)) or not size.value:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    return buffer.raw if get(program, buffer) == 0 else b""
