"""A program as C text that calls kernels and operators one after the other.

In:     an `Exported`, its loop program, its schedule.
Out:    `texts()`: the unit of kernels and `program.c`; `NoForm` for what it cannot say.
Holds:  numbers are C expressions of the inputs' sizes; memory is allocated before its first use and released behind its
        last, as the schedule says; every step that can fail ends the call.

    P_TRY(p_allocate(c, 12, 2, (const int64_t[]){s0, 5}, (const int64_t[]){5, 1}, 4));
    P_TRY(p_mm_f32(&(p_view){c->at[12], 2, {s0, 5}, {5, 1}}, ...));  // aten.mm.default
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pliant.autograd.places import FromInput, FromResult, Literal, Output, SameAs
from pliant.codegen import prelude
from pliant.codegen.c import KernelText, write_kernel
from pliant.codegen.forms import WrittenOnce
from pliant.codegen.sharing import share
from pliant.exporting.checking import facts_of, homes_of
from pliant.exporting.program import Program
from pliant.exporting.standalone.operators import MOST_DIMS, NoForm, function_of
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import keys_of
from pliant.graph.unbacked import CHECKS
from pliant.ir.loops import Buffer, Extern, LoopProgram, View
from pliant.schedule.kernel import ExternCall, Kernel, Schedule, runs
from pliant.symbolic.expr import ZERO, Expr, lit
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
    """The text of one program. `at`: where each weight, then each constant, begins among the weights' bytes."""

    def __init__(self, program: Program, loops: LoopProgram, planned: Schedule, at: Sequence[int], size: int) -> None:
        self.program, self.loops, self.planned, self.at, self.size = program, loops, planned, at, size
        self.first = sum(one.leaf is None for one in program.inputs)
        self.numbers: dict[Buffer, int] = {}
        self.once = WrittenOnce(lambda kernel: [write_kernel(kernel)])
        self.kernels = iter(share([self._written(run) for run in runs(planned.steps)]))
        self.names: dict[str, str] = {}
        self.comments: dict[str, str] = {}
        # not freed behind their last use: who takes their memory does, or the end of the call, which reads them
        self.lasting = {*planned.in_place.values(), *self._returned_inputs()}

    def _written(self, run: range) -> list[KernelText]:
        steps = [self.planned.steps[k] for k in run]
        return [text for step in steps if isinstance(step, Kernel) for text in self.once(step)]

    def _returned_inputs(self) -> Iterator[Any]:
        """Inputs that are results, or that have new values at the end."""
        yield from (self.loops.inputs[one.input] for one in self.program.outputs if isinstance(one, FromInput))
        yield from (b for b, one in zip(self.loops.inputs, self.program.inputs, strict=True) if one.mutated)

    def texts(self) -> tuple[str, str]:
        body = [*self._weights(), *self._inputs(), *self._steps(), *self._results()]
        declared = "".join(f"{_KERNEL};\n".replace("@", name) for name in self.names.values())
        kernels = "".join(self.comments[n] + text.replace("static void @(", "P_HIDDEN void @(").replace("@", n) for text, n in self.names.items())
        writes = any(one.mutated for one in self.program.inputs[: self.first])
        constants = [
            f"const int p_input_count = {len(self.program.inputs) - self.first}, p_result_count = {len(self.program.outputs)};",
            f"const int p_buffer_count = {len(self.numbers) + 1};", f"const int64_t p_weight_bytes = {self.size};",
            f"const bool p_writes_state = {str(writes).lower()};",
        ]  # fmt: skip
        lines = "".join(f"  {line}\n" for line in [*self._scratch(), "int32_t error = 0;", "(void)error;", *body, "return PLIANT_OK;"])
        text = "\n".join(['#include "runtime.h"', declared + _DOUBLE, *constants, f"int p_body(p_call *c) {{\n{lines}}}\n"])
        return prelude.text_for(kernels) + _HIDDEN + PART + _RUN + kernels, text

    # ---- names
    def _number(self, b: Buffer) -> int:
        return self.numbers.setdefault(b, len(self.numbers))

    def _at(self, b: Buffer) -> str:
        return f"c->at[{self._number(b)}]"

    def _scratch(self) -> list[str]:
        offsets = self.planned.scratch
        size = max([offset + 1024 for offset in offsets.values()], default=0)
        return [f"char scratch[{size}] __attribute__((aligned(64)));"] if offsets else []

    # ---- inputs
    def _weights(self) -> Iterator[str]:
        for b, place in zip([*self.loops.inputs[: self.first], *self.loops.constants], self.at, strict=True):
            if isinstance(b, Buffer):
                yield f"{self._at(b)} = c->weights + {place};"

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
            yield f"P_TRY(p_input(c, {i}, {self._number(b)}, {_array(keys_of(fake.size_))}, {_array(keys_of(fake.stride_))}, false));"

    # ---- steps
    def _steps(self) -> Iterator[str]:
        for run in runs(self.planned.steps):
            texts = iter(next(self.kernels))
            for k in run:
                yield from self._step(k, texts)

    def _step(self, k: int, texts: Iterator[KernelText]) -> Iterator[str]:
        for b in self.planned.allocate[k]:
            yield self._allocate(b)
        step = self.planned.steps[k]
        if isinstance(step, ExternCall):
            yield from self._extern(step.extern)
        else:
            yield from self._kernel(next(texts))
        for b in self.planned.free[k]:
            if b in self.numbers and b not in self.lasting:
                yield f"p_free(c, {self._number(b)});"

    def _allocate(self, b: Buffer) -> str:
        old = self.planned.in_place.get(b)
        if old is not None:
            return f"p_take(c, {self._number(b)}, {self._number(old)});"
        return f"P_TRY(p_allocate(c, {self._number(b)}, {len(b.shape)}, {_array(b.shape)}, {_array(b.strides)}, {b.dtype.itemsize}));"

    def _kernel(self, kernel: KernelText) -> Iterator[str]:
        name = self.names.setdefault(kernel.text, f"k{len(self.names)}")
        self.comments.setdefault(name, kernel.comment)
        for b in kernel.buffers:
            if b in self.planned.scratch and b not in self.numbers:
                yield f"{self._at(b)} = scratch + {self.planned.scratch[b]};"
        given = ", ".join(map(self._at, kernel.buffers)) or "0"
        numbers = ", ".join(_c(s) if s.kind is int else f"p_double({_c(s)})" for s in kernel.sizes) or "0"
        yield f"{name}((void *[]){{{given}}}, (const int64_t[]){{{numbers}}}, &error);"
        yield 'if (error) return p_fail(PLIANT_INDEX, "an index is out of range");'

    def _extern(self, extern: Extern) -> Iterator[str]:
        if extern.target in CHECKS:
            yield _fact(extern.args[0], str(extern.args[2]) if len(extern.args) > 2 else "a check of the program")
            return
        name, arguments = function_of(extern)
        if extern.out_variant is None:
            for b in extern.outs:
                if b is not None and b not in self.numbers:
                    yield self._allocate(b)
        outs = [None if b is None else View(b, b.shape, b.strides, ZERO, b.dtype) for b in extern.outs]
        yield f"P_TRY({name}({', '.join(map(self._argument, [*outs, *arguments]))}));  // {extern.origin.splitlines()[0]}"

    def _argument(self, value: Any) -> str:
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
        place = self._at(v.buffer) + ("" if v.offset is ZERO else f" + ({_c(v.offset)}) * {v.dtype.itemsize}")
        return f"(p_view){{{place}, {len(v.shape)}, {{{_items(v.shape)}}}, {{{_items(v.strides)}}}}}"

    # ---- results
    def _results(self) -> Iterator[str]:
        for i, one in enumerate(self.program.outputs):
            yield self._result(i, one)
        nodes = self.program.placeholders
        for i, b in enumerate(self.loops.inputs[self.first :]):
            if self.program.inputs[self.first + i].mutated and isinstance(b, Buffer):
                fake = nodes[self.first + i].meta["val"]
                yield f"P_TRY(p_written(c, {i}, {self._number(b)}, {_array(keys_of(fake.size_))}, {_array(keys_of(fake.stride_))}));"

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
                return f"P_TRY(p_result(c, {i}, {self._number(value.buffer)}, {given}));"
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
