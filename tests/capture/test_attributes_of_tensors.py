"""Attributes that programs give to tensors, and take from them again."""

import copy

import pytest
import torch

import pliant


def made_and_deleted(x):
    x.scale = 3
    y = x * x.scale
    del x.scale
    return y, hasattr(x, "scale"), hasattr(x, "given")


def deleted(x):
    y = x * x.given
    del x.given
    return y, getattr(x, "given", 7)


def deleted_twice(x):
    del x.given
    try:
        del x.given
    except AttributeError as error:
        return x + 1, str(error) == "given"


def deleted_and_stored(x):
    del x.given
    x.given = 5
    return x * x.given


def of_own_tensor(x):
    y = x + 1
    y.scale = 2
    z = y * y.scale
    del y.scale
    return z, y, hasattr(y, "scale")


def of_gradient(x):
    del x.grad
    return x * 2, x.grad is None


@pytest.mark.parametrize(
    "program", [made_and_deleted, deleted, deleted_twice, deleted_and_stored, of_own_tensor, of_gradient]
)
def test_deleted_attributes(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for n in (3, 4):
        x = torch.arange(float(n), requires_grad=True)
        x.given, x.grad = n, torch.ones(n)
        mine = copy.deepcopy(x)
        mine.__dict__.update(x.__dict__)
        torch.testing.assert_close(compiled(mine), program(x))
        assert mine.__dict__ == x.__dict__ and (mine.grad is None) is (x.grad is None)
    assert pliant.stats()["graph_breaks"] == 0
