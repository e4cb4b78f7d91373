"""What is fused, in which order, and what lives in memory."""

import sys

import torch

from loop_programs import Program, get, layer_norm, softmax
from pliant import config
from pliant.ir.loops import Extern, Origin, View
from pliant.ir.scalar import apply, const, load
from pliant.runtime.compile_program import compile_program
from pliant.schedule import fuse
from pliant.schedule.kernel import ExternCall, Kernel
from pliant.schedule.schedule import schedule
from pliant.symbolic.expr import ZERO, lit, symbol

OPTIONS = config.Config().schedule


def whole(b):
    return View(b, b.shape, b.strides, ZERO, b.dtype)


def test_softmax_keeps_nothing_between_its_loops():
    planned = schedule(softmax(64, 100), OPTIONS)
    (kernel,) = planned.steps
    assert isinstance(kernel, Kernel)
    assert [b.shape[-1].as_int() for b in kernel.stored] == [100]
    assert [m.phase for m in kernel.members] == [0, 1, 1, 2]


def test_layer_norm_stores_only_its_results():
    planned = schedule(layer_norm(64, 100), OPTIONS)
    assert len(planned.steps) == 1 and len(planned.steps[0].stored) == 3


def test_siblings_over_the_same_data_share_a_kernel():
    p = Program()
    x = p.tensor(64, 100)
    total = p.reduce("sum", (64,), (100,), lambda i, j: get(x, i, j))
    top = p.reduce("max", (64,), (100,), lambda i, j: get(x, i, j))
    assert len(schedule(p.done(total, top), OPTIONS).steps) == 1


def test_rows_and_columns_do_not_share_a_kernel():
    p = Program()
    x = p.tensor(64, 100)
    rows = p.reduce("sum", (64,), (100,), lambda i, j: get(x, i, j))
    columns = p.reduce("sum", (100,), (64,), lambda j, i: get(x, i, j))
    assert len(schedule(p.done(rows, columns), OPTIONS).steps) == 2


def transposed_beside_rows(rows):
    """Row sums of a product, which is kept transposed."""
    p = Program()
    x, y = p.tensor(rows, 512), p.tensor(rows, 512)
    product = p.pointwise((512, rows), lambda j, i: apply("mul", get(x, i, j), get(y, i, j)))
    return p.done(product, p.reduce("sum", (rows,), (512,), lambda i, j: apply("exp", get(x, i, j))))


def test_a_reduction_does_not_take_in_what_goes_across_its_rows():
    assert len(schedule(transposed_beside_rows(512), OPTIONS).steps) == 2
    assert len(schedule(transposed_beside_rows(8), OPTIONS).steps) == 1  # too little for a kernel of its own


def test_fusion_can_be_turned_off():
    options = config.Config().with_options({"fuse": False}).schedule
    assert len(schedule(softmax(64, 100), options).steps) == 4


def around_an_extern():
    p = Program()
    x, w = p.tensor(16, 32), p.tensor(32, 8)
    one = const(1.0, torch.float32)
    before = p.pointwise((16, 32), lambda i, j: apply("add", get(x, i, j), one))
    product = p._temporary((x.shape[0], w.shape[1]), torch.float32)
    mm = torch.ops.aten.mm
    p.program.computations.append(
        Extern(mm.default, (whole(before), whole(w)), {}, (product,), out_variant=mm.out, origin=Origin("mm"))
    )
    after = p.pointwise((16, 8), lambda i, j: apply("neg", get(product, i, j)))
    beside = p.pointwise((16, 32), lambda i, j: apply("exp", get(before, i, j)))
    return p.done(after, beside)


def test_an_extern_separates_only_what_depends_on_it():
    planned = schedule(around_an_extern(), OPTIONS)
    kinds = [type(step) for step in planned.steps]
    assert kinds == [Kernel, ExternCall, Kernel]
    assert len(planned.steps[0].members) == 2


def test_extern_call_runs():
    x, w = torch.randn(16, 32), torch.randn(32, 8)
    run = compile_program(around_an_extern())
    after, beside = run([x, w])
    torch.testing.assert_close(after, -((x + 1) @ w))
    torch.testing.assert_close(beside, (x + 1).exp())
    assert "del " in run.wrapper_source


def test_dead_memory_is_reused():
    p = Program()
    x = p.tensor(64, 100)
    for _ in range(4):
        columns = p.reduce("sum", (100,), (64,), lambda j, i: get(x, i, j))
        y = p.pointwise((64, 100), lambda i, j: apply("sub", get(x, i, j), get(columns, j)))
        rows = p.reduce("max", (64,), (100,), lambda i, j: get(y, i, j))
        x = p.pointwise((64, 100), lambda i, j: apply("sub", get(y, i, j), get(rows, i)))
    planned = schedule(p.done(x), OPTIONS)
    assert planned.in_place
    data = torch.randn(64, 100)
    want = data
    for _ in range(4):
        want = want - want.sum(0)
        want = want - want.amax(1, keepdim=True)
    near = 1e-4 * float(want.abs().max())  # each turn subtracts what its rounding errors grow by
    torch.testing.assert_close(compile_program(p.program)([data])[0], want, rtol=1e-3, atol=near)


def test_memory_that_an_operator_may_alias_is_not_reused():
    p = Program()
    x = p.tensor(64, 100)
    one = const(1.0, torch.float32)
    first = p.pointwise((64, 100), lambda i, j: apply("add", get(x, i, j), one))
    alias = p._temporary(x.shape, torch.float32)
    alias.role = "extern"
    p.program.computations.append(Extern(torch.ops.aten.alias.default, (whole(first),), {}, (alias,), origin=Origin("alias")))
    columns = p.reduce("sum", (100,), (64,), lambda j, i: get(x, i, j))
    other = p.pointwise((64, 100), lambda i, j: apply("mul", get(x, i, j), get(columns, j)))
    rows = p.reduce("sum", (64,), (100,), lambda i, j: get(other, i, j))
    out = p.pointwise((64, 100), lambda i, j: apply("add", get(alias, i, j), get(rows, i)))
    data = torch.randn(64, 100)
    (got,) = compile_program(p.done(out))([data])
    want = data + 1 + (data * data.sum(0)).sum(1, keepdim=True)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-2)


def test_a_flattened_symbolic_reduction_folds_loops_and_not_sizes():
    """The map from the flattened loop to the kernel's has a size as its stride; the size is no loop to fold."""
    a, b = symbol("a"), symbol("b")
    p = Program()
    p.program.inputs += [a, b]
    x, y = p.tensor(a, b, 16), p.tensor(a, b, 16)
    h = p.pointwise((a, b, 16), lambda i, j, k: apply("mul", get(x, i, j, k), get(y, i, j, k)))
    total = p.reduce("sum", (16,), (a * b,), lambda k, r: load(h, r * lit(16) + k))
    top = p.reduce("max", (16,), (a * b,), lambda k, r: load(h, r * lit(16) + k))
    (kernel,) = schedule(p.done(h, total, top), OPTIONS).steps
    assert isinstance(kernel, Kernel)
    assert kernel.reduced <= {axis.symbol for axis in kernel.axes} and len(kernel.reduced) == 2


def test_many_readers_of_one_tensor_are_not_all_tried(monkeypatch):
    """A loop of the program that takes a tensor apart: the work for each part does not grow with the parts before it."""
    tried = []
    joined = fuse.join
    monkeypatch.setattr(fuse, "join", lambda kernel, loops: tried.append(kernel) or joined(kernel, loops))
    p = Program()
    x = p.tensor(100, 7)
    parts = [p.pointwise((100 - k,), lambda i: apply("exp", get(x, i, lit(3)))) for k in range(90)]
    schedule(p.done(*parts), config.get().schedule)
    assert fuse.MOST_TRIED < len(tried) <= fuse.MOST_TRIED * len(parts)


def test_kernels_with_another_number_of_points_are_not_aligned(monkeypatch):
    """Extents that multiply to another number have no common refinement: nothing is worked out to find that."""
    asked = []
    aligned = fuse.align
    monkeypatch.setattr(fuse, "align", lambda *given: asked.append(given) or aligned(*given))
    p = Program()
    x = p.tensor(100, 7)
    parts = [p.pointwise((100 - k,), lambda i: apply("exp", get(x, i, lit(3)))) for k in range(9)]
    schedule(p.done(*parts), OPTIONS)
    assert not asked
    p = Program()
    x = p.tensor(100, 7)
    schedule(p.done(*[p.pointwise((100,), lambda i: apply("exp", get(x, i, lit(3)))) for _ in range(2)]), OPTIONS)
    assert asked


def test_shared_inputs_are_not_walked_kernel_by_kernel():
    """Of hundreds of kernels that read one tensor, those that are asked are looked up."""
    p = Program()
    x = p.tensor(500, 7)
    parts = [p.pointwise((500 - k,), lambda i: apply("exp", get(x, i, lit(3)))) for k in range(400)]
    fuser = fuse._Fuser(p.done(*parts), OPTIONS)
    fuser.run()
    (touching,) = [found for found in fuser.touching.values() if len(found) > 1]
    assert list(touching) == sorted(set(touching)) == list(range(len(touching)))
    others = fuser._others(set(fuser.touching), [399], 0)
    assert [next(others) for _ in range(2)] == [398, 397]
    assert list(fuser._others(set(fuser.touching), [399], 397)) == [398, 397]


def test_an_alignment_is_not_given_twice():
    """Pairing axes by stride and pairing them in order are the same where strides fall in order."""
    i, j, k, m = (fuse.fresh_axis(lit(4)) for _ in range(4))
    falling, rising = i.symbol * lit(4) + j.symbol, j.symbol * lit(4) + i.symbol
    other = k.symbol * lit(4) + m.symbol
    assert [found.left[i.symbol] for found in fuse.align((i, j), falling, (k, m), other)] == [k.symbol]
    assert [found.left[i.symbol] for found in fuse.align((i, j), rising, (k, m), other)] == [m.symbol, k.symbol]


def parts_of_one(count):
    """A tensor that a loop of the program takes apart, each part read many times."""
    p = Program()
    x, results = p.tensor(count, 64), []
    for k in range(count):
        part = p.pointwise((64,), lambda i, k=k: apply("exp", get(x, lit(k), i)))
        for _ in range(40):
            part = p.pointwise((64,), lambda i, k=k, part=part: apply("mul", get(part, i), get(x, lit(k), i)))
        results.append(part)
    return p.done(*results)


def calls_of(function, *args):
    count = 0

    def note(_frame, event, _arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return count


def test_the_members_of_kernels_that_share_a_tensor_are_not_gone_through_for_each_computation():
    program = parts_of_one(120)
    assert calls_of(fuse.fuse, program, OPTIONS) < 800 * len(program.computations)  # 1,390 where they are
