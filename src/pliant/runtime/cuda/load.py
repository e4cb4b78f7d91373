"""Bring a program's kernels into the process and make its native entries Python functions.

In:     `DeviceCode`, and a launcher: the GPU's, or one that runs kernels elsewhere; or a `DeviceLibrary`, what of such code
        the store keeps.
Out:    builtin functions (METH_FASTCALL), one a run, in the order of the entries.
Holds:  the native function is built once for all graphs, beside the first kernels; what it reads belongs to the builtin
        function, so nothing has to be kept for it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pliant import background, config
from pliant.cpython import LIST_ITEMS, METH_FASTCALL, WORD, MethodDef, address_of, builtin, method
from pliant.records import dataclass
from pliant.runtime.build import build, quick
from pliant.runtime.cuda import driver, nvrtc
from pliant.runtime.cuda.kernels import build_kernels, key_of, stored
from pliant.runtime.load import NativeEntry, prepare
from pliant.targets.registry import target_of
from pliant.targets.target import Target
from pliant.wrappers.launches import Addresses, Launches, launcher_text, packed_addresses

if TYPE_CHECKING:
    from pliant.codegen.cuda.entry import DeviceCode


@dataclass(frozen=True, slots=True)
class Launcher:
    """How kernels are started.

    functions: code to the addresses of its functions, in order, which are built now.
    build: builds the code for `functions` to find, in any thread; None: that does it alone.
    places: code to the places of its functions in the store, in order; None: it does not have them.
    launch: address of `int (void* function, blocks in x, y, z, threads, shared bytes: uint32_t each, void* stream,
        void** arguments)`, which returns 0 or the number of an error. context: made current meanwhile; 0: none.
    """

    functions: Callable[[DeviceCode], list[int]]
    launch: int
    context: int = 0
    build: Callable[[DeviceCode], object] | None = None
    places: Callable[[DeviceCode], list[str]] | None = None


def load(code: DeviceCode, launcher: Launcher) -> list[NativeEntry]:
    """The entries of the code as Python functions, in order."""
    if not code.entries:
        return []
    background.start(_native_function, "pliant-launcher")  # beside the kernels
    return _bound(code.tables, launcher.launch, launcher.context, _addresses(code, launcher))


def _addresses(code: DeviceCode, launcher: Launcher) -> Addresses:
    """Of the functions that the sizes at hand launch. The others, for rows of other lengths, are most of the texts and
    may never be needed: they are built when one of them is."""
    now, later = expected(code), _those(code, False)
    found = iter(launcher.functions(now) if now.functions else ())
    known = [next(found) if one.expected else 0 for one in code.functions]
    return Addresses(known, (lambda: launcher.functions(later)) if later.functions else None)


def expected(code: DeviceCode) -> DeviceCode:
    """The part of the code that the sizes at hand launch."""
    return _those(code, True)


def _those(code: DeviceCode, when: bool) -> DeviceCode:
    return replace(code, functions=tuple(one for one in code.functions if one.expected is when))


def _bound(tables: Sequence[Launches], launch: int, context: int, addresses: Addresses) -> list[NativeEntry]:
    definition = _native_function()
    return [builtin(definition, owner=table.packed(launch, context, addresses)) for table in tables]


@dataclass(frozen=True, slots=True)
class DeviceLibrary:
    """Built code of one GPU. kernels: of each its place in the store, its name, bytes of dynamic shared memory at most,
    and its text where it is built when it is launched first, else ""; entries: names of the runs, in the order of their
    tables."""

    device: torch.device
    kernels: list[tuple[str, str, int, str]]
    entries: list[str]
    tables: list[Launches]

    def functions(self) -> dict[str, NativeEntry]:
        """Its entries, loaded. NoKernels if the store has its kernels no more."""
        context = _context_of(self.device)
        known = [0 if text else context.function(stored(place), name, shared) for place, name, shared, text in self.kernels]
        addresses = Addresses(known, self._build_later if 0 in known else None)
        found = _bound(self.tables, _driver_launch(), context.handle, addresses)
        return dict(zip(self.entries, found, strict=True))

    def _build_later(self) -> list[int]:
        from pliant.codegen.cuda.prelude import text_for  # most processes never need it

        later = [(name, shared, text) for _, name, shared, text in self.kernels if text]
        architecture = nvrtc.architecture(_capability(target_of(self.device)))
        cubins = build_kernels([text for _, _, text in later], text_for, architecture)
        context = _context_of(self.device)
        return [context.function(cubin, name, shared) for cubin, (name, shared, _) in zip(cubins, later)]


def gpu_launcher(device: torch.device, target: Target) -> Launcher:
    """Of a GPU for which `available.target_of` gave the target."""
    context = _context_of(device)
    architecture = nvrtc.architecture(_capability(target))

    def build(code: DeviceCode) -> list[bytes]:
        return build_kernels([one.text for one in code.functions], code.prelude, architecture)

    def functions(code: DeviceCode) -> list[int]:
        cubins = build(code)
        return [context.function(cubin, one.name, one.shared) for cubin, one in zip(cubins, code.functions)]

    def places(code: DeviceCode) -> list[str]:
        return [key_of(text, architecture).digest for text in code.texts]

    return Launcher(functions, _driver_launch(), context.handle, build, places)


def _capability(target: Target) -> int:
    return int(target.architecture.removeprefix("sm_"))


def _context_of(device: torch.device) -> driver.Context:
    return driver.context(device.index if device.index is not None else torch.cuda.current_device())


def addresses_check(places: Sequence[int], addresses: Sequence[int]) -> Callable[[list[Any]], bool]:
    """A function of a list: whether its tensors at these places have their memory at these addresses. Those that have
    none (address 0) are not looked at. Only where `reads_lists()`."""
    found = {place: address for place, address in zip(places, addresses) if address}
    with _lock:
        definition = _stay_definition()
    check: Callable[[list[Any]], bool] = builtin(definition, owner=packed_addresses(list(found), list(found.values())))
    return check


_lock = background.lock()


@functools.cache
def _stay_definition() -> MethodDef:
    return method("stay", _library().pliant_stay, METH_FASTCALL)


def _native_function() -> MethodDef:
    """The native function that all entries are."""
    with _lock:
        return _definition()


@functools.cache
def _definition() -> MethodDef:
    return method("launch", _library().pliant_launch, METH_FASTCALL)


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(str(build([launcher_text()], quick(config.get().build))))
    library.pliant_bind((ctypes.c_void_p * 2)(address_of(prepare().p_addresses), LIST_ITEMS // WORD))
    return library


def _driver_launch() -> int:
    """Address of the launch through the driver."""
    with _lock:
        return _bound_to_driver()


@functools.cache
def _bound_to_driver() -> int:
    calls = driver.entry_points()
    _library().pliant_driver((ctypes.c_void_p * len(calls))(*calls))
    return address_of(_library().p_cuda)
