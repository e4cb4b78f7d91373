"""The OpenMP runtime that torch already runs on, as addresses that kernels call.

In:     the shared objects in this process.
Out:    `Runtime(parallel, thread, threads, maximum)`: addresses of GOMP_parallel and the thread queries, or None.
Holds:  never loads a second runtime: kernels share torch's thread pool and its `torch.set_num_threads`.
        Without a runtime that has these entry points kernels run on one thread.
"""

from __future__ import annotations

import ctypes
import functools
import os

from pliant.interruptions import pass_on, suppressed
from pliant.records import dataclass
from pliant.torch_adapter import torch_library_folders


@dataclass(frozen=True, slots=True)
class Runtime:
    """Addresses of C functions; GNU's names, which LLVM's and Intel's runtimes have too."""

    parallel: int  # void GOMP_parallel(void (*fn)(void*), void* data, unsigned threads, unsigned flags)
    thread: int  # int omp_get_thread_num(void)
    threads: int  # int omp_get_num_threads(void)
    maximum: int  # int omp_get_max_threads(void)
    path: str


_NAMES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads")


_FILES = ("libgomp", "libomp", "libiomp")


def _of_torch() -> list[Runtime]:
    """Those of the files that torch's wheel brings which are loaded: a list of all that is mapped takes far longer."""
    found: list[Runtime] = []
    for folder in torch_library_folders():
        with suppressed(OSError), os.scandir(folder) as files:
            paths = [file.path for file in files if file.name.startswith(_FILES)]
            found += [one for path in paths if (one := _addresses(path)) is not None]
    return found


def _candidates() -> list[str]:
    """OpenMP runtimes mapped into this process, torch's own first."""
    found: list[str] = []
    try:
        with open("/proc/self/maps", encoding="utf-8") as lines:
            for line in lines:
                if "omp" not in line:
                    continue
                path = line.rstrip("\n").partition("/")[2]
                name = os.path.basename(path)
                if name.startswith(_FILES) and f"/{path}" not in found:
                    found.append(f"/{path}")
    except OSError as error:
        pass_on(error)
        return []
    folders = torch_library_folders()
    return sorted(found, key=lambda path: not path.startswith(folders))


def _addresses(path: str) -> Runtime | None:
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        addresses = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _NAMES]
    except (OSError, AttributeError) as error:
        pass_on(error)
        return None
    parallel, thread, threads, maximum = (address or 0 for address in addresses)
    return Runtime(parallel, thread, threads, maximum, path)


@functools.cache
def runtime() -> Runtime | None:
    """torch's OpenMP runtime, or None where it has none that we can call."""
    if len(own := _of_torch()) == 1:
        return own[0]
    for path in _candidates():
        found = _addresses(path)
        if found is not None:
            return found
    return None
