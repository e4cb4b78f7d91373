"""When steps run, and how long memory is kept for it."""

from __future__ import annotations

import torch

from loop_programs import Program, get
from pliant import config
from pliant.ir.loops import Buffer, Extern, Origin, View
from pliant.ir.scalar import apply, cast, const
from pliant.runtime.compile_program import compile_program
from pliant.schedule.fuse import fuse
from pliant.schedule.kernel import ExternCall, Kernel
from pliant.schedule.order import early_kernels, peak
from pliant.schedule.schedule import schedule
from pliant.schedule.sizes import Sizes
from pliant.symbolic.expr import ZERO

OPTIONS = config.Config().schedule
mm, addmm = torch.ops.aten.mm, torch.ops.aten.addmm


def whole(b: Buffer) -> View:
    return View(b, b.shape, b.strides, ZERO, b.dtype)


def product(p: Program, x: Buffer, w: Buffer, total: Buffer | None = None) -> Buffer:
    out = p._temporary((x.shape[0], w.shape[1]), torch.float32)
    op, arguments = (mm, (x, w)) if total is None else (addmm, (total, x, w))
    p.program.computations.append(
        Extern(op.default, tuple(map(whole, arguments)), {}, (out,), out_variant=op.out, origin=Origin("product"))
    )
    return out


def test_sums_run_before_what_they_read_is_kept_for_them():
    p = Program()
    x, w = p.tensor(64, 64), p.tensor(64, 64)
    values, sums = x, []
    for _ in range(3):
        values = product(p, values, w)
        sums.append(values)
    sums = [p.reduce("sum", (64,), (64,), lambda j, i, v=v: get(v, i, j)) for v in sums]
    planned = schedule(p.done(*sums), OPTIONS)
    assert [type(step) for step in planned.steps] == [ExternCall, Kernel] * 3
    data, weight = torch.randn(64, 64), torch.randn(64, 64)
    found = compile_program(p.program)([data, weight])
    for got, power in zip(found, (weight, weight @ weight, weight @ weight @ weight), strict=True):
        torch.testing.assert_close(got, (data @ power).sum(0), rtol=1e-3, atol=1e-1)


def test_sums_wait_for_a_kernel_that_reads_the_same_anyway():
    """They would end nothing earlier; beside it, what both read comes from memory once."""
    p = Program()
    x, w = p.tensor(64, 64), p.tensor(64, 64)
    first = product(p, x, w)
    second = product(p, first, w)
    total = p.reduce("sum", (64,), (64,), lambda i, j: apply("mul", get(first, i, j), get(second, i, j)))
    rows = p.pointwise((64, 64), lambda i, j: apply("mul", get(first, i, j), get(total, i)))
    columns = p.reduce("sum", (64,), (64,), lambda j, i: get(first, i, j))
    planned = schedule(p.done(rows, columns), OPTIONS)
    assert [type(step) for step in planned.steps] == [ExternCall, ExternCall, Kernel, Kernel]
    assert [step.writers().keys() for step in planned.steps[2:]] == [{columns}, {total, rows}]
    data, weight = torch.randn(64, 64), torch.randn(64, 64)
    found = compile_program(p.program)([data, weight])
    one = data @ weight
    torch.testing.assert_close(found, [one * (one * (one @ weight)).sum(1, keepdim=True), one.sum(0)], rtol=1e-2, atol=1e-1)


def test_memory_is_not_kept_for_later_where_that_raises_the_peak():
    """The first temporary has the size of the last; between them lies the peak."""
    p = Program()
    small, narrow, wide = p.tensor(64, 64), p.tensor(64, 8), p.tensor(8, 4096)
    one = const(1.0, torch.float32)
    first = product(p, small, small)
    middle = product(p, product(p, first, narrow), wide)
    rows = p.reduce("sum", (64,), (4096,), lambda i, j: get(middle, i, j))
    back = product(p, small, small)
    last = p.pointwise((64, 64), lambda i, j: apply("add", apply("add", get(back, i, j), get(rows, i)), one))
    planned = schedule(p.done(last), OPTIONS)
    assert first not in planned.in_place.values()


def test_products_are_added_up_in_place():
    p = Program()
    x, w = p.tensor(16, 16), p.tensor(16, 16)
    total = product(p, x, w)
    for _ in range(3):
        total = product(p, x, w, total)
    run = compile_program(p.done(total))
    assert "empty_like(" not in run.wrapper_source  # the first product makes the memory of all
    assert run.wrapper_source.count(", out=") == 3
    data, weight = torch.randn(16, 16), torch.randn(16, 16)
    torch.testing.assert_close(run([data, weight])[0], 4 * (data @ weight), rtol=1e-4, atol=1e-4)


def test_a_value_that_also_goes_into_a_sum_is_written_over_what_it_is_made_of():
    """Though it is seen in another shape."""
    p = Program()
    x, w = p.tensor(12, 8), p.tensor(8, 8)
    made = product(p, x, w)
    twice = p.pointwise((3, 4, 8), lambda i, j, k: apply("add", *[get(made, 4 * i + j, k)] * 2))
    total = p.reduce("sum", (8,), (3, 4), lambda k, i, j: get(twice, i, j, k))
    out = p._temporary(made.shape, torch.float32)
    flat = View(twice, made.shape, made.strides, ZERO, made.dtype)
    p.program.computations.append(Extern(mm.default, (flat, whole(w)), {}, (out,), out_variant=mm.out))
    p.done(total, out)
    assert schedule(p.program, OPTIONS).in_place.get(twice) is made
    data, weight = torch.randn(12, 8), torch.randn(8, 8)
    sums, products = compile_program(p.program)([data, weight])
    torch.testing.assert_close(sums, 2 * (data @ weight).sum(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(products, 2 * data @ weight @ weight, rtol=1e-4, atol=1e-4)


def test_the_product_with_which_an_activation_ends_comes_first():
    p = Program()
    x, w, gradient = p.tensor(64, 8), p.tensor(8, 32), p.tensor(64, 32)
    activation = product(p, x, w)
    back = product(p, gradient, p.pointwise((32, 8), lambda i, j: get(w, j, i)))
    weight = product(p, p.tensor(8, 64), activation)
    planned = schedule(p.done(back, weight), OPTIONS)
    order = [step.extern.outs[0] for step in planned.steps if isinstance(step, ExternCall)]
    assert order == [activation, weight, back]


def test_results_are_made_of_products_one_by_one():
    """The casts of gradients of weights: at the end, all products would be there beside them."""
    p = Program()
    x = p.tensor(64, 64)
    gradients = [product(p, p.tensor(64, 64), x) for _ in range(4)]
    results = [p.pointwise((64, 64), lambda i, j, g=g: cast(get(g, i, j), torch.float64)) for g in gradients]
    steps = fuse(p.done(*results), OPTIONS)
    assert [type(step) for step in steps] == [ExternCall] * 4 + [Kernel] * 4
    ordered = early_kernels(p.program, steps)
    assert [type(step) for step in ordered] == [ExternCall, Kernel] * 4
    sizes, size = Sizes(p.program), 64 * 64 * 4
    assert [peak(p.program, order, sizes) for order in (steps, ordered)] == [12 * size, 9 * size]


def test_memory_of_a_device_is_not_taken_over_on_another():
    p = Program()
    x = p.tensor(64, 64)
    here = product(p, x, x)
    there = [Buffer(f"there{k}", x.dtype, x.shape, x.strides, torch.device("cuda", 0), "extern") for k in range(2)]
    moved, squared = there
    copy = torch.ops.aten._to_copy.default
    p.program.computations += [
        Extern(copy, (whole(here),), {"device": moved.device}, (moved,), origin=Origin("moved")),
        Extern(mm.default, (whole(moved), whole(moved)), {}, (squared,), out_variant=mm.out, origin=Origin("product")),
    ]
    again = product(p, x, x)
    planned = schedule(p.done(squared, again), OPTIONS)
    assert all(old.device == b.device for b, old in planned.in_place.items())
    assert squared not in planned.in_place
