"""Print scalar expressions as C statements on vectors: the lanes are neighbouring points of the innermost loop.

In:     as `expressions.Statements`; `mask`: the lanes that are points of the loop, None if all are.
Out:    statements with one local a value, of vector type where the value varies along the loop; the others stay scalar.
Holds:  what has no form here is refused by `NoVectorForm`, before which nothing but names was given out: the caller
        writes the loop without vectors. Under a mask no memory is touched and no store made where it is not set.
        Kept in lanes of 32 bits: float32, int32, truth values (all bits or none), int8 and uint8 as int32, int64 where its
        range is known to fit; int64 in memory are clamped to what a lane holds, and only compared. bf16 and f16 keep their 16 bits.
Reads on: `vectors.py` has the C functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from pliant.codegen.expressions import Names, Resolve, Statements, is_rounded_to_whole, may_fail
from pliant.codegen.vector_memory import LOADS, PAIRED, SPACED, STORES, TYPES, WHOLE
from pliant.codegen.vectors import VECTOR_OPS
from pliant.ir.loops import Axis, Buffer
from pliant.ir.scalar import Apply, Const, IndexValue, Load, Scalar, walk
from pliant.schedule.kernel import Member
from pliant.symbolic.bounds import ALL, Interval, multiply
from pliant.symbolic.expr import ONE, Expr, FloorDiv, Symbol
from pliant.symbolic.traverse import linear_coefficient


class NoVectorForm(Exception):
    """A value that has no vector form here: the loop is written without vectors."""


_HALVES = {torch.bfloat16: "bf16", torch.float16: "f16"}
# operators whose results are halves where their arguments are, on the 16 bits: the sign is a bit
_OF_HALVES = {"abs": "{0} & 0x7fff", "neg": "{0} ^ 0x8000", "copysign": "({0} & 0x7fff) | ({1} & 0x8000)"}
_LANES_OF_INT = frozenset((torch.int32, torch.int64, torch.int8, torch.uint8))
_COMPARISONS = frozenset("eq ne lt le gt ge".split())
_BYTES = {torch.int8: "({0} << 24) >> 24", torch.uint8: "{0} & 255"}  # of what an int32 is cut to
# operators that are int32's on their lanes, and leave there what a byte holds
_OF_BYTES = _COMPARISONS | {"minimum", "maximum", "bit_and", "bit_or", "bit_xor", "shift_right"}
_RANGES = {torch.int8: Interval(-128, 127), torch.uint8: Interval(0, 255), torch.bool: Interval(0, 1)}
_NARROW = Interval(-(2**31) + 1, 2**31 - 2)  # what int64 values in lanes of 32 bits may be; clamped numbers lie outside
_LANE = Interval(-(2**31), 2**31 - 1)
_ONE_SIDE = frozenset((torch.float32, torch.bfloat16, torch.float16, torch.int32))  # any value of these is one of a lane
_LOOKED_UP = frozenset((torch.float32, torch.bfloat16, torch.float16, torch.int32))


class VectorStatements(Statements):
    """Statements of one loop body on vectors. `shared`: another copy of the same body, whose scalar values it may use.
    `apart`: lanes may be read and written one by one where they are far apart, since what is computed of them is dear.
    `far`: what is loaded lies in no cache. `lookups`: lanes may look up an element each. `loads_ahead`, `stores_ahead`:
    buffers of which what follows is asked for as they are loaded, or stored.
    """

    def __init__(
        self,
        names: Names,
        vector: Symbol,
        axes: list[Axis],
        resolve: Resolve,
        counter: list[int],
        mask: str | None = None,
        shared: VectorStatements | None = None,
        apart: bool = False,
        far: bool = False,
        lookups: bool = False,
        loads_ahead: frozenset[Buffer] = frozenset(),
        stores_ahead: frozenset[Buffer] = frozenset(),
    ) -> None:
        super().__init__(names, vector, axes, resolve, counter)
        self.far = far
        self.loads_ahead, self.stores_ahead = loads_ahead, stores_ahead
        self.lookups = lookups
        self.apart = apart
        self.mask = self.base = mask
        self.one_side = 0  # how many branches around what is being written only one side of which is executed
        self.ranges: dict[str, Interval] = {}
        self.pairs: Mapping[tuple[Buffer, Expr], tuple[Load, Member]] = {}  # what is loaded, where pairs are
        self.masked: dict[tuple[Scalar, int, str | None], str] = {}
        if shared is not None:
            self.values = {text: name for text, name in shared.values.items() if name not in shared.varying}

    @property
    def guarded(self) -> bool:
        return self.mask is not self.base or self.one_side > 0

    def value(self, x: Scalar, member: Member) -> str:
        key = (x, id(member), self.mask)
        found = self.masked.get(key)
        if found is None and self.guarded:
            found = self.masked.get((x, id(member), self.base))
        if found is None:
            found = self.masked[key] = self._value(x, member)
        return found

    def _value(self, x: Scalar, member: Member) -> str:
        match x:
            case Apply(op="where"):
                return self._where(x, member)
            case Apply(op="cast", args=(Load(dtype=torch.int64) as read,)) if x.dtype is torch.float32 and self._is_read(read, member):
                return self._whole_floats(read, member)
            case Apply(op="cast") if _computes_halves(x.args[0], x.dtype):
                return self._of_halves(x.args[0], x.dtype, member)
            case Apply():
                args = [self.value(a, member) for a in x.args]
                if any(a in self.varying for a in args):
                    return self._applied(x, args)
                return self.define(self._apply_text(x, args), x.dtype, False)
            case _:
                return super()._value(x, member)

    def define(self, text: str, dtype: torch.dtype, varying: bool) -> str:
        if not varying:
            return super().define(text, dtype, False)
        return self._local(TYPES[dtype], text) if dtype in TYPES else self._refuse(f"{dtype}")

    def _local(self, ctype: str, text: str) -> str:
        found = self.values.get(text)
        if found is None:
            found = f"t{self.counter[0]}"
            self.counter[0] += 1
            self.values[text] = found
            self.body.append(f"const {ctype} {found} = {text};")
            self.varying.add(found)
        return found

    def _refuse(self, why: str) -> str:
        raise NoVectorForm(why)

    # -- operators -------------------------------------------------------------------------------------------------

    def _applied(self, x: Apply, args: list[str]) -> str:
        """An operator of which at least one argument is a vector."""
        if x.op == "cast":
            found = self.cast(args[0], x.args[0].dtype, x.dtype)
            # No -0.0, which it is if gcc makes `trunc` of both conversions.
            return self._local("p_vf", f"{found} + 0.0f") if is_rounded_to_whole(x) and x.dtype is torch.float32 else found
        of = x.args[0].dtype
        if of is torch.int64:
            return self._of_int64(x, args)
        is_int = of is torch.int32 or (of in _BYTES and x.op in _OF_BYTES)
        kind = "f" if of is torch.float32 else "b" if of is torch.bool else "i" if is_int else ""
        template = VECTOR_OPS.get((x.op, kind))
        if template is None:
            raise NoVectorForm(f"`{x.op}` on {of}")
        return self._local(TYPES[x.dtype], template.format(*(self.lanes(a, of) for a in args)))

    def _of_halves(self, x: Scalar, dtype: torch.dtype, member: Member) -> str:
        """A float32 value that is a half, as one: neither widened nor rounded."""
        assert isinstance(x, Apply)
        if x.op == "cast":
            return self.lanes(self.value(x.args[0], member), dtype)
        args = [self._of_halves(a, dtype, member) for a in x.args]
        return self._local("p_vh", _OF_HALVES[x.op].format(*args))

    def lanes(self, text: str, dtype: torch.dtype) -> str:
        """A printed value as a vector."""
        if text in self.varying:
            return text
        if dtype in _HALVES:
            return f"((p_vh){{}} + {text})"
        return f"P_MASK({text})" if dtype is torch.bool else f"P_B({text})" if dtype is torch.float32 else f"P_BI({text})"

    def _of_int64(self, x: Apply, args: list[str]) -> str:
        """int64 values whose range is known: comparisons, and sums and products that fit as well."""
        ranges = [self._range(a, text) for a, text in zip(x.args, args)]
        if x.op in _COMPARISONS:
            exact = all(a in self.varying and _in_lane(r) for a, r in zip(args, ranges))
            if not exact and not any(map(_fits, ranges)):
                raise NoVectorForm("two numbers that may be clamped to the values of a lane")
            texts = [a if a in self.varying else f"P_BI(p_clamp({a}))" for a in args]
            return self._local("p_vi", VECTOR_OPS[x.op, "i"].format(*texts))
        combine = _INT64.get(x.op)
        if combine is None:
            raise NoVectorForm(f"`{x.op}` on int64")
        result = combine(*ranges)
        if not _fits(result) or not all(map(_fits, ranges)):
            raise NoVectorForm("an int64 of unknown range")
        texts = [a if a in self.varying else f"P_BI((int32_t)({a}))" for a in args]
        found = self._local("p_vi", VECTOR_OPS[x.op, "i"].format(*texts))
        self.ranges[found] = result
        return found

    def _range(self, x: Scalar, text: str) -> Interval:
        return Interval(x.value, x.value) if isinstance(x, Const) else self.ranges.get(text, ALL)

    def cast(self, text: str, source: torch.dtype, target: torch.dtype) -> str:
        """A vector converted."""
        if source is target:
            return text
        if source is torch.int64:
            self._needs_lane(text)
        if source in _HALVES:
            return self.cast(self._local("p_vf", f"p_from_{_HALVES[source]}v({text})"), torch.float32, target)
        if target in _HALVES:
            return self._local("p_vh", f"p_to_{_HALVES[target]}v({self.cast(text, source, torch.float32)})")
        if target is torch.bool:
            return self._local("p_vi", f"{text} != 0")
        if target is torch.float32:
            return self._local("p_vf", f"(p_vf)({text} & 0x3f800000)" if source is torch.bool else f"P_NUMBERv({text})")
        if target is torch.int32 and source is torch.float32:
            return self._local("p_vi", f"p_intv({text})")
        if target in (torch.int32, torch.int64) and (source is torch.bool or source in _LANES_OF_INT):
            found = self._local("p_vi", f"{text} & 1") if source is torch.bool else text
            known = self.ranges.get(text) or _RANGES.get(source, _LANE)
            if target is torch.int64:
                self.ranges[found] = known if _in_lane(known) else _LANE
            return found
        if target in _BYTES and (source is torch.float32 or source is torch.bool or source in _LANES_OF_INT):
            whole = self.cast(text, source, torch.int32)
            return whole if source is torch.bool else self._local("p_vi", _BYTES[target].format(whole))
        raise NoVectorForm(f"{source} as {target}")

    def _needs_lane(self, text: str) -> None:
        """Refuse an int64 that is clamped to what a lane holds, or may be."""
        if text not in self.varying or not _in_lane(self.ranges.get(text, ALL)):
            raise NoVectorForm("an int64 of unknown range")

    # -- memory ----------------------------------------------------------------------------------------------------

    def _step(self, e: Expr) -> int:
        """How far neighbouring lanes are apart."""
        assert self.vector is not None
        step = linear_coefficient(e, self.vector)
        number = step.as_int() if step is not None else None
        if number is None or any(s is not self.vector and self.indirect_names.get(s) in self.varying for s in e.free):
            raise NoVectorForm("lanes that are not evenly spaced")
        return number

    def _index_value(self, x: IndexValue, member: Member) -> str:
        e = member.at(x.expr)
        if not self._depends(e):
            found = super()._index_value(x, member)
            self.ranges[found] = self._bounds_of(e) if e.kind is int else ALL
            return found
        if e.kind is not int or not self._fits_int32(e):
            raise NoVectorForm("an index of unknown range")
        step = self._step(e)
        lanes = "p_lanes()" if step == 1 else f"p_lanes() * {step}"
        found = self._local("p_vi", f"P_BI((int32_t)({self.names.text(e, self.indirect_names)})) + {lanes}")
        self.ranges[found] = self._bounds_of(e)
        return found if x.dtype in (torch.int64, torch.int32) else self.cast(found, torch.int32, x.dtype)

    def _load(self, x: Load, member: Member) -> str:
        known = self.resolve(x, member)
        if known is not None:
            return known
        if any(self._varies(looked_up, member) for _, looked_up in x.indirect):
            return self._looked_up(x, member)
        text = self.index(x.index, x.indirect, member)
        e = member.at(x.index)
        if self._depends(e):
            return self._neighbours(x, e, text)
        if self.guarded and not self.in_range(x, member):
            raise NoVectorForm("one element for all lanes, where it may not be read")
        return self.define(self._element(x, text), x.dtype, False)

    def _varies(self, x: Scalar, member: Member) -> bool:
        """Whether what is looked up may differ from lane to lane."""
        indices = [s.index if isinstance(s, Load) else s.expr for s in walk(x) if isinstance(s, (Load, IndexValue))]
        return any(self.vector in member.at(e).free for e in indices)

    def _looked_up(self, x: Load, member: Member) -> str:
        """Elements that each lane looks up by itself: read one by one, straight into their lanes."""
        loads = [s for s in walk(x) if isinstance(s, Load)]
        known = any(self.resolve(s, member) is not None for s in loads)
        if not self.lookups or known or any(s.indirect for s in loads if s is not x) or x.dtype not in _LOOKED_UP:
            raise NoVectorForm("elements that are not neighbours")
        assert self.vector is not None
        lanes, point, here = f"t{self.counter[0]}", self.names.symbols[self.vector], f"t{self.counter[0] + 1}"
        self.counter[0] += 2
        element = f"{self.names.buffer(x.buffer)}[{self._nested_index(x, member)}]"
        inside = "" if self.mask is None else f"if ({self.mask}[k]) "
        self.body += [
            f"{TYPES[x.dtype]} {lanes} = {{}};",
            f"const int64_t {here} = {point};",
            "#pragma GCC unroll 16",
            f"P_EACH {inside}{{ const int64_t {point} = {here} + k; {lanes}[k] = {element}; }}",
        ]
        self.varying.add(lanes)
        return lanes

    def _neighbours(self, x: Load, e: Expr, index: str) -> str:
        """Elements that lie side by side, in either order, are every second one, or are read by two lanes each (`i // 2`)."""
        array, follower = self.names.buffer(x.buffer), self._follower(e)
        if follower is not None:
            second = self.names.text(follower, self.indirect_names)
            return self._shared(f"&{array}[{index}], &{array}[{second}]", x.dtype, "_pairs")
        step = self._step(e)
        how = {1: "", 2: "_2", -1: "_back"}.get(step)
        if step == 2 and self.mask is None and not x.indirect:
            for part, first in (("_evens", e), ("_odds", e - 1)):
                if self._is_loaded(x.buffer, first) and self._is_loaded(x.buffer, first + 1):
                    return self._shared(f"&{array}[{self.names.text(first)}]", x.dtype, part)
        if how is None:
            return self._local("p_vf", self._lanes_apart("load", f"&{array}[{index}], {step}", x.dtype))
        if x.buffer in self.loads_ahead and not x.indirect:
            self._ask_ahead("load", f"{array}[{index}]", how)
        return self._shared(f"&{array}[{index}]", x.dtype, how)

    def _is_loaded(self, buffer: Buffer, e: Expr) -> bool:
        """Whether what lies there is in the buffer for all points, and loaded for one half of the pairs or the other."""
        found = self.pairs.get((buffer, e))
        return found is not None and self.in_range(*found)

    def _is_read(self, x: Load, member: Member) -> bool:
        """Whether it is read from memory, as neighbours."""
        e = member.at(x.index)
        return not x.indirect and self._depends(e) and self.resolve(x, member) is None and self._step(e) == 1

    def _whole_floats(self, x: Load, member: Member) -> str:
        """int64 of any size as floats: they are converted where they are read, since no lane holds them."""
        at, (part, masked) = self.index(x.index, (), member), ("", "") if self.mask is None else ("_part", f", {self.mask}")
        return self._local("p_vf", f"p_load64_f{part}(&{self.names.buffer(x.buffer)}[{at}]{masked})")

    def _ask_ahead(self, access: str, element: str, how: str = "") -> None:
        text = f"p_{access}_ahead(&{element});"
        if self.mask is None and not how and text not in self.body:
            self.body.append(text)

    def _lanes_apart(self, how: str, arguments: str, dtype: torch.dtype) -> str:
        """A load or store of lanes one by one."""
        if not self.apart or dtype is not torch.float32:
            raise NoVectorForm("elements that are not neighbours")
        return f"p_{how}_apart({arguments})" if self.mask is None else f"p_{how}_apart_part({arguments}, {self.mask})"

    def _follower(self, e: Expr) -> Expr | None:
        """The index of the second lane, where the third reads what follows the first one's element, and so on."""
        assert self.vector is not None
        along = [(mono, coef) for mono, coef in e.terms if self.vector in mono.free]
        if len(along) != 1 or along[0][1] != 1 or not isinstance(along[0][0], FloorDiv):
            return None
        whole, divisor = along[0][0].args
        rest = e - along[0][0]
        if divisor.as_int() != 2 or linear_coefficient(whole, self.vector) is not ONE:
            return None
        looked_up = any(self.indirect_names.get(s) in self.varying for s in e.free)
        return None if looked_up else rest + (whole + 1) // divisor

    def _shared(self, at: str, dtype: torch.dtype, how: str) -> str:
        """What lies in memory: read once, whatever number of members wants it."""
        if how and dtype not in SPACED[how]:
            raise NoVectorForm(f"{dtype} that are not neighbours")
        text = self._memory(at, dtype, how)
        return self._local(TYPES[dtype], text)

    def read(self, array: str, index: str, dtype: torch.dtype) -> str:
        text = self._memory(f"&{array}[{index}]", dtype)
        return self._fresh(TYPES[dtype], text)

    def _memory(self, at: str, dtype: torch.dtype, how: str = "") -> str:
        """The text of a load."""
        template = LOADS.get(dtype)
        if template is None:
            raise NoVectorForm(f"{dtype} in memory")
        part, masked = (how, "") if self.mask is None else (f"{how}_part", f", {self.mask}")
        if self.far and not part and dtype in WHOLE:
            part = "_far"
        return template.format(part=part, at=at, masked=masked)

    def _fresh(self, ctype: str, text: str) -> str:
        """A local of its own: what memory holds now."""
        found = f"t{self.counter[0]}"
        self.counter[0] += 1
        self.body.append(f"const {ctype} {found} = {text};")
        self.varying.add(found)
        return found

    def write(self, array: str, index: str, value: str, dtype: torch.dtype, e: Expr | None = None) -> None:
        step = 1 if e is None else self._step(e)
        if dtype not in STORES:
            raise NoVectorForm(f"{dtype} in memory")
        if step != 1:
            text = f"&{array}[{index}], {step}, {self.lanes(value, dtype)}"
            self.body.append(f"{self._lanes_apart('store', text, dtype)};")
            return
        if dtype is torch.int64:
            self._needs_lane(value)
        function, form = STORES[dtype]
        text = form.format(self.lanes(value, dtype))
        if e is not None and any(self.names.buffers.get(b) == array for b in self.stores_ahead):
            self._ask_ahead("store", f"{array}[{index}]")
        if self.mask is None:
            self.body.append(f"{function}((void*)&{array}[{index}], {text});")
        else:
            self.body.append(f"{function}_part((void*)&{array}[{index}], {text}, {self.mask});")

    def write_pair(self, array: str, indices: tuple[Expr, Expr], values: Sequence[str], dtype: torch.dtype) -> None:
        """Store a vector of the first elements of pairs and one of the second ones; `indices` depend on loops alone."""
        if self._step(indices[0]) == 1:
            for e, value in zip(indices, values, strict=True):
                self.write(array, self.names.text(e), value, dtype, e)
            return
        function, form = STORES.get(dtype, ("", ""))
        if function not in PAIRED:
            raise NoVectorForm(f"pairs of {dtype}")
        lanes = ", ".join(form.format(self.lanes(value, dtype)) for value in values)
        part, masked = ("", "") if self.mask is None else ("_part", f", {self.mask}")
        self.body.append(f"{function}_pairs{part}((void*)&{array}[{self.names.text(indices[0])}], {lanes}{masked});")

    # -- choice ----------------------------------------------------------------------------------------------------

    def _where(self, x: Apply, member: Member) -> str:
        condition = self.value(x.args[0], member)
        if condition in self.varying:
            chosen = condition
        elif all(self._is_safe(a, member) for a in x.args[1:]):
            texts = [self.value(a, member) for a in x.args[1:]]
            if not any(t in self.varying for t in texts):
                return self.define(f"{condition} ? {texts[0]} : {texts[1]}", x.dtype, False)
            a, b = (self.lanes(t, x.dtype) for t in texts)
            return self._local(_type_of(x.dtype), f"{condition} ? {a} : {b}")
        elif x.dtype in _ONE_SIDE and not any(may_fail(s) for a in x.args[1:] for s in walk(a)):
            return self._one_side(x, condition, member)
        else:
            chosen = self._local("p_vi", self.lanes(condition, torch.bool))
        a, b = self._branch(x.args[1], member, chosen), self._branch(x.args[2], member, f"~{chosen}")
        ranges = [self._range(arg, text) for arg, text in zip(x.args[1:], (a, b))]
        texts = [self.lanes(t, x.dtype) for t in (a, b)]
        if x.dtype is torch.float32:
            return self._local("p_vf", f"p_choosev({chosen}, {texts[0]}, {texts[1]})")
        if x.dtype in _HALVES:
            return self._local("p_vh", f"p_chooseh({chosen}, {texts[0]}, {texts[1]})")
        if x.dtype not in (torch.bool, torch.int32, *_BYTES) and not (x.dtype is torch.int64 and all(map(_fits, ranges))):
            raise NoVectorForm(f"a choice of {x.dtype}")
        found = self._local("p_vi", f"p_choosei({chosen}, {texts[0]}, {texts[1]})")
        self.ranges[found] = ranges[0].join(ranges[1])
        return found

    def _one_side(self, x: Apply, condition: str, member: Member) -> str:
        """A choice that is the same for all lanes: only that side is executed, and its locals are gone after it."""
        found = f"t{self.counter[0]}"
        self.counter[0] += 1
        self.body.append(f"{TYPES[x.dtype]} {found};")
        self.one_side += 1
        for head, side in ((f"if ({condition}) {{", x.args[1]), ("} else {", x.args[2])):
            values, masked, names, start = dict(self.values), dict(self.masked), dict(self.indirect_names), len(self.body)
            text = self.lanes(self.value(side, member), x.dtype)
            self.values, self.masked, self.indirect_names = values, masked, names
            # in place: callers hold the list
            self.body[start:] = [head, *(f"  {one}" for one in (*self.body[start:], f"{found} = {text};"))]
        self.one_side -= 1
        self.body.append("}")
        self.varying.add(found)
        return found

    def _may_fail(self, x: Scalar, member: Member) -> bool:
        """Whether vectors of `x` may fail where a lane is not chosen: not what lanes look up by themselves."""
        if isinstance(x, Load) and any(self._varies(looked_up, member) for _, looked_up in x.indirect):
            return False
        parts = x.args if isinstance(x, Apply) else [s for _, s in x.indirect] if isinstance(x, Load) else []
        return may_fail(x) or any(self._may_fail(part, member) for part in parts)

    def _branch(self, x: Scalar, member: Member, chosen: str) -> str:
        """One side of a choice; what may lie outside its buffer is loaded only where it is chosen."""
        if self._is_safe(x, member):
            return self.value(x, member)
        if self._may_fail(x, member):
            raise NoVectorForm("a choice of what may fail")
        before = self.mask
        self.mask = self._local("p_vi", chosen if before is None else f"{before} & {chosen}")
        try:
            return self.value(x, member)
        finally:
            self.mask = before


def _computes_halves(x: Scalar, dtype: torch.dtype) -> bool:
    """Whether `x` only moves signs of values of this half dtype."""
    if dtype not in _HALVES or not isinstance(x, Apply) or x.dtype is not torch.float32 or x.op not in _OF_HALVES:
        return False
    return all(_is_widened(a, dtype) or _computes_halves(a, dtype) for a in x.args)


def _is_widened(x: Scalar, dtype: torch.dtype) -> bool:
    return isinstance(x, Apply) and x.op == "cast" and x.dtype is torch.float32 and x.args[0].dtype is dtype


def _type_of(dtype: torch.dtype) -> str:
    if dtype not in TYPES:
        raise NoVectorForm(f"{dtype}")
    return TYPES[dtype]


def _fits(interval: Interval) -> bool:
    return interval.lo >= _NARROW.lo and interval.hi <= _NARROW.hi


def _in_lane(interval: Interval) -> bool:
    return interval.lo >= _LANE.lo and interval.hi <= _LANE.hi


_INT64: dict[str, Callable[..., Interval]] = {
    "add": lambda a, b: Interval(a.lo + b.lo, a.hi + b.hi),
    "sub": lambda a, b: Interval(a.lo - b.hi, a.hi - b.lo),
    "mul": multiply,
    "neg": lambda a: Interval(-a.hi, -a.lo),
}
