"""How each reduction starts, takes in a value, and ends, in C.

In:     a reduction operator, its accumulator's dtype and name.
Out:    `Accumulator`: declarations, update statements, OpenMP clauses, the final value.
Holds:  float sums keep their totals in double, so that they lose no more to rounding than eager's pairwise sums;
        max and min let NaN win (a separate flag keeps the loop vectorizable); argmax and argmin give the first index in
        the flattened order whatever the order of the loops, NaN before numbers.
"""

from __future__ import annotations

import torch

from pliant.codegen.c_text import NoCForm, literal, register_type
from pliant.records import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """One C variable of an accumulator: its type, first value and OpenMP operator."""

    suffix: str
    ctype: str
    start: str
    clause: str


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One reduction's state. `name` is a prefix; `at` is `[j]` where the variables are arrays."""

    op: str
    dtype: torch.dtype
    name: str
    wide: bool = False  # totals of float terms are kept in double

    @property
    def is_arg(self) -> bool:
        return self.op.startswith("arg")

    @property
    def narrow(self) -> bool:
        """Whether it loses digits that double keeps."""
        return self.op in ("sum", "prod") and self.dtype is torch.float32

    @property
    def vectorizes(self) -> bool:
        return not self.is_arg

    def variables(self) -> list[Variable]:
        ctype = "double" if self.wide else register_type(self.dtype)
        match self.op:
            case "sum":
                return [Variable("", ctype, "0", "+")]
            case "prod":
                return [Variable("", ctype, "1", "*")]
            case "any":
                return [Variable("", "int32_t", "0", "|")]
            case "all":
                return [Variable("", "int32_t", "1", "&")]
            case "max" | "min":
                found = [Variable("", ctype if self.dtype is not torch.bool else "int32_t", self._worst(), self.op)]
                flag = "int64_t" if self.dtype is torch.float64 else "int32_t"  # as wide as a value: its lane is the comparison's
                return [*found, Variable("n", flag, "0", "|")] if self.dtype.is_floating_point else found
            case "argmax" | "argmin":
                return [
                    Variable("", ctype, self._worst(), ""),
                    Variable("k", "int64_t", "INT64_C(9223372036854775807)", ""),
                ]
            case _:
                raise NoCForm(f"reduction `{self.op}` has no C form")

    def _worst(self) -> str:
        largest = self.op.endswith("max")
        if self.dtype.is_floating_point:
            return "(-INFINITY)" if largest else "INFINITY"
        if self.dtype is torch.bool:
            return "0" if largest else "1"
        info = torch.iinfo(self.dtype)
        return literal(info.min if largest else info.max, self.dtype)

    def update(self, value: str, at: str = "", flat: str = "0", prefix: str | None = None) -> list[str]:
        """Statements that take one value in."""
        n = self.name if prefix is None else prefix
        acc = f"{n}{at}"
        sign = ">" if self.op.endswith("max") else "<"
        match self.op:
            case "sum":
                return [f"{acc} += {value};"]
            case "prod":
                return [f"{acc} *= {value};"]
            case "any":
                return [f"{acc} |= ({value} != 0);"]
            case "all":
                return [f"{acc} &= ({value} != 0);"]
            case "max" | "min":
                is_nan = f"-(int64_t)({value} != {value})" if self.dtype is torch.float64 else f"({value} != {value})"
                nan = [f"{n}n{at} |= {is_nan};"] if self.dtype.is_floating_point else []
                return [f"{acc} = {value} {sign} {acc} ? {value} : {acc};", *nan]
            case _:
                return [self._update_arg(value, n, at, flat, sign)]

    def may_take(self, value: str, behind: str) -> str:
        """A condition without which an argmax or argmin does not take the value in; `behind`: whether it lies behind the best."""
        return f"(!({self.name} {'>' if self.op.endswith('max') else '<'} {value}) & !({behind} & ({self.name} == {value})))"

    def _update_arg(self, value: str, n: str, at: str, flat: str, sign: str) -> str:
        acc, best = f"{n}{at}", f"{n}k{at}"
        nan = f"{value} != {value} && ({acc} == {acc} || {flat} < {best})"
        better = f"{acc} == {acc} && ({value} {sign} {acc} || ({value} == {acc} && {flat} < {best}))"
        worse = f"{acc} {sign} {value}"  # asked first: it is what most elements are
        return f"if (!({worse}) && (({nan}) || ({better}))) {{ {acc} = {value}; {best} = {flat}; }}"

    def merge(self, other: str) -> list[str]:
        """Statements that take another partial state in."""
        sign = ">" if self.op.endswith("max") else "<"
        match self.op:
            case "max" | "min":
                nan = [f"{self.name}n |= {other}n;"] if self.dtype.is_floating_point else []
                return [f"{self.name} = {other} {sign} {self.name} ? {other} : {self.name};", *nan]
            case "argmax" | "argmin":
                taken = f"{other}k"
                return [
                    f"if ({taken} != INT64_C(9223372036854775807)) "
                    f"{self._update_arg(other, self.name, '', taken, sign)}"
                ]
            case _:
                return self.update(other, "")

    def final(self, at: str = "") -> str:
        """The result."""
        if self.is_arg:
            return f"{self.name}k{at}"
        if self.op in ("max", "min") and self.dtype.is_floating_point:
            return f"({self.name}n{at} ? {literal(float('nan'), self.dtype)} : {self.name}{at})"
        return f"(float){self.name}{at}" if self.wide else f"{self.name}{at}"

    @property
    def result_dtype(self) -> torch.dtype:
        if self.is_arg:
            return torch.int64
        return torch.bool if self.op in ("any", "all") else self.dtype

    @property
    def rounds(self) -> bool:
        """Whether long runs should be summed in blocks, to lose less to rounding."""
        return self.op in ("sum", "prod") and self.dtype.is_floating_point
