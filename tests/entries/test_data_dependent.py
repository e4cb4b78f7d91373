"""Entries whose sizes and numbers only the elements of tensors tell."""

import pytest
import torch

import pliant
from pliant import background
from pliant.debug import events


@pytest.fixture(autouse=True)
def folder(tmp_path):
    pliant.reset()
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path / "cache"), strict=True):
        yield
        background.finish()
    pliant.reset()


def masked(x):
    return x[x > 0] * 2


def counted(x):
    n = int(x.abs().sum().item())
    return torch.arange(n) * 2, x * n


def stated(x):
    n = int((x > 0).sum().item())
    torch._check(n < 7)
    return torch.ones(n).cumsum(0)


def split(x):
    return torch.split(torch.arange(6.0), (x > 0).sum(1).tolist())


def sliced(x):
    a, b = (x > 0).sum(1)[:2].tolist()
    y = x.clone().view(-1)
    y[a : a + b] = 1
    return y, x.view(-1)[:-a], x.view(-1)[:a].repeat(b)


X = torch.linspace(-1, 1, 12).view(3, 4)
OTHER = X[:, [0, 2, 1, 3]] * 1.5
Y = torch.tensor([[-1.0, -2, -3, -4], [1, 2, 3, 4], [1, 1, 1, 1]])  # without a positive element in its first row
PROGRAMS = [masked, counted, stated, split, sliced]


def process(fn, *calls):
    """A dispatcher of its own, whose results are eager's: how often something was captured, and an assumption failed."""
    events.reset()
    compiled = pliant.compile(fn)
    for x in calls:
        torch.testing.assert_close(outcome(compiled, x), outcome(fn, x))
    background.finish()
    return len(events.events("capture")), pliant.stats()["assumptions"]


def outcome(fn, x):
    leaf = x.clone().requires_grad_()
    try:
        found = fn(leaf)
    except RuntimeError as error:
        return [torch.tensor(len(str(error)))], None
    tensors = [found] if isinstance(found, torch.Tensor) else list(found)
    wanted = [t for t in tensors if t.requires_grad]
    return tensors, torch.autograd.grad(sum(t.sum() for t in wanted), leaf) if wanted else None


@pytest.mark.parametrize("fn", PROGRAMS)
def test_they_are_found(fn):
    assert process(fn, X)[0]
    assert process(fn, X, OTHER) == (0, 0)


def test_what_the_program_states_is_checked():
    assert process(stated, X)[0]
    assert process(stated, torch.ones(3, 4), X)[0] == 0


def test_an_assumption_that_fails_is_not_made_again():
    """The entry that makes it serves no more, neither that of this process nor one on disk."""
    assert process(sliced, X * -1)[0]
    captures, failed = process(sliced, X * -1, Y, X * -1, Y, Y)
    assert captures and 0 < failed <= 2
    assert process(sliced, X * -1, Y) == (0, 0)
