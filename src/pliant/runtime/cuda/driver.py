"""The driver: kernels into a GPU's context, and what launches them.

In:     cubins, and a device that PyTorch uses already.
Out:    `Context`: addresses of functions; `entry_points`: addresses of the driver's calls.
Holds:  nothing is called before the program has initialised CUDA, nor in a forked child, where CUDA does not work;
        a kernel is loaded once a context, and stays, so a function never outlives its code.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pliant import background
from pliant.cpython import address_of
from pliant.errors import CompileError, NoKernels

DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
DEFAULT_SHARED = 48 << 10  # bytes of a block's memory that need no attribute
_NOT_FOR_THIS_DRIVER = {209: "no code for this GPU", 222: "code of a newer CUDA", 218: "not understood", 34: "a stub library"}


@functools.cache
def _calls() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoKernels(
            f"the driver's library cannot be loaded: {error}",
            kind="old-driver",
            why="kernels are loaded through libcuda.so.1",
            do="install NVIDIA's driver",
        ) from error


def check(code: int, what: str) -> None:
    """CompileError, or NoKernels where the driver is too old, if a call of the driver failed."""
    if not code:
        return
    if code in _NOT_FOR_THIS_DRIVER:
        raise NoKernels(
            f"{what}: {error_text(code)}",
            kind="old-driver",
            why=f"the driver supports CUDA {version()[0]}.{version()[1]} ({_NOT_FOR_THIS_DRIVER[code]})",
            do="install a newer driver, or a build of PyTorch for an older CUDA",
        )
    raise CompileError(f"{what}: {error_text(code)}", kind="cuda-driver", why=f"error {code} of the driver")


def error_text(code: int) -> str:
    text = ctypes.c_char_p()
    _calls().cuGetErrorString(code, ctypes.byref(text))
    return (text.value or b"unknown error").decode()


def version() -> tuple[int, int]:
    """The newest CUDA that the driver supports."""
    found = ctypes.c_int()
    _calls().cuDriverGetVersion(ctypes.byref(found))
    return found.value // 1000, found.value % 1000 // 10


def entry_points() -> tuple[int, ...]:
    """Addresses of what native code calls, in the order of `pliant_driver`'s table."""
    calls = _calls()
    names = ("cuLaunchKernel", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuGetErrorString")
    return tuple(address_of(getattr(calls, name)) for name in names)


class Context:
    """The primary context of a device, which PyTorch made and uses. `handle`: its address."""

    __slots__ = ("_functions", "_lock", "_modules", "handle", "index")

    def __init__(self, index: int) -> None:
        device, handle, calls = ctypes.c_int(), ctypes.c_void_p(), _calls()
        check(calls.cuDeviceGet(ctypes.byref(device), index), f"no CUDA device {index}")
        check(calls.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device), f"the context of device {index}")
        self.index, self.handle = index, handle.value or 0
        self._lock = background.lock()
        self._modules: dict[bytes, ctypes.c_void_p] = {}
        self._functions: dict[tuple[bytes, str], tuple[int, int]] = {}  # address, dynamic shared memory

    def function(self, cubin: bytes, name: str, shared: int) -> int:
        """The address of a kernel, loaded now if need be. `shared`: bytes of dynamic shared memory that it may be given."""
        with self._lock, self.current():
            known, allowed = self._functions.get((cubin, name), (0, DEFAULT_SHARED))
            known = known or self._found(cubin, name)
            if shared > allowed:
                code = _calls().cuFuncSetAttribute(ctypes.c_void_p(known), DYNAMIC_SHARED, shared)
                check(code, f"kernel {name} cannot have {shared} bytes of shared memory")
            self._functions[cubin, name] = known, max(shared, allowed)
            return known

    def _found(self, cubin: bytes, name: str) -> int:
        calls, function = _calls(), ctypes.c_void_p()
        module = self._modules.get(cubin)
        if module is None:
            module = ctypes.c_void_p()
            with _beside_captures():
                check(calls.cuModuleLoadData(ctypes.byref(module), cubin), f"kernel {name} cannot be loaded")
            self._modules[cubin] = module
        check(calls.cuModuleGetFunction(ctypes.byref(function), module, name.encode()), f"kernel {name} was not found")
        return function.value or 0

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it this thread's context."""
        before = ctypes.c_void_p()
        check(_calls().cuCtxPushCurrent_v2(ctypes.c_void_p(self.handle)), "the context cannot be made current")
        try:
            yield
        finally:
            _calls().cuCtxPopCurrent_v2(ctypes.byref(before))


def is_initialized() -> bool:
    """Whether the program uses CUDA; never in a child that was forked after it began to."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


@contextmanager
def _beside_captures() -> Iterator[None]:
    """What this thread does is no part of a CUDA graph that somebody captures, and does not end its capture."""
    mode, calls = ctypes.c_int(RELAXED), _calls()
    calls.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        calls.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


_lock = background.lock()
_contexts: dict[int, Context] = {}


def context(index: int) -> Context:
    """The context of a device. The program has initialised CUDA: `available.py` looked."""
    assert is_initialized()
    with _lock:
        if index not in _contexts:
            _contexts[index] = Context(index)
        return _contexts[index]
