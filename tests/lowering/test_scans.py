"""Running sums and products are loops: in order on CPUs, along rows where threads share these; else calls."""

import dataclasses

import pytest
import torch

import pliant
from codegen.cuda.programs import run_on_device_text
from lowering.tracing import lowered
from pliant.debug import events
from pliant.ir import interpret
from pliant.ir.loops import Extern
from pliant.ir.printer import computation_text
from pliant.targets import registry

CPU = torch.device("cpu")
ROWS = torch.randn(3, 5, 96)

PROGRAMS = {
    "one chunk": (lambda x: x.cumsum(-1), (torch.randn(4, 20),)),
    "two levels": (lambda x: (x * 2).cumsum(-1), (ROWS,)),
    "three levels": (lambda x: x.cumsum(1) + 1, (torch.randn(2, 2048),)),
    "a long row": (lambda x: x.cumsum(-1), (torch.randn(2, 2048 * 3),)),
    "an odd chunk": (lambda x: x.cumsum(0), (torch.randn(63),)),
    "products": (lambda x: (x * 0.1 + 1).cumprod(-1), (ROWS,)),
    "of integers": (lambda x: x.cumsum(-1), (torch.arange(96, dtype=torch.int32).view(2, 48),)),
    "of flags": (lambda x: (x > 0).cumsum(-1), (ROWS,)),
    "as another dtype": (lambda x: x.cumsum(-1, dtype=torch.float64), (ROWS,)),
    "bf16": (lambda x: x.cumsum(-1), (ROWS.bfloat16(),)),
    "double": (lambda x: x.cumsum(-1), (ROWS.double(),)),
    "backwards": (lambda x: x.flip(-1).cumsum(-1).flip(-1), (ROWS,)),
    "of a slice": (lambda x: x[:, 1:4, :48].cumsum(-1), (ROWS,)),
    "broadcast": (lambda x: x[0, 0].expand(4, 96).cumsum(-1), (ROWS,)),
    "a prime length": (lambda x: x.cumsum(-1), (torch.randn(3, 97),)),
    "a long row of a prime length": (lambda x: x.cumsum(-1), (torch.randn(2, 4099),)),
    "one element": (lambda x: x.cumsum(-1) + 1, (torch.randn(3, 1),)),
    "behind a softmax": (lambda x: x.softmax(-1).cumsum(-1) * 2, (ROWS,)),
    "no rows": (lambda x: x[:0].cumsum(-1), (ROWS,)),
}
IN_ORDER = {
    **{name: one for name, one in PROGRAMS.items() if name not in ("an odd chunk", "one element")},
    "across memory": (lambda x: x.cumsum(1), (ROWS,)),
    "the outermost": (lambda x: (x * 2).cumprod(0), (torch.rand(67, 70) + 0.5,)),
    "of a transpose": (lambda x: x.transpose(1, 2).contiguous().cumsum(1), (ROWS,)),
    "a prime length": (lambda x: x.exp().cumsum(-1) - 1, (torch.randn(7, 97),)),
    "short bytes": (lambda x: x.cumsum(-1), (torch.full((5, 9), 127, dtype=torch.int8),)),
    "bytes in bytes": (lambda x: x.cumsum(-1, dtype=torch.int8), (torch.full((5, 9), 127, dtype=torch.int8),)),
    "f32 as bf16": (lambda x: x.cumsum(-1, dtype=torch.bfloat16), (ROWS,)),
    "f16": (lambda x: x.cumsum(0), (ROWS.half(),)),
    "half of it": (lambda x: x.cumsum(-1), (ROWS[:, ::2, ::2],)),
}  # fmt: skip
CALLS = {
    "across memory": (lambda x: x.cumsum(1), (ROWS,)),
    "of a transpose": (lambda x: x.transpose(1, 2).contiguous().cumsum(1), (ROWS,)),
    "extremes": (lambda x: x.cummax(-1)[0], (ROWS,)),
}  # fmt: skip


@pytest.fixture
def chunks(monkeypatch):
    """A CPU that scans in chunks."""
    target = dataclasses.replace(registry.target_of(CPU), scan_row=8, units=16)
    monkeypatch.setattr("pliant.lowering.scans.target_of", lambda device: target)
    pliant.reset()


@pytest.fixture
def calls(monkeypatch):
    """A CPU that leaves scans to the library."""
    target = dataclasses.replace(registry.target_of(CPU), adds_while_scanning=False)
    monkeypatch.setattr("pliant.lowering.scans.target_of", lambda device: target)
    pliant.reset()


def loops(f, args, dynamic=False):
    """The function's result, and its loop program."""
    with events.collect("loops") as found:
        got = pliant.compile(f, dynamic=dynamic, fullgraph=True)(*args)
    return got, "\n".join(one.fields["text"] for one in found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_eagers(name, chunks):
    function, args = PROGRAMS[name]
    got, text = loops(function, args)
    expected, exact = function(*args), function(*(a.double() if a.is_floating_point() else a for a in args))
    assert "aten.cum" not in text
    assert got.dtype is expected.dtype and got.stride() == expected.stride()
    if got.numel():  # eager's sums on a CPU are kept in double; one thread adds up a whole row here
        error, eagers = ((t.double() - exact).abs().max().item() for t in (got, expected))
        assert error <= 2 * eagers + 2e-5 * exact.abs().max().item()


SHAPES = [(3, 2048), (2, 5), (5, 31), (3, 200), (40, 333), (2, 1037), (1, 5003), (2, 4096)]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_texts_for_gpus(shape, symbolic, chunks):
    """Rows of a few lanes, of a warp and of a block, whole and in parts, wherever they begin."""
    given = (torch.randn(shape), torch.rand(2, *shape).double() / 100 + 0.995)

    def function(x, y):
        return (x * 2).cumsum(-1), y.cumprod(-1), x.bfloat16().cumsum(-1), (x > 0).cumsum(-1)

    program = lowered(function, *given, dynamic=symbolic)
    assert not any(isinstance(one, Extern) for one in program.computations)
    for got, expected in zip(run_on_device_text(program, given), function(*given), strict=True):
        tolerance = 2e-2 if got.dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=10 * tolerance)


def test_a_scan_is_one_pass(chunks):
    (computation,) = lowered(lambda x: (x * 2).cumsum(-1), torch.randn(40, 96)).computations
    assert computation_text(computation) == "buf1[i0 < 40, i1 < 96] = running sum(i1) mul(load(buf0, 96*i0 + i1), 2.0)"


@pytest.mark.parametrize("name", CALLS)
def test_all_else_is_a_call(name, chunks):
    function, args = CALLS[name]
    got, text = loops(function, args)
    torch.testing.assert_close(got, function(*args))
    assert "aten.cum" in text


@pytest.mark.spread(2, "dynamic", "name")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", IN_ORDER)
def test_in_order_the_bits_are_eagers(name, dynamic):
    function, args = IN_ORDER[name]
    got, text = loops(function, args, dynamic)
    expected = function(*args)
    assert "aten.cum" not in text and "running" in text
    assert got.dtype is expected.dtype and got.stride() == expected.stride()
    near = name in ("a prime length", "behind a softmax", "bf16", "f16")  # `exp` is another one; a product is not rounded before
    torch.testing.assert_close(got, expected, equal_nan=True, **({} if near else {"rtol": 0, "atol": 0}))


@pytest.mark.parametrize("name", ["two levels", "across memory", "bf16", "a prime length"])
def test_the_interpreter_runs_in_order_too(name):
    function, args = IN_ORDER[name]
    program = lowered(function, *args)
    for got, expected in zip(interpret.run(program, list(args)), [function(*args)], strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("shape", [(2048,), (1, 2048), (2048, 1)])
def test_a_single_row_is_the_librarys(shape):
    x = torch.randn(shape)
    got, text = loops(lambda x: x.cumsum(-1) + 1, (x,))
    torch.testing.assert_close(got, x.cumsum(-1) + 1)
    assert "aten.cumsum" in text


def test_products_of_halves_along_rows_are_the_librarys():
    x = (torch.rand(3, 40) + 0.5).bfloat16()
    assert "aten.cumprod" in loops(lambda x: x.cumprod(-1), (x,))[1]
    assert "running prod" in loops(lambda x: x.cumprod(0), (x,))[1]


def test_gradients_in_order_at_varying_sizes():
    compiled = pliant.compile(lambda x: (x * 3).cumsum(0).sin(), dynamic=True, fullgraph=True)
    for rows, columns in ((3, 66), (7, 5), (4, 130)):
        x = torch.randn(rows, columns, requires_grad=True)
        (expected,) = torch.autograd.grad((x * 3).cumsum(0).sin().square().sum(), x)
        (got,) = torch.autograd.grad(compiled(x).square().sum(), x)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_the_library_scans_where_a_target_does_not_ask(calls):
    got, text = loops(*PROGRAMS["two levels"])
    torch.testing.assert_close(got, (ROWS * 2).cumsum(-1))
    assert "aten.cumsum" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_behind_where_it_begins(value, chunks):
    x = torch.randn(2, 96)
    x[0, 50], x[1, 15] = value, value
    got, _ = loops(lambda x: x.cumsum(-1), (x,))
    torch.testing.assert_close(got, x.cumsum(-1), equal_nan=True)


def test_gradients_and_numbers_of_rows_that_vary(chunks):
    def function(x):
        return (x * 3).cumsum(-1).sin()

    compiled = pliant.compile(function, dynamic=True, fullgraph=True)
    for rows in (3, 7, 4):
        x = torch.randn(rows, 64, dtype=torch.float64, requires_grad=True)
        (expected,) = torch.autograd.grad(function(x).square().sum(), x)
        (got,) = torch.autograd.grad(compiled(x).square().sum(), x)
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
