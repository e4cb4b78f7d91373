"""A program as C text that calls kernels and operators one after the other.

In:     an `Exported`, its loop program and schedule, those of bodies in it.
Out:    `texts()`: the unit of kernels and `program.c`; `NoForm` for what it cannot say.
Holds:  numbers are C expressions of the inputs' sizes; memory is allocated before its first use and released behind its
        last, as the schedule says; every step that can fail ends the call.

    P_TRY(p_allocate(c, 12, 2, (const int64_t[]){s0, 5}, (const int64_t[]){5, 1}, 4));
    P_TRY(p_mm_f32(&(p_view){c->at[12], 2, {s0, 5}, {5, 1}}, ...));  // aten.mm.default
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pliant.autograd.places import FromInput, FromResult, Literal, Output, SameAs
from pliant.codegen import prelude
from pliant.codegen.c import KernelText, write_kernel
from pliant.codegen.forms import WrittenOnce
from pliant.codegen.sharing import share
from pliant.exporting.checking import facts_of, homes_of, written_apart
from pliant.exporting.program import Program
from pliant.exporting.standalone.control import Part, Parts, control_of, lines_of_control
from pliant.exporting.standalone.operators import MOST_DIMS, NoForm, function_of
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of
from pliant.graph.unbacked import CHECKS
from pliant.ir.loops import Buffer, Extern, View
from pliant.schedule.kernel import ExternCall, Kernel, Schedule, Step, runs
from pliant.symbolic.expr import ZERO, Expr, Symbol, lit
from pliant.symbolic.printer import to_c, to_python
from pliant.wrappers.shared_text import PART

# DLPack's code, bits and lanes.
DTYPES = {
    torch.float32: (2, 32, 1), torch.float64: (2, 64, 1), torch.float16: (2, 16, 1), torch.bfloat16: (4, 16, 1),
    torch.int64: (0, 64, 1), torch.int32: (0, 32, 1), torch.int16: (0, 16, 1), torch.int8: (0, 8, 1),
    torch.uint8: (1, 8, 1), torch.bool: (6, 8, 1),
}  # fmt: skip
_NUMBERS = {int: ("int64_t", torch.int64), float: ("double", torch.float64), bool: ("uint8_t", torch.bool)}
_HIDDEN = '#define P_HIDDEN __attribute__((visibility("hidden")))\n'
_RUN = "extern P_HIDDEN int64_t p_run(p_part, void**, const int64_t*, int64_t, int64_t, int64_t, int32_t*);\n"
_KERNEL = "P_HIDDEN void @(void** p, const int64_t* n, int32_t* p_error)"
_DOUBLE = "static inline int64_t p_double(double x) { int64_t r; __builtin_memcpy(&r, &x, 8); return r; }\n"


class ProgramText:
    """The text of one program. `parts`: its loops, and those of bodies; `weights_at`: where each weight, then each constant,
    begins among the weights' bytes."""

    def __init__(self, program: Program, parts: Parts, weights_at: Sequence[int], size: int) -> None:
        self.program, self.parts, self.weights_at, self.size = program, parts, weights_at, size
        self.loops = parts[None][0].loops
        self.first = sum(one.leaf is None for one in program.inputs)
        self.numbers: dict[Buffer, int] = {}
        self.once = WrittenOnce(lambda kernel: [write_kernel(kernel)])
        self.names: dict[str, str] = {}
        self.comments: dict[str, str] = {}
        # not freed behind their last use: who takes their memory does, or the end of the call, which reads them
        self.lasting = {*self._returned_inputs(), *(b for part in self._all() for b in part.planned.in_place.values())}
        self.counted = 0

    def _all(self) -> Iterator[Part]:
        return itertools.chain.from_iterable(self.parts.values())

    def _returned_inputs(self) -> Iterator[Any]:
        """Inputs that are results, or that have new values at the end."""
        yield from (self.loops.inputs[one.input] for one in self.program.outputs if isinstance(one, FromInput))
        yield from (b for b, one in zip(self.loops.inputs, self.program.inputs, strict=True) if one.mutated)

    def texts(self) -> tuple[str, str]:
        body = [*self._weights(), *self._inputs(), *self.part(self.parts[None][0]), *self._results()]
        declared = "".join(f"{_KERNEL};\n".replace("@", name) for name in self.names.values())
        kernels = "".join(self.comments[n] + text.replace("static void @(", "P_HIDDEN void @(").replace("@", n) for text, n in self.names.items())
        writes = any(one.mutated for one in self.program.inputs[: self.first])
        constants = [
            f"const int p_input_count = {len(self.program.inputs) - self.first}, p_result_count = {len(self.program.outputs)};",
            f"const int p_buffer_count = {len(self.numbers) + 1};", f"const int64_t p_weight_bytes = {self.size};",
            f"const bool p_writes_state = {str(writes).lower()};",
        ]  # fmt: skip
        lines = "".join(f"  {line}\n" for line in ["int32_t error = 0;", "(void)error;", *body, "return PLIANT_OK;"])
        text = "\n".join(['#include "runtime.h"', declared + _DOUBLE, *constants, f"int p_body(p_call *c) {{\n{lines}}}\n"])
        return prelude.text_for(kernels) + _HIDDEN + PART + _RUN + kernels, text

    # ---- names
    def index(self, b: Buffer) -> int:
        return self.numbers.setdefault(b, len(self.numbers))

    def at(self, b: Buffer) -> str:
        return f"c->at[{self.index(b)}]"

    def place(self, v: View) -> str:
        """Where the first element of a tensor lies."""
        return self.at(v.buffer) + ("" if v.offset is ZERO else f" + ({_c(v.offset)}) * {v.dtype.itemsize}")

    def counter(self) -> Symbol:
        """A variable of a loop."""
        self.counted += 1
        return Symbol(f"i{self.counted - 1}", int)

    @staticmethod
    def number(e: Any) -> str:
        return _c(e)

    @staticmethod
    def fact(fact: Expr, otherwise: str) -> str:
        return _fact(fact, otherwise)

    @staticmethod
    def array(values: Sequence[Any]) -> str:
        return _array(values)

    @staticmethod
    def dtype(dtype: torch.dtype) -> str:
        return _dtype(dtype)

    # ---- inputs
    def _weights(self) -> Iterator[str]:
        constants = [b for part in self._all() for b in part.loops.constants]
        for b, place in zip([*self.loops.inputs[: self.first], *constants], self.weights_at, strict=True):
            if isinstance(b, Buffer):
                yield f"{self.at(b)} = c->weights + {place};"

    def _inputs(self) -> Iterator[str]:
        nodes = self.program.placeholders[self.first :]
        fakes: list[FakeTensor] = [node.meta["val"] for node in nodes]
        if any(fake.device_.type != "cpu" for fake in fakes):
            raise NoForm("an input is on another device than the CPU")
        for i, fake in enumerate(fakes):
            yield f"P_TRY(p_rank(c, {i}, {_dtype(fake.dtype_)}, {len(fake.size_)}));"
        for symbol, (place, dim) in homes_of([fake.spec for fake in fakes]).items():
            yield f"const int64_t {symbol} = c->inputs[{place}].shape[{dim}];"
        for fact in facts_of(self.program.shape_env):
            yield _fact(fact, to_python(fact, self.program.names))
        for i, (fake, b) in enumerate(zip(fakes, self.loops.inputs[self.first :], strict=True)):
            if not isinstance(b, Buffer):
                raise NoForm("an input that is no tensor")
            yield f"P_TRY(p_input(c, {i}, {self.index(b)}, {_array(keys_of(fake.size_))}, {_array(keys_of(fake.stride_))}, false));"
        for i, others in written_apart(self.program):
            yield from (f"P_TRY(p_apart(c, {i}, {other}));" for other in others)

    # ---- steps
    def part(self, part: Part) -> Iterator[str]:
        """The lines of the program's loops, or of those of a body whose inputs are in their places."""
        offsets, steps = part.planned.scratch, part.planned.steps
        if offsets:
            size = max(offset + 1024 for offset in offsets.values())
            yield f"char scratch[{size}] __attribute__((aligned(64)));"
        kernels = iter(share([self._written(steps[run.start : run.stop]) for run in runs(steps)]))
        for run in runs(steps):
            texts = iter(next(kernels))
            for k in run:
                yield from self._step(part.planned, k, texts)

    def _written(self, steps: Sequence[Step]) -> list[KernelText]:
        return [text for step in steps if isinstance(step, Kernel) for text in self.once(step)]

    def _step(self, planned: Schedule, k: int, texts: Iterator[KernelText]) -> Iterator[str]:
        for b in planned.allocate[k]:
            old = planned.in_place.get(b)
            yield self.allocate(b) if old is None else f"p_take(c, {self.index(b)}, {self.index(old)});"
        step = planned.steps[k]
        if isinstance(step, ExternCall):
            yield from self._extern(step.extern)
        else:
            yield from self._kernel(planned, next(texts))
        yield from self.released([b for b in planned.free[k] if b in self.numbers and b not in self.lasting])

    def allocate(self, b: Buffer) -> str:
        return f"P_TRY(p_allocate(c, {self.index(b)}, {len(b.shape)}, {_array(b.shape)}, {_array(b.strides)}, {b.dtype.itemsize}));"

    def released(self, buffers: Sequence[Buffer]) -> Iterator[str]:
        """Memory that the call has for these is free."""
        yield from (f"p_free(c, {self.index(b)});" for b in dict.fromkeys(buffers))

    def allocated(self, part: Part) -> Iterator[Buffer]:
        """What lasts to the end of a body, and then no longer."""
        freed = {b for each in part.planned.free for b in each if b not in self.lasting}
        made = (b for each in part.planned.allocate for b in each)
        outs = (b for step in part.planned.steps if isinstance(step, ExternCall) for b in step.extern.outs if b is not None)
        return (b for b in (*made, *outs) if b in self.numbers and b not in freed)

    def _kernel(self, planned: Schedule, kernel: KernelText) -> Iterator[str]:
        name = self.names.setdefault(kernel.text, f"k{len(self.names)}")
        self.comments.setdefault(name, kernel.comment)
        for b in kernel.buffers:
            if b in planned.scratch and b not in self.numbers:
                yield f"{self.at(b)} = scratch + {planned.scratch[b]};"
        given = ", ".join(map(self.at, kernel.buffers)) or "0"
        numbers = ", ".join(_c(s) if s.kind is int else f"p_double({_c(s)})" for s in kernel.sizes) or "0"
        yield f"{name}((void *[]){{{given}}}, (const int64_t[]){{{numbers}}}, &error);"
        yield 'if (error) return p_fail(PLIANT_INDEX, "an index is out of range");'

    def _extern(self, extern: Extern) -> Iterator[str]:
        program = control_of(extern)
        if program is not None:
            yield from lines_of_control(self, extern, program)
            return
        if extern.target in CHECKS:
            yield _fact(extern.args[0], str(extern.args[2]) if len(extern.args) > 2 else "a check of the program")
            return
        name, arguments = function_of(extern)
        if extern.out_variant is None:
            for b in extern.outs:
                if b is not None and b not in self.numbers:
                    yield self.allocate(b)
        outs = [None if b is None else View(b, b.shape, b.strides, ZERO, b.dtype) for b in extern.outs]
        yield f"P_TRY({name}({', '.join(map(self.argument, [*outs, *arguments]))}));  // {extern.origin.text.splitlines()[0]}"

    def argument(self, value: Any) -> str:
        match value:
            case View():
                return f"&{self._view(value)}"
            case None:
                return "0"
            case list() | tuple():
                return _array(value)
            case bool() | int() | float() | Expr():
                return _c(value)
        raise NoForm(f"the argument `{value}`")

    def _view(self, v: View) -> str:
        if len(v.shape) > MOST_DIMS:
            raise NoForm(f"an operator on {len(v.shape)} dimensions")
        return f"(p_view){{{self.place(v)}, {len(v.shape)}, {{{_items(v.shape)}}}, {{{_items(v.strides)}}}}}"

    # ---- results
    def _results(self) -> Iterator[str]:
        for i, one in enumerate(self.program.outputs):
            yield self._result(i, one)
        nodes = self.program.placeholders
        for i, b in enumerate(self.loops.inputs[self.first :]):
            if self.program.inputs[self.first + i].mutated and isinstance(b, Buffer):
                fake = nodes[self.first + i].meta["val"]
                yield f"P_TRY(p_written(c, {i}, {self.index(b)}, {_array(keys_of(fake.size_))}, {_array(keys_of(fake.stride_))}));"

    def _result(self, i: int, one: Output) -> str:
        match one:
            case FromResult(position=place):
                return self._value(i, self.loops.outputs[place])
            case FromInput(input=place):
                b = self.loops.inputs[place]
                assert isinstance(b, Buffer)
                return self._value(i, View(b, b.shape, b.strides, ZERO, b.dtype))
            case Literal(value=value):
                return self._value(i, value)
            case SameAs(output=place):
                return self._result(i, self.program.outputs[place])
        raise NoForm("a result is a view of an argument, or of the state")

    def _value(self, i: int, value: Any) -> str:
        match value:
            case None:
                return ";"
            case View():
                given = f"{_dtype(value.dtype)}, {len(value.shape)}, {_array(value.shape)}, {_array(value.strides)}, {_c(value.offset)}"
                return f"P_TRY(p_result(c, {i}, {self.index(value.buffer)}, {given}));"
            case bool() | int() | float() | Expr():
                number = lit(value)
                kind, dtype = _NUMBERS[number.kind]
                return f"P_TRY(p_number(c, {i}, {_dtype(dtype)}, &({kind}){{{_c(number)}}}));"
        raise NoForm(f"the result `{value}`")


def _c(e: Any) -> str:
    try:
        return to_c(lit(e))
    except NotImplementedError:
        raise NoForm(f"the number `{e}`") from None


def _fact(fact: Any, said: str) -> str:
    return f"P_FACT({_c(fact)}, {json.dumps(said + ' does not hold')});"


def _dtype(dtype: torch.dtype) -> str:
    if dtype not in DTYPES:
        raise NoForm(f"a tensor of {dtype}")
    return f"(pliant_dtype){{{', '.join(map(str, DTYPES[dtype]))}}}"


def _items(values: Sequence[Any]) -> str:
    return ", ".join(map(_c, values)) or "0"


def _array(values: Sequence[Any]) -> str:
    return f"(const int64_t[]){{{_items(values)}}}"
