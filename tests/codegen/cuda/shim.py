"""Run kernels written as CUDA C on CPU memory: g++ and `shim.h` take the place of a GPU."""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import struct
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pliant.codegen.cuda import prelude
from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.codegen.prelude import SNIPPETS as C_SNIPPETS
from pliant.ir.loops import Buffer
from pliant.symbolic.traverse import evaluate

HEADER = Path(__file__).with_name("shim.h")
FLAGS = ("-w", "-std=c++14", "-O0", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing")
_REPLACED = {
    **{
        f"p_nan_{op}": f"template <class T> P_INLINE T p_nan_{op}(T a, T b) {{ return a != a || a {sign} b ? a : b; }}\n"
        for op, sign in (("max", ">"), ("min", "<"))
    },
    **{
        f"p_pair_{kind}": f"P_INLINE uint32_t p_pair_{kind}(float low, float high) "
        f"{{ return p_to_{kind}(low) | (uint32_t)p_to_{kind}(high) << 16; }}\n"
        for kind in ("bf16", "f16")
    },
    "p_load_if": "template <int N, class T> P_INLINE void p_load_if(T* to, const T* from, bool there) "
    "{ if (there) p_copy_whole<N>(to, from); }\n",
    "p_add_shared": "template <class T> P_INLINE void p_add_shared(T* at, T x) { p_add(at, x); }\n",
    "p_cluster_sync": "P_INLINE void p_cluster_sync() { __syncthreads(); }\n",
    "p_peer": "template <class T> P_INLINE T p_peer(const T* at, int rank) { return *at; }\n",
    "p_f16": C_SNIPPETS["p_f16"].replace("p_bits(", "__float_as_int(").replace("p_float(", "__int_as_float("),
    "p_bf16": """\
P_INLINE float p_from_bf16(uint16_t x) { return __uint_as_float((uint32_t)x << 16); }
P_INLINE uint16_t p_to_bf16(float x) {
  const uint32_t b = (uint32_t)__float_as_int(x);
  return (uint16_t)(x != x ? 0x7fffu : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
""",
}


class ShimError(AssertionError):
    """Threads that wait for each other, or a shuffle with lanes that are not there."""


@dataclass(frozen=True)
class Call:
    """One launch: its kernel, memory of its buffers before it, numbers, grid."""

    kernel: DeviceKernel
    memory: tuple[bytes, ...]
    numbers: tuple[int, ...]
    grid: tuple[int, ...]
    threads: int


_functions: dict[str, Any] = {}
calls: list[Call] | None = None  # where launches are written down, if they are


def prepare(kernels: Sequence[DeviceKernel]) -> None:
    """Build what is not built yet, all in one call of the compiler."""
    wanted = [k for k in {kernel.text: kernel for kernel in kernels}.values() if k.text not in _functions]
    if not wanted:
        return
    path = compiled(source_of(wanted), ("-shared", "-fPIC"))
    library = ctypes.CDLL(str(path))
    for n, k in enumerate(wanted):
        _functions[k.text] = library[f"run_k{n}"]


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pliant-shim-")


def source_of(kernels: Sequence[DeviceKernel]) -> str:
    """C++ of kernels `k0`, `k1`... with functions `run_k0`... that run their grids."""
    bodies = [k.text.replace("@", f"k{n}") for n, k in enumerate(kernels)]
    drivers = [_driver(f"k{n}", k) for n, k in enumerate(kernels)]
    text = prelude.text_for("\n".join(bodies), _REPLACED)
    return "\n".join([HEADER.read_text(), text, *bodies, *drivers])


_lock = threading.Lock()
_numbers = itertools.count()


@functools.cache
def compiled(source: str, flags: tuple[str, ...]) -> Path:
    """The library or program made of C++ text. Threads build side by side."""
    with _lock:
        path = Path(_folder().name) / f"s{next(_numbers)}.cpp"
    path.write_text(source)
    made = subprocess.run(["g++", *FLAGS, *flags, "-o", f"{path}.out", path], capture_output=True, text=True)
    if made.returncode:
        raise AssertionError(f"{path}:\n{made.stderr[:3000]}")
    return Path(f"{path}.out")


def _driver(name: str, kernel: DeviceKernel) -> str:
    """C++ that calls the kernel for every thread of a grid."""
    arguments = re.search(r"\((const .*|\w.*)?\) \{", kernel.text.split("\n")[0].split("@")[1])
    types = [a.rpartition(" ")[0] for a in (arguments[1] or "").split(", ")] if arguments and arguments[1] else []
    given = [f"({t})shim_p[{i}]" for i, t in enumerate(types[: len(kernel.buffers)])]
    for i, t in enumerate(types[len(kernel.buffers) :]):
        given.append(f"shim_n[{i}]" if t == "int64_t" else f"shim_bits<double>(shim_n[{i}])")
    return (
        f"static void** {name}_p; static const int64_t* {name}_n;\n"
        f"static void {name}_body() {{ void** const shim_p = {name}_p; const int64_t* const shim_n = {name}_n;"
        f" {name}({', '.join(given)}); }}\n"
        f'extern "C" int run_{name}(void** p, const int64_t* n, const unsigned* grid, unsigned threads) {{\n'
        f"  {name}_p = p, {name}_n = n; return shim_run({name}_body, grid, threads, {sharing(kernel.text)}); }}\n"
    )


def sharing(text: str) -> str:
    """Whether threads of a kernel wait for each other, and how many blocks a cluster has."""
    cluster = re.search(r"__cluster_dims__\((\d+)", text)
    fibers = "true" if re.search(r"__sync|p_shuffle", text) else "false"
    return f"{fibers}, {cluster[1] if cluster else 1}"


def _as_bytes(tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.itemsize) if tensor.numel() else b""


def run_on_shim(kernel: DeviceKernel, tensors: Mapping[Buffer, torch.Tensor], sizes: Mapping[Any, Any]) -> None:
    """Run a kernel on the tensors' memory; `sizes` are the values of the program's symbols."""
    prepare([kernel])
    pointers = (ctypes.c_void_p * max(1, len(kernel.buffers)))(*[tensors[b].data_ptr() for b in kernel.buffers])
    numbers = [evaluate(e, sizes) for e in kernel.sizes]
    words = [struct.unpack("q", struct.pack("d", n))[0] if isinstance(n, float) else int(n) for n in numbers]
    grid = [int(evaluate(e, sizes)) for e in kernel.blocks]
    if 0 in grid:
        return
    threads = int(evaluate(kernel.threads, sizes))
    if calls is not None:
        memory = tuple(_as_bytes(tensors[b]) for b in kernel.buffers)
        calls.append(Call(kernel, memory, tuple(words), tuple(grid), threads))
    error = _functions[kernel.text](
        pointers,
        (ctypes.c_int64 * max(1, len(words)))(*words),
        (ctypes.c_uint * 3)(*grid),
        ctypes.c_uint(threads),
    )
    if error == 1:
        raise IndexError("index out of range in self")
    if error:
        raise ShimError(f"error {error} in\n{kernel.text}")
