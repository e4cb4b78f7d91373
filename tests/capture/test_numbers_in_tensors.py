"""Sizes that pass through 0-d tensors stay known: `torch.div(n, k, rounding_mode="trunc")` is used as a size."""

import pytest
import torch

import pliant


def chunks(x, width=4):
    batch, length, features = x.size()
    count = torch.div(length, width, rounding_mode="trunc") - 1
    x = x.view(batch, torch.div(length, width * 2, rounding_mode="trunc"), width * 2, features)
    out = x.new_zeros((batch, count + 1, width))
    out[:, :-1] = 1
    return x.sum(), out, torch.floor_divide(length, 3).item()


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_computed_by_tensors(dynamic):
    pliant.reset()
    compiled = pliant.compile(chunks, backend="eager", dynamic=dynamic, fullgraph=True)
    for length in (16, 24, 32):
        x = torch.randn(2, length, 3)
        torch.testing.assert_close(compiled(x), chunks(x))
    assert pliant.stats()["recompiles"] == (0 if dynamic else 1)


def test_a_tensor_that_is_written_is_not_known():
    def program(x):
        count = torch.div(x.size(0), 2, rounding_mode="trunc")
        count += 1
        return x.new_zeros(int(count))

    compiled = pliant.compile(program, backend="eager", dynamic=True)
    for length in (4, 6):
        assert compiled(torch.ones(length)).shape == program(torch.ones(length)).shape


NORM = torch.nn.BatchNorm1d(3)


@pytest.mark.parametrize("write", ["index_add_", "index_copy_"])
def test_a_write_by_index_into_as_many_rows_as_a_tensor_says(write):
    def fn(x, groups):
        x = NORM(x).relu()
        total = x.new_zeros(int(groups.max()) + 1, x.shape[-1])
        return getattr(total, write)(0, groups, x)

    pliant.reset()
    compiled = pliant.compile(fn)
    for n in (5, 7, 9):
        x, groups = torch.randn(n, 3), torch.arange(n) if write == "index_copy_" else torch.arange(n) // 2
        torch.testing.assert_close(compiled(x, groups), fn(x, groups))
    assert pliant.stats()["graph_breaks"] == 0
