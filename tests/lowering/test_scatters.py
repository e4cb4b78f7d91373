"""Sums at positions are loops that go through their source once, in its order, with columns shared by threads."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

import pliant
from codegen.cuda.programs import run_on_device_text
from lowering.tracing import lowered
from pliant.debug import events
from pliant.ir.loops import Extern
from pliant.targets import registry

X, AT, ADDED = torch.randn(40, 70), torch.randint(0, 40, (33,)), torch.randn(33, 70)
CUBE, INTO = torch.randn(3, 20, 32), torch.randint(0, 20, (50,))

PROGRAMS = {
    "index_put": (lambda x, i, v: torch.index_put(x, (i - 40,), v * 2, accumulate=True), (X, AT, ADDED)),
    "one row": (lambda x, i, v: torch.index_put(x, (i,), v[0], accumulate=True), (X, AT, ADDED)),
    "index of rank 2": (
        lambda x, i, v: torch.index_put(x, (i.view(3, 11),), v.view(3, 11, 70), accumulate=True) + 1, (X, AT, ADDED)),
    "second dimension": (
        lambda x, i, v: torch.ops.aten.index_put(x, [None, i], v, True), (CUBE, INTO, torch.randn(3, 50, 32))),
    "index_add": (lambda x, i, v: x.index_add(0, i, v, alpha=2.5), (X, AT, ADDED)),
    "index_add of the second": (lambda x, i, v: x.index_add(1, i, v.sin()), (CUBE, INTO, torch.randn(3, 50, 32))),
    "of a transpose": (lambda x, i, v: x.t().index_add(0, i, v.t()), (X, AT, torch.randn(40, 33))),
    "double": (lambda x, i, v: x.index_add(0, i, v), (X.double(), AT, ADDED.double())),
    "in place": (lambda x, i, v: x.clone().index_add_(0, i, v).sum(1), (X, AT, ADDED)),
}  # fmt: skip
ADDS = " sum= "  # how such a store prints
CALLS = {
    "single elements": (lambda x, i, v: x.scatter_add(0, i[:, None] % 40, v), (X, AT, ADDED)),
    "single elements at places that are computed": (lambda x, i, v: x.scatter_add(1, i[None] % 40, v), (X, AT, ADDED)),
    "single elements of one row": (lambda x, i, v: x[0].clone().scatter_add(0, i % 40, v[0]), (X, AT, ADDED)),
    "single elements, rounded": (lambda x, i, v: x.scatter_add(1, i[None] % 40, v), (X.bfloat16(), AT, ADDED.bfloat16())),
    "the last of two": (lambda x, i, v: x.t().index_add(1, i, v.t()), (X, AT, ADDED)),
    "one dimension": (lambda x, i, v: x.index_add(0, i, v), (X[:, 0].clone(), AT, ADDED[:, 0].clone())),
    "half": (lambda x, i, v: torch.index_put(x, (i,), v, accumulate=True), (X.half(), AT, ADDED.half())),
    "sums that eager does not round": (lambda x, i, v: x.index_add(0, i, v), (X.bfloat16(), AT, ADDED.bfloat16())),
    "overwritten": (lambda x, i, v: torch.index_put(x, (i,), v), (X, AT, ADDED)),
}


ROUNDED = {
    "index_put": (lambda x, i, v: torch.index_put(x, (i - 40,), v * 2, accumulate=True), (X, AT, ADDED)),
    "gradient of an embedding": (
        lambda x, i, v: torch.ops.aten.embedding_dense_backward(v.cos(), i, 40, 3, False), (X, AT, ADDED)),
    "without padding": (lambda x, i, v: torch.ops.aten.embedding_dense_backward(v, i, 40, -1, False), (X, AT, ADDED)),
}  # fmt: skip


def loops(f, args, dynamic=False) -> str:
    """The loop program of a function, whose result is right."""
    expected = f(*args)
    with events.collect("loops") as found:
        got = pliant.compile(f, dynamic=dynamic, fullgraph=True)(*args)
    torch.testing.assert_close(got, expected)
    assert got.stride() == expected.stride()
    return "\n".join(one.fields["text"] for one in found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_added_by_loops(name):
    text = loops(*PROGRAMS[name])
    assert ADDS in text and "aten.index" not in text


@pytest.mark.parametrize("name", ["index_put", "index_add of the second"])
def test_sizes_may_be_symbols(name):
    assert ADDS in loops(*PROGRAMS[name], dynamic=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(9, 33), (3, 4, 33), (1, 1, 5), (2, 1, 1)])
def test_rows_that_elements_do_not_leave_are_shared_by_threads(shape, dynamic):
    x, v, i = torch.randn(shape), torch.randn(*shape[:-1], 20), torch.randint(shape[-1], (*shape[:-1], 20))

    def f(x, i, v):
        return x.scatter_add(-1, i, v * 2)

    with events.collect("output_code") as found:
        got = pliant.compile(f, dynamic=dynamic)(x, i, v)
    torch.testing.assert_close(got, f(x, i, v), atol=0, rtol=0)
    adding = found[-1].fields["text"].split("_part(void**")[-1]
    assert "range = 1;" not in adding or shape[:-1] == (1, 1)
    i[-1, ..., 0] = -1
    with pytest.raises(RuntimeError, match="out of bounds"):
        pliant.compile(f, dynamic=dynamic)(x, i, v)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_single_elements_of_halves_are_added_in_float32_as_in_eager(dtype):
    args = torch.randn(9, 33, dtype=dtype), torch.randint(33, (9, 200)), torch.randn(9, 200, dtype=dtype)

    def f(x, i, v):
        return x.scatter_add(-1, i, v * 2)

    text = loops(f, args)
    assert ADDS in text and "scatter_add" not in "".join(line for line in text.splitlines() if "extern" in line)
    torch.testing.assert_close(pliant.compile(f)(*args), f(*args), atol=0, rtol=0)


@pytest.mark.parametrize("name", ROUNDED)
def test_sums_are_rounded_one_by_one_as_in_eager(name):
    f, args = ROUNDED[name]
    given = [a.bfloat16() if a.is_floating_point() else a.repeat_interleave(9) % 7 for a in args]
    given[2] = given[2].repeat(9, 1)
    assert ADDS in loops(f, given)
    torch.testing.assert_close(pliant.compile(f)(*given), f(*given), atol=0, rtol=0)


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    assert ADDS not in loops(*CALLS[name])


@pytest.mark.parametrize("padding", [None, 3])
def test_gradient_of_an_embedding(padding):
    rows, at = torch.randn(40, 70, requires_grad=True), torch.randint(0, 40, (4, 9))

    def f(rows, at):
        return F.embedding(at, rows, padding_idx=padding)

    expected = torch.autograd.grad(f(rows, at).square().sum(), rows)
    with events.collect("loops") as found:
        got = torch.autograd.grad(pliant.compile(f)(rows, at).square().sum(), rows)
    torch.testing.assert_close(got, expected)
    assert ADDS in found[-1].fields["text"]


def test_eager_says_what_is_out_of_range():
    f, (x, _, v) = PROGRAMS["index_add"]
    wrong = torch.tensor([0, 40])
    with pytest.raises(Exception) as expected:
        f(x, wrong, v[:2])
    with pytest.raises(type(expected.value), match=str(expected.value)):
        pliant.compile(f)(x, wrong, v[:2])


ELEMENTS = torch.randint(0, 40, (30, 65))
ATOMIC = {
    **PROGRAMS,
    "scatter_add": (lambda x, i, v: x.scatter_add(0, i, v * 2) + 1, (X, ELEMENTS, ADDED)),
    "scatter_add along rows": (lambda x, i, v: x.scatter_add(-1, i, v), (X, ELEMENTS, ADDED)),
    "one dimension": CALLS["one dimension"],
    "the last of two": CALLS["the last of two"],
}
OF_HALVES = {
    "index_add": CALLS["sums that eager does not round"],
    "gradient of an embedding": (
        lambda x, i, v: torch.ops.aten.embedding_dense_backward(v.cos(), i, 40, 3, False),
        (X, AT, ADDED.bfloat16()),
    ),
    "gradient of rows": (
        lambda x, i, v: torch.index_put(v.new_zeros(40, 70), (i,), v * 2, accumulate=True),
        (X, AT, ADDED.bfloat16()),
    ),
    "as many rows as there are": (
        lambda x, i, v: torch.index_put(x, (i,), v * 2, accumulate=True), (X.bfloat16(), AT, ADDED.bfloat16())
    ),
}


@pytest.fixture
def atomic(monkeypatch):
    """A CPU that adds in no order."""
    target = dataclasses.replace(registry.target_of(torch.device("cpu")), adds_in_order=False, adds_atomically=True)
    monkeypatch.setattr("pliant.lowering.scattering.target_of", lambda device: target)
    pliant.reset()


@pytest.mark.parametrize("name", ATOMIC)
def test_added_atomically(name, atomic):
    function, args = ATOMIC[name]
    assert ADDS in loops(function, args)
    program = lowered(function, *args)
    assert not any(isinstance(one, Extern) for one in program.computations)
    (got,) = run_on_device_text(program, args)
    torch.testing.assert_close(got, function(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", OF_HALVES)
def test_halves_are_added_in_float32(name, atomic):
    f, args = OF_HALVES[name]
    many = args[1].repeat(60) % 3
    given = (args[0], many, args[2].repeat(60, 1))
    program = lowered(f, *given)
    assert not any(isinstance(one, Extern) for one in program.computations)
    (got,) = run_on_device_text(program, given)
    exact = f(given[0].double(), many, given[2].double())
    assert ((got.double() - exact).abs().max() / exact.abs().max()).item() < 2**-8


def test_few_rows_of_halves_are_calls(atomic):
    f, (x, at, added) = OF_HALVES["as many rows as there are"]
    program = lowered(f, x, at[:3], added[:3])
    assert any(isinstance(one, Extern) for one in program.computations)


@pytest.mark.parametrize("name", ["index_put", "scatter_add"])
def test_deterministic_algorithms_are_calls(name, atomic):
    function, args = ATOMIC[name]
    torch.use_deterministic_algorithms(True)
    try:
        assert ADDS not in loops(function, args)
    finally:
        torch.use_deterministic_algorithms(False)


WRITTEN = {
    "gather": lambda x: x.gather(1, torch.tensor([[0, 3, 3], [1, 1, 0]])),
    "pairs": lambda x: x[torch.tensor([0, 1, 1]), torch.tensor([2, 2, 2])],
    "one of several readers": lambda x: (x * 2).scatter(1, torch.tensor([[1], [0]]), 5.0) + (x * 2),
    "copied rows": lambda x: x.sin().index_copy(1, torch.tensor([1, 0]), x[:, :2]),
    "an input": lambda x: x.index_fill(1, torch.tensor([2, 0]), 3.0),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_in_places_is_not_copied(name):
    function, x = WRITTEN[name], torch.randn(2, 5)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    with events.collect("loops") as found:
        result, expected = pliant.compile(function)(ours), function(theirs)
        result.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)
    text = "\n".join(one.fields["text"] for one in found)
    assert {"gather": ADDS, "pairs": "index_put_", "copied rows": "index_copy_"}.get(name, "aten.") in text
    if name == "an input":
        assert torch.equal(ours.detach(), x) and "index_fill_" not in text
