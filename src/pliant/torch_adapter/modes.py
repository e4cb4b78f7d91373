"""Modes and settings: contexts that hide what would look on, the stacks of modes, one C call each.

Out:    guards, getters and setters; the state of a thread before a capture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.fx
import torch.fx._symbolic_trace as _fx_tracer

from pliant import interruptions

_C = torch._C


def below_python_dispatch() -> AbstractContextManager[Any]:
    """Calls reach kernels directly: no dispatch mode and no `__torch_dispatch__` sees them (no public form)."""
    guard: AbstractContextManager[Any] = torch._C._DisableTorchDispatch()
    return guard


def python_kernels() -> AbstractContextManager[Any]:
    """The dispatcher takes kernels that `torch._decomp` registers in Python before those in C++ (no public form)."""
    guard: AbstractContextManager[Any] = torch._C._EnablePythonDispatcher()
    return guard


InferenceModeGuard = torch._C._InferenceMode  # what `torch.inference_mode` enters

# `__torch_function__` of no class and no mode is asked. The second hides classes alone and is the documented one.
DisableTorchFunction = torch._C.DisableTorchFunction
DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass
# PyTorch's own Python enters these two around its work.
DisableTorchDispatch = torch._C._DisableTorchDispatch
DisableFuncTorch = torch._C._DisableFuncTorch
no_torch_function: Any = torch._C._disabled_torch_function_impl  # a `__torch_function__` that is never asked

# What `torch.no_grad` and `torch.enable_grad` call, and graphs record.
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
pop_function_mode = torch._C._pop_torch_function_stack
function_mode_at = torch._C._get_function_stack_at
dispatch_mode_at = torch._C._get_dispatch_stack_at
push_mode_object = torch.overrides._push_mode  # what a function mode's block calls
pop_mode_object = torch.overrides._pop_mode
current_transform: Callable[[], int | None] = torch._C._functorch.maybe_current_level  # of `torch.func`: None outside
mkldnn_enabled: Callable[[], bool] = (
    torch._C._get_mkldnn_enabled
)  # `torch.backends.mkldnn.flags` sets it, nothing tells it
# Setters of settings beside their getters. `torch.backends` asks them under names that differ from release to release.
ATTENTION_SETTINGS = (
    (_C._get_flash_sdp_enabled, _C._set_sdp_use_flash),
    (_C._get_mem_efficient_sdp_enabled, _C._set_sdp_use_mem_efficient),
    (_C._get_math_sdp_enabled, _C._set_sdp_use_math),
    (_C._get_cudnn_sdp_enabled, _C._set_sdp_use_cudnn),
    (_C._get_overrideable_sdp_enabled, _C._set_sdp_use_overrideable),
)
CUDNN_SETTINGS = tuple(
    (getattr(_C, f"{owner}_get_cudnn_{name}"), getattr(_C, f"{owner}_set_cudnn_{name}"))
    for owner, names in (
        ("", ("enabled", "benchmark", "deterministic", "allow_tf32", "depthwise_kernel")),
        ("_cuda", ("benchmark_limit",)),  # in builds for GPUs only
    )
    for name in names
    if hasattr(_C, f"{owner}_set_cudnn_{name}")
)
PRECISION_SETTING = (_C._get_fp32_precision_getter, _C._set_fp32_precision_setter)  # of a backend and an operation
# Dispatch modes as `TorchDispatchMode` (whose module is no public one) has them.
current_dispatch_mode: Callable[[], Any] = torch.utils._python_dispatch._get_current_dispatch_mode
without_dispatch_modes: Callable[[], AbstractContextManager[Any]] = torch.utils._python_dispatch._disable_current_modes

# How many torch dispatch modes, and torch function modes, are around the call (no public form).
count_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
count_function_modes: Callable[[], int] = torch._C._len_torch_function_stack

# Whether TorchScript's tracer records what this thread runs (`torch.jit.is_tracing` is the same, less direct).
is_script_tracing: Callable[[], bool] = torch._C._is_tracing


# Where `torch.fx.symbolic_trace` notes that it runs (the public forms warn, or answer for the peer's compiler too).
FX_TRACING = (_fx_tracer, "_is_fx_tracing_flag")


def is_fx_tracing() -> bool:
    """Whether `torch.fx.symbolic_trace` runs."""
    return bool(getattr(*FX_TRACING))


# Whether `torch.autocast` is on for any device: one C call, where the public form asks device by device.
any_autocast = torch._C._is_any_autocast_enabled

# A context in which no autocast kernel is reached; the public form needs a device and costs ten times as much.
no_autocast = torch._C._DisableAutocast


def has_mkl() -> bool:
    """Whether this build transforms with MKL, whose results have other strides than pocketfft's."""
    return bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]


def flash_attention_enabled() -> bool:
    """Whether the program lets attention use its fused kernel (the CPU's too, in spite of its name)."""
    return bool(torch.backends.cuda.flash_sdp_enabled())  # type: ignore[no-untyped-call]


class Beginning(interruptions.Beginning):
    """Also which modes are entered, and whether autograd records (the stacks of modes have no public form).

    `torch.set_flush_denormal` acts on this thread's arithmetic: constants are not to be computed with it.
    """

    __slots__ = ("_dispatch_modes", "_flushes", "_function_modes", "_grad")

    def __init__(self) -> None:
        super().__init__()
        self._function_modes, self._dispatch_modes = _mode_counts()
        self._grad = torch.is_grad_enabled()
        self._flushes = flushes_denormals()
        if self._flushes:
            torch.set_flush_denormal(False)

    def restore(self) -> None:
        super().restore()
        functions, dispatches = _mode_counts()
        for _ in range(functions - self._function_modes):
            torch._C._pop_torch_function_stack()
        for _ in range(dispatches - self._dispatch_modes):
            torch._C._pop_torch_dispatch_stack()
        torch._C._set_grad_enabled(self._grad)
        if self._flushes:
            torch.set_flush_denormal(True)


def flushes_denormals() -> bool:
    """Whether numbers close to zero become zero in this thread (PyTorch does not say)."""
    return _SMALLEST * 0.5 == 0.0


_SMALLEST = sys.float_info.min


def _mode_counts() -> tuple[int, int]:
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
