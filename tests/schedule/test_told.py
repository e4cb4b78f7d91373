"""A schedule as rows: nodes, native functions and costs of each step."""

import pytest
import torch

import pliant
from pliant.debug import events


def _kernels(fn, *args):
    pliant.reset()
    with events.collect("kernels") as seen:
        pliant.compile(fn)(*args)
    (event,) = seen
    return event.fields


def test_a_kernel_has_the_nodes_that_its_loops_are_of():
    (row,) = _kernels(lambda x: (x.sin() + 1).sum(-1), torch.ones(8, 16))["rows"]
    assert row.is_kernel and row.nodes == ("sum_1",) and len(row.functions) == 1
    assert (str(row.read), str(row.written), str(row.alive)) == ("512", "32", "32")
    assert str(row.operations) == str(3 * 8 * 16)


def test_a_call_has_no_function():
    fields = _kernels(lambda x, y: (x @ y).relu(), torch.ones(8, 16), torch.ones(16, 4))
    product, relu = fields["rows"]
    assert not product.is_kernel and product.functions == () and product.nodes == ("mm",)
    assert (str(product.read), str(product.written)) == (str(4 * (8 * 16 + 16 * 4)), str(4 * 8 * 4))
    assert relu.is_kernel and relu.run != product.run


@pytest.mark.parametrize("count", [1, 12])  # more than 8 entries are tables
def test_functions_are_those_of_the_text(count):
    def f(x, w):
        pliant.is_compiling()
        for n in range(count):
            x = torch.softmax(x @ w, -1) * (n + 2)
        return x

    fields = _kernels(f, torch.ones(8, 16), torch.ones(16, 16))
    names = {name for row in fields["rows"] for name in row.functions}
    text = "\n".join(fields["texts"])
    assert names and all(f"void {name}(" in text for name in names)


def _reasons(fn, *args, **options):
    with pliant.config.patch(options):
        return [row.apart for row in _kernels(fn, *args)["rows"]]


@pytest.mark.parametrize(
    ("fn", "size", "why"),
    [
        (lambda x: (x.sin(), x[:, 1:].clone().cos()), (30, 40), "their loops go over different points"),
        (lambda x: (torch.softmax(x, -1), torch.softmax(x, 0)), (300, 400), "they reduce over different loops"),
        (lambda x: (x.cumsum(-1), x * 2), (30, 40), "its loops are a kernel of their own"),
        (lambda x: x / x.sum(), (1000, 1000), "threads share the reduction whose result it needs"),
        (lambda x: x.sin() + 1, (40,), ""),
    ],
)
def test_kernels_say_why_they_are_apart(fn, size, why):
    first, *others = _reasons(fn, torch.ones(size))
    assert first == "" and others == [why] * bool(why)


def test_options_are_reasons():
    two = lambda x: ((x + 1).sum(-1) * 2).exp()  # noqa: E731
    assert _reasons(two, torch.ones(8, 9), fuse=False)[1] == "the option `fuse` is off"
    assert "`fusion_limit`" in _reasons(two, torch.ones(8, 9), fusion_limit=1)[1]


def test_calls_are_not_fused_with_kernels():
    assert _reasons(lambda x: (x.sin() @ x).exp(), torch.ones(8, 8)) == ["", "", ""]
