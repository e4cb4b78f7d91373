"""How reductions on vectors start, take in values, and end in the scalar accumulators.

In:     an `Accumulator` of a row's reduction.
Out:    `VectorAccumulator`: C statements; None for what has no vector form.
Holds:  several vectors take values in turn, so that an addition need not wait for the last one, where a value takes less
        time than that; lanes that are no points of the loop take in what changes nothing; NaN wins in max and min, by a
        mask of its own.
"""

from __future__ import annotations

import torch

from pliant.codegen.expressions import Statements
from pliant.codegen.reductions import Accumulator
from pliant.codegen.vector_statements import VectorStatements
from pliant.codegen.whole_vectors import LANES
from pliant.records import dataclass

MOST_VECTORS = 4  # of one reduction that take values in turn


def vectors_in_turn(cost: int, reductions: int, points: int | None) -> int:
    """How many vectors of each reduction take values in turn that cost so many additions each: an addition is known four
    cycles later. Several reductions wait for one another less, and all have to stay in registers. In a short row of so many
    points what is left when several were taken is the most of it, and goes under a mask; the next row need not wait."""
    most = MOST_VECTORS if cost < 6 else 2 if cost < 12 else 1
    if points is not None:
        most = min(most, MOST_VECTORS if points >= 8 * LANES[-1] else 2 if points >= 4 * LANES[-1] else 1)
    return min(most, MOST_VECTORS if reductions < 3 else 2 if reductions < 5 else 1)


def in_turn(count: int) -> str:
    """Which of `count` vectors takes values, in the loop over them."""
    return "[u]" if count > 1 else "[0]"


def each_of(count: int, statement: str) -> str:
    """A statement about vector `{u}` for each of them."""
    if count == 1:
        return statement.replace("{u}", "0")
    return f"for (int u = 0; u < {count}; u++) {statement.replace('{u}', 'u')}"


@dataclass(frozen=True, slots=True)
class _Fold:
    """One operator: the type of its lanes, what changes nothing, how two vectors combine, how one becomes a number."""

    ctype: str
    neutral: str
    combine: str
    lanes: str
    into: str


_FOLDS: dict[str, _Fold] = {
    "sum": _Fold("p_vf", "P_B(0.0f)", "{0} + {1}", "p_sum_lanes", "{a} += {x};"),
    "prod": _Fold("p_vf", "P_B(1.0f)", "{0} * {1}", "p_product_of_lanes", "{a} *= {x};"),
    "max": _Fold("p_vf", "P_B(-P_INF)", "p_morev({1}, {0})", "p_largest_lane", "{{ const float y = {x}; {a} = y > {a} ? y : {a}; }}"),
    "min": _Fold("p_vf", "P_B(P_INF)", "p_lessv({1}, {0})", "p_least_lane", "{{ const float y = {x}; {a} = y < {a} ? y : {a}; }}"),
    "any": _Fold("p_vi", "P_BI(0)", "{0} | {1}", "p_any_lane", "{a} |= {x};"),
    "all": _Fold("p_vi", "P_BI(-1)", "{0} & {1}", "p_all_lanes", "{a} &= {x};"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class VectorAccumulator:
    """`count` vectors `v<name>` beside the scalar accumulator `name`; for max and min masks `v<name>n` of NaN."""

    name: str
    fold: _Fold
    marks_nan: bool
    count: int
    wide: bool

    def start(self, count: int = 0) -> list[str]:
        """All vectors, or the first `count`."""
        count = count or self.count
        lines = _declared(self.fold.ctype, f"v{self.name}", self.fold.neutral, count)
        return lines + (_declared("p_vi", f"v{self.name}n", "P_BI(0)", count) if self.marks_nan else [])

    def update(self, s: Statements, value: str, at: str, position: str = "") -> list[str]:
        """Statements that take a vector in; `position`: where its lanes lie among all that are reduced."""
        assert isinstance(s, VectorStatements)
        choose = "p_choosev" if self.fold.ctype == "p_vf" else "p_choosei"
        value = value if s.mask is None else f"{choose}({s.mask}, {value}, {self.fold.neutral})"
        v = f"v{self.name}"
        lines = [f"const {self.fold.ctype} x{self.name} = {value};"]
        lines.append(f"{v}{at} = {self.fold.combine.format(f'{v}{at}', f'x{self.name}')};")
        return lines + ([f"{v}n{at} |= x{self.name} != x{self.name};"] if self.marks_nan else [])

    def finish(self) -> list[str]:
        v = f"v{self.name}"
        whole = self._halves([f"{v}[{u}]" for u in range(self.count)])
        lanes = f"{self.fold.lanes}_wide" if self.wide else self.fold.lanes
        lines = [self.fold.into.format(a=self.name, x=f"{lanes}({whole})")]
        marks = " | ".join(f"{v}n[{u}]" for u in range(self.count))
        return lines + ([f"{self.name}n |= p_any_lane({marks});"] if self.marks_nan else [])

    def flush(self, first: str, number: str, count: int, by_call: bool) -> list[str]:
        """Take the lanes of `count` vectors into the arrays of the columns' accumulators, `number` of them from column
        `first` on. `by_call`: by a function that all such places share, which is compiled once."""
        element = "float" if self.fold.ctype == "p_vf" else "int32_t"
        lanes = [f"{element} x[{count} * P_L];", f"__builtin_memcpy(x, v{self.name}, sizeof x);"]
        if by_call and self.wide and self.fold.lanes == "p_sum_lanes":
            return ["{ " + " ".join(lanes), f"  p_add_lanes({self.name} + ({first}), x, {number}); }}"]
        into = self.fold.into.format(a=f"{self.name}[{first} + k]", x="x[k]" if element == "float" else "(x[k] != 0)")
        if self.marks_nan:
            lanes += [f"int32_t xn[{count} * P_L];", f"__builtin_memcpy(xn, v{self.name}n, sizeof xn);"]
            into += f" {self.name}n[{first} + k] |= xn[k] != 0;"
        return ["{ " + " ".join(lanes), f"  for (int64_t k = 0; k < {number}; k++) {{ {into} }}", "}"]

    def _halves(self, parts: list[str]) -> str:
        while len(parts) > 1:
            parts = [f"({self.fold.combine.format(a, b)})" for a, b in zip(parts[::2], parts[1::2])]
        return parts[0]


def _declared(ctype: str, name: str, first: str, count: int) -> list[str]:
    return [f"{ctype} {name}[{count}];", each_of(count, f"{name}[{{u}}] = {first};")]


_NONE = -1  # the position in lanes that have taken nothing in


@dataclass(frozen=True, slots=True)
class VectorExtreme:
    """Argmax and argmin: each lane has its best value, and the first position of it, which grows from turn to turn."""

    acc: Accumulator
    count: int

    def start(self) -> list[str]:
        v, n = f"v{self.acc.name}", self.count
        return [
            f"p_vf {v}[{n}];", f"p_vi {v}k[{n}];",
            each_of(n, f"{{ {v}[{{u}}] = P_B(0.0f); {v}k[{{u}}] = P_BI({_NONE}); }}"),
        ]  # fmt: skip

    def update(self, s: Statements, value: str, at: str, position: str = "") -> list[str]:
        """A number is taken in where it is better or NaN, but where NaN was taken in before."""
        assert isinstance(s, VectorStatements)
        name, v = self.acc.name, f"v{self.acc.name}"
        worse = "<=" if self.acc.op == "argmax" else ">="
        better = f"(({v}{at} == {v}{at}) & ~(x{name} {worse} {v}{at})) | ({v}k{at} == {_NONE})"
        return [
            f"const p_vf x{name} = {value};",
            f"const p_vi y{name} = {better if s.mask is None else f'{s.mask} & ({better})'};",
            f"{v}{at} = p_choosev(y{name}, x{name}, {v}{at});",
            f"{v}k{at} = p_choosei(y{name}, {position}, {v}k{at});",
        ]

    def finish(self) -> list[str]:
        v, lanes = f"v{self.acc.name}", f"{self.count} * P_L"
        taken = self.acc.update("x[j]", "", "(int64_t)k[j]")
        return [
            f"{{ float x[{lanes}]; __builtin_memcpy(x, {v}, sizeof x);",
            f"  int32_t k[{lanes}]; __builtin_memcpy(k, {v}k, sizeof k);",
            f"  for (int j = 0; j < {lanes}; j++) if (k[j] != {_NONE}) {{ {' '.join(taken)} }} }}",
        ]


def vector_accumulator(acc: Accumulator, count: int) -> VectorAccumulator | VectorExtreme | None:
    """The vectors of an accumulator, `count` that take values in turn."""
    if acc.is_arg:
        return VectorExtreme(acc, count) if acc.dtype is torch.float32 else None
    fold = _FOLDS.get(acc.op)
    if fold is None or (fold.ctype == "p_vf" and acc.dtype is not torch.float32):
        return None
    return VectorAccumulator(acc.name, fold, acc.op in ("max", "min"), count, acc.wide)
