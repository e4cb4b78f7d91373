"""Compiled programs against the reference interpreter."""

import pytest
import torch

import pliant
from loop_programs import Program, gelu, get, layer_norm, softmax
from pliant.ir.interpret import run
from pliant.ir.loops import Axis, Buffer, LoopProgram, Pointwise
from pliant.ir.scalar import apply, cast, const, index_value, load, where
from pliant.runtime.compile_program import CompiledGraph, compile_program
from pliant.symbolic.expr import lit, symbol

SIZES = [(4, 7), (1, 5), (5, 1), (0, 5), (5, 0), (33, 65), (300, 40), (3, 5000), (1000, 3)]


def copies(args):
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in args]


def check(program: LoopProgram, *args) -> CompiledGraph:
    expected = run(program, copies(args))
    compiled = compile_program(program)
    threads = torch.get_num_threads()
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            for want, got in zip(expected, compiled(copies(args)), strict=True):
                rtol = max(2e-5, torch.finfo(got.dtype).eps) if got.is_floating_point() else 2e-5  # half: one rounding
                torch.testing.assert_close(got, want, rtol=rtol, atol=2e-4, equal_nan=True)
    finally:
        torch.set_num_threads(threads)
    return compiled


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_softmax_is_one_kernel(rows, columns):
    assert check(softmax(rows, columns), torch.randn(rows, columns)).kernels <= (1 if rows > 8 or columns < 4096 else 3)


def test_softmax_of_symbolic_sizes():
    s0, s1 = symbol("s0"), symbol("s1")
    program = softmax(s0, s1)
    run_it = compile_program(program)
    for rows, columns in SIZES:
        x = torch.randn(rows, columns)
        (got,) = run_it([rows, columns, x])
        torch.testing.assert_close(got, x.softmax(-1))


def test_layer_norm_is_one_kernel():
    assert check(layer_norm(37, 100), torch.randn(37, 100), torch.randn(100), torch.randn(100)).kernels == 1


@pytest.mark.spread(2, "rows", "op")
@pytest.mark.parametrize(("rows", "columns"), [s for s in SIZES if 0 not in s])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin"])
def test_reductions(op, rows, columns):
    p = Program()
    x = p.tensor(rows, columns)
    by_row = p.reduce(op, (rows,), (columns,), lambda i, j: get(x, i, j))
    by_column = p.reduce(op, (columns,), (rows,), lambda j, i: get(x, i, j))
    whole = p.reduce(op, (), (rows, columns), lambda i, j: get(x, i, j))
    data = torch.randn(rows, columns)
    check(p.done(by_row, by_column, whole), data.clamp(0.98, 1.02) if op == "prod" else data)


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
    rows = p.reduce(op, (20,), (30,), lambda i, j: get(x, i, j))
    check(p.done(rows), torch.rand(20, 30) > 0.05)


def test_batch_norm_is_one_kernel():
    p = Program()
    x = p.tensor(8, 5, 30)
    total = p.reduce("sum", (5,), (8, 30), lambda c, n, h: get(x, n, c, h))
    mean = p.pointwise((5,), lambda c: apply("div", get(total, c), const(240.0, torch.float32)))
    centred = p.pointwise((8, 5, 30), lambda n, c, h: apply("sub", get(x, n, c, h), get(mean, c)))
    square = lambda c, n, h: apply("mul", get(centred, n, c, h), get(centred, n, c, h))
    variance = p.reduce("sum", (5,), (8, 30), square)
    out = p.pointwise((8, 5, 30), lambda n, c, h: apply("mul", get(centred, n, c, h), apply("rsqrt", get(variance, c))))
    assert check(p.done(out, mean, variance), torch.randn(8, 5, 30)).kernels == 1


@pytest.mark.parametrize("shape", [(64, 64), (100, 130), (3, 200), (257, 65)])
def test_transpose(shape):
    p = Program()
    x, y = p.tensor(*shape), p.tensor(shape[1], shape[0])
    out = p.pointwise((shape[1], shape[0]), lambda j, i: apply("add", get(x, i, j), get(y, j, i)))
    check(p.done(out), torch.randn(shape), torch.randn(shape[1], shape[0]))


def test_a_view_between_two_loops_does_not_stop_fusion():
    p = Program()
    x = p.tensor(6400)
    flat = p.pointwise((6400,), lambda i: apply("exp", get(x, i)))
    out = p.pointwise((64, 100), lambda i, j: apply("neg", load(flat, 100 * i + j)))
    assert check(p.done(out), torch.randn(6400)).kernels == 1


def test_store_into_an_input_comes_after_its_reads():
    p = Program()
    x = p.tensor(10, 10)
    two, one = const(2.0, torch.float32), const(1.0, torch.float32)
    doubled = p.pointwise((10, 10), lambda i, j: apply("mul", get(x, i, j), two))
    p.pointwise((10, 10), lambda i, j: apply("add", get(x, i, j), one), out=x)
    data = torch.randn(10, 10)
    before = data.clone()
    (got,) = compile_program(p.done(doubled))([data])
    torch.testing.assert_close(got, before * 2)
    torch.testing.assert_close(data, before + 1)


def test_transposed_read_of_an_updated_input_is_not_fused_with_the_update():
    p = Program()
    x = p.tensor(10, 10)
    turned = p.pointwise((10, 10), lambda i, j: get(x, j, i))
    p.pointwise((10, 10), lambda i, j: const(0.0, torch.float32), out=x)
    data = torch.randn(10, 10)
    before = data.clone()
    (got,) = compile_program(p.done(turned))([data])
    torch.testing.assert_close(got, before.t())
    assert not data.any()


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
        compile_program(embedding())([torch.randn(20, 8), torch.tensor([0, wrong, 0, 0, 0])])


def test_a_lookup_in_an_empty_table_raises():
    p = Program()
    table, rows = p.tensor(0), p.tensor(3, dtype=torch.int64)
    u = symbol("u0")
    value = lambda i: load(table, u, ((u, apply("check_index", get(rows, i), const(0, torch.int64))),))
    with pytest.raises(IndexError):
        compile_program(p.done(p.pointwise((3,), value)))([torch.randn(0), torch.zeros(3, dtype=torch.int64)])


@pytest.mark.parametrize("how", ["sum", "max", "min"])
@pytest.mark.parametrize("width", [1, 8, 200])
def test_scatter(how, width):
    p = Program()
    rows, x = p.tensor(50, dtype=torch.int64), p.tensor(50, width)
    out = p.pointwise((20, width), lambda i, j: const(0.0, torch.float32))
    i, j, u = symbol("i900"), symbol("i901"), symbol("u0")
    axes = (Axis(i, lit(50)), Axis(j, lit(width)))
    p.program.computations.append(Pointwise(out, axes, width * u + j, get(x, i, j), how, ((u, get(rows, i)),)))
    program = p.done(out)
    check(program, torch.randint(0, 20, (50,)), torch.randn(50, width))
    if width == 200:  # a thread goes through the rows once, with all its columns
        assert "if (begin < end)" in compile_program(program).source


def test_cat_reads_each_part_only_inside_its_range():
    p = Program()
    x, y = p.tensor(4, 5), p.tensor(4, 7)
    left = lambda j: apply("lt", index_value(j), const(5, torch.int64))
    out = p.pointwise((4, 12), lambda i, j: where(left(j), load(x, 5 * i + j), load(y, 7 * i + j - 5)))
    check(p.done(out), torch.randn(4, 5), torch.randn(4, 7))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_compute_in_float(dtype):
    p = Program()
    x = p.tensor(64, 33, dtype=dtype)
    wide = lambda i, j: cast(get(x, i, j), torch.float32)
    out = p.pointwise((64, 33), lambda i, j: cast(gelu(wide(i, j)), dtype))
    total = p.reduce("sum", (64,), (33,), wide, dtype=dtype)
    data = torch.randn(64, 33).to(dtype)
    data[0, :3] = torch.tensor([float("inf"), float("nan"), 1e-40])
    check(p.done(out, total), data)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8])
@pytest.mark.parametrize("op", ["add", "mul", "floordiv", "remainder", "maximum", "neg", "abs"])
def test_integers(op, dtype):
    p = Program()
    x, y = p.tensor(200, dtype=dtype), p.tensor(200, dtype=dtype)
    one = op in ("neg", "abs")
    out = p.pointwise((200,), lambda i: apply(op, get(x, i)) if one else apply(op, get(x, i), get(y, i)))
    low = 0 if dtype is torch.uint8 else -100
    a, b = torch.randint(low, 100, (200,)).to(dtype), torch.randint(low, 100, (200,)).to(dtype)
    b[b == 0] = 7
    check(p.done(out), a, b)


@pytest.mark.parametrize(
    "source", [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.float16]
)
@pytest.mark.parametrize("target", [torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.float16])
def test_casts(source, target):
    p = Program()
    x = p.tensor(100, dtype=source)
    out = p.pointwise((100,), lambda i: cast(get(x, i), target))
    check(p.done(out), (torch.randn(100) * 50).to(source))


def test_unaligned_and_strided_inputs():
    p = Program()
    x = p.tensor(30, 20, strides=(41, 2))
    out = p.pointwise((30, 20), lambda i, j: apply("exp", get(x, i, j)))
    data = torch.randn(30 * 41 + 3)[3:].as_strided((30, 20), (41, 2), 3)
    run_it = compile_program(p.done(out))
    (got,) = run_it([data])
    torch.testing.assert_close(got, data.exp())


def test_long_sums_are_as_exact_as_eager():
    p = Program()
    x = p.tensor(3, 100_000)
    sums = [
        p.reduce("sum", (3,), (100_000,), lambda i, j: get(x, i, j)),
        p.reduce("sum", (), (3, 100_000), lambda i, j: get(x, i, j)),
    ]
    data = torch.randn(3, 100_000) + 1
    got = compile_program(p.done(*sums))([data])
    exact = [data.double().sum(1), data.double().sum()]
    for g, e in zip(got, exact):
        assert ((g - e).abs() / e.abs()).max() < 5e-7


@pytest.mark.parametrize("shape", [(1000, 777), (2500, 64), (600, 5000)])
def test_sums_of_long_columns_do_not_depend_on_threads_and_are_exact(shape):
    p = Program()
    x = p.tensor(*shape)
    out = p.reduce("sum", (shape[1],), (shape[0],), lambda j, i: get(x, i, j))
    spread = p.reduce("sum", (shape[1],), (shape[0],), lambda j, i: apply("sub", get(x, i, j), get(out, j)))
    data = torch.randn(shape) + 1
    compiled, threads, got = compile_program(p.done(out, spread)), torch.get_num_threads(), []
    for count in (1, 3):
        torch.set_num_threads(count)
        got.append(compiled([data]))
    torch.set_num_threads(threads)
    exact = data.double().sum(0)
    assert ((got[0][0] - exact).abs() / exact.abs()).max() < 5e-7
    assert all(map(torch.equal, *got))


def test_update_of_an_input_in_a_later_pass():
    """x -= exp(x) / sum(exp(x)): the exponentials must be those of the old x."""
    p = Program()
    x = p.tensor(40, 30)
    e = p.pointwise((40, 30), lambda i, j: apply("exp", get(x, i, j)))
    total = p.reduce("sum", (40,), (30,), lambda i, j: get(e, i, j))
    p.pointwise((40, 30), lambda i, j: apply("sub", get(x, i, j), apply("div", get(e, i, j), get(total, i))), out=x)
    out = p.pointwise((40, 30), lambda i, j: apply("add", get(e, i, j), get(x, i, j)))
    data = torch.randn(40, 30)
    want = data - data.softmax(1)
    expected = data.exp() + want
    (got,) = compile_program(p.done(out))([data])
    torch.testing.assert_close(data, want)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("columns", [100, 20_000])
def test_rows_of_any_length_are_kept_between_passes(columns):
    assert "malloc" in compile_program(softmax(64, 20_000)).source
    check(softmax(64, columns), torch.randn(64, columns))


@pytest.mark.parametrize("shape", [(6000, 16), (5000, 200), (6000, 1)])
@pytest.mark.parametrize("op", ["sum", "max", "argmin"])
def test_few_columns_share_their_rows_over_threads(shape, op):
    p = Program()
    x = p.tensor(*shape)
    found = p.reduce(op, (shape[1],), (shape[0],), lambda j, i: get(x, i, j))
    doubled = p.pointwise((shape[1],), lambda j: apply("add", get(found, j), get(found, j)))
    check(p.done(found, doubled), torch.randn(shape))


def test_middle_axis_is_reduced():
    p = Program()
    x = p.tensor(20, 70, 300)
    found = p.reduce("sum", (20, 300), (70,), lambda i, j, k: get(x, i, k, j))
    check(p.done(found), torch.randn(20, 70, 300))


def test_a_size_that_inputs_have_as_a_multiple_alone_is_read():
    p = Program()
    s, t = symbol("s"), symbol("t")
    x = p.tensor(s * 4, t * 3 + s, strides=None)
    program = p.done(p.pointwise((s * 4, t * 3 + s), lambda i, j: get(x, i, j)), p.pointwise((s, t), lambda i, j: get(x, i, j)))
    for rows, columns in ((2, 5), (3, 1)):
        data = torch.randn(4 * rows, 3 * columns + rows)
        whole, part = compile_program(program)([data])
        assert torch.equal(whole, data) and torch.equal(part, data[:rows, :columns])


def test_strides_of_one_element_say_nothing():
    """A caller's may be anything there."""
    p = Program()
    s = symbol("s")
    x = Buffer("x", torch.float32, (lit(1), lit(4)), (s, lit(1)), torch.device("cpu"), "input")
    p.program.inputs.append(x)
    y = p.tensor(s)
    program = p.done(p.pointwise((s,), lambda i: apply("add", get(x, lit(0), lit(2)), get(y, i))))
    data, more = torch.randn(1, 4), torch.randn(5)
    (found,) = compile_program(program)([data.as_strided((1, 4), (3, 1)), more])
    torch.testing.assert_close(found, data[0, 2] + more)


@pytest.mark.parametrize("shape", [(4, 300), (40, 37), (9000,), (3, 9000)])
def test_rows_that_are_put_together_have_a_loop_for_each_part(shape):
    """Also where threads take pieces of a row."""

    def moved(a, b):
        return a.roll(3, -1), torch.cat([a, b], -1), torch.nn.functional.pad(a, (5, 2)), a.roll(-3, -1) * 2

    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        a, b = (torch.randint(-99, 99, shape).to(dtype) for _ in range(2))
        for got, want in zip(pliant.compile(moved)(a, b), moved(a, b), strict=True):
            assert torch.equal(got, want)
    p = Program()
    x = p.tensor(4, 300)

    def rolled(i, j):
        return where(apply("lt", index_value(j, torch.int64), const(3, torch.int64)), get(x, i, j + 297), get(x, i, j - 3))

    source = compile_program(p.done(p.pointwise((4, 300), rolled))).source
    assert "int64_t ji1 = 3;" in source and "= p_choosev(" not in source


@pytest.mark.parametrize("count", [9001, 40_000])
def test_neighbours_are_stored_block_by_block(count):
    """What lies between two elements of a block is stored before the next block: its memory is in the cache then."""
    p = Program()
    x = p.tensor(count)
    compiled = check(p.done(p.pointwise((count, 3), lambda i, j: get(x, i))), torch.randn(count))
    assert "t % (3);" in compiled.source  # the last of what an item's number says
