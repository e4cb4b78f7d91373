"""Global settings of PyTorch that a program changes while it runs: autocast, attention kernels, grad mode.

Out:    `Settings()`: all as they are now, to compare, to restore, to say by which calls others become these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.torch_adapter import ATTENTION_SETTINGS, CUDNN_SETTINGS, PRECISION_SETTING, set_grad_enabled


@dataclass(frozen=True, slots=True)
class Setting:
    """`setter(*key, value)` stores what `getter(*key)` reads."""

    getter: Callable[..., Any]
    setter: Callable[..., Any]
    key: tuple[Any, ...] = ()

    def read(self) -> Any:
        """What is set; None where PyTorch refuses to say, as one answer for kernels that are set apart would be wrong."""
        try:
            return self.getter(*self.key)
        except RuntimeError as error:
            pass_on(error)
            return None


def nesting() -> int:
    """How deep autocast blocks are nested: leaving the outermost one forgets cast weights."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def set_nesting(depth: int) -> None:
    """Enter or leave autocast blocks until the depth is this."""
    now = nesting()
    for _ in range(depth - now):
        torch.autocast_increment_nesting()
    for _ in range(now - depth):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()


# Choices of kernels on GPUs.
KERNEL_SETTINGS = (
    *(Setting(getter, setter) for getter, setter in CUDNN_SETTINGS),
    *(Setting(*PRECISION_SETTING, ("cuda", kind)) for kind in ("all", "matmul", "conv")),
)


def _for_an_absent_device() -> tuple[Setting, ...]:
    """Where there is a GPU they would have to hold while the compiled graph runs."""
    there = torch.version.cuda is not None and torch.cuda.is_available()
    return () if there else tuple(one for one in KERNEL_SETTINGS if one.key in ((), ("cuda", "all")))


# Each thread has its own.
OF_THREAD = (
    Setting(torch.is_grad_enabled, set_grad_enabled),
    *(Setting(torch.is_autocast_enabled, torch.set_autocast_enabled, (d,)) for d in ("cpu", "cuda")),
    *(Setting(torch.get_autocast_dtype, torch.set_autocast_dtype, (d,)) for d in ("cpu", "cuda")),
    Setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
)
SETTINGS = (
    *OF_THREAD,
    Setting(nesting, set_nesting),
    *(Setting(getter, setter) for getter, setter in ATTENTION_SETTINGS),
    *_for_an_absent_device(),
)
_ROWS = {(one.getter, one.key): row for row, one in enumerate(SETTINGS)}
NESTED = (torch.autocast_increment_nesting, torch.autocast_decrement_nesting, torch.clear_autocast_cache)
SETTERS = frozenset((*(one.setter for one in SETTINGS), *NESTED))

# Precisions of products in float32 on the CPU. The older setting PyTorch refuses to read where a newer one is of another mind.
_PRECISIONS = (
    Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    *(Setting(*PRECISION_SETTING, key) for key in (("generic", "all"), *(("mkldnn", kind) for kind in ("all", "matmul", "conv", "rnn")))),
)


def precisions() -> list[Any]:
    """In what the CPU may multiply: nothing said means all of float32."""
    found = [one.read() for one in _PRECISIONS]
    return ["ieee" if value == "none" else value for value in found]


Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Settings:
    """All settings as they are now."""

    def __init__(self) -> None:
        self.values = [one.read() for one in SETTINGS]

    @property
    def grad_enabled(self) -> bool:
        return bool(self.values[0])

    def is_read(self, getter: Callable[..., Any], key: tuple[Any, ...], answer: Any) -> bool | None:
        """Whether the answer is the setting as it is here; None if the getter reads no setting that a program changes."""
        row = _ROWS.get((getter, key))
        return None if row is None else bool(self.values[row] == answer)

    def calls_from(self, other: Settings) -> list[Call]:
        """The calls that make settings that were as in `other` what they are here; what PyTorch refuses to say stays."""
        pairs = zip(SETTINGS, self.values, other.values, strict=True)
        return [(one.setter, (*one.key, value)) for one, value, was in pairs if value not in (was, None)]

    def restore(self) -> None:
        for setter, arguments in self.calls_from(Settings()):
            setter(*arguments)
