"""Whether there can be kernels for a device, and what they are written for.

In:     a `torch.device("cuda", k)`.
Out:    its `Target`, or NoKernels that says what is missing.
Holds:  no call of CUDA before the program made one, nor in a child that was forked after.
"""

from __future__ import annotations

import functools
import os

import torch

from pliant.errors import NoKernels
from pliant.runtime.cuda import driver, nvrtc
from pliant.targets.cuda import OLDEST, target
from pliant.targets.target import Target


def target_of(device: torch.device) -> Target:
    """What kernels for a GPU are written for. NoKernels if there can be none."""
    _check_build()
    if not driver.is_initialized():
        raise NoKernels(
            f"no kernels for device {device}: the program has not used CUDA yet",
            kind="cuda-not-initialised",
            why="a compiler that starts CUDA would keep the program from forking workers that use it",
            do="call torch.cuda.init() first; in a child that was forked after CUDA began, start it with 'spawn'",
        )
    return _target(device.index if device.index is not None else torch.cuda.current_device(), os.getpid())


def _check_build() -> None:
    if torch.version.hip is not None:
        raise NoKernels(
            "no kernels for AMD's GPUs",
            kind="device",
            why="this build of PyTorch is for ROCm; kernels are written for NVIDIA's GPUs",
            do="none: the graph runs operator by operator",
        )


@functools.cache
def _target(index: int, process: int) -> Target:
    major, minor = torch.cuda.get_device_capability(index)
    capability = 10 * major + minor
    if capability < OLDEST:
        raise NoKernels(
            f"no kernels for compute capability {major}.{minor} ({torch.cuda.get_device_name(index)})",
            kind="old-gpu",
            why=f"kernels need {OLDEST / 10} or newer",
            do="none: the graph runs operator by operator",
        )
    nvrtc.architecture(capability)
    _check_driver()
    return target(capability, torch.cuda.get_device_properties(index).multi_processor_count)


def _check_driver() -> None:
    built, runs = nvrtc.library().version, driver.version()
    if runs[0] < built[0]:
        raise NoKernels(
            f"the driver supports CUDA {runs[0]}.{runs[1]}, kernels would be built by NVRTC {built[0]}.{built[1]}",
            kind="old-driver",
            why="code of a newer major version cannot be loaded",
            do="install a newer driver, or a build of PyTorch for an older CUDA",
        )
