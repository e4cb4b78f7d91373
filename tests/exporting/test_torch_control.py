"""Branches, loops and scans in PyTorch's own programs: called at several sizes, saved and loaded by `torch.export`, as eager."""

import pytest
import torch
from tests.exporting import loops

import pliant
from exporting.test_torch_form import reloaded
from pliant.errors import ExportError


def converted(model):
    return pliant.export(model, loops.arguments(3, 5), dynamic_shapes=loops.SAID).to_exported_program()


def same(model, module, size):
    args = loops.arguments(*size)
    found = torch.utils._pytree.tree_leaves(module(*args))
    for one, other in zip(found, loops.plainly(model, args), strict=True):
        torch.testing.assert_close(one, torch.as_tensor(other), rtol=1e-4, atol=1e-5)


def nested(x, y):
    """A branch in a loop, of sizes and of what is computed outside."""
    z = x.sum() * y.shape[0]

    def step(n, a):
        return n + 1, loops.cond(a.sum() > 0, lambda b: b * 0.5 + z, lambda b: b - x.shape[1], (a,))

    return loops.while_loop(lambda n, a: n < 3, step, (torch.zeros((), dtype=torch.int64), x))


def as_given(x, y):
    """A branch that returns what it is given, and one that returns one value twice."""
    return loops.cond(x.sum() > 0, lambda a, b: (a, b), lambda a, b: ((c := a + b), c), (x, y))


@pytest.mark.parametrize("name", ["branches", "of sizes", "while", "scan", "scan backwards", "map", "associative scan"])
def test_as_eager(name):
    module = reloaded(converted(loops.MODELS[name])).module()
    for size in (*loops.SIZES, (2, 1)):
        same(loops.MODELS[name], module, size)


@pytest.mark.parametrize("model", [nested, as_given])
def test_bodies(model):
    module = converted(model).module()
    for size in loops.SIZES:
        same(model, module, size)


def test_what_is_refused():
    with pytest.raises(ExportError, match="draws random numbers"):
        converted(loops.MODELS["random branch"])
