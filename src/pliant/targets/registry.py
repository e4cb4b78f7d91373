"""Which device has which target.

In:     a device.
Out:    its `Target`, or why there is none.
Holds:  a target is asked for once a device; what provides it may look at the machine (a GPU's capability), so it is asked only when
        a program computes there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch

from pliant.errors import NoKernels
from pliant.targets import cpu
from pliant.targets.target import Target

Provider = Callable[[torch.device], Target]

_PROVIDERS: dict[str, Provider] = {"cpu": lambda _: cpu.target()}
_found: dict[torch.device, Target] = {}
_written_for: ContextVar[Target | None] = ContextVar("pliant_target", default=None)


def provide(kind: str, provider: Provider) -> None:
    """Have targets of a type of device come from `provider`, which raises NoKernels where there is none,
    from now on in place of the one before."""
    _PROVIDERS[kind] = provider
    _found.clear()


@contextlib.contextmanager
def writing_for(target: Target) -> Iterator[None]:
    """Have devices of the target's kind be such machines, in this thread: code is written for another process."""
    token = _written_for.set(target)
    try:
        yield
    finally:
        _written_for.reset(token)


def target_of(device: torch.device) -> Target:
    """The target of a device. NoKernels if no code is generated for it."""
    wanted = _written_for.get()
    if wanted is not None and wanted.kind == device.type:
        return wanted
    found = _found.get(device)
    if found is None:
        found = _found[device] = _provided(device)
    return found


def known_target(device: torch.device) -> Target | None:
    """The target of a device; None if no code is generated for it."""
    try:
        return target_of(device)
    except NoKernels:
        return None


def has_target(device: torch.device) -> bool:
    """Whether code is generated for a device."""
    return known_target(device) is not None


def _provided(device: torch.device) -> Target:
    provider = _PROVIDERS.get(device.type)
    if provider is not None:
        return provider(device)
    raise NoKernels(
        f"no kernels for device {device}",
        kind="device",
        why=f"code is generated for {', '.join(sorted(_PROVIDERS))}",
        do="none: the graph runs operator by operator",
    )
