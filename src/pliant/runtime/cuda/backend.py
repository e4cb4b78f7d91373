"""Kernels of GPUs: CUDA C built by NVRTC, launched through the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from pliant import config
from pliant.codegen.cuda.entry import DeviceCode, write_native
from pliant.codegen.cuda.parameters import with_parameters
from pliant.codegen.cuda.prelude import text_for
from pliant.codegen.cuda.rows import in_rows
from pliant.codegen.cuda.writer import write_kernel
from pliant.codegen.forms import WrittenOnce
from pliant.ir.loops import Buffer
from pliant.runtime.backend import WrittenCode
from pliant.runtime.cuda import nvrtc
from pliant.runtime.cuda.kernels import build_kernels, key_of
from pliant.runtime.cuda.load import DeviceLibrary, Launcher, expected, gpu_launcher, load
from pliant.runtime.load import NativeEntry
from pliant.schedule.kernel import Kernel
from pliant.symbolic.expr import Number, Symbol
from pliant.targets.registry import target_of


class CudaC:
    """`launcher_of`: how kernels of a device are started."""

    writes_rows = False

    def __init__(self, launcher_of: Callable[[torch.device], Launcher]) -> None:
        self.launcher_of = launcher_of

    def write(
        self,
        runs: Sequence[Sequence[Kernel]],
        listed: Mapping[Buffer, int],
        scratch: Mapping[Buffer, int],
        in_place: Mapping[Buffer, Buffer],
        hints: Mapping[Symbol, Number],
    ) -> DeviceCode:
        once = WrittenOnce(lambda kernel: write_kernel(kernel, kernel.target))
        written = [[text for kernel in run for text in once(kernel)] for run in runs]
        launched = [in_rows(run, in_place) for run in with_parameters(written)]
        return write_native(launched, listed, text_for, hints)

    def builder(self, code: DeviceCode, options: config.Build) -> Callable[[], object] | None:
        devices = dict.fromkeys(entry.device for entry in code.entries if entry.device is not None)
        found = [(_of(code, device), self.launcher_of(device).build) for device in devices]
        ready = [(each, build) for each, build in found if build is not None]
        return (lambda: [build(expected(each)) for each, build in ready]) if len(ready) == len(found) else None

    def load(self, code: DeviceCode, options: config.Build) -> list[NativeEntry]:
        devices = [entry.device for entry in code.entries if entry.device is not None]
        loaded = {device: iter(load(_of(code, device), self.launcher_of(device))) for device in dict.fromkeys(devices)}
        return [next(loaded[device]) for device in devices]

    def kept(self, code: DeviceCode, options: config.Build) -> list[DeviceLibrary] | None:
        devices = [entry.device for entry in code.entries if entry.device is not None]
        found = {device: self.launcher_of(device).places for device in devices}
        return [_library(_of(code, d), d, places(code)) for d, places in found.items() if places] if all(found.values()) else None


def packaged(code: WrittenCode, capability: int) -> list[DeviceLibrary]:
    """What a package keeps of code: all kernels, built now for a compute capability. No GPU is needed."""
    assert isinstance(code, DeviceCode)  # what this backend wrote
    architecture = nvrtc.architecture(capability)
    build_kernels([one.text for one in code.functions], code.prelude, architecture)
    places = [key_of(text, architecture).digest for text in code.texts]
    devices = dict.fromkeys(entry.device for entry in code.entries if entry.device is not None)
    found = [_library(_of(code, device), device, places) for device in devices]
    return [replace(one, kernels=[(*kernel[:3], "") for kernel in one.kernels]) for one in found]


def _library(code: DeviceCode, device: torch.device, places: Sequence[str]) -> DeviceLibrary:
    """What is kept of one device's code."""
    kernels = [
        (place, one.name, one.shared, "" if one.expected else one.text)
        for place, one in zip(places, code.functions, strict=True)
    ]
    return DeviceLibrary(device, kernels, [entry.name for entry in code.entries], list(code.tables))


def _of(code: DeviceCode, device: torch.device) -> DeviceCode:
    """What runs on one device."""
    there = [k for k, entry in enumerate(code.entries) if entry.device == device]
    tables = tuple(code.tables[k] for k in there)
    return replace(code, entries=tuple(code.entries[k] for k in there), tables=tables)


def backend() -> CudaC:
    """Kernels run on the GPU that their tensors are on."""
    return CudaC(lambda device: gpu_launcher(device, target_of(device)))
