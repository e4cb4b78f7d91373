"""Tensors made of sizes: one graph for all sizes, of eager's type, whichever function makes them."""

import pytest
import torch

import pliant

MADE = {
    "tensor": lambda x, n: torch.tensor(x.shape),
    "tensor of sizes in a list": lambda x, n: torch.tensor([x.shape, [n, 7]]),
    "as_tensor": lambda x, n: torch.as_tensor(x.shape, dtype=torch.int64),
    "as_tensor of a list": lambda x, n: torch.as_tensor([1, n, 2.5]),
    "as_tensor of one": lambda x, n: torch.as_tensor(n),
    "asarray": lambda x, n: torch.asarray([n, 3], dtype=torch.float64),
    "asarray of one": lambda x, n: torch.asarray(n, dtype=torch.int32),
    "new_tensor": lambda x, n: x.new_tensor([n, 2]),
    "new_tensor of one": lambda x, n: x.new_tensor(n, dtype=torch.int64),
    "new_tensor of sizes": lambda x, n: x.double().new_tensor(x.shape, dtype=None),
    "asked for elements": lambda x, n: torch.as_tensor(x.shape).tolist()[0] * x.new_ones(int(torch.as_tensor(n + 1))),
    "in a branch": lambda x, n: x + 1 if torch.as_tensor(x.shape).prod() > 1000 else x,
    "a short type": lambda x, n: torch.as_tensor([n], dtype=torch.int8),
}


@pytest.mark.parametrize("name", MADE)
def test_one_graph_for_all_sizes(name):
    compiled = pliant.compile(lambda x: MADE[name](x, x.shape[0]), backend="eager", fullgraph=True)
    pliant.reset()
    for size in (5, 7, 6, 9):
        x = torch.randn(size, 3)
        torch.testing.assert_close(compiled(x), MADE[name](x, size), rtol=0, atol=0)
    assert pliant.stats()["graphs"] == 2


def test_numbers_that_do_not_fit_are_errors():
    def program(x):
        return torch.as_tensor([x.shape[0]], dtype=torch.uint8)

    compiled = pliant.compile(program, backend="eager")
    for size in (5, 7, 255):
        assert torch.equal(compiled(torch.ones(size)), program(torch.ones(size)))
    with pytest.raises(RuntimeError, match="without overflow"):
        compiled(torch.ones(256))


def test_tensors_that_are_given_back_as_they_are():
    def program(x):
        return torch.as_tensor(x), torch.asarray(x[0]), x.new_tensor([x.shape[0]], requires_grad=True)

    compiled = pliant.compile(program, backend="eager")
    for size in (5, 7, 6):
        x = torch.randn(size)
        same, element, leaf = compiled(x)
        assert same is x and element.data_ptr() == x.data_ptr()
        assert leaf.is_leaf and leaf.requires_grad
