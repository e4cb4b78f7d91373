"""Bring a shared object of kernels into the process and make its entries Python functions.

In:     the path that `build` returned and the names of its entries.
Out:    builtin functions (METH_FASTCALL) that take tensors and integers; called without argument conversion.
        `prepare()`: builds what the libraries of all graphs share, and tells it where torch's functions are.
Holds:  an entry reads a tensor's address in memory (`tensor_address`) or through torch's DLPack exchange table, or,
        where torch has none, gets `data_ptr()` integers from the wrapper (`takes_tensors` says which);
        libraries stay loaded as long as the process, so a function never outlives its code: another thread, or a
        backward that is still to come, may be inside of it, graphs share libraries of one text, and a thread of
        OpenMP may not have left it. A kernel is some 14 KiB, mapped from a file.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from pliant import background, config
from pliant.cpython import LIST_ITEMS, METH_FASTCALL, WORD, address_of, builtin, method
from pliant.runtime import openmp, tensor_address
from pliant.runtime.build import build, quick
from pliant.torch_adapter import dlpack_exchange_capsule
from pliant.wrappers.shared_text import runtime_text

NativeEntry = Callable[..., None]


class _ExchangeTable(ctypes.Structure):
    """DLPack's DLPackExchangeAPI, version 1."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


_lock = background.lock()
_libraries: dict[Path, ctypes.CDLL] = {}


@functools.cache
def tensor_reader() -> int:
    """Address of the function that describes a tensor object in place, or 0."""
    capsule = dlpack_exchange_capsule()
    if capsule is None:
        return 0
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = _ExchangeTable.from_address(get(capsule, b"dlpack_exchange_api"))
    return int(table.tensor_from_object or 0) if table.major == 1 else 0


def takes_tensors() -> bool:
    """Whether entries take tensors; if not the wrapper passes their addresses."""
    return tensor_reader() != 0


def reads_lists() -> bool:
    """Whether entries can read tensors from the list of the graph's inputs."""
    return takes_tensors() and tensor_address.lists_work()


def _open(path: Path, threaded: bool) -> ctypes.CDLL:
    """The loaded library, told where the shared functions are. Loads each path once."""
    with _lock:
        library = _libraries.get(path)
        if library is None:
            library = ctypes.CDLL(str(path))
            shared = prepare()
            run = address_of(shared.p_run if threaded else shared.p_run_alone)
            library.pliant_bind((ctypes.c_void_p * 3)(run, address_of(shared.p_addresses), LIST_ITEMS // WORD))
            _libraries[path] = library
        return library


_prepared = background.lock()


def prepare() -> ctypes.CDLL:
    """The library of what all graphs share, bound to torch's functions. CompileError without a C compiler."""
    with _prepared:
        return _shared()


@functools.cache
def _shared() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build([runtime_text()], quick(config.get().build))))
    found = openmp.runtime()
    omp = (found.parallel, found.thread, found.threads, found.maximum) if found else (0, 0, 0, 0)
    reader = tensor_reader()
    layout = tensor_address.layout() if reader else None
    table = (ctypes.c_void_p * 6)(reader, *omp, ctypes.addressof(layout) if layout is not None else 0)
    library.pliant_runtime(table)
    return library


@functools.cache
def fingerprint() -> Callable[[torch.Tensor, int], int]:
    """A function of a tensor and how many bytes it has, which lie without gaps: see `wrappers.fingerprint`."""
    native: Callable[[object, int], int] = builtin(method("fingerprint", prepare().pliant_fingerprint, METH_FASTCALL))
    return native if takes_tensors() else lambda tensor, size: native(tensor.data_ptr(), size)


def load(path: Path, entries: Sequence[str], *, threaded: bool = True) -> list[NativeEntry]:
    """The entries of the shared object at `path` as Python functions, in order."""
    library = _open(path, threaded)
    return [builtin(method(name, getattr(library, name), METH_FASTCALL)) for name in entries]
