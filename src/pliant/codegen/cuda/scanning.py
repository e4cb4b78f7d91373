"""Write what a thread does in kernels that scan: running sums and products.

In:     a `DevicePlan` of kind `scan`.
Out:    lines of CUDA C: in each turn a thread folds its neighbouring points, the threads tell each other what lies before
        these, and each stores its results. What a turn folded is what the next one begins with.
Holds:  what lies behind a point is no part of its result. All threads that share a row take part in all turns, with or
        without points, since they wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.codegen.c_text import cast_text, literal, register_type
from pliant.codegen.cuda.device_writer import DeviceWriter
from pliant.codegen.cuda.statements import DeviceStatements
from pliant.ir.loops import Scan

WARP = 32
_SIGNS = {"sum": ("+", 0), "prod": ("*", 1)}


class DeviceScanWriter(DeviceWriter):
    """A kernel of one scan."""

    def write(self) -> None:
        plan = self.plan
        self.member = self.kernel.members[0]
        assert isinstance(self.member.loops, Scan)
        self.scan = self.member.loops
        self.sign, neutral = _SIGNS[self.scan.op]
        self.ctype = register_type(self.scan.accumulate_dtype)
        self.neutral = literal(neutral, self.scan.accumulate_dtype)
        self.tile = self._tile()
        self.line(f"const int lane = threadIdx.x % {plan.group};" if plan.items > 1 else "const int lane = threadIdx.x;")
        self._find_item(f"threadIdx.x / {plan.group}", early=True)
        self._decompose("item", plan.outer)
        self.line(f"{self.ctype} acc = {self.neutral};")  # of all turns before
        if plan.group > WARP:
            self.line(f"__shared__ {self.ctype} shared[2][{plan.group // WARP}];")  # in turn: no turn waits for reads of the last
            self.line("int side = 0;")
        count = self._count(plan.inner)
        self.begin(f"for ({self.integer} base = 0; base < {count}; base += {plan.group})")
        self.line(f"const {self.integer} q = base + lane;")
        self.line(f"{self.ctype} acc_at[{plan.width}], acc_all = {self.neutral};")
        self._points(count, self._fold)
        self._share()
        self._points(count, self._store)
        self.end()

    def _points(self, count: str, fill: Callable[[DeviceStatements], None]) -> None:
        """Statements of the points of this turn."""
        self.begin(f"if (q < {count})")
        self._decompose("q", self.plan.inner)
        s = self._statements(self.tile)
        fill(s)
        self._emit(s)
        self.end()

    @property
    def _slot(self) -> str:
        return "u" if self.tile else "0"

    def _fold(self, s: DeviceStatements) -> None:
        value = s.value(self.scan.value, self.member)
        s.body += [f"acc_all = acc_all {self.sign} {value};", f"acc_at[{self._slot}] = acc_all;"]

    def _store(self, s: DeviceStatements) -> None:
        dtype = self.scan.accumulate_dtype
        value = s.define(f"acc_before {self.sign} acc_at[{self._slot}]", dtype, True)
        value = cast_text(value, dtype, self.scan.out.dtype)
        s.store(self.scan.out, self.scan.index, (), self.member, value)

    def _share(self) -> None:
        """`acc_before`: all points before this thread's folded; `acc`: and those of this turn."""
        lanes = min(self.plan.group, WARP)
        self.line(f"{self.ctype} acc_before = {self.neutral};")
        self.line("#pragma unroll")
        self.begin(f"for (int o = 1; o < {lanes}; o <<= 1)")
        self.line(f"const {self.ctype} other = p_shuffle<{lanes}>(acc_all, o);")
        self.line(f"if (lane & o) acc_before = other {self.sign} acc_before;")
        self.line(f"acc_all = acc_all {self.sign} other;")
        self.end()
        if self.plan.group <= WARP:
            self.line(f"acc_before = acc {self.sign} acc_before;")
            self.line(f"acc = acc {self.sign} acc_all;")
            return
        self.line("if (lane % 32 == 0) shared[side][lane / 32] = acc_all;")
        self.line("__syncthreads();")
        self.line(f"const {self.ctype} acc_warp = acc_before;")
        self.line("#pragma unroll")
        self.begin(f"for (int w = 0; w < {self.plan.group // WARP}; w++)")
        self.line(f"if (w == lane / 32) acc_before = acc {self.sign} acc_warp;")
        self.line(f"acc = acc {self.sign} shared[side][w];")
        self.end()
        self.line("side ^= 1;")
