"""`copy.copy` and `copy.deepcopy`: what is new, what is shared, and where copied tensors lie."""

import copy
import functools

import pytest
import torch

import pliant

X = torch.arange(16.0).view(4, 4)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_partial_is_another_one(copied):
    def f(x, outside):
        own = functools.partial(torch.add, x, other=x)
        one, other = copied(own), copied(outside)
        return x * 2, one is own, one.args[0] is x, one.keywords["other"] is one.args[0], other is outside, other(x)

    outside = functools.partial(torch.mul, torch.ones(4))
    found, expected = pliant.compile(f)(X, outside), f(X, outside)
    assert found[1:5] == expected[1:5]
    assert torch.equal(found[5], expected[5])


def test_attributes_of_a_partial_are_copied():
    partial = functools.partial(max, 1)
    partial.note = [3]
    found = pliant.compile(lambda x, p: (x * 2, copy.copy(p)))(X, partial)[1]
    assert found is not partial
    assert found.note is partial.note


def test_a_deep_copy_of_a_frozenset_is_another_one():
    def f(x):
        own = frozenset((1, 2))
        return x * 2, copy.deepcopy(own) is own, copy.copy(own) is own

    assert pliant.compile(f)(X)[1:] == f(X)[1:]


def test_tensors_that_share_memory_share_that_of_the_copy():
    def f(x):
        whole, part = copy.deepcopy([x, x[1:]])
        whole.mul_(2)
        return whole, part

    for one, other in zip(pliant.compile(f)(X), f(X)):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "part",
    [lambda x: x[:, ::2], lambda x: x[:, :1].expand(4, 4), lambda x: x.diagonal(), lambda x: x[1:], lambda x: x.t(), lambda x: x * 2],
)
def test_a_deep_copy_lies_as_the_tensor_does(part):
    def f(x):
        return copy.deepcopy(part(x))

    found, expected = pliant.compile(f)(X), f(X)
    assert torch.equal(found, expected)
    assert (found.stride(), found.storage_offset()) == (expected.stride(), expected.storage_offset())
