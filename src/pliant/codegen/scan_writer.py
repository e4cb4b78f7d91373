"""Write loops that fold in their order and store each value on the way: running sums and products.

In:     a `LoopPlan` of kind `scan`.
Out:    lines of C.
Holds:  every addition is that of the loop's own order, in its dtype: what an addition waits for is the one before it in its
        row, so rows are folded side by side. Where rows lie along memory and vectors are long, they are lanes: values are
        computed along the rows, transposed, folded, and transposed back.
"""

from __future__ import annotations

import torch

from pliant.codegen.c_text import MEMORY_TYPES, cast_text, register_type
from pliant.codegen.expressions import Statements
from pliant.codegen.loops import SCANNED_ROWS, folds_on_lanes, rows_in_turn, step_along
from pliant.codegen.points_writer import PointsWriter
from pliant.codegen.vector_statements import NoVectorForm, VectorStatements
from pliant.ir.loops import Axis, Scan
from pliant.ir.scalar import Apply, Scalar
from pliant.lowering.tensors import HALF
from pliant.symbolic.traverse import linear_coefficient

COLUMNS = 64  # of a row that are transposed together: they and their results stay in the nearest cache
_FOLDS = {"sum": "+", "prod": "*"}
_HALVES = {torch.bfloat16: "p_to_bf16v", torch.float16: "p_to_f16v"}


class ScanWriter(PointsWriter):
    """Adds loops that scan."""

    def _scanning(self) -> None:
        """A fold for each lane of a block, side by side: what an addition waits for is the one before it in its lane."""
        lane, (along,), scan = self.plan.vector, self.plan.inner, self.kernel.members[0].loops
        assert isinstance(scan, Scan)
        self._decompose()
        block = self.plan.parallel[-1][1] if lane is not None else 1
        on_lanes = lane is not None and block == SCANNED_ROWS and self._rows_on_lanes(lane, along, scan)
        if lane is not None and block == SCANNED_ROWS:  # as many at a time as have registers
            name, block = self.names.symbols[lane.symbol], rows_in_turn(scan, self.target)
            self.begin(f"for (int64_t h = {name}b; h < {name}e; h += {block})")
            self._rows_in_turn(lane, along, scan, block, "h", f"p_min({name}e - h, {block})")
            self.end()
        elif lane is not None and block is not None:
            name = self.names.symbols[lane.symbol]
            self._rows_in_turn(lane, along, scan, block, f"{name}b", f"{name}e - {name}b")
        else:
            self._start_rows(scan, 1)
            self._scan_loop(along, "int u = 0;", None, "")
        for _ in range(1 + on_lanes):
            self.end()

    def _start_rows(self, scan: Scan, block: int) -> None:
        self.line(f"{register_type(scan.accumulate_dtype)} acc[{block}];")
        self.line(f"for (int u = 0; u < {block}; u++) acc[u] = {0 if scan.op == 'sum' else 1};")

    def _rows_in_turn(self, lane: Axis, along: Axis, scan: Scan, block: int, first: str, width: str) -> None:
        """Rows from `first` on, `width` of them, `block` at most: at each point one after the other."""
        start = f"const int64_t {self.names.symbols[lane.symbol]} = {first} + u;"
        if block != rows_in_turn(scan, self.target):
            self._start_rows(scan, block)
            self._scan_loop(along, start, width, "#pragma omp simd")
            return
        # in registers, where the number of rows is known
        self.begin(f"if ({width} == {block})")
        self._start_rows(scan, block)
        self._scan_loop(along, start, str(block), f"#pragma GCC unroll {block}")
        self.end()
        self.begin(f"else for (int64_t r = 0; r < {width}; r++)")
        self._start_rows(scan, 1)
        self._scan_loop(along, start.replace(" + u", " + r"), "1", "")
        self.end()

    def _rows_on_lanes(self, lane: Axis, along: Axis, scan: Scan) -> bool:
        """The rows of a whole block as lanes, and the beginning of what is done with other blocks; False, and nothing written,
        where a value has no vector form."""
        (m,) = self.kernel.members
        row, point = (self.names.symbols[a.symbol] for a in (lane, along))
        step = linear_coefficient(m.store_index, lane.symbol)
        if step is None or not folds_on_lanes(scan) or step_along(m.store_index, along) != 1:
            return False

        def fill(s: Statements) -> None:
            assert isinstance(s, VectorStatements)
            value = _narrow(scan.value)
            if not _is_exact(value.dtype):
                raise NoVectorForm("a value that is no float32")
            lanes = s.lanes(s.value(value, m), value.dtype)
            s.write("v", f"({row} - h) * {COLUMNS} + {point} - b", s.cast(lanes, value.dtype, torch.float32), torch.float32)

        lines, self.lines, depth = self.lines, [], self.depth
        self.begin(f"if (P_L == {SCANNED_ROWS} && P_MIXES && {row}e - {row}b == {SCANNED_ROWS})")
        self.line(f"const int64_t h = {row}b;")
        self._lines(_accumulators(scan))
        extent = self.names.text(along.extent)
        self.begin(f"for (int64_t b = 0; b < {extent}; b += {COLUMNS})")
        self.line(f"const int64_t be = p_min(b + {COLUMNS}, {extent});")
        kind = MEMORY_TYPES[scan.out.dtype]
        self.line(f"float v[{COLUMNS} * P_L], w[{COLUMNS} * P_L]; {kind} o[{COLUMNS} * P_L];")
        self.begin(f"for (int64_t {row} = h; {row} < h + P_L; {row}++)")
        done = self._vector_loop(fill, fill, along, ("b", "be"))
        self.end()
        self.line(f"p_transpose32((void*)w, P_L, (const void*)v, {COLUMNS}, P_L, be - b);")
        self._lines(["for (int64_t c = 0; c < (be - b) * P_L; c += P_L) {", *_folded(scan), "}"])
        self.line(f"const int64_t {row} = h, {point} = b;")
        out = f"&{self.names.buffer(scan.out)}[{self.names.text(m.store_index)}]"
        bits = scan.out.dtype.itemsize * 8
        self.line(f"p_transpose{bits}((void*){out}, {self.names.text(step)}, (const void*)o, P_L, be - b, P_L);")
        self.end()
        self.end()
        self.begin("else")
        written, self.lines = self.lines, lines
        if done:
            self.lines += written
        else:
            self.depth = depth
        return done

    def _scan_loop(self, along: Axis, start: str, width: str | None, pragma: str) -> None:
        """One pass along the folded loop; `start`: the first statement for a lane, of `width` lanes."""
        statements = self._statements(self.plan.vector)
        self._scan_member(statements)
        self.loop(along)
        for text in statements.before:
            self.line(text)
        if pragma:
            self.line(pragma)
        self.begin("" if width is None else f"for (int64_t u = 0; u < {width}; u++)")
        for text in (start, *statements.body):
            self.line(text)
        self.end()
        self.end()

    def _scan_member(self, s: Statements) -> None:
        (m,) = self.kernel.members
        scan = m.loops
        assert isinstance(scan, Scan)
        s.body.append(f"acc[u] = acc[u] {_FOLDS[scan.op]} {s.value(scan.value, m)};")
        folded = cast_text("acc[u]", scan.accumulate_dtype, scan.out.dtype)
        s.write(self.names.buffer(scan.out), s.index(scan.index, (), m), folded, scan.out.dtype, m.store_index)


def _narrow(value: Scalar) -> Scalar:
    """What a row folds, before it is made a double: rows are transposed as floats."""
    if isinstance(value, Apply) and value.op == "cast" and value.dtype is torch.float64 and _is_exact(value.args[0].dtype):
        return value.args[0]
    return value


def _is_exact(dtype: torch.dtype) -> bool:
    """Whether float32 holds all its values."""
    return dtype is torch.float32 or dtype in HALF or dtype is torch.bool


def _accumulators(scan: Scan) -> list[str]:
    """The vectors that hold what the rows have come to: two of doubles, or one of floats."""
    first = {"sum": "0.0", "prod": "1.0"}[scan.op]
    if scan.accumulate_dtype is torch.float32:
        return [f"p_vf x = P_B({first}f);"]
    return [
        "typedef float p_half __attribute__((vector_size(2 * P_L)));",
        "typedef double p_wide __attribute__((vector_size(4 * P_L)));",
        f"p_wide x = (p_wide){{}} + {first}, y = x;",
    ]


def _folded(scan: Scan) -> list[str]:
    """Statements that take the rows' next values in, at `w + c`, and put what they come to at `o + c`."""
    fold = _FOLDS[scan.op]
    if scan.accumulate_dtype is torch.float32:
        return [f"  x = x {fold} p_load(w + c);", f"  p_store16((void*)(o + c), {_HALVES[scan.out.dtype]}(x));"]
    return [
        "  p_half s, t;",
        "  __builtin_memcpy(&s, w + c, sizeof s); __builtin_memcpy(&t, w + c + P_L / 2, sizeof t);",
        f"  x = x {fold} __builtin_convertvector(s, p_wide); y = y {fold} __builtin_convertvector(t, p_wide);",
        "  s = __builtin_convertvector(x, p_half); t = __builtin_convertvector(y, p_half);",
        "  __builtin_memcpy(o + c, &s, sizeof s); __builtin_memcpy(o + c + P_L / 2, &t, sizeof t);",
    ]
