"""A launcher that runs kernels on the CPU: what entries do is tested without a GPU.

Each kernel is a C function `int NAME_run(blocks in x, y, z, threads, shared, arguments)` of a library that `built` makes of
the kernels' texts; a launch calls it, and a stream of FAILING is refused as the driver would.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from pliant import config
from pliant.codegen.cuda.entry import DeviceCode, Function
from pliant.cpython import address_of
from pliant.runtime.build import build
from pliant.runtime.cuda.load import Launcher

FAILING = 77

LAUNCH = """\
typedef int (*p_kernel)(unsigned, unsigned, unsigned, unsigned, unsigned, void**);
static unsigned long long streams[64];
static int launched;
int test_launched(void) { return launched; }
unsigned long long test_stream(int k) { return streams[k % 64]; }
int test_launch(void* f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared, void* stream, void** args) {
  if (stream == (void*)77) return 719;
  streams[launched++ % 64] = (unsigned long long)stream;
  return ((p_kernel)f)(x, y, z, threads, shared, args);
}
"""


@functools.cache
def calls() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build([LAUNCH], config.get().build)))
    library.test_stream.restype = ctypes.c_ulonglong
    return library


def as_c(functions: Sequence[Function]) -> Path:
    """The library of kernels whose texts are C already."""
    return build(["\n".join(function.text for function in functions)], config.get().build)


def launcher(built: Callable[[Sequence[Function]], Path] = as_c) -> Launcher:
    def functions(code: DeviceCode) -> list[int]:
        library = ctypes.CDLL(str(built(code.functions)))
        return [address_of(getattr(library, f"{one.name}_run")) for one in code.functions]

    return Launcher(functions, address_of(calls().test_launch), build=lambda code: built(code.functions))
