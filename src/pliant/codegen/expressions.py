"""Print scalar expressions as C statements.

In:     scalars of a kernel's members, the names of loops, sizes and buffers.
Out:    statements with one local a value (`const float t3 = t1 * t2;`), equal values once; those that do not depend on
        the vectorized loop come in a list of their own, to be put before it.
Holds:  the argument of a `where` that is not chosen is not evaluated if it could load outside its buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import field
from functools import reduce

import torch

from pliant.codegen.c_text import NARROW, cast_text, literal, operator_text, register_type
from pliant.ir.loops import Axis, Buffer
from pliant.ir.scalar import Apply, Const, IndexValue, Load, Scalar, walk
from pliant.records import dataclass
from pliant.schedule.kernel import Kernel, Member
from pliant.symbolic.bounds import ALL, NONNEGATIVE, Interval, bounds
from pliant.symbolic.expr import (
    ONE,
    ZERO,
    Expr,
    Factored,
    FloorDiv,
    Integer,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Symbol,
    add,
    atoms_of,
    lit,
    monomial,
    mul,
    scale,
)
from pliant.symbolic.operations import PYTHON_ALONE
from pliant.symbolic.printer import to_c
from pliant.symbolic.traverse import linear_coefficient, rebuild, substitute


def is_rounded_to_whole(x: Apply) -> bool:
    """Whether `x` is a float made of an integer that was made of a float."""
    return x.op == "cast" and x.dtype.is_floating_point and _was_a_float(x.args[0])


def _was_a_float(x: Scalar) -> bool:
    match x:
        case Apply(op="cast"):
            return x.dtype in (torch.int32, torch.int64) and x.args[0].dtype.is_floating_point
        case Apply(op="where"):
            return any(map(_was_a_float, x.args[1:]))
    return False


def _range_of(symbol: Expr) -> Interval | None:
    """Loop symbols (`x..`) and looked-up indices are not negative; nothing is known of sizes here."""
    if isinstance(symbol, Symbol) and symbol.kind is int:
        return NONNEGATIVE if symbol.name.startswith("x") else ALL
    return None


@dataclass(slots=True)
class Names:
    """Names inside one kernel, given out in order of first use, so that equal kernels print equally.

    What depends on sizes alone is computed by the caller and is one number of the kernel: layers that differ in
    channels then are one text, and the C compiler has nothing to move out of loops.
    """

    symbols: dict[Symbol, str] = field(default_factory=dict)
    sizes: list[Expr] = field(default_factory=list)
    buffers: dict[Buffer, str] = field(default_factory=dict)
    numbers: dict[Expr, Symbol] = field(default_factory=dict)
    ranges: dict[Expr, Interval] = field(default_factory=dict)  # found so far: they depend on no kernel

    def text(self, e: Expr, extra: dict[Symbol, str] | None = None) -> str:
        """C text of a shape expression."""
        if not e.free:
            return to_c(e, {}, self.bounds)
        loops = {s for s, name in self.symbols.items() if name[0] != "n"}
        e = self._with_numbers(e, loops.union(extra or ()))
        return to_c(e, {**self.symbols, **extra} if extra else self.symbols, self.bounds)

    def bounds(self, e: Expr) -> Interval:
        """Between which numbers an index lies, whatever the sizes are."""
        return bounds(e, _range_of, self.ranges)

    def _with_numbers(self, e: Expr, loops: set[Symbol]) -> Expr:
        """`e` with its largest parts that are known before the loops as numbers, their factors included."""
        if not e.free:
            return e
        if e.free.isdisjoint(loops):
            if isinstance(e, (Symbol, *PYTHON_ALONE)) or _always_defined(e):
                return self.number(e)
        elif type(e) in (Sum, Product):
            return self._linear(e, loops)
        return rebuild(e, lambda part: self._with_numbers(part, loops)) if not isinstance(e, Symbol) else e

    def _linear(self, e: Expr, loops: set[Symbol]) -> Expr:
        fixed: Expr = lit(e.const)
        result: Expr = ZERO
        for mono, coef in e.terms:
            known = [a for a in atoms_of(mono) if a.free.isdisjoint(loops) and _always_defined(a)]
            rest = monomial(tuple(a for a in atoms_of(mono) if a not in known))
            factor = scale(monomial(tuple(known)), coef)
            if rest is ONE:
                fixed = add(fixed, factor)
                continue
            parts = [self._with_numbers(a, loops) for a in atoms_of(rest)]
            result = add(result, reduce(mul, parts, self.number(factor) if known else lit(coef)))
        return add(result, self.number(fixed) if fixed.free else fixed)

    def number(self, e: Expr) -> Symbol:
        """What the caller passes for `e`."""
        if isinstance(e, Symbol) and e in self.symbols:
            return e
        found = self.numbers.get(e)
        if found is None:
            name = f"n{len(self.sizes)}"
            found = self.numbers[e] = e if isinstance(e, Symbol) else Symbol(name)
            self.symbols[found] = name
            self.sizes.append(e)
        return found

    def copy(self) -> Names:
        """The names given out so far."""
        return Names(dict(self.symbols), list(self.sizes), dict(self.buffers), dict(self.numbers), self.ranges)

    def buffer(self, b: Buffer) -> str:
        return self.buffers.setdefault(b, f"a{len(self.buffers)}")


class Body:
    """A kernel as it is written: its lines, its names, and which of its members computes what."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.names = Names()
        self.lines: list[str] = []
        self.depth = 1
        self.counter = [0]
        self.writers = {m.loops.out: m for m in kernel.members}
        self.order = {id(m): k for k, m in enumerate(kernel.members)}
        self.known: dict[Buffer, str] = {}

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def begin(self, text: str) -> None:
        self.line(text + " {")
        self.depth += 1

    def end(self) -> None:
        self.depth -= 1
        self.line("}")

    def writer_before(self, buffer: Buffer, member: Member) -> Member | None:
        """The earlier member that computes what is in the buffer."""
        writer = self.writers.get(buffer)
        return writer if writer is not None and self.order[id(writer)] < self.order[id(member)] else None


def _always_defined(e: Expr) -> bool:
    """Whether an integer expression has a value for any sizes: also where a loop that needs it has no turns."""
    if isinstance(e, (FloorDiv, Mod)):
        return e.args[1].as_int() is not None and _always_defined(e.args[0])
    if type(e) is Sum:
        return all(_always_defined(mono) for mono, _ in e.terms)
    if isinstance(e, Symbol):
        return e.kind is int
    return isinstance(e, (Integer, Product, Factored, Min, Max)) and all(map(_always_defined, e.args))


Resolve = Callable[[Load, Member], "str | None"]


@dataclass(slots=True)
class _Branch:
    """One side of a choice as it is written: how often parts are used, which have names, what computes those of its own."""

    uses: Counter[Scalar]
    names: dict[tuple[Scalar, int], str]
    statements: list[str] = field(default_factory=list)


class Statements:
    """Statements of one loop body. `vector` is the symbol of the innermost loop; `resolve` may know a load's value."""

    def __init__(
        self, names: Names, vector: Symbol | None, axes: list[Axis], resolve: Resolve, counter: list[int]
    ) -> None:
        self.names = names
        self.vector = vector
        self.axes = {a.symbol: a for a in axes}
        self.resolve = resolve
        self.counter = counter
        self.before: list[str] = []
        self.body: list[str] = []
        self.values: dict[str, str] = {}
        self.varying: set[str] = set()
        self.memo: dict[tuple[Scalar, int], str] = {}
        self.indirect_names: dict[Symbol, str] = {}
        self.branch: _Branch | None = None

    def value(self, x: Scalar, member: Member) -> str:
        """The name or literal that holds `x` of this member."""
        key = (x, id(member))
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._value(x, member)
        return found

    def _value(self, x: Scalar, member: Member) -> str:
        match x:
            case Const():
                return literal(x.value, x.dtype)
            case IndexValue():
                return self._index_value(x, member)
            case Load():
                return self._load(x, member)
            case Apply(op="where"):
                return self._where(x, member)
            case Apply():
                args = [self.value(a, member) for a in x.args]
                return self.define(self._apply_text(x, args), x.dtype, any(a in self.varying for a in args))
            case _:
                raise TypeError(f"not a scalar: {x!r}")

    def _apply_text(self, x: Apply, args: list[str]) -> str:
        if x.op == "cast":
            whole = self.opaque(args[0], x.args[0].dtype) if is_rounded_to_whole(x) else args[0]
            return cast_text(whole, x.args[0].dtype, x.dtype)
        of = x.args[1] if x.op == "where" else x.args[0]
        return operator_text(x.op, of.dtype, x.dtype, args)

    def opaque(self, text: str, dtype: torch.dtype) -> str:
        """An integer of which the compiler is not told that it was a float. gcc makes `trunc` of a float that becomes an
        integer and a float again, which keeps the sign of -0.5, and NaN."""
        return f"p_opaque_{'i32' if dtype is torch.int32 else 'i64'}({text})"

    def define(self, text: str, dtype: torch.dtype, varying: bool) -> str:
        """A local that holds `text`; the same text gives the same local."""
        found = self.values.get(text)
        if found is None:
            found = f"t{self.counter[0]}"
            self.counter[0] += 1
            self.values[text] = found
            if varying or self.vector is None:
                self.body.append(f"const {register_type(dtype)} {found} = {text};")
            else:
                self.before.append(self.before_the_loop(register_type(dtype), found, text))
            if varying:
                self.varying.add(found)
        return found

    def before_the_loop(self, ctype: str, name: str, text: str) -> str:
        """A local that the vectorized loop does not change. gcc 12 merges selects by flags of which it knows how they are
        related (`i == 0`, `i == 1`) into one that takes the wrong side, so it is not told."""
        return f"_Bool {name} = {text}; P_OPAQUE({name});" if ctype == "_Bool" else f"const {ctype} {name} = {text};"

    @property
    def guarded(self) -> bool:
        """Whether values are being computed for some of the loop's points only."""
        return False

    def read(self, array: str, index: str, dtype: torch.dtype) -> str:
        """An element of the writer's own arrays, which changes along the vectorized loop."""
        element = f"({array}[{index}] != 0)" if dtype is torch.bool else f"{array}[{index}]"
        self.varying.add(element)
        return element

    def write(self, array: str, index: str, value: str, dtype: torch.dtype, e: Expr | None = None) -> None:
        """Store a value; `e`: the index as an expression, None for what has an element a point of the loop."""
        self.body.append(f"{array}[{index}] = {value};")

    def value_of_memory(self, element: str, dtype: torch.dtype) -> str:
        """A local with what a memory element holds now; never shared, because stores may change it."""
        found = f"t{self.counter[0]}"
        self.counter[0] += 1
        self.body.append(f"const {register_type(dtype)} {found} = {element};")
        self.varying.add(found)
        return found

    def _depends(self, e: Expr) -> bool:
        """Whether an index changes along the vectorized loop."""
        return any(s is self.vector or self.indirect_names.get(s) in self.varying for s in e.free)

    def _index_value(self, x: IndexValue, member: Member) -> str:
        e = member.at(x.expr)
        text = self.names.text(e, self.indirect_names)
        if e.kind is int and x.dtype.is_floating_point and self._fits_int32(e):
            text = f"(int32_t)({text})"
        return self.define(f"({register_type(x.dtype)})({text})", x.dtype, self._depends(e))

    def _fits_int32(self, e: Expr) -> bool:
        """Whether an index value is below 2**31: 32-bit conversions to float vectorize."""
        found = self._bounds_of(e)
        return found.lo > -(2**31) and found.hi < 2**31

    def _bounds_of(self, e: Expr) -> Interval:
        """Between which numbers an index value lies, as far as the loops' extents say."""

        def known(s: Expr) -> Interval | None:
            axis = self.axes.get(s) if isinstance(s, Symbol) else None
            number = axis.extent.as_int() if axis else None
            return Interval(0, number) if number is not None else ALL

        return bounds(e, known)

    def index(self, e: Expr, indirect: tuple[tuple[Symbol, Scalar], ...], member: Member) -> str:
        """An index expression of the member as text; looked-up symbols are computed first."""
        for s, looked_up in indirect:
            text = self.value(looked_up, member)
            if not text.isidentifier():
                text = self.define(f"(int64_t){text}", torch.int64, False)
            self.indirect_names[s] = text
        return self.names.text(member.at(e), self.indirect_names)

    def _load(self, x: Load, member: Member) -> str:
        known = self.resolve(x, member)
        if known is not None:
            return known
        text = self.index(x.index, x.indirect, member)
        return self.define(self._element(x, text), x.dtype, self._depends(member.at(x.index)))

    def _element(self, x: Load, index: str) -> str:
        element = f"{self.names.buffer(x.buffer)}[{index}]"
        return f"({element} != 0)" if x.dtype is torch.bool else element

    # -- choice ----------------------------------------------------------------------------------------------------

    def _where(self, x: Apply, member: Member) -> str:
        condition = self.value(x.args[0], member)
        texts = [condition]
        varying = condition in self.varying
        for a in x.args[1:]:
            if self._is_safe(a, member):
                texts.append(self.value(a, member))
                varying = varying or texts[-1] in self.varying
            else:
                texts.append(self._chosen(a, member, x.args[0], a is x.args[1]))
                varying = True
        return self.define(f"{texts[0]} ? {texts[1]} : {texts[2]}", x.dtype, varying)

    def _is_safe(self, x: Scalar, member: Member) -> bool:
        """Whether `x` may be evaluated where it is not chosen."""
        for s in walk(x):
            if (s, id(member)) in self.memo:
                continue
            if may_fail(s):
                return False
            if isinstance(s, Load) and self.resolve(s, member) is None and not self.in_range(s, member):
                return False
        return True

    def in_range(self, x: Load, member: Member) -> bool:
        """Whether the load's smallest and largest index are inside the buffer."""
        if x.indirect:
            return False
        e = member.at(x.index)
        if self._is_inside(e, x.buffer):
            return True
        last = {s: axis.extent - 1 for s in e.free if (axis := self.axes.get(s)) is not None}
        for s in last:
            step = linear_coefficient(e, s)
            if step is None or bounds(step, lambda _: NONNEGATIVE).lo < 0:
                return False
        largest, smallest = substitute(e, last), substitute(e, dict.fromkeys(last, lit(0)))
        span: Expr = lit(0)
        for size, step in zip(x.buffer.shape, x.buffer.strides, strict=True):
            span = span + (size - 1) * step
        slack = (span - largest).as_int()
        start = smallest.as_int()
        return start is not None and start >= 0 and slack is not None and slack >= 0

    def _is_inside(self, e: Expr, buffer: Buffer) -> bool:
        """Whether numbers alone say so: where sizes and strides are known, and all extents."""

        def known(s: Expr) -> Interval | None:
            axis = self.axes.get(s) if isinstance(s, Symbol) else None
            number = axis.extent.as_int() if axis else None
            return Interval(0, number - 1) if number else ALL

        sizes, strides = ([n.as_int() for n in numbers] for numbers in (buffer.shape, buffer.strides))
        if any(n is None for n in (*sizes, *strides)) or 0 in sizes:
            return False
        found = bounds(e, known)
        return found.lo >= 0 and found.hi <= sum((n - 1) * step for n, step in zip(sizes, strides) if n and step)

    def _nested(self, x: Scalar, member: Member) -> str:
        """`x` as one expression, so that it is evaluated only where it is chosen."""
        key = (x, id(member))
        if key in self.memo:
            return self.memo[key]
        branch = self.branch
        found = branch.names.get(key) if branch is not None else None
        if found is not None:
            return found
        text = self._nested_text(x, member)
        if branch is None or branch.uses[x] < 2 or text.isidentifier() or isinstance(x, (Const, IndexValue)):
            return text
        found = branch.names[key] = f"t{self.counter[0]}"
        self.counter[0] += 1
        branch.statements.append(f"const {register_type(x.dtype)} {found} = {text};")
        return found

    def _nested_text(self, x: Scalar, member: Member) -> str:
        match x:
            case Const():
                return literal(x.value, x.dtype)
            case IndexValue():
                return f"(({register_type(x.dtype)})({self.names.text(member.at(x.expr), self.indirect_names)}))"
            case Load():
                return self._nested_load(x, member)
            case Apply():
                args = [self._nested_argument(x, k, member) for k in range(len(x.args))]
                text = f"({self._apply_text(x, args)})"
                return f"(({register_type(x.dtype)}){text})" if x.dtype in NARROW else text
            case _:
                raise TypeError(f"not a scalar: {x!r}")

    def _nested_argument(self, x: Apply, k: int, member: Member) -> str:
        if x.op == "where" and k > 0:
            return self._chosen(x.args[k], member, x.args[0], k == 1)
        return self._nested(x.args[k], member)

    def _chosen(self, x: Scalar, member: Member, condition: Scalar, holds: bool) -> str:
        """`x` as an expression that is evaluated only where the condition is (or is not) true."""
        return self._side(x, member)

    def _side(self, x: Scalar, member: Member) -> str:
        """One side of a choice. What it needs more than once has a local inside it: a chain of maxima, each of which names
        its arguments three times, would double with each."""
        around = self.branch
        self.branch = branch = _Branch(self._uses(x), dict(around.names) if around is not None else {})
        text = self._nested(x, member)
        self.branch = around
        return self.block(" ".join(branch.statements), text) if branch.statements else text

    def block(self, statements: str, value: str) -> str:
        """Statements and a value behind them as one expression."""
        return f"({{ {statements} {value}; }})"

    def _uses(self, root: Scalar) -> Counter[Scalar]:
        """How often the text of each part of `root` would be written, were those of the others written once: of a choice
        the condition alone, since its sides are branches of their own."""
        uses: Counter[Scalar] = Counter()
        left = [root]
        while left:
            x = left.pop()
            parts = [(part, 1) for _, part in x.indirect] if isinstance(x, Load) else []
            if isinstance(x, Apply):
                marks = [f"@{k}@" for k in range(len(x.args))]
                text = self._apply_text(x, marks)
                parts = [(part, text.count(mark)) for part, mark in zip(x.args[: 1 if x.op == "where" else None], marks)]
            for part, times in parts:
                left += [part] * (part not in uses)
                uses[part] += times
        return uses

    def _nested_load(self, x: Load, member: Member) -> str:
        known = self.resolve(x, member)
        if known is not None:
            return known
        return self._element(x, self._nested_index(x, member))

    def _nested_index(self, x: Load, member: Member) -> str:
        """A load's index as one expression without locals."""
        extra = {s: f"({self._nested(looked_up, member)})" for s, looked_up in x.indirect}
        return self.names.text(member.at(x.index), {**self.indirect_names, **extra})


_TRAPS = frozenset(("floordiv", "truncdiv", "remainder", "fmod", "div"))


def may_fail(x: Scalar) -> bool:
    """Whether computing `x` where it is not wanted may end the program, or report an error: not its loads."""
    return isinstance(x, Apply) and (x.op == "check_index" or (x.op in _TRAPS and not x.dtype.is_floating_point))
