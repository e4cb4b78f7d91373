"""Build CUDA C with NVRTC, without a GPU."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from pathlib import Path

from pliant.codegen.cuda import prelude


@functools.cache
def nvrtc() -> ctypes.CDLL | None:
    """The library, or None where it is not installed."""
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or [] if spec else []:
        for path in Path(root).glob("**/libnvrtc.so.1*"):
            for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(path))
    return None


def compile_text(text: str, architecture: str) -> tuple[bytes, str]:
    """The cubin of a kernel's text and what the assembler says of it; raises AssertionError with the log."""
    library = nvrtc()
    assert library is not None
    source = prelude.text_for(text) + text.replace("@", "k")
    program = ctypes.c_void_p()
    options = [f"--gpu-architecture={architecture}", *prelude.OPTIONS, "--ptxas-options=-v", "--no-cache"]
    given = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None) == 0
    failed = library.nvrtcCompileProgram(program, len(options), given)
    log = _bytes(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode(errors="replace")
    if failed:
        raise AssertionError(f"{log}\n{source}")
    cubin = _bytes(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin, log


def _bytes(size: object, get: object, program: ctypes.c_void_p) -> bytes:
    count = ctypes.c_size_t()
    assert size(program, ctypes.byref(count)) == 0  # type: ignore[operator]
    found = ctypes.create_string_buffer(count.value)
    assert get(program, found) == 0  # type: ignore[operator]
    return found.raw


def registers(log: str) -> tuple[int, int]:
    """Registers of a thread, and bytes that it keeps in memory for want of them."""
    used = re.search(r"Used (\d+) registers", log)
    spilled = re.search(r"(\d+) bytes spill stores", log)
    return int(used[1]) if used else -1, int(spilled[1]) if spilled else -1
