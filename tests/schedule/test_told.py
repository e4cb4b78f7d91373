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
