"""Kernels as CUDA C, run on the CPU by the shim, against the reference interpreter; and built by NVRTC where it is."""

import copy

import pytest
import torch

from codegen.cuda import nvrtc_check
from codegen.cuda.programs import DeviceProgram
from loop_programs import Program, gelu, get, layer_norm, softmax
from pliant.ir.interpret import run
from pliant.ir.loops import Axis, LoopProgram, Pointwise
from pliant.ir.scalar import apply, cast, const, index_value, load, where
from pliant.symbolic.expr import lit, symbol

SIZES = [(4, 7), (1, 5), (5, 1), (0, 5), (5, 0), (33, 64), (300, 40), (3, 5000), (1000, 3), (2, 20000)]
built: set[str] = set()


def check(program: LoopProgram, *args) -> DeviceProgram:
    """The shim gives what the interpreter gives, and NVRTC takes the texts."""
    expected = run(program, copy.deepcopy(list(args)))
    device = DeviceProgram(program)
    for want, got in zip(expected, device(copy.deepcopy(list(args))), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-4, equal_nan=True)
    if nvrtc_check.nvrtc() is not None:
        for kernel in device.kernels:
            if kernel.text not in built:
                built.add(kernel.text)
                _, log = nvrtc_check.compile_text(kernel.text, "sm_80" if len(built) % 2 else "sm_90")
                assert nvrtc_check.registers(log)[1] == 0, kernel.text
    return device


def test_softmax():
    for rows, columns in SIZES:
        check(softmax(rows, columns), torch.randn(rows, columns))


def test_softmax_of_symbolic_sizes():
    device = DeviceProgram(softmax(symbol("s0"), symbol("s1")))
    for rows, columns in SIZES:
        x = torch.randn(rows, columns)
        (got,) = device([rows, columns, x])
        torch.testing.assert_close(got, x.softmax(-1))


def test_layer_norm():
    check(layer_norm(37, 100), torch.randn(37, 100), torch.randn(100), torch.randn(100))


def by_rows_and_columns(op: str, rows: int, columns: int) -> LoopProgram:
    p = Program()
    x = p.tensor(rows, columns)
    by_row = p.reduce(op, (rows,), (columns,), lambda i, j: get(x, i, j))
    by_column = p.reduce(op, (columns,), (rows,), lambda j, i: get(x, i, j))
    return p.done(by_row, by_column)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin"])
def test_reductions(op):
    for rows, columns in [(4, 7), (33, 64), (300, 40), (3, 5000), (1000, 3)]:
        data = torch.randn(rows, columns)
        data = data.clamp(0.98, 1.02) if op == "prod" else data
        if op.startswith("arg"):
            data[rows // 2, columns // 2] = float("nan")
        check(by_rows_and_columns(op, rows, columns), data)


@pytest.mark.parametrize("op", ["max", "min", "argmax", "argmin"])
def test_nan_wins(op):
    p = Program()
    x = p.tensor(6, 50)
    data = torch.randn(6, 50)
    data[1, 3] = data[1, 7] = data[4, 0] = float("nan")
    data[2] = float("-inf")
    data[3] = float("inf")
    check(p.done(p.reduce(op, (6,), (50,), lambda i, j: get(x, i, j))), data)


@pytest.mark.parametrize("op", ["any", "all"])
def test_truth_reductions(op):
    p = Program()
    x = p.tensor(20, 30, dtype=torch.bool)
    check(p.done(p.reduce(op, (20,), (30,), lambda i, j: get(x, i, j))), torch.rand(20, 30) > 0.05)


def test_batch_norm():
    p = Program()
    x = p.tensor(8, 5, 30)
    total = p.reduce("sum", (5,), (8, 30), lambda c, n, h: get(x, n, c, h))
    mean = p.pointwise((5,), lambda c: apply("div", get(total, c), const(240.0, torch.float32)))
    centred = p.pointwise((8, 5, 30), lambda n, c, h: apply("sub", get(x, n, c, h), get(mean, c)))
    square = lambda c, n, h: apply("mul", get(centred, n, c, h), get(centred, n, c, h))
    variance = p.reduce("sum", (5,), (8, 30), square)
    out = p.pointwise((8, 5, 30), lambda n, c, h: apply("mul", get(centred, n, c, h), apply("rsqrt", get(variance, c))))
    assert len(check(p.done(out, mean, variance), torch.randn(8, 5, 30)).kernels) == 1


@pytest.mark.parametrize("shape", [(64, 64), (100, 130), (3, 200)])
def test_transpose(shape):
    p = Program()
    x, y = p.tensor(*shape), p.tensor(shape[1], shape[0])
    out = p.pointwise((shape[1], shape[0]), lambda j, i: apply("add", get(x, i, j), get(y, j, i)))
    check(p.done(out), torch.randn(shape), torch.randn(shape[1], shape[0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_compute_in_float(dtype):
    p = Program()
    x = p.tensor(64, 32, dtype=dtype)
    wide = lambda i, j: cast(get(x, i, j), torch.float32)
    out = p.pointwise((64, 32), lambda i, j: cast(gelu(wide(i, j)), dtype))
    total = p.reduce("sum", (64,), (32,), wide, dtype=dtype)
    data = torch.randn(64, 32).to(dtype)
    data[0, :3] = torch.tensor([float("inf"), float("nan"), 1e-40])
    check(p.done(out, total), data)


def embedding():
    p = Program()
    table, rows = p.tensor(20, 8), p.tensor(5, dtype=torch.int64)
    u = symbol("u0")

    def value(i, j):
        return load(table, 8 * u + j, ((u, apply("check_index", get(rows, i), const(20, torch.int64))),))

    return p.done(p.pointwise((5, 8), value))


def test_gather():
    check(embedding(), torch.randn(20, 8), torch.tensor([0, 19, -1, 3, 3]))


@pytest.mark.parametrize("wrong", [20, -21, 2**40])
def test_an_index_out_of_range_raises(wrong):
    with pytest.raises(IndexError):
        DeviceProgram(embedding())([torch.randn(20, 8), torch.tensor([0, wrong, 0, 0, 0])])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8])
@pytest.mark.parametrize("how", ["sum", "max", "min"])
def test_scatter(how, dtype):
    p = Program()
    rows, x = p.tensor(50, dtype=torch.int64), p.tensor(50, 8, dtype=dtype)
    out = p.pointwise((20, 8), lambda i, j: const(0, dtype))
    i, j, u = symbol("i900"), symbol("i901"), symbol("u0")
    axes = (Axis(i, lit(50)), Axis(j, lit(8)))
    p.program.computations.append(Pointwise(out, axes, 8 * u + j, get(x, i, j), how, ((u, get(rows, i)),)))
    check(p.done(out), torch.randint(0, 20, (50,)), torch.randint(-9, 9, (50, 8)).to(dtype))


def test_cat_reads_each_part_only_inside_its_range():
    p = Program()
    x, y = p.tensor(4, 5), p.tensor(4, 7)
    left = lambda j: apply("lt", index_value(j), const(5, torch.int64))
    out = p.pointwise((4, 12), lambda i, j: where(left(j), load(x, 5 * i + j), load(y, 7 * i + j - 5)))
    check(p.done(out), torch.randn(4, 5), torch.randn(4, 7))


def test_unaligned_inputs_and_tails():
    p = Program()
    x = p.tensor(1003)
    device = DeviceProgram(p.done(p.pointwise((1003,), lambda i: apply("exp", get(x, i)))))
    for offset in range(4):
        data = torch.randn(1010)[offset : offset + 1003]
        (got,) = device([data])
        torch.testing.assert_close(got, data.exp())
