"""A library as a module of WebAssembly, called through the package `wasmtime`.

It is built by Debian's clang, lld, wasi-libc and libclang-rt-dev-wasm32.
"""

import ctypes
import importlib.util
import shutil
import struct
import subprocess

import torch

from pliant.exporting.standalone.writer import DTYPES

OPTIONS = {"compiler": "clang --target=wasm32-wasi --sysroot=/usr", "opt_flags": ("-O2",)}
_TENSOR = struct.Struct("<IiiiBBHIIxxxxQ")  # pliant_tensor, of pointers of 32 bits
_BY_CODE = {row: dtype for dtype, row in DTYPES.items()}


def missing():
    """What is not installed here."""
    found = [one for one in ("clang", "wasm-ld") if not shutil.which(one)]
    if not found:
        command = [*OPTIONS["compiler"].split(), "-print-file-name=libc.a"]  # the name alone where there is none
        found = [] if "/" in subprocess.run(command, capture_output=True, text=True, check=True).stdout else ["wasi-libc"]
    return found + [one for one in ("wasmtime",) if importlib.util.find_spec(one) is None]


class Module:
    """A folder's module. What is put into its memory for a call stays there until it ends."""

    def __init__(self, folder):
        import wasmtime

        engine = wasmtime.Engine()
        self.store, wasi, linker = wasmtime.Store(engine), wasmtime.WasiConfig(), wasmtime.Linker(engine)
        wasi.preopen_dir(str(folder), "/folder")
        self.store.set_wasi(wasi)
        linker.define_wasi()
        made = linker.instantiate(self.store, wasmtime.Module.from_file(engine, str(folder / "libprogram.wasm")))
        self.exports = made.exports(self.store)
        self.c("_initialize")
        place = self.put(bytes(4))
        self.checked(self.c("pliant_create", self.put(b"/folder/weights\0"), 0, place))
        (self.handle,) = struct.unpack("<I", self.read(place, 4))

    def c(self, name, *args):
        return self.exports[name](self.store, *args)

    def put(self, content):
        place = self.c("malloc", max(len(content), 1))
        self.exports["memory"].write(self.store, content, place)
        return place

    def read(self, place, count):
        return bytes(self.exports["memory"].read(self.store, place, place + count))

    def checked(self, code):
        if code:
            raise RuntimeError(code, self.read(self.c("pliant_error"), 512).partition(b"\0")[0].decode())

    def __call__(self, *args):
        count = self.c("pliant_result_count")
        given, results = self.put(b"".join(map(self._given, args))), self.put(bytes(_TENSOR.size * count))
        self.checked(self.c("pliant_run", self.handle, given, len(args), results))
        found = [self._found(_TENSOR.unpack(self.read(results + k * _TENSOR.size, _TENSOR.size))) for k in range(count)]
        self.c("pliant_release", self.handle, results, count)
        return found

    def _given(self, x):
        x = x.contiguous()
        sizes = self.put(struct.pack(f"<{x.dim()}q", *x.shape))
        return _TENSOR.pack(self.put(x.numpy().tobytes()), 1, 0, x.dim(), *DTYPES[x.dtype], sizes, 0, 0)

    def _found(self, fields):
        data, _, _, rank, code, bits, _, shape, strides, _ = fields
        size, stride = (struct.unpack(f"<{rank}q", self.read(place, 8 * rank)) for place in (shape, strides))
        made = torch.empty_strided(size, stride, dtype=_BY_CODE[code, bits, 1])
        if made.numel():
            ctypes.memmove(made.data_ptr(), self.read(data, count := made.untyped_storage().nbytes()), count)
        return made
