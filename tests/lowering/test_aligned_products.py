"""Where a machine wants it, rows of what products read and write begin at multiples of some bytes."""

import dataclasses

import pytest
import torch

from lowering.tracing import trace
from pliant.ir.loops import Extern
from pliant.lowering.lower import lower
from pliant.runtime.compile_graph import compile_graph
from pliant.targets import cpu, registry

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def target():
    there = cpu.target()
    registry.provide("cpu", lambda _: dataclasses.replace(there, product_bytes=16, product_depth=64))
    yield
    registry.provide("cpu", lambda _: there)


def projected(x, w, grad):
    """A projection to 250 classes, a loss' gradient, and what flows back from it."""
    logits = x @ w.t()
    d = (logits.float() * 2 + 1).to(x.dtype) * grad
    return d @ w, d.t() @ x, logits


def arguments(dtype=torch.bfloat16, classes=250, depth=64):
    torch.manual_seed(0)
    return torch.randn(32, depth).to(dtype), torch.randn(classes, depth).to(dtype), torch.randn(32, classes).to(dtype)


def strides(args):
    program = lower(trace(projected, args))
    calls = [c for c in program.computations if isinstance(c, Extern)]
    return [[v.strides[0].as_int() for v in (*c.args, *c.outs) if v is not None] for c in calls]


def test_rows_are_aligned():
    first, second, third = strides(arguments())
    assert first[-1] == 256  # the logits
    assert second[0] == 256  # the gradient that comes from a kernel
    assert third[0] == 1  # the same, transposed


@pytest.mark.parametrize("change", [{"dtype": torch.float32}, {"classes": 256}, {"depth": 32}])
def test_where_it_does_not_pay(change):
    args = arguments(**change)
    assert strides(args)[0][-1] == args[1].shape[0]


@pytest.mark.parametrize("classes", [250, 256, 129])
def test_values_and_strides_of_results(classes):
    args = arguments(classes=classes)
    found = compile_graph(trace(projected, args))(list(args))
    for mine, theirs in zip(found, projected(*args), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-1)
        assert mine.stride() == theirs.stride()


def training(x, w, grad):
    """A projection whose weight is cast, and what flows back from a loss."""
    low = w.to(torch.bfloat16)
    logits = x @ low.t()
    d = (logits.float() * grad).to(torch.bfloat16)
    return logits, d @ low, d.t() @ x


def factors(function, args):
    calls = [c for c in lower(trace(function, args)).computations if isinstance(c, Extern)]
    return [[[n.as_int() for n in v.shape] for v in c.args] for c in calls]


def test_zeros_lie_behind_what_products_go_along():
    args = torch.randn(96, 64).bfloat16(), torch.randn(250, 64), torch.randn(96, 250)
    forward, back, of_weight = factors(training, args)
    assert forward == [[96, 64], [64, 256]]  # computed for more columns
    assert back == [[96, 256], [256, 64]]  # a longer sum
    assert of_weight == [[250, 96], [96, 64]]  # goes along neither
    for mine, theirs in zip(compile_graph(trace(training, args))(list(args)), training(*args), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-1)
        assert mine.stride() == theirs.stride() and mine.shape == theirs.shape


@pytest.mark.parametrize("rows, classes", [(96, 256), (32, 250), (96, 100)])
def test_no_columns_are_added_where_it_does_not_pay(rows, classes):
    args = torch.randn(rows, 64).bfloat16(), torch.randn(classes, 64)
    assert factors(lambda x, w: x @ w.to(x.dtype).t(), args) == [[[rows, 64], [64, classes]]]


def assert_right(function, args):
    """Near to float64: how eager adds bf16 depends on the processor. What is no number is so in both."""
    exact = function(*[one.double() for one in args])
    found = compile_graph(trace(function, args))(list(args))
    for mine, right in zip(found, exact if isinstance(exact, tuple) else (exact,), strict=True):
        scale = float(right[right.isfinite()].abs().max())
        torch.testing.assert_close(mine.double(), right, rtol=1e-2, atol=5e-3 * scale, equal_nan=True)


def test_zeros_do_not_meet_infinities():
    def f(x, w):
        return (x * 2) @ (w * 2)

    args = torch.randn(96, 250).bfloat16(), torch.randn(250, 64).bfloat16()
    args[0][3, 4], args[0][5, 0] = float("inf"), float("nan")
    assert factors(f, args) == [[[96, 256], [256, 64]]]
    assert_right(f, args)


def test_part_of_a_factor_has_no_zeros_behind_it():
    def f(x, w):
        a, b = x * 2, w * 2
        return a @ b, a[:, :200] @ b[:200], a[1:] @ b, a[:, :136] @ b[114:]

    assert_right(f, (torch.randn(96, 250).bfloat16(), torch.randn(250, 64).bfloat16()))


def from_outside(grad, w, x):
    return grad.view(32, -1) @ w, grad.view(32, -1).t() @ x, grad.view(32, -1).sum(0)


@pytest.mark.parametrize("classes, copied", [(250, True), (256, False)])
def test_an_input_that_products_read_often_is_copied(classes, copied):
    x, w, grad = arguments(classes=classes)
    args = (grad.view(4, 8, classes), w, x)
    program = lower(trace(from_outside, args))
    first, second = (c for c in program.computations if isinstance(c, Extern))
    assert first.args[0].strides[0].as_int() == second.args[0].strides[1].as_int() == (256 if copied else classes)
    for mine, theirs in zip(compile_graph(trace(from_outside, args))(list(args)), from_outside(*args), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-1)


def test_the_copy_lies_where_the_input_does(monkeypatch):
    there = dataclasses.replace(cpu.target(), product_bytes=16, product_depth=64)
    monkeypatch.setattr(registry, "_PROVIDERS", {"meta": lambda _: there})
    monkeypatch.setattr(registry, "_found", {})
    x, w, grad = (t.to("meta") for t in arguments())
    program = lower(trace(from_outside, (grad.view(4, 8, -1), w, x)))
    assert {str(c.out.device) for c in program.computations if not isinstance(c, Extern)} == {"meta"}


def test_an_input_that_is_given_back_or_read_seldom_is_not():
    x, w, grad = arguments()
    for function in (lambda grad, w, x: (grad @ w, grad), lambda grad, w, x: (grad @ w[:, :8],)):
        program = lower(trace(function, (grad, w, x)))
        (product,) = (c for c in program.computations if isinstance(c, Extern))
        assert product.args[0].strides[0].as_int() == 250


@pytest.mark.parametrize("classes", [250, 256])
def test_biases_are_added_by_the_loop_that_copies(classes):
    def biased(x, w, b):
        return aten.addmm(b, x, w.t())

    x, w, _ = arguments(classes=classes)
    args = (x, w, torch.randn(classes).bfloat16())
    program = lower(trace(biased, args))
    (product,) = [c.target for c in program.computations if isinstance(c, Extern)]
    assert product is (aten.mm.default if classes == 250 else aten.addmm.default)
    (found,) = compile_graph(trace(biased, args))(list(args))
    torch.testing.assert_close(found, biased(*args), rtol=2e-2, atol=1e-1)
    assert found.stride() == (classes, 1)


def test_rows_stay_aligned_where_zeros_lie_behind_the_others_alone():
    def f(x, w):
        return x @ (w * 2)

    args = torch.randn(32, 250).bfloat16(), torch.randn(250, 1001).bfloat16()
    (call,) = [c for c in lower(trace(f, args)).computations if isinstance(c, Extern)]
    assert call.args[1].strides[0].as_int() == 1008
    assert_right(f, args)
