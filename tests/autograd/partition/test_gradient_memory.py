"""Gradients share memory with each other and with the gradients that they come from exactly where eager's do."""

import itertools

import pytest
import torch

import pliant
from pliant.debug import events


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    yield
    pliant.reset()


def lies(tensors):
    """Of each two tensors whether they share memory and whether they are the same; of each how it lies."""
    pairs = list(itertools.combinations(tensors, 2))
    shared = [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a, b in pairs]
    return [(t.stride(), t.storage_offset()) for t in tensors], shared, [a is b for a, b in pairs]


VIEWS = {
    "sum of rows": lambda a, b: (a + b).sum(1),
    "sum of columns": lambda a, b: a.sum(0) + b.sum(0),
    "sum": lambda a, b: a.sum() * 2 + b.sum() * 2,
    "rows joined": lambda a, b: torch.cat([a, b]),
    "columns joined": lambda a, b: torch.cat([a, b], 1),
    "stacked": lambda a, b: torch.stack([a, b], -1),
    "transposed": lambda a, b: (a.t() + b) * 1,
    "transposed copy": lambda a, b: a.t().contiguous() + b,
    "flattened": lambda a, b: a.flatten() + b.flatten(),
    "split": lambda a, b: torch.cat([x for pair in zip(a.split(2), b.split(2)) for x in pair]),
    "broadcast": lambda a, b: a[:, None] + b[None],
}
OWN = {
    "computed twice": lambda a, b: a.view(-1) * 3 + b.view(-1) * 3,
    "computed twice, joined": lambda a, b: torch.cat([a, a]) + torch.cat([b, b]),
    "computed once": lambda a, b: (a + b) * 3,
    "computed once, transposed": lambda a, b: (a + b.t()) * 3,
    "copies": lambda a, b: a.clone() + b.clone().view(6, 6),
    "copy of a view": lambda a, b: a.t().clone().flatten() + b.flatten(),
    "two results": lambda a, b: (a.t() * 2, b.sum(0), (a + b).flatten()),
}


@pytest.mark.spread(2, "name", "accumulated")
@pytest.mark.parametrize("name", [*VIEWS, *OWN])
@pytest.mark.parametrize("accumulated", [False, True])
def test_gradients_lie_as_eagers(name, accumulated):
    function = (VIEWS | OWN)[name]
    torch.manual_seed(0)
    found = []
    given = [torch.randn(6, 6) for _ in range(2)]
    for call in (function, pliant.compile(function, backend="pliant")):
        inputs = [t.clone().requires_grad_() for t in given]
        results = call(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        tangents = [torch.empty_like(t).copy_(torch.arange(t.numel()).view(t.shape)) for t in results]
        if accumulated:
            torch.autograd.backward(results, tangents)
            gradients = [t.grad for t in inputs]
        else:
            gradients = list(torch.autograd.grad(results, inputs, tangents))
        found.append((gradients, lies([*gradients, *tangents])))
    (expected, where), (got, here) = found
    torch.testing.assert_close(got, expected, atol=0, rtol=0)
    assert here == where


@pytest.mark.parametrize("name", ["sum of rows", "sum of columns", "rows joined", "columns joined", "flattened"])
def test_gradients_that_are_views_move_no_bytes(name):
    inputs = [torch.randn(6, 6, requires_grad=True) for _ in range(2)]
    with events.collect("loops") as found:
        result = pliant.compile(VIEWS[name])(*inputs)
        result.backward(torch.ones_like(result))
    backward = found[-1].fields["text"]
    assert "_backward(" in backward and "[i0" not in backward


def test_gradients_computed_twice_are_written_apart():
    a, b = (torch.randn(6, 6, requires_grad=True) for _ in range(2))
    pliant.compile(OWN["computed twice"])(a, b).sum().backward()
    before = b.grad.clone()
    a.grad.zero_()
    assert torch.equal(b.grad, before)


def test_views_of_an_expanded_tangent_are_added_to_apart():
    compiled = pliant.compile(lambda a, b: a.view(16) + b.view(16))
    a, b = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
    for _ in range(2):
        compiled(a, b).sum().backward()
    assert a.grad.unique().tolist() == b.grad.unique().tolist() == [2.0]
