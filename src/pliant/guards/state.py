"""Global state that compiled code depends on: how to read it, and its guards.

In:     the name of a piece of state (`StateSource.name`).
Out:    `READERS[name].read()` for capture and explanations, `READERS[name].code` for generated checks.
Holds:  reading has no side effect and costs about 0.1 µs; values compare with `==` (or `is`, where `identity`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant import config, peer
from pliant.guards.kinds import Guard, Kind
from pliant.guards.sources import StateSource
from pliant.records import dataclass
from pliant.saved_hooks import changing_hook
from pliant.torch_adapter import (
    DeviceContext,
    any_autocast,
    asks_no_modes,
    asks_overrides,
    count_dispatch_modes,
    count_function_modes,
    current_gpu,
    current_transform,
    dispatch_mode_at,
    dual_level,
    function_mode_at,
    is_fx_tracing,
    is_script_tracing,
)


@dataclass(frozen=True, slots=True)
class Reader:
    """One piece of state. `advice`: what a user does to avoid a recompile when it changes."""

    read: Callable[[], Any]
    advice: str
    identity: bool = False


def _autocast() -> tuple[tuple[str, Any], ...]:
    """(device, dtype) of the devices whose autocast is on, and whether its cache is used."""
    if not any_autocast():
        return ()
    devices = [d for d in ("cpu", "cuda", "xpu", "mps") if torch.is_autocast_enabled(d)]
    enabled = tuple((d, torch.get_autocast_dtype(d)) for d in devices)
    return (*enabled, ("cache", torch.is_autocast_cache_enabled()))


def function_modes() -> tuple[type, ...]:
    """Types of the torch function modes on the stack, from the outermost in."""
    count = count_function_modes()
    return tuple(type(function_mode_at(i)) for i in range(count)) if count else ()


def dispatch_modes() -> tuple[type, ...]:
    """Types of the torch dispatch modes around the call: they see operators, which kernels are not."""
    count = count_dispatch_modes()
    return tuple(type(dispatch_mode_at(i)) for i in range(count)) if count else ()


def _default_device() -> Any:
    """The device that `torch.set_default_device` (or a `with device:` block) chose; None if none."""
    modes = (function_mode_at(i) for i in range(count_function_modes()))
    devices = [m.device for m in modes if isinstance(m, DeviceContext)]
    return devices[-1] if devices else None


def transform_level() -> int:
    """Depth of the `torch.func` transforms (vmap, grad, ...) that surround the call."""
    level: int | None = current_transform()
    return level or 0


def _peers_stance() -> bool:
    """Whether `torch.compiler.set_stance` forces eager."""
    state = peer.stance()
    return state is not None and state.stance == "force_eager"


def nan_checks() -> bool:
    """Whether `torch.autograd.detect_anomaly` has the engine look for NaN in what each function returns."""
    return torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()


def tracing() -> str:
    """Which tracer of PyTorch records what the program runs; empty if none does."""
    return "torch.jit.trace" if is_script_tracing() else "torch.fx" if is_fx_tracing() else ""


def decimal_settings() -> tuple[Any, ...]:
    """How decimal numbers are computed with in this thread: they are rounded by the context, which traps errors."""
    import decimal  # what finds compiled code without such numbers does not load it

    now = decimal.getcontext()
    traps = sorted(signal.__name__ for signal, is_trapped in now.traps.items() if is_trapped)
    return (now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp, *traps)


READERS: dict[str, Reader] = {
    "grad_enabled": Reader(torch.is_grad_enabled, "call it in one grad mode, or compile one function for each"),
    "inference_mode": Reader(torch.is_inference_mode_enabled, "call it always inside or always outside inference_mode"),
    "autocast": Reader(_autocast, "enter autocast inside the compiled function"),
    "default_dtype": Reader(torch.get_default_dtype, "set the default dtype once, before the first call", True),
    "function_modes": Reader(function_modes, "enter torch function modes inside the compiled function"),
    "dispatch_modes": Reader(dispatch_modes, "none: calls under torch dispatch modes run eagerly"),
    "overrides": Reader(asks_overrides, "call it always inside or always outside DisableTorchFunctionSubclass"),
    "tracing": Reader(tracing, "none: calls that a tracer records run eagerly"),
    "stance": Reader(_peers_stance, "none: torch.compiler.set_stance says so"),
    "default_device": Reader(_default_device, "set the default device once, before the first call"),
    "current_gpu": Reader(current_gpu, "choose the GPU before the first call, or name it where tensors are made"),
    "deterministic": Reader(torch.get_deterministic_debug_mode, "choose deterministic algorithms once, at start"),
    "transforms": Reader(transform_level, "apply torch.func transforms inside the compiled function"),
    "dual_level": Reader(dual_level, "none: calls in forward-mode differentiation run eagerly"),
    "saved_hooks": Reader(changing_hook, "mark the hook with pliant.keeps_saved_values, if it changes no values"),
    "nan_checks": Reader(nan_checks, "enter torch.autograd.detect_anomaly around calls of backward() outside"),
    "config": Reader(lambda: config.get().code_key, "patch pliant.config once, before the first call", True),
}

# What every entry depends on: "nan_checks" matter where the program calls the engine, "overrides" where something
# has `__torch_function__`, or was traced without. "default_device" is a function mode, so its type is in "function_modes" already.
ALWAYS = (
    "grad_enabled", "inference_mode", "autocast", "default_dtype", "function_modes", "dispatch_modes", "deterministic",
    "transforms", "dual_level", "tracing", "stance", "saved_hooks", "config",
)  # fmt: skip

# Checked before any tensor is looked at, which these would see.
WATCHERS = frozenset(("function_modes", "dispatch_modes", "tracing"))


def observers() -> str:
    """What around the call is to see each operator, which compiled code does not show; empty if nothing is."""
    if found := tracing():
        return f"{found} records it"
    if count_function_modes() or count_dispatch_modes():
        modes = [mode for mode in (*function_modes(), *dispatch_modes()) if mode is not DeviceContext]
        if modes:
            return f"it is called in the mode {modes[-1].__qualname__}"
    if asks_no_modes():
        return "it is called in a block of DisableTorchFunction"
    if transform_level():
        return "it is called in a transform of torch.func"
    if dual_level() >= 0:
        return "it is called in forward-mode differentiation"
    if hook := changing_hook():
        return f"the hook {hook} is given what autograd saves, and may change it"
    return "torch's compiled autograd records its backward" * (peer.compiles_autograd() and torch.is_grad_enabled())


def state_guards(names: tuple[str, ...] = ALWAYS) -> list[Guard]:
    """Guards that the named state stays as it is now."""
    found = [Guard(StateSource(name), Kind.STATE, READERS[name].read()) for name in names]
    if "function_modes" in names and (device := _default_device()) is not None:
        found.append(Guard(StateSource("default_device"), Kind.STATE, device))
    if names is ALWAYS and torch.cuda.device_count() > 1:
        found.append(Guard(StateSource("current_gpu"), Kind.STATE, current_gpu()))
    return found
