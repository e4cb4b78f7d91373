"""Write a kernel as C functions.

In:     a `Kernel` of the schedule.
Out:    `KernelText`: the functions' text with a placeholder for the name, the buffers and sizes it takes in order.
Holds:  equal kernels (equal up to the names of buffers, sizes and loops) give equal text, so each is compiled once.
        `@(void** p, const int64_t* n, int32_t* p_error)` runs the kernel; `@_part` runs a range of its parallel loop.
Reads on: `loops.py` chooses the loops, `kernel_writer.py` and `reducing_writer.py` write them, `expressions.py` prints
        statements, `native.py` assembles the translation unit.
"""

from __future__ import annotations

from pliant.codegen.c_text import MEMORY_TYPES
from pliant.codegen.loops import plan_loops
from pliant.codegen.pairs import paired
from pliant.codegen.reducing_writer import ReducingWriter
from pliant.codegen.reductions import Accumulator, Variable
from pliant.codegen.unroll_and_jam import unroll_and_jam
from pliant.codegen.vector_statements import NoVectorForm
from pliant.ir.loops import Buffer
from pliant.records import dataclass
from pliant.schedule.fuse import total
from pliant.schedule.kernel import Kernel, loads_of
from pliant.symbolic.expr import ONE, Expr

PART_ARGUMENTS = "void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error"


@dataclass(frozen=True, slots=True)
class KernelText:
    """C text with `@` for the kernel's name; `buffers` and `sizes` are its arguments in order.

    comment: C comments that name the operators in it. work: points of its iteration space. is_little: that, at its cost,
    is known to be less than a thread is worth.
    """

    text: str
    comment: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Expr, ...]
    written: frozenset[Buffer]
    work: Expr
    is_little: bool = False


def write_kernel(kernel: Kernel) -> KernelText:
    """The C text of a kernel."""
    plan = unroll_and_jam(plan_loops(kernel))
    pairs = paired(plan)
    if pairs is not None:
        try:
            return Writer(pairs).write()
        except NoVectorForm:
            pass
    return Writer(plan).write()


class Writer(ReducingWriter):
    """Adds split reductions, the function around the loops and the driver that starts threads."""

    def write(self) -> KernelText:
        match self.plan.kind:
            case "points":
                self._points()
            case "ordered":
                self._ordered()
            case "split":
                self._split_part()
            case "scan":
                self._scanning()
            case _:
                self._reducing()
        body = self.lines
        self.lines, self.depth = [], 1
        driver = self._split_driver() if self.plan.kind == "split" else self._driver()
        head = self._head()
        text = "\n".join(
            [
                f"static void @_part({PART_ARGUMENTS}) {{",
                *head, *body, "}",
                "static void @(void** p, const int64_t* n, int32_t* p_error) {",
                *driver, "}", "",
            ]
        )  # fmt: skip
        buffers, sizes = tuple(self.names.buffers), tuple(self.names.sizes)
        work = total(self.kernel.axes)
        return KernelText(text, self._comment(), buffers, sizes, self._written(), work, self._is_little())

    def _comment(self) -> str:
        """Lines that name what the kernel computes; not part of the text, so that layers share kernels."""
        origins = dict.fromkeys(m.loops.origin.text for m in self.kernel.members if m.loops.origin.text)
        return "".join(f"// src {origin}".replace("\n", " ") + "\n" for origin in origins)

    def _written(self) -> frozenset[Buffer]:
        return frozenset(b for b in self.names.buffers if b in self.kernel.stored)

    def _head(self) -> list[str]:
        found = []
        for k, (b, name) in enumerate(self.names.buffers.items()):
            const = "" if b in self.kernel.stored else "const "
            found.append(f"  {const}{MEMORY_TYPES[b.dtype]}* const {name} = p[{k}];")
        return found + self._sizes()

    def _sizes(self) -> list[str]:
        return [
            f"  const int64_t n{k} = n[{k}];"
            if s.kind is int
            else f"  double n{k}; __builtin_memcpy(&n{k}, n + {k}, 8);"
            for k, s in enumerate(self.names.sizes)
        ]

    def _driver(self) -> list[str]:
        direct = self._is_direct()
        items: Expr = ONE
        for axis, block in self.plan.parallel:
            items = items * (axis.extent if block is None or direct else (axis.extent + (block - 1)) // block)
        inside: Expr = total([a for a in self.kernel.axes if all(a is not x for x, _ in self.plan.parallel)])
        factor = 1
        for axis, block in self.plan.parallel:
            extent = axis.extent.as_int()
            factor *= 1 if block is None or direct else min(block, extent if extent is not None else block)
        per_item = self.names.text(inside * (factor * self._cost()))
        # with symbolic sizes the caller gives it, if constant: so one text serves layers that differ in it
        count = self.names.number(items) if self.names.sizes else items
        self.line(f"const int64_t range = {self.names.text(count)};")
        self.line(f"p_run(@_part, p, n, range, 1 + {self.target.grain} / (1 + {per_item}), {self.target.parts}, p_error);")
        return [*self._sizes(), *self.lines]

    # -- reductions shared by threads ------------------------------------------------------------------------------

    def _split_part(self) -> None:
        """One thread's share: partial results of every outer point, in arrays passed after the buffers."""
        loops = [a for a, _ in self.plan.parallel if not self.columns or a is not self.plan.vector]
        for axis in loops:
            self.loop(axis)
        vector, at = self.plan.vector, ""
        assert vector is not None
        if self.columns:
            name = self.names.symbols[vector.symbol]
            self.line(f"const int64_t {name}b = 0, {name}e = {self.names.text(vector.extent)};")
            at = f"[{self._column()}]"
        self._pass([m for m in self.kernel.members if m.inner], ("begin", "end"))
        if self.columns:
            self._block_loop(vector)
        for k, (acc, v) in enumerate(self._parts()):
            self.line(
                f"(({v.ctype}*)p[PARTS + {k}])[slot * {self._points_outside()} + {self._outer_flat()}]"
                f" = {acc.name}{v.suffix}{at};"
            )
        for _ in range(len(loops) + self.columns):
            self.end()
        self.columns = False  # what follows the parts runs point by point
        outside = [b for b in self.kernel.stored if b not in self.names.buffers]
        for b in sorted(outside, key=lambda b: self.order[id(self.writers[b])]):
            self.names.buffer(b)
        self._more_outer_loads()
        self.lines = [text.replace("p[PARTS + ", f"p[{len(self.names.buffers)} + ") for text in self.lines]

    def _more_outer_loads(self) -> None:
        """Name the buffers that only the epilogue reads, so that the partial results come after all buffers."""
        for m in self.kernel.members:
            if not m.inner:
                for load in loads_of(m.loops):
                    if load.buffer not in self.writers:
                        self.names.buffer(load.buffer)

    def _parts(self) -> list[tuple[Accumulator, Variable]]:
        return [(acc, v) for acc in self.accumulators.values() for v in acc.variables()]

    def _points_outside(self) -> int:
        found = total([a for a, _ in self.plan.parallel]).as_int()
        assert found is not None
        return found

    def _outer_flat(self) -> str:
        flat: Expr = ONE - ONE
        for axis, _ in self.plan.parallel:
            flat = flat * axis.extent + axis.symbol
        return self.names.text(flat)

    def _split_driver(self) -> list[str]:
        """Run the parts, then combine partial results in the order of the parts, then the epilogue."""
        first = self.plan.inner[0]
        points = self._points_outside()
        inside = total([a for a in self.kernel.axes if a is not first])
        buffers = len(self.names.buffers)
        parts = self._parts()
        for k, (_, v) in enumerate(parts):
            self._declare_part(v.ctype, f"part{k}", points)
        given = [f"p[{k}]" for k in range(buffers)] + [f"part{k}" for k in range(len(parts))]
        self.line(f"void* q[] = {{{', '.join(given)}}};")
        per_item = self.names.text(self._work_of_item(inside))
        self.line(
            f"const int64_t parts = p_run(@_part, q, n, {self.names.text(first.extent)}, "
            f"1 + {self.target.grain} / (1 + {per_item}), {self.target.parts}, p_error);"
        )
        for axis, _ in self.plan.parallel:
            self.loop(axis)
        for acc in self.accumulators.values():
            for v in acc.variables():
                self.line(f"{v.ctype} {acc.name}{v.suffix} = {v.start};")
        self.begin("for (int64_t k = 0; k < parts; k++)")
        at = f"[k * {points} + {self._outer_flat()}]"
        k = 0
        for acc in self.accumulators.values():
            suffixes = [v.suffix for v in acc.variables()]
            for j, v in enumerate(acc.variables()):
                self.line(f"const {v.ctype} o{acc.name}{suffixes[j]} = part{k}{at};")
                k += 1
            for text in acc.merge(f"o{acc.name}"):
                self.line(text)
        self.end()
        for phase in range(max(m.phase for m in self.kernel.members) + 2):
            self._outer_members(phase)
        for _ in self.plan.parallel:
            self.end()
        if points > self.target.split_columns:
            self._lines([f"__builtin_free(part{k});" for k in range(len(parts))])
        return [*self._head(), *self.lines]

    def _declare_part(self, ctype: str, name: str, points: int) -> None:
        """The partial results of all threads: on the stack where they are few."""
        count = self.target.parts * points
        if points > self.target.split_columns:
            self.line(f"{ctype}* const {name} = __builtin_malloc(sizeof({ctype}) * {count});")
        else:
            self.line(f"{ctype} {name}[{count}];")

    def _work_of_item(self, inside: Expr) -> Expr:
        """Of a point of the loop that threads share, in additions."""
        return inside * self._cost()
