"""Gradients of results that lie otherwise than the results: a gradient that is contiguous in eager is contiguous."""

import itertools

import pytest
import torch
from tests.autograd.fuzz_training_space import LIES

import pliant

PROGRAMS = {
    "product": lambda x: x * 2,
    "tanh": torch.tanh,
    "centered": lambda x: x - x.mean(-1, keepdim=True),
    "two": lambda x: (x * 2, x.sin()),
    "joined": lambda x: torch.cat([x, x]),
    "transposed": lambda x: x.transpose(-1, -2) * 2,
    "normalized": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "padded": lambda x: torch.nn.functional.pad(x, (1, 1)),
}
LAYOUTS = {
    "contiguous": lambda t: t.contiguous(),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "reversed": lambda t: t.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "gaps": lambda t: torch.stack([t, t], -1)[..., 0],
    "expanded": lambda t: t[:1, :1, :1, :1].expand(t.shape),
}


def gradient(fn, layout, given):
    torch.manual_seed(0)
    x = LAYOUTS[layout](torch.randn(2, 3, 4, 4)).requires_grad_()
    results = fn(x)
    results = results if isinstance(results, tuple) else (results,)
    tangents = [LAYOUTS[given](torch.randn(one.shape)) for one in results]
    return torch.autograd.grad(results, x, tangents)[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_that_are_contiguous_in_eager(name):
    compiled = pliant.compile(PROGRAMS[name], backend="aot_eager")
    for layout, given in itertools.product(LAYOUTS, LAYOUTS):
        for _ in range(2):
            found, expected = gradient(compiled, layout, given), gradient(PROGRAMS[name], layout, given)
            torch.testing.assert_close(found, expected)
            assert found.is_contiguous() or not expected.is_contiguous(), (layout, given)


# Of inputs (3, n, 4): results whose sizes do not tell n, with gradients whose strides do.
REDUCED = {
    "joined": lambda x, y: torch.cat([x, y], 2).tanh().sum(1),
    "stacked": lambda x, y: torch.stack([x, y], 3).sin().mean(1),
    "split": lambda x, y: (torch.cat([x, y], 2).exp()[..., ::3]).sum(1),
    "transposed": lambda x, y: (x.transpose(1, 2) @ y).sin(),
    "expanded": lambda x, y: (x.mean(1, keepdim=True).expand(-1, y.shape[1], -1) * y).sum(1),
    "attention": lambda x, y: ((x @ y[:, :1].mT).softmax(1).mT @ torch.cat([x, y], 2))[:, 0],
}


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
@pytest.mark.parametrize("function", REDUCED.values(), ids=REDUCED)
def test_gradients_lie_by_sizes_that_those_of_results_do_not_tell(function, backend):
    pliant.reset()
    compiled = pliant.compile(function, backend=backend, dynamic=True)
    for size, given in itertools.product((7, 8, 5), ("columns", "expanded")):
        inputs = [torch.randn(3, size, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        tangent = LIES[given](torch.randn(function(*inputs).shape, dtype=torch.float64))
        found, expected = (torch.autograd.grad(one(*inputs), inputs, tangent) for one in (compiled, function))
        torch.testing.assert_close(found, expected)


LEAVES = {
    "transposed": lambda t: t.mT,
    "gaps": lambda t: t[..., ::2],
    "expanded": lambda t: t[:1].expand(t.shape),
    "overlapping": lambda t: t.as_strided((3, 3), (1, 1)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "pliant"])
@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)
def test_gradients_of_leaves_that_a_function_makes(leaf, backend):
    def function(x):
        made = leaf(x).detach().requires_grad_()
        (made * made.cos()).sum().backward()
        first = made.grad.stride()
        (made * 2).sum().backward()
        return made.grad, first

    pliant.reset()
    x = torch.randn(2, 3, 4)
    found, expected = pliant.compile(function, backend=backend)(x), function(x)
    torch.testing.assert_close(found[0], expected[0])
    assert (found[0].stride(), found[1]) == (expected[0].stride(), expected[1])
    assert pliant.stats()["fallbacks"] == 0


def test_a_row_at_a_place_that_varies_gets_a_gradient_of_its_own():
    def program(rows, row, at):
        rows = rows.clone()
        rows[at] = row
        return rows

    compiled = pliant.compile(program, backend="aot_eager", fullgraph=True)
    for at in (1, 2, 3):
        rows, row, tangent = torch.randn(5, 3), torch.randn(3, requires_grad=True), torch.randn(5, 3)
        (found,) = torch.autograd.grad(compiled(rows, row, at), row, tangent)
        assert torch.equal(found, tangent[at])
        assert found.data_ptr() != tangent[at].data_ptr()
