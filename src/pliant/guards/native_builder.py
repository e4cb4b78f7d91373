"""Who compiles the native part of guards (`watch_in_c`): the C toolchain lies in a later layer, and tells this one of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

chosen: Callable[[], ctypes.PyDLL | None] | None = None


def use(build: Callable[[], ctypes.PyDLL | None]) -> None:
    """Take this one from now on."""
    global chosen
    chosen = build
