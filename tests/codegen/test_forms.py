"""Kernels of one form are written once, and each has the text that is its own."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from codegen.golden_kernels import DYNAMIC, PROGRAMS, floats
from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.codegen.cuda.writer import write_kernel as write_device_kernel
from pliant.codegen.forms import WrittenOnce
from pliant.ir.loops import Buffer, Origin
from pliant.ir.scalar import apply, cast, const, index_value, load
from pliant.lowering.lower import lower
from pliant.schedule.kernel import Kernel
from pliant.schedule.schedule import schedule
from pliant.symbolic.expr import lit, symbol
from pliant.targets import cuda

# Each differs from a neighbour, or from itself with other arguments, in one thing that its form has to have.
NEIGHBOURS = (
    (lambda x, y: x + y, floats((8, 96), (8, 96))),
    (lambda x, y: (x + y, x - y), floats((8, 96), (8, 96))),
    (lambda x, y: x + x, floats((8, 96), (8, 96))),
    (lambda x, y: x + y, floats((8, 95), (8, 95))),
    (lambda x, y: x + y, floats((8, 96), (8, 96), dtype=torch.float64)),
    (lambda x, y: x + y, (torch.zeros(96, 8).t(), torch.zeros(8, 96))),
    (lambda x, y: x.t() + y, floats((96, 96), (96, 96))),
    (lambda x, y: x + y.t(), floats((96, 96), (96, 96))),
    (lambda x: torch.where(x > 0, x, 0.0), floats((8, 96))),
    (lambda x: torch.where(x > 0, x, -0.0), floats((8, 96))),
    (lambda x: torch.where(x > 0, x, float("nan")), floats((8, 96))),
    (lambda x: x.sum(1), floats((8, 96))),
    (lambda x: x.amax(1), floats((8, 96))),
    (lambda x: x.sum(0), floats((8, 96))),
    (lambda x: x.sum(1, dtype=torch.float64), floats((8, 96))),
    (lambda x: (s := x.sum(1, keepdim=True), x / s), floats((8, 96))),
    (lambda x: x / x.sum(1, keepdim=True), floats((8, 96))),
    (lambda x: x.index_add(0, torch.arange(8), x), floats((8, 96))),
    (lambda x, i: x[i], (torch.zeros(50, 32), torch.zeros(7, dtype=torch.int64))),
    (lambda x, i: x[:, i], (torch.zeros(50, 32), torch.zeros(7, dtype=torch.int64))),
)


def kernels(function, args, dynamic=False):
    planned = schedule(lower(trace(function, args, dynamic)), config.Config().schedule)
    return [step for step in planned.steps if isinstance(step, Kernel)]


def written_by(name):
    target = cuda.target(90)
    return {
        "c": lambda kernel: [write_kernel(kernel)],
        "cuda": lambda kernel: write_device_kernel(kernel, target),
    }[name]


@pytest.mark.parametrize("language", ["c", "cuda"])
def test_every_kernel_has_its_own_text(language):
    write = written_by(language)
    once = WrittenOnce(write)
    programs = [*NEIGHBOURS, *PROGRAMS.values()]
    found = [k for function, args in programs for k in kernels(function, args)]
    found += [k for name in DYNAMIC for k in kernels(*PROGRAMS[name], dynamic=True)]
    for kernel in found * 2:
        for one, other in zip(once(kernel), write(kernel), strict=True):
            assert (one.text, one.buffers, one.sizes) == (other.text, other.buffers, other.sizes)
            assert (one.written, one.work) == (other.written, other.work)


def member_with(**changes):
    def change(kernel):
        first, *rest = kernel.members
        return Kernel(kernel.axes, kernel.reduced, [replace(first, **changes), *rest], kernel.stored)

    return change


def loops_with(**changes):
    def change(kernel):
        return member_with(loops=replace(kernel.members[0].loops, **changes))(kernel)

    return change


def buffer_with(**changes):
    def change(kernel):
        out = kernel.members[0].loops.out
        changed = loops_with(out=replace(out, **changes))(kernel)
        changed.stored = {changed.members[0].loops.out}
        return changed

    return change


def value_with(value):
    return loops_with(value=value)


_I, _X = symbol("i0"), Buffer("x", torch.float32, (lit(8), lit(96)), (lit(96), lit(1)), torch.device("cpu"), "input")
_LOOKED_UP = load(_X, _I, ((_I, index_value(_I)),))
CHANGES = {
    "extent": lambda k: Kernel([replace(k.axes[0], extent=lit(7)), *k.axes[1:]], k.reduced, k.members, k.stored),
    "order": lambda k: Kernel(k.axes[::-1], k.reduced, k.members, k.stored),
    "reduced": lambda k: Kernel(k.axes, set(), k.members, k.stored),
    "stored": lambda k: Kernel(k.axes, k.reduced, k.members, set()),
    "members": lambda k: Kernel(k.axes, k.reduced, k.members * 2, k.stored),
    "place": member_with(place={}),
    "inner": member_with(inner=False),
    "phase": member_with(phase=3),
    "axes": loops_with(axes=()),
    "reduce_axes": loops_with(reduce_axes=()),
    "op": loops_with(op="max"),
    "index": loops_with(index=lit(5)),
    "accumulate_dtype": loops_with(accumulate_dtype=torch.float16),
    "dtype": buffer_with(dtype=torch.float64),
    "shape": buffer_with(shape=(lit(9),)),
    "strides": buffer_with(strides=(lit(9),)),
    "device": buffer_with(device=torch.device("cuda", 0)),
    **{f"value {k}": value_with(value) for k, value in enumerate((
        load(_X, _I), load(_X, _I + 1), _LOOKED_UP, load(_X, _I, ((_I, index_value(_I + 1)),)),
        index_value(_I), index_value(_I, torch.float32), const(0.0, torch.float32), const(-0.0, torch.float32),
        const(1.0, torch.float32), const(1, torch.int32), const(True, torch.bool), const(1.0, torch.float64),
        apply("exp", load(_X, _I)), apply("log", load(_X, _I)), cast(load(_X, _I), torch.float64),
        cast(load(_X, _I), torch.int32), apply("sub", load(_X, _I), _LOOKED_UP), apply("sub", _LOOKED_UP, load(_X, _I)),
    ))},
}  # fmt: skip


def test_whatever_differs_is_in_the_form():
    (kernel,) = kernels(lambda x: x.sum(1), floats((8, 96)))
    asked = []
    once = WrittenOnce(lambda one: asked.append(one) or [])
    different = [kernel, *(change(kernel) for change in CHANGES.values())]
    for one in different * 2:
        once(one)
    assert [name for name, one in zip(["none", *CHANGES], different) if one not in asked] == []
    assert len(asked) == len(different)


def test_names_are_not_in_the_form():
    asked = []
    once = WrittenOnce(lambda one: asked.append(one) or [])
    for _ in range(3):  # loops of kernels have new symbols each time
        (kernel,) = kernels(lambda x: x.sum(1), floats((8, 96)))
        for change in (lambda k: k, buffer_with(name="other"), buffer_with(role="other"), loops_with(origin=Origin("there"))):
            once(change(kernel))
    assert len(asked) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_are_written_once(dynamic):
    asked = []

    def write(kernel):
        asked.append(kernel)
        return [write_kernel(kernel)]

    def model(x, *weights):
        for w in weights:
            x = F.gelu(F.layer_norm(x + F.softmax(x @ w, -1), (32,)) @ w.t())
        return x

    def asks(layers):
        asked.clear()
        once = WrittenOnce(write)
        for kernel in kernels(model, floats((8, 32), *[(32, 32)] * layers), dynamic):
            once(kernel)
        return len(asked)

    assert asks(3) == asks(9)
