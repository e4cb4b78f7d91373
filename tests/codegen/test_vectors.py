"""Kernels on explicit vectors, of each width and without the processor's own instructions, beside the interpreter."""

import os
import sys

import pytest
import torch

import own_process
import pliant
from loop_programs import Program, get
from pliant import config
from pliant.codegen.vectors import VECTOR_OPS
from pliant.ir.interpret import run
from pliant.ir.ops import OPS
from pliant.ir.scalar import Scalar, apply, cast, const, index_value, load, where
from pliant.runtime.compile_program import compile_program
from pliant.symbolic.expr import symbol

# One as users have it built. What the others try is the text, which says all of the vectors: without optimization, a third of
# the time.
WIDTHS = {
    "native": ("-O2", "-march=native"),
    "plain": ("-O0", "-march=native", "-DP_PLAIN=1"),
    "avx2": ("-O0", "-march=haswell"),
    "sse2": ("-O0", "-march=x86-64"),
}
LENGTHS = (16, 101)
KINDS = {"f": torch.float32, "i": torch.int32, "b": torch.bool}


@pytest.fixture(params=WIDTHS)
def options(request):
    flags = WIDTHS[request.param]
    if any(f in ("-march=haswell", "-march=x86-64") for f in flags):
        with open("/proc/cpuinfo") as info:
            if "avx2" not in info.read():
                pytest.skip("for x86-64 processors with AVX2")
    return config.get().with_options({"opt_flags": ("-fno-math-errno", *flags)})


def values(dtype: torch.dtype, n: int) -> torch.Tensor:
    torch.manual_seed(n)
    if dtype is torch.float32:
        x = torch.randn(n) * 3
        x[:5] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan")])
        return x
    return torch.randint(-9, 9, (n,), dtype=dtype) if dtype is torch.int32 else torch.rand(n) > 0.5


def _defined(op: str, args: list[Scalar]) -> list[Scalar]:
    """Arguments that the operator has a meaning for: shifts are by as many bits as there are, at most."""
    return [args[0], apply("bit_and", args[1], const(31, args[1].dtype))] if op.startswith("shift") else args


@pytest.mark.parametrize("kind", KINDS)
def test_operators(kind, options):
    """All operators of a kind in one program, at a length that leaves lanes without a point, and one vector alone."""
    dtype = KINDS[kind]
    names = [op for op, of in VECTOR_OPS if of == kind]
    for n in LENGTHS if options.build.opt_flags[-1] == "-march=native" else LENGTHS[-1:]:
        p = Program()
        a, b = p.tensor(n, dtype=dtype), p.tensor(n, dtype=dtype)
        outs = []
        for op in names:
            reads = (a, b, a)[: OPS[op].arity]
            outs.append(p.pointwise((n,), lambda i, op=op, reads=reads: apply(op, *_defined(op, [get(r, i) for r in reads]))))
        outs.append(p.pointwise((n,), lambda i: cast(get(a, i), torch.float32)))  # loops over bytes alone have no vectors
        program = p.done(*outs)
        args = [values(dtype, n), values(dtype, n).flip(0)]
        compiled = compile_program(program, options)
        for op, want, got in zip([*names, "cast"], run(program, args), compiled(list(args)), strict=True):
            torch.testing.assert_close(got, want, rtol=2e-6, atol=1e-6, equal_nan=True, msg=lambda m, op=op: f"{op}: {m}")
        assert "p_load(" in compiled.source or "p_load8(" in compiled.source


def test_conversions(options):
    """Through float32 and back, as far as the type is stored by vectors."""
    n = 37
    p = Program()
    outs, args = [], []
    for dtype in (torch.bfloat16, torch.float16, torch.int32, torch.int8, torch.uint8, torch.bool):
        a = p.tensor(n, dtype=dtype)
        back = dtype if dtype not in (torch.int8, torch.uint8) else torch.float32

        def value(i, a=a, back=back):
            return cast(apply("mul", cast(get(a, i), torch.float32), const(2.5, torch.float32)), back)

        outs.append(p.pointwise((n,), value))
        args.append((torch.arange(n) - (0 if dtype is torch.uint8 else n // 2)).to(dtype))
        if dtype.is_floating_point:
            args[-1][:3] = torch.tensor([float("nan"), float("inf"), 1e-3])
    program = p.done(*outs)
    compiled = compile_program(program, options)
    for want, got in zip(run(program, args), compiled(list(args)), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.spread(2, "options", "n", "byte")
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("byte", [torch.int8, torch.uint8])
def test_bytes(byte, n, options):
    """Numbers cut to bytes, bytes compared, chosen among and given as other bytes. Loops over nothing but bytes are the
    compiler's."""
    p = Program()
    given = (torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.int8, torch.uint8)
    read = [p.tensor(n, dtype=d) for d in given]
    a, b = p.tensor(n, dtype=byte), p.tensor(n, dtype=byte)
    outs = [p.pointwise((n,), lambda i, x=x: cast(get(x, i), byte)) for x in read if x.dtype is not byte]
    for op in ("minimum", "maximum", "lt", "eq", "bit_and", "bit_or", "bit_xor"):
        outs.append(p.pointwise((n,), lambda i, op=op: apply(op, get(a, i), get(b, i))))
    outs.append(p.pointwise((n,), lambda i: apply("shift_right", get(a, i), const(3, byte))))
    outs.append(p.pointwise((n,), lambda i: where(apply("gt", get(read[0], i), const(0, torch.float32)), get(a, i), get(b, i))))
    program = p.done(*outs)
    torch.manual_seed(n)
    floats = torch.randint(0, 120, (n,)) + 0.5
    args = [floats, floats.bfloat16(), torch.randint(-(2**31), 2**31, (n,)).int(), floats > 60]
    args += [torch.randint(-128, 256, (n,)).to(d) for d in (torch.int8, torch.uint8, byte, byte)]
    compiled = compile_program(program, options)
    for want, got in zip(run(program, args), compiled(list(args)), strict=True):
        assert torch.equal(got, want)
    of_bytes_alone = sum(x.dtype.itemsize == 1 and x.dtype is not byte for x in read)  # casts, each in a kernel of its own
    assert compiled.source.count("p_store8(") >= len(outs) - of_bytes_alone


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.int32, torch.bfloat16, torch.bool), (torch.float64,)])
def test_tiles_are_turned(dtypes, options):
    """Elements of 1, 2, 4 and 8 bytes that run along the other axis, at a size that leaves parts of tiles."""
    rows, columns = 101, 130
    p = Program()
    other = p.tensor(columns, rows)
    outs, args = [], [torch.randn(columns, rows)]
    for dtype in dtypes:
        x = p.tensor(rows, columns, dtype=dtype)
        wide = lambda j, i, x=x: cast(get(x, i, j), torch.float32)
        outs.append(p.pointwise((columns, rows), lambda j, i, wide=wide: apply("add", wide(j, i), get(other, j, i))))
        args.append(torch.rand(rows, columns) > 0.5 if dtype is torch.bool else (torch.randn(rows, columns) * 9).to(dtype))
    program = p.done(*outs)
    compiled = compile_program(program, options)
    for bits in {d.itemsize * 8 for d in dtypes} - {64}:
        assert f"p_transpose{bits}(" in compiled.source and "p_load(&s" in compiled.source
    for want, got in zip(run(program, args), compiled(list(args)), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("rows", "columns"), [(5, 16), (300, 37), (3, 2100)])
def test_reductions(rows, columns, options):
    """Along rows and down columns, NaN among the values."""
    p = Program()
    x = p.tensor(rows, columns)
    outs = []
    for op in ("sum", "max", "min", "any", "all"):

        def value(i, j, op=op):
            element = get(x, i, j)
            return apply("gt", element, const(-2.5, torch.float32)) if op in ("any", "all") else element

        outs.append(p.reduce(op, (rows,), (columns,), value))
        outs.append(p.reduce(op, (columns,), (rows,), lambda j, i, value=value: value(i, j)))
    program = p.done(*outs)
    args = [torch.randn(rows, columns)]
    compiled = compile_program(program, options)
    for _ in range(2):
        for want, got in zip(run(program, args), compiled(list(args)), strict=True):
            torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5, equal_nan=True)
        args[0][1, 3] = float("nan")
        args[0][0, 5] = float("inf")


def rows_of_extremes(columns: int) -> torch.Tensor:
    """Rows with ties, with infinities, of infinities alone, of one number, and with one NaN or more."""
    torch.manual_seed(columns)
    x = torch.randn(8, columns)
    x[1] = x[1].round()
    x[2] = torch.where(torch.rand(columns) < 0.7, -float("inf"), x[2])
    x[3], x[4], x[5] = -float("inf"), float("inf"), 0.5
    x[6, columns // 2] = x[7, columns - 1] = x[7, 0] = float("nan")
    return x


@pytest.mark.spread(2, "options", "columns")
@pytest.mark.parametrize("columns", [1, 16, 101, 2100])
def test_first_positions_of_extremes(columns, options):
    """Along rows they are found on vectors, and over all that there is."""
    p = Program()
    x = p.tensor(8, columns)
    outs = []
    for op in ("argmax", "argmin"):
        outs.append(p.reduce(op, (8,), (columns,), lambda i, j: get(x, i, j)))
        outs.append(p.reduce(op, (), (columns, 8), lambda j, i: get(x, i, j)))
    program = p.done(*outs)
    compiled = compile_program(program, options)
    for x in (rows_of_extremes(columns), torch.full((8, columns), -float("inf")), torch.zeros(8, columns)):
        for want, got in zip(run(program, [x]), compiled([x]), strict=True):
            assert torch.equal(got, want)
    assert columns == 1 or "vacc0k" in compiled.source


def test_what_is_not_chosen_is_not_loaded(options):
    """Both halves of a concatenation, each a load that would lie outside for the other's points."""
    n = 53
    p = Program()
    a, b = p.tensor(n), p.tensor(n)
    def joined(i):
        first = apply("lt", index_value(i, torch.int64), const(n, torch.int64))
        return where(first, get(a, i), get(b, i - n))
    program = p.done(p.pointwise((2 * n,), joined))
    args = [torch.randn(n), torch.randn(n)]
    compiled = compile_program(program, options)
    assert "p_load_part" in compiled.source
    assert torch.equal(compiled(list(args))[0], torch.cat(args))


def test_wide_numbers_are_compared_as_they_are():
    """The largest int32 is not equal to what int64 numbers are clamped to."""
    n = 20
    p = Program()
    a = p.tensor(n, dtype=torch.int32)
    outs = [
        p.pointwise((n,), lambda i, op=op, limit=limit: apply(op, cast(get(a, i), torch.int64), const(limit, torch.int64)))
        for op in ("lt", "eq")
        for limit in (2**31, 2**31 - 1, -(2**40), 5)
    ]
    program = p.done(*outs)
    x = torch.tensor([2**31 - 1, -(2**31), 5, 0], dtype=torch.int32).repeat(5)
    for want, got in zip(run(program, [x]), compile_program(program)([x]), strict=True):
        assert torch.equal(got, want)


_AT_THE_END = """
import ctypes, mmap, sys, torch
from loop_programs import Program, get
from pliant.ir.scalar import apply
from pliant.runtime.compile_program import compile_program

libc = ctypes.CDLL(None)
page = mmap.PAGESIZE
def last(n):  # a tensor that ends where memory may not be touched
    area = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    keep.append(area)
    return torch.frombuffer(area, dtype=torch.float32, count=n, offset=page - 4 * n)
keep = []
for n in (17, 30, 47, 100):
    p = Program()
    x, out = p.tensor(n), p.tensor(n)
    y = p.pointwise((n,), lambda i: apply("exp", get(x, i)), out)
    total = p.reduce("sum", (), (n,), lambda i: get(x, i))
    program = p.done(total)
    a, b = last(n).fill_(0.5), last(n)
    (found,) = compile_program(program)([a, b])
    assert torch.allclose(b, a.exp()) and torch.allclose(found, a.sum()), n
print("done", flush=True)
import os; os._exit(0)
"""


def test_no_memory_behind_the_end_is_touched():
    done = own_process.ran(_AT_THE_END, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    assert done.stdout.strip() == "done", done.stderr[-2000:]


@pytest.mark.parametrize("n", LENGTHS)
def test_int64_in_memory_are_compared_as_what_they_are(options, n):
    p = Program()
    x, at = p.tensor(n), p.tensor(n, dtype=torch.int64)
    chosen = p.pointwise(
        (n,), lambda i: where(apply("eq", get(at, i), index_value(i)), get(x, i), const(0.0, torch.float32))
    )
    above = p.pointwise((n,), lambda i: cast(apply("lt", index_value(i), get(at, i)), torch.float32))
    program = p.done(chosen, above)
    far = torch.arange(n) + torch.tensor([0, 2**32, -(2**32), 2**31, 2**63 - 1 - n])[torch.arange(n) % 5]
    args = [values(torch.float32, n), far]
    built = compile_program(program, options)
    assert "p_load64(" in built.source
    for got, expected in zip(built(list(args)), run(program, args), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True, atol=0, rtol=0)


@pytest.mark.spread(2, "options", "n", "dtype")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", LENGTHS)
def test_every_second_element_and_each_element_twice(options, n, dtype):
    p = Program()
    x = p.tensor(2 * n + 1, dtype=dtype)
    outs = [p.pointwise((n,), lambda i, k=k: cast(load(x, 2 * i + k), torch.float32)) for k in (0, 1)]
    outs += [p.pointwise((n,), lambda i, k=k: cast(load(x, (i + k) // 2), torch.float32)) for k in (0, 1, 2)]

    def inside(i):  # beyond the middle nothing is loaded
        behind = cast(load(x, 2 * i + n), torch.float32)
        return where(apply("lt", index_value(2 * i), const(n, torch.int64)), behind, const(0.0, torch.float32))

    program = p.done(*outs, p.pointwise((n,), inside))
    args = [values(torch.float32, 2 * n + 1).to(dtype)]
    built = compile_program(program, options)
    assert "_2(" in built.source and "_pairs(" in built.source
    for got, expected in zip(built(list(args)), run(program, args), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True, atol=0, rtol=0)


def test_choices_that_are_the_same_for_all_lanes(options):
    """One side is executed, inside of another choice, too, and what it reads may lie outside for the other's rows."""
    p = Program()
    x, y = p.tensor(3, 40), p.tensor(2, 40)

    def joined(i, j):
        upper = apply("lt", index_value(i), const(3, torch.int64))
        middle = apply("lt", index_value(i), const(4, torch.int64))
        rest = where(middle, const(0.5, torch.float32), apply("mul", get(y, i - 4, j), const(2.0, torch.float32)))
        return where(upper, get(x, i, j), rest)

    program = p.done(p.pointwise((6, 40), joined), p.reduce("sum", (6,), (40,), joined))
    args = [torch.randn(3, 40), torch.randn(2, 40)]
    compiled = compile_program(program, options)
    expected = torch.cat([args[0], torch.full((1, 40), 0.5), args[1] * 2])
    got, total = compiled(list(args))
    assert torch.equal(got, expected)
    torch.testing.assert_close(total, expected.sum(1))
    assert "} else {" in compiled.source


@pytest.mark.spread(2, "options", "shape")
@pytest.mark.parametrize("shape", [(3, 16), (5, 20), (9, 32), (40, 48), (7, 64), (33, 80), (4, 128), (70, 192)])
def test_known_lengths(shape, options):
    """Loops of which the length says what they leave: rows, columns, and their points, whatever the vectors' length."""
    rows, columns = shape
    p = Program()
    x = p.tensor(rows, columns)
    across = p.reduce("sum", (rows,), (columns,), lambda i, j: get(x, i, j))
    top = p.reduce("max", (rows,), (columns,), lambda i, j: get(x, i, j))
    down = p.reduce("sum", (columns,), (rows,), lambda j, i: get(x, i, j))
    least = p.reduce("min", (columns,), (rows,), lambda j, i: get(x, i, j))
    points = p.pointwise((rows, columns), lambda i, j: apply("mul", get(x, i, j), get(across, i)))
    program = p.done(across, top, down, least, points)
    args = [torch.randn(shape, generator=torch.Generator().manual_seed(rows))]
    got = compile_program(program, options)(list(args))
    torch.testing.assert_close(got, run(program, list(args)))


def test_a_row_of_whole_vectors_leaves_nothing():
    """Loops that no machine runs are not written."""

    def text(columns):
        p = Program()
        x = p.tensor(8, columns)
        p.done(p.pointwise((8, columns), lambda i, j: apply("mul", get(x, i, j), get(x, i, 0))))
        return compile_program(p.program).source

    assert "p_upto(" in text(72) and "#if P_L >= 16" in text(72)
    assert "m = p_upto(" not in text(96)


def test_floats_are_rounded_to_bfloat16_as_by_eager():
    """Denormal numbers too, whatever instruction rounds; alone in a vector and among others."""
    torch.manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (1 << 16,), dtype=torch.int64).to(torch.int32)
    tiny = torch.randint(0, 1 << 24, (1 << 12,)).to(torch.int32)
    half = torch.tensor([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800001, -1, 0x7F800000, 0x00008000, 0x00018000])
    for given in (bits, torch.cat([tiny, tiny | -(2**31)]), half.to(torch.int32).repeat(4), torch.zeros(3, dtype=torch.int32)):
        x = given.view(torch.float32)
        found, expected = pliant.compile(lambda a: (a * 1.0).to(torch.bfloat16))(x), x.to(torch.bfloat16)
        assert torch.equal(found.isnan(), expected.isnan())
        number = ~expected.isnan()
        assert torch.equal(found.view(torch.int16)[number], expected.view(torch.int16)[number])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_signs_of_halves_are_changed_as_bits(dtype, options):
    n = 101
    p = Program()
    a, b = p.tensor(n, dtype=dtype), p.tensor(n, dtype=dtype)

    def signed(op, *of):
        return lambda i: cast(apply(op, *[cast(get(x, i), torch.float32) for x in of]), dtype)

    def both(i):
        x, y = (cast(get(t, i), torch.float32) for t in (a, b))
        return cast(apply("copysign", apply("neg", x), apply("abs", y)), dtype)

    outs = [p.pointwise((n,), f) for f in (signed("abs", a), signed("neg", a), signed("copysign", a, b), both)]
    x, y = values(torch.float32, n).to(dtype), values(torch.float32, n).flip(0).to(dtype)
    compiled = compile_program(p.done(*outs), options)
    for got, want in zip(compiled([x, y]), (x.abs(), -x, torch.copysign(x, y), torch.copysign(-x, y.abs())), strict=True):
        assert torch.equal(got.isnan(), want.isnan())
        number = ~want.isnan()
        assert torch.equal(got.view(torch.int16)[number], want.view(torch.int16)[number])
    assert "p_load16(" in compiled.source and "p_to_" not in compiled.source and "p_from_" not in compiled.source


@pytest.mark.spread(2, "options", "n", "dtype")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("n", [17, 28, 41])
def test_masked_elements_of_a_short_row_are_loaded_together(n, dtype, options):
    """Each element twice, of which the first and last lanes have none: nothing beside the row is read."""
    p = Program()
    a = p.tensor(n // 2, dtype=dtype)
    half = n // 2

    def value(i):
        inside = apply("bit_and", apply("ge", index_value(i, torch.int64), const(3, torch.int64)),
                       apply("lt", index_value(i, torch.int64), const(3 + 2 * half, torch.int64)))  # fmt: skip
        element = load(a, (i + 1) // 2 - 2)
        if dtype is torch.int64:
            return where(inside, apply("lt", element, const(3, torch.int64)), const(True, torch.bool))
        return where(inside, element, const(7, dtype))

    program = p.done(p.pointwise((n,), value))
    given = torch.arange(half).to(dtype)
    compiled = compile_program(program, options)
    assert torch.equal(compiled([given])[0], run(program, [given])[0])
    assert "_pairs_part(" in compiled.source


def test_rows_that_are_shorter_than_a_vector():
    """They are one vector under a mask, and rows of few vectors are summed in one, of which little goes under a mask."""
    softmax = pliant.compile(lambda x: x.softmax(-1))
    for columns in (4, 7, 12):
        x = torch.randn(64, columns)
        torch.testing.assert_close(softmax(x), x.softmax(-1))
    for columns, vectors in ((49, 1), (100, 2), (200, 4)):
        p = Program()
        x = p.tensor(64, columns)
        out = p.reduce("sum", (64,), (columns,), lambda i, r: get(x, i, r))
        compiled = compile_program(p.done(out))
        given = torch.randn(64, columns)
        torch.testing.assert_close(compiled([given])[0], given.sum(1))
        assert f"vacc0[{vectors}]" in compiled.source
    p = Program()
    x = p.tensor(64, 7)
    source = compile_program(p.done(p.pointwise((64, 5), lambda i, j: apply("exp", get(x, i, j + 1))))).source
    assert "p_expv(" in source and "p_load_part(" in source


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_lanes_look_up_an_element_each(dtype, options):
    """Negative places count from the end; where a choice takes the other side, nothing is looked up."""
    n, size = 37, 11

    def looked_up(places, name):
        def value(i):
            place = apply("check_index", get(places, i), const(size, torch.int64))
            return cast(load(x, symbol(name), ((symbol(name), place),)), torch.float32)

        return value

    def either(i):
        return apply("neg", where(get(chosen, i), looked_up(outside, "j1")(i), const(5.0, torch.float32)))

    p = Program()
    x, places, outside = p.tensor(size, dtype=dtype), p.tensor(n, dtype=torch.int64), p.tensor(n, dtype=torch.int64)
    chosen = p.tensor(n, dtype=torch.bool)
    doubled = p.pointwise((n,), lambda i: apply("mul", looked_up(places, "j0")(i), const(2.0, torch.float32)))
    compiled = compile_program(p.done(doubled, p.pointwise((n,), either)), options)
    given, at, mask = torch.arange(size).to(dtype), torch.randint(-size, size, (n,)), torch.rand(n) > 0.5
    want = given[at].float()
    got = compiled([given, at, torch.where(mask, at, 99), mask])
    assert torch.equal(got[0], want * 2) and torch.equal(got[1], -torch.where(mask, want, torch.tensor(5.0)))
    assert "const p_vf" in compiled.source
    with pytest.raises(IndexError):
        compiled([given, at, torch.where(mask, at, 99), torch.ones(n, dtype=torch.bool)])
