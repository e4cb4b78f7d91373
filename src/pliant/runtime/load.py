"""Bring a shared object of kernels into the process and make its entries Python functions.

In:     the path that `build` returned and the names of its entries.
Out:    builtin functions (METH_FASTCALL) that take tensors and integers; called without argument conversion.
        `prepare()`: builds what the libraries of all graphs share, and tells it where torch's functions are.
Holds:  an entry reads a tensor's address in memory (`tensor_address`) or through torch's DLPack exchange table, or,
        where torch has none, gets `data_ptr()` integers from the wrapper (`takes_tensors` says which);
        a library is unmapped when the last function made of it is gone, which it is nowhere called then: who calls a
        function holds it, threads of OpenMP are inside only while somebody calls (all meet again before `p_run`
        returns), and what graphs share keeps no address in it. Graphs of one text share a library. At the process'
        end it stays: another thread may still be inside.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pliant import background, config
from pliant.cpython import LIST_ITEMS, METH_FASTCALL, WORD, MethodDef, address_of, builtin, definition_of
from pliant.dispatch import second_calls
from pliant.guards.watch_in_c import C_TEXT
from pliant.runtime import openmp, tensor_address
from pliant.runtime.build import build, quick
from pliant.torch_adapter import dlpack_exchange_capsule, profiler
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


class _Library:
    """A loaded library; each function made of it has it as its `self`."""

    __slots__ = ("__weakref__", "_code", "_definitions")

    def __init__(self, path: Path) -> None:
        self._code = ctypes.CDLL(str(path))
        self._definitions: list[MethodDef] = []
        # Not `__del__`: it would run while `_libraries` still finds the object.
        weakref.finalize(self, _close, self._code._handle).atexit = False

    def bind(self, table: ctypes.Array[ctypes.c_void_p]) -> None:
        self._code["pliant_bind"](table)  # by key: as attributes, functions and the library would hold each other

    def function(self, name: str) -> NativeEntry:
        definition = definition_of(name, self._code[name], METH_FASTCALL)
        self._definitions.append(definition)
        return builtin(definition, self)  # type: ignore[no-any-return]


def _close(handle: int) -> None:
    close = ctypes.CDLL(None).dlclose
    close.argtypes = [ctypes.c_void_p]
    close(handle)


_lock = background.lock()
_libraries: weakref.WeakValueDictionary[Path, _Library] = weakref.WeakValueDictionary()


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


def _open(path: Path, threaded: bool) -> _Library:
    """The loaded library, told where the shared functions are. One object a path."""
    with _lock:
        library = _libraries.get(path)
        if library is None:
            library = _Library(path)
            shared = prepare()
            run = address_of(shared.p_run if threaded else shared.p_run_alone)
            addresses, enter = address_of(shared.p_addresses), address_of(shared.p_enter)
            library.bind((ctypes.c_void_p * 4)(run, addresses, LIST_ITEMS // WORD, enter))
            _libraries[path] = library
        return library


def process_text() -> str:
    """What graphs share, and the native part of guards. A first call waits for both, and one unit takes a sixth less to compile than
    two, and is on its way sooner than a second one would be."""
    return runtime_text() + C_TEXT


_prepared = background.lock()


def prepare() -> ctypes.CDLL:
    """The library of what all graphs share, bound to torch's functions. CompileError without a C compiler."""
    with _prepared:
        return _shared()


@functools.cache
def _shared() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build([process_text()], quick(config.get().build))))
    if _here.defers:
        second_calls.use(_read_memory)
        _tell(library, None)
    else:
        _tell(library, tensor_address.layout())
    return library


def _tell(library: ctypes.CDLL, layout: tensor_address.Layout | None) -> None:
    """Of torch's functions and runtime, and where tensors have their addresses."""
    found, reader = openmp.runtime(), tensor_reader()
    omp = (found.parallel, found.thread, found.threads, found.maximum) if found else (0, 0, 0, 0)
    where = ctypes.addressof(layout) if layout is not None and reader else 0
    table = (ctypes.c_void_p * 7)(reader, *omp, where, LIST_ITEMS // WORD)
    # Under the interpreter's lock, as what reads it.
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(address_of(library.pliant_runtime))(ctypes.addressof(table))


class _Here(threading.local):
    defers = False


_here = _Here()


@contextlib.contextmanager
def reads_memory_later() -> Iterator[None]:
    """A block that loads code for one call, which may be the only one: finding out where tensors have their addresses takes as long
    as torch does to tell ten thousand, and waits for a second call."""
    before, _here.defers = _here.defers, True
    try:
        yield
    finally:
        _here.defers = before


def _read_memory() -> bool:
    """Not while a profiler records, which is to see the program's operators alone."""
    if profiler._is_profiler_enabled:
        return False
    _tell(prepare(), tensor_address.layout())
    return True


def load(path: Path, entries: Sequence[str], *, threaded: bool = True) -> list[NativeEntry]:
    """The entries of the shared object at `path` as Python functions, in order."""
    library = _open(path, threaded)
    return [library.function(name) for name in entries]
