"""Kernels as CUDA C, run on the CPU by the shim, against the reference interpreter; and built by NVRTC where it is."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from codegen.cuda import nvrtc_check
from codegen.cuda.programs import DeviceProgram
from codegen.cuda.sanitized import recorded, replay
from codegen.cuda.shim import prepare
from loop_programs import Program, gelu, get, layer_norm, softmax
from pliant.codegen.cuda.prelude import SNIPPETS
from pliant.ir.interpret import run
from pliant.ir.loops import Axis, LoopProgram, Pointwise
from pliant.ir.ops import OPS
from pliant.ir.scalar import Scalar, apply, cast, const, index_value, load, where
from pliant.symbolic.expr import lit, symbol

f32, bf16, i64 = torch.float32, torch.bfloat16, torch.int64
Case = tuple[LoopProgram, list[tuple[Any, ...]]]  # a program, and the arguments of some calls


def test_every_function_of_floats_is_in_the_prelude():
    called = [name for row in OPS.values() for name in re.findall(r"\bp_\w+f\b", row.c_float or "")]
    assert "p_expf" in called and set(called) <= SNIPPETS.keys()


def reduction(op: str, rows: int, columns: int) -> Case:
    p = Program()
    x = p.tensor(rows, columns)
    by_row = p.reduce(op, (rows,), (columns,), lambda i, j: get(x, i, j))
    by_column = p.reduce(op, (columns,), (rows,), lambda j, i: get(x, i, j))
    data = torch.randn(rows, columns)
    data = data.clamp(0.98, 1.02) if op == "prod" else data
    if op.startswith("arg"):
        data[rows // 2, columns // 2] = data[0, 1] = float("nan")
    return p.done(by_row, by_column), [(data,)]


def many_by_columns() -> Case:
    """More partial results than a block has shared memory for, if it took as many rows as for one."""
    p = Program()
    x = p.tensor(300, 64, dtype=torch.float64)
    ops = ["sum", "max", "argmax", "argmin", "prod", "min"]
    found = [p.reduce(op, (64,), (300,), lambda j, i: get(x, i, j)) for op in ops]
    return p.done(*found), [(torch.randn(300, 64, dtype=torch.float64).clamp(-1.02, 1.02),)]


def truth(op: str) -> Case:
    p = Program()
    x = p.tensor(20, 30, dtype=torch.bool)
    return p.done(p.reduce(op, (20,), (30,), lambda i, j: get(x, i, j))), [(torch.rand(20, 30) > 0.05,)]


def nan_and_infinity(op: str) -> Case:
    p = Program()
    x = p.tensor(6, 50)
    data = torch.randn(6, 50)
    data[1, 3] = data[1, 7] = data[4, 0] = float("nan")
    data[2] = float("-inf")
    data[3] = float("inf")
    return p.done(p.reduce(op, (6,), (50,), lambda i, j: get(x, i, j))), [(data,)]


def batch_norm() -> Case:
    p = Program()
    x = p.tensor(8, 5, 30)
    total = p.reduce("sum", (5,), (8, 30), lambda c, n, h: get(x, n, c, h))
    mean = p.pointwise((5,), lambda c: apply("div", get(total, c), const(240.0, f32)))
    centred = p.pointwise((8, 5, 30), lambda n, c, h: apply("sub", get(x, n, c, h), get(mean, c)))
    square = lambda c, n, h: apply("mul", get(centred, n, c, h), get(centred, n, c, h))
    variance = p.reduce("sum", (5,), (8, 30), square)
    out = p.pointwise((8, 5, 30), lambda n, c, h: apply("mul", get(centred, n, c, h), apply("rsqrt", get(variance, c))))
    return p.done(out, mean, variance), [(torch.randn(8, 5, 30),)]


def transposed(rows: int, columns: int) -> Case:
    p = Program()
    x, y = p.tensor(rows, columns), p.tensor(columns, rows)
    out = p.pointwise((columns, rows), lambda j, i: apply("add", get(x, i, j), get(y, j, i)))
    return p.done(out), [(torch.randn(rows, columns), torch.randn(columns, rows))]


def turned_pictures() -> Case:
    """Channels last to channels first, in 16 bits."""
    p = Program()
    x = p.tensor(2, 70, 128, dtype=bf16)
    wide = lambda n, c, h: cast(get(x, n, h, c), f32)
    out = p.pointwise((2, 128, 70), lambda n, c, h: cast(apply("mul", wide(n, c, h), wide(n, c, h)), bf16))
    return p.done(out), [(torch.randn(2, 70, 128).to(bf16),)]


def transposed_symbols() -> Case:
    p = Program()
    rows, columns = p.size("s0"), p.size("s1")
    x = p.tensor(rows, columns)
    out = p.pointwise((columns, rows), lambda j, i: apply("exp", get(x, i, j)))
    return p.done(out), [(n, c, torch.randn(n, c)) for n, c in [(3, 5), (64, 128), (70, 129), (0, 3)]]


def half(dtype: torch.dtype) -> Case:
    p = Program()
    x = p.tensor(64, 32, dtype=dtype)

    def wide(i: Any, j: Any) -> Scalar:
        return cast(get(x, i, j), f32)

    out = p.pointwise((64, 32), lambda i, j: cast(gelu(wide(i, j)), dtype))
    total = p.reduce("sum", (64,), (32,), wide, dtype=dtype)
    data = torch.randn(64, 32).to(dtype)
    data[0, :3] = torch.tensor([float("inf"), float("nan"), 1e-40])
    return p.done(out, total), [(data,)]


def embedding() -> Case:
    p = Program()
    table, rows = p.tensor(20, 8), p.tensor(5, dtype=i64)
    u = symbol("u0")

    def value(i: Any, j: Any) -> Scalar:
        return load(table, 8 * u + j, ((u, apply("check_index", get(rows, i), const(20, i64))),))

    return p.done(p.pointwise((5, 8), value)), [(torch.randn(20, 8), torch.tensor([0, 19, -1, 3, 3]))]


def scatter(how: str, dtype: torch.dtype) -> Case:
    p = Program()
    rows, x = p.tensor(50, dtype=i64), p.tensor(50, 8, dtype=dtype)
    out = p.pointwise((20, 8), lambda i, j: const(0, dtype))
    i, j, u = symbol("i900"), symbol("i901"), symbol("u0")
    axes = (Axis(i, lit(50)), Axis(j, lit(8)))
    p.program.computations.append(Pointwise(out, axes, 8 * u + j, get(x, i, j), how, ((u, get(rows, i)),)))
    return p.done(out), [(torch.randint(0, 20, (50,)), torch.randint(-9, 9, (50, 8)).to(dtype))]


def joined() -> Case:
    """Each part is read inside its range alone."""
    p = Program()
    x, y = p.tensor(4, 5), p.tensor(4, 7)
    left = lambda j: apply("lt", index_value(j), const(5, i64))
    out = p.pointwise((4, 12), lambda i, j: where(left(j), load(x, 5 * i + j), load(y, 7 * i + j - 5)))
    return p.done(out), [(torch.randn(4, 5), torch.randn(4, 7))]


def joined_maxima(dtype: torch.dtype) -> Case:
    """A side of a choice needs its parts more than once, within a choice inside it, too."""
    p = Program()
    x, y = p.tensor(4, 6, dtype=dtype), p.tensor(4, 12, dtype=dtype)

    def value(i: Any, j: Any) -> Scalar:
        ahead = [cast(load(y, 12 * i + j + k - 6), f32) for k in range(4)]
        maximum = functools.reduce(lambda found, one: apply("maximum", one, found), ahead)
        squared = apply("mul", maximum, maximum)
        negative = apply("mul", apply("sub", squared, const(1.0, f32)), apply("sub", squared, const(1.0, f32)))
        left = apply("mul", cast(load(x, 6 * i + j), f32), cast(load(x, 6 * i + j), f32))
        is_left = apply("lt", index_value(j), const(6, i64))
        return cast(where(is_left, left, where(apply("lt", maximum, const(0.0, f32)), negative, squared)), dtype)

    return p.done(p.pointwise((4, 14), value)), [(torch.randn(4, 6).to(dtype), torch.randn(4, 12).to(dtype))]


def turned(half: int) -> Case:
    """Halves of a row change places, one of them negated."""
    p = Program()
    n = 2 * half
    x = p.tensor(6, n, dtype=bf16)
    wide = lambda i, j: cast(load(x, n * i + j), f32)
    left = lambda j: apply("lt", index_value(j), const(half, i64))
    first = lambda i, j: apply("neg", wide(i, j + half))
    out = p.pointwise((6, n), lambda i, j: cast(where(left(j), first(i, j), wide(i, j - half)), bf16))
    return p.done(out), [(torch.randn(6, n).to(bf16),)]


def before_zeros() -> Case:
    """Rows of odd length, the first half of which another condition concerns, with zeros behind them."""
    p = Program()
    x = p.tensor(6, 77, dtype=bf16)
    wide = lambda i, j: cast(load(x, 77 * i + j), f32)
    before = lambda j, end: apply("lt", index_value(j), const(end, i64))
    chosen = lambda i, j: where(before(j, 33), apply("exp", wide(i, j)), wide(i, j))
    value = lambda i, j: where(before(j, 77), chosen(i, j), const(0.0, f32))
    out = p.pointwise((8, 80), lambda i, j: cast(where(before(i, 6), value(i, j), const(0.0, f32)), bf16))
    return p.done(out), [(torch.randn(6, 77).to(bf16),)]


def unaligned(*shape: int) -> Case:
    """What begins anywhere, with ends that are no whole group."""
    p = Program()
    x = p.tensor(*shape)
    program = p.done(p.pointwise(shape, lambda *i: apply("exp", get(x, *i))))
    count = torch.Size(shape).numel()
    return program, [(torch.randn(count + 8)[offset : offset + count].view(shape),) for offset in range(4)]


def of_sizes(make: Callable[..., LoopProgram], longest: int) -> Case:
    """A program with symbolic sizes, called with several: a row for few lanes, a warp, a block, a cluster."""
    calls = [(4, 7), (1, 5), (0, 5), (33, 64), (33, 200), (3, 5000), (2, 12000), (1, longest)]
    arguments = [(n, c, torch.randn(n, c)) for n, c in calls]
    return make(symbol("s0"), symbol("s1")), arguments


def least_of_rows(rows: Any, columns: Any) -> LoopProgram:
    """Where rows of symbolic length have their least value, twice."""
    p = Program()
    x = p.tensor(p.size(rows.name), p.size(columns.name))
    place = p.reduce("argmin", (rows,), (columns,), lambda i, j: get(x, i, j))
    low = p.reduce("min", (rows,), (columns,), lambda i, j: get(x, i, j))
    return p.done(place, p.pointwise((rows, columns), lambda i, j: apply("sub", get(x, i, j), get(low, i))))


def in_place() -> Case:
    """Values of rows that all threads of a row read are stored over by one of them."""
    p = Program()
    x, old = p.tensor(70, 300), p.tensor(70)
    total = p.reduce("sum", (70,), (300,), lambda i, j: apply("mul", get(x, i, j), get(old, i)))
    out = p.pointwise((70, 300), lambda i, j: apply("add", get(x, i, j), get(old, i)))
    p.pointwise((70,), lambda i: apply("add", get(old, i), get(total, i)), out=old)
    return p.done(out, old), [(torch.randn(70, 300), torch.randn(70))]


def narrow_rows(rows: int, columns: int) -> Case:
    """Rows of odd length, in 16 and in 32 bits, with what belongs to columns."""
    p = Program()
    x, w = p.tensor(rows, columns, dtype=bf16), p.tensor(columns)

    def value(i: Any, j: Any) -> Scalar:
        return apply("mul", cast(get(x, i, j), f32), get(w, j))

    top = p.reduce("max", (rows,), (columns,), value)
    total = p.reduce("sum", (rows,), (columns,), lambda i, j: apply("exp", apply("sub", value(i, j), get(top, i))))
    out = p.pointwise((rows, columns), lambda i, j: cast(apply("add", value(i, j), get(total, i)), bf16))
    wide = p.pointwise((rows, columns), lambda i, j: apply("sub", value(i, j), get(top, i)))
    data = torch.randn(rows * columns + 3).to(bf16)
    calls = [data[k : k + rows * columns].view(rows, columns) for k in range(3)]
    return p.done(out, wide, top, total), [(call, torch.randn(columns)) for call in calls]


EDGES = [0.0, -0.0, 1.0, -3.0, 1e-3, 1e30, -3e38, 1e-30, 1e-37, float("inf"), float("-inf"), float("nan")]


def ratio() -> Case:
    """All points of a row have the same divisor."""
    p = Program()
    x, y = p.tensor(212, 64), p.tensor(212)
    out = p.pointwise((212, 64), lambda i, j: apply("div", get(x, i, j), get(y, i)))
    divisors = torch.cat([torch.tensor([*EDGES]), torch.randn(200).exp()])
    data = torch.randn(212, 64).exp()
    data[:, : len(EDGES)] = torch.tensor(EDGES)
    return p.done(out), [(data, divisors)]


SIZES = [(4, 7), (5, 1), (0, 5), (5, 0), (33, 64), (300, 40), (3, 5000), (1000, 3), (2, 20000)]
SHAPES = [(4, 7), (33, 64), (300, 40), (3, 5000), (1000, 3)]
CASES: dict[str, Callable[[], Case]] = {
    **{f"softmax {r}x{c}": lambda r=r, c=c: (softmax(r, c), [(torch.randn(r, c),)]) for r, c in SIZES},
    "softmax of symbols": lambda: of_sizes(softmax, 40000),
    "softmax of a cluster": lambda: (softmax(2, 40003), [(torch.randn(2, 40003),)]),
    "argmin of symbols": lambda: of_sizes(least_of_rows, 270000),
    "layer norm": lambda: (layer_norm(37, 100), [(torch.randn(37, 100), torch.randn(100), torch.randn(100))]),
    **{
        f"{op} {r}x{c}": lambda op=op, r=r, c=c: reduction(op, r, c)
        for op in ("sum", "prod", "max", "argmin")
        for r, c in SHAPES
    },
    **{f"{op} nan": lambda op=op: nan_and_infinity(op) for op in ("max", "min", "argmax", "argmin")},
    "many by columns": many_by_columns,
    "any": lambda: truth("any"),
    "all": lambda: truth("all"),
    "batch norm": batch_norm,
    **{f"transposed {r}x{c}": lambda r=r, c=c: transposed(r, c) for r, c in [(64, 64), (100, 130), (3, 200)]},
    "turned pictures": turned_pictures,
    "transposed symbols": transposed_symbols,
    "bf16": lambda: half(bf16),
    "f16": lambda: half(torch.float16),
    "embedding": embedding,
    **{
        f"scatter {how} {dtype}": lambda how=how, dtype=dtype: scatter(how, dtype)
        for how in ("sum", "max", "min")
        for dtype in (f32, torch.float64, bf16, i64, torch.int8)
    },
    "cat": joined,
    "joined maxima": lambda: joined_maxima(f32),
    "joined maxima in bf16": lambda: joined_maxima(bf16),
    "turned": lambda: turned(32),
    "turned oddly": lambda: turned(28),
    "before zeros": before_zeros,
    "unaligned": lambda: unaligned(1003),
    "unaligned rows": lambda: unaligned(7, 61),
    "unaligned long rows": lambda: unaligned(5, 301),
    "unaligned narrow rows": lambda: narrow_rows(6, 1027),
    "in place": in_place,
    "ratio": ratio,
}


@pytest.fixture(scope="module")
def cases() -> Iterator[dict[str, tuple[DeviceProgram, list[tuple[Any, ...]]]]]:
    """All programs, built by one call of the compiler."""
    torch.manual_seed(0)
    made = {name: make() for name, make in CASES.items()}
    found = {name: (DeviceProgram(program), calls) for name, (program, calls) in made.items()}
    prepare([kernel for device, _ in found.values() for kernel in device.kernels])
    yield found


@pytest.mark.parametrize("name", CASES)
def test_values(cases, name):
    device, calls = cases[name]
    for args in calls:
        expected = run(device.program, copy.deepcopy(list(args)))
        for want, got in zip(expected, device(copy.deepcopy(list(args))), strict=True):
            rtol = 1e-2 if want.dtype in (bf16, torch.float16) else 2e-5  # one step where sums differ in the last bits
            torch.testing.assert_close(got, want, rtol=rtol, atol=min(2e-4, 2 / max(1, want.numel())), equal_nan=True)


def test_quotients_by_a_common_divisor_are_rounded_as_quotients(cases):
    device, ((data, divisors),) = cases["ratio"]
    (got,) = device([data, divisors])
    want = data / divisors[:, None]
    normal = (want.abs() >= torch.finfo(f32).tiny) & (data.abs() > 2.0**-100) | (want == 0)
    assert (got.isnan() == want.isnan()).all()
    assert torch.equal(got[normal].view(torch.int32), want[normal].view(torch.int32))


SANITIZED = [
    "before zeros",
    "unaligned narrow rows",
    "turned oddly",
    "sum 300x40",
    "argmin 33x64",
    "scatter sum torch.bfloat16",
    "in place",
]


def test_no_kernel_leaves_its_buffers(cases):
    def run_all() -> None:
        for name in SANITIZED:
            device, calls = cases[name]
            device(copy.deepcopy(list(calls[-1])))

    calls = recorded(run_all)
    assert len(calls) >= len(SANITIZED)
    replay(calls)


@pytest.mark.skipif(bool(nvrtc_check.missing()), reason="NVRTC is not installed")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_texts_are_built_and_keep_their_values_in_registers(cases, architecture):
    every = dict.fromkeys(kernel.text for device, _ in cases.values() for kernel in device.kernels)
    clusters = [text for text in every if "__cluster_dims__" in text]
    others = [text for text in every if text not in clusters]
    texts = others[::2] if architecture == "sm_80" else clusters + others[1::2]
    for text, (registers, spilled) in zip(texts, nvrtc_check.compiled(texts, architecture), strict=True):
        assert registers <= 64, text
        assert spilled <= 8 * ("acc0k" in text), text  # one place, of 64 bits, of an extremum


@pytest.mark.parametrize("wrong", [20, -21, 2**40])
def test_an_index_out_of_range_raises(cases, wrong):
    with pytest.raises(IndexError):
        cases["embedding"][0]([torch.randn(20, 8), torch.tensor([0, wrong, 0, 0, 0])])


def test_wide_accesses_are_behind_choices(cases):
    (kernel,) = cases["turned"][0].kernels
    assert kernel.text.count("p_load_even<8>") == 2
    assert "a0[" not in kernel.text


def test_what_the_first_points_choose_is_loaded_wide(cases):
    """But not what the others choose alone."""
    (kernel,) = cases["before zeros"][0].kernels
    assert "p_min((int)p_min(33 - i1b, 8), (int)p_min(77 - i1b, 8))" in kernel.text
    assert kernel.text.count("p_load<8>") == kernel.text.count("a0[") == 1


@pytest.mark.parametrize("columns", [3, 45, 99, 128, 1000])
@pytest.mark.parametrize("rows", [64, 4096])
def test_blocks_have_no_more_threads_than_a_gpu_allows(rows, columns):
    program, _ = reduction("sum", rows, columns)
    assert all((kernel.threads.as_int() or 0) in range(1, 1025) for kernel in DeviceProgram(program).kernels)


def test_equal_kernels_are_one_text():
    first, second = DeviceProgram(softmax(64, 128)), DeviceProgram(softmax(64, 128))
    assert [k.text for k in first.kernels] == [k.text for k in second.kernels]


def test_norms_are_one_kernel(cases):
    assert len(cases["batch norm"][0].kernels) == len(cases["layer norm"][0].kernels) == 1
