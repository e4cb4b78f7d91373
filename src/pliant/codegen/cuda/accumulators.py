"""Reductions of a thread: those of `reductions.py`, where the hardware has no shorter way."""

from __future__ import annotations

from pliant.codegen.reductions import Accumulator, Variable
from pliant.records import dataclass


@dataclass(frozen=True, slots=True)
class DeviceAccumulator(Accumulator):
    """Extrema of floats are one instruction that lets NaN win, not a comparison and a flag."""

    @property
    def lets_nan_win(self) -> bool:
        return self.op in ("max", "min") and self.dtype.is_floating_point

    def variables(self) -> list[Variable]:
        found = Accumulator.variables(self)
        return found[:1] if self.lets_nan_win else found

    def update(self, value: str, at: str = "", flat: str = "0", prefix: str | None = None) -> list[str]:
        if not self.lets_nan_win:
            return Accumulator.update(self, value, at, flat, prefix)
        acc = f"{self.name if prefix is None else prefix}{at}"
        return [f"{acc} = p_nan_{self.op}({acc}, {value});"]

    def merge(self, other: str) -> list[str]:
        return self.update(other) if self.lets_nan_win else Accumulator.merge(self, other)

    def final(self, at: str = "") -> str:
        return f"{self.name}{at}" if self.lets_nan_win else Accumulator.final(self, at)
