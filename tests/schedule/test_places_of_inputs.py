"""Inputs of which a program replaces places: values, versions, aliases and errors are eager's."""

import copy
import re

import pytest
import torch

import pliant
from pliant.debug import events


def keys():
    torch.manual_seed(0)
    return torch.randn(2, 3, 512, 8)


def index_copy(c, p, k):
    c.index_copy_(2, p, k)
    return c.sum(-1)


def index_put(c, p, k):
    c[:, :, p] = k
    return c.sum(-1)


def index_fill(c, p, k):
    c.index_fill_(2, p, 3.0)
    return c * k[:, :, :1]


def scatter(c, p, k):
    c.scatter_(2, p.view(1, 1, -1, 1).expand(k.shape), k)
    return c.sum(-1)


def twice(c, p, k):
    c.index_copy_(2, p, k)
    c.index_copy_(2, p + 1, k * 2)
    return c.sum(-1), k.sum()


WHOLE = [index_copy, index_put, index_fill, scatter, twice]


def check(function, *args):
    """Values, the inputs after it, and how often these were written are eager's. The calls that write in place."""
    mine = copy.deepcopy(args)
    pliant.reset()
    compiled = pliant.compile(function, fullgraph=True)
    with events.collect("loops") as heard:
        for _ in range(2):
            before = [[t._version for t in given] for given in (mine, args)]
            expected, found = function(*args), compiled(*mine)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(mine, args, rtol=0, atol=0)
            after = [[t._version for t in given] for given in (mine, args)]
            written = [[b - a for a, b in zip(*versions)] for versions in zip(before, after)]
            assert written[0] == written[1]
    return re.findall(r"aten\.\w+_\.\w+\(", "\n".join(event.fields["text"] for event in heard))


@pytest.mark.parametrize("function", WHOLE)
def test_places_are_written_in_the_input(function):
    args = keys(), torch.tensor([3, 9]), torch.randn(2, 3, 2, 8)
    with torch.no_grad():
        assert len(check(function, *args)) == (2 if function is twice else 1)
        check(function, keys().mT.contiguous().mT, *args[1:])


def reads_before(c, p, k):
    before = c.sum(-1)
    c.index_copy_(2, p, k)
    return before, c.sum(-1)


def writes_of_itself(c, p, k):
    c.index_copy_(2, p, c[:, :, :2] * 2)
    return c.sum(-1)


def adds(c, p, k):
    c.index_add_(2, p, k)
    return c.sum(-1)


def returns_what_was_between(c, p, k):
    first = c.index_copy(2, p, k)
    c.copy_(first.index_copy(2, p + 1, k))
    return first


@pytest.mark.parametrize("function", [reads_before, writes_of_itself])
def test_what_is_read_before_is_the_old_value(function):
    with torch.no_grad():
        check(function, keys(), torch.tensor([3, 9]), torch.randn(2, 3, 2, 8))


@pytest.mark.parametrize("function", [adds, returns_what_was_between])
def test_the_rest_is_written_at_the_end(function):
    args = keys(), torch.tensor([3, 9]), torch.randn(2, 3, 2, 8)
    with torch.no_grad():
        assert not [call for call in check(function, *args) if "_." in call]


def returned(c, p, k):
    return c.index_copy_(2, p, k), c[0], k + 1


def test_results_lie_in_the_input():
    args = keys(), torch.tensor([3, 9]), torch.randn(2, 3, 2, 8)
    with torch.no_grad():
        check(returned, *args)
        whole, part, _ = pliant.compile(returned)(*args)
    assert whole is args[0] and part.data_ptr() == args[0].data_ptr()


def beside(c, part, p, k):
    first = part.sum()
    c.index_copy_(2, p, k)
    return first, part.sum(), c.sum()


def test_another_input_shows_the_same_memory():
    def arguments():
        c = keys()
        return c, c[:, :1], torch.tensor([3, 9]), torch.ones(2, 3, 2, 8)

    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(beside)(*arguments()), beside(*arguments()))


def fails_first(c, p, k, table, row):
    looked_up = table[row] + 1
    c.index_copy_(2, p, k)
    return looked_up, c.sum(-1)


def fails_last(c, p, k, table, row):
    c.index_copy_(2, p, k)
    return table[row] + 1, c.sum(-1)


@pytest.mark.parametrize("function", [fails_first, fails_last])
def test_an_error_leaves_the_input_as_eager_does(function):
    args = keys(), torch.tensor([3, 9]), torch.randn(2, 3, 2, 8), torch.randn(4, 5)
    mine = copy.deepcopy(args)
    compiled = pliant.compile(function)
    with torch.no_grad():
        for row in (torch.tensor([1]), torch.tensor([7])):
            for f, given in ((function, args), (compiled, mine)):
                try:
                    f(*given, row)
                except IndexError:
                    assert row == 7
        torch.testing.assert_close(mine, args, rtol=0, atol=0)
