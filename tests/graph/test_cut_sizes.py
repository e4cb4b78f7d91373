"""Tensors cut to a multiple of a number: one graph whether something was cut off or not, and what is left of few rows."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant.debug import events


def cut(x):
    return x[:, : x.shape[1] // 4 * 4]


def added(x):
    return cut(x) + 1


def in_windows(x):
    return cut(x).view(x.shape[0], x.shape[1] // 4, 4, -1) + 1


def in_named_windows(x):
    return cut(x).view(x.shape[0], x.shape[1] // 4, 4, x.shape[2]).sum(2)


def unflattened(x):
    return cut(x).unflatten(1, (-1, 4)).amax(2)


def reshaped(x):
    return cut(x).reshape(x.shape[0], x.shape[1] // 4, 4, -1) + 1


def written_through(x):
    windows = torch.reshape(cut(x), (x.shape[0], -1, 2, x.shape[2]))
    windows.mul_(2)
    return x + 0


def outcome(function, x):
    try:
        result = function(x)
    except RuntimeError as error:
        return str(error)
    return result.shape, result.stride(), result.tolist()


SERVED = [added, in_windows, in_named_windows, unflattened, reshaped, written_through]


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
@pytest.mark.parametrize("function", SERVED, ids=lambda f: f.__name__)
def test_whether_something_is_cut_off_does_not_matter(function, backend):
    pliant.reset()
    compiled = pliant.compile(function, backend=backend, dynamic=True, fullgraph=True)
    with events.collect("graph", "fallback") as seen:
        for rows, length in enumerate((18, 21, 24, 27, 32, 4, 5, 8), 2):
            x = torch.randn(rows, length, 6)
            assert outcome(compiled, x.clone()) == outcome(function, x)
    assert [event.kind for event in seen] == ["graph"]


def copied(x):
    return cut(x).clone()


def like(x):
    return torch.zeros_like(cut(x))


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
@pytest.mark.parametrize("function", [added, in_windows, unflattened, copied, like, reshaped], ids=lambda f: f.__name__)
def test_nothing_is_left(function, backend):
    """Strides of a copy of nothing are those of what was copied, and a size of -1 has no meaning there."""
    pliant.reset()
    compiled = pliant.compile(function, backend=backend, dynamic=True)
    with events.collect("fallback") as failed:
        for rows, length in enumerate((9, 8, 3, 2, 3, 12), 2):
            x = torch.randn(rows, length, 6)
            assert outcome(compiled, x) == outcome(function, x)
    assert not failed


def in_two_parts(x):
    return x.sum().expand(x.shape[1] // 4, 6).reshape(x.shape[1] // 4, 2, 3)


def in_columns(x):
    return x.transpose(1, 2).contiguous()[:, :, : x.shape[1] // 4 * 4].view(x.shape[0], 6, x.shape[1] // 4, 4).transpose(1, 2) + 1


def written_in_pairs(x):
    copy = x.clone()
    copy.transpose(0, 1).reshape(x.shape[1], x.shape[0], 2, 3).mul_(2)
    return copy


def of_columns(x):
    return cut(x[:, :, :4]).reshape(x.shape[0], x.shape[1] // 4, 4, 4) + 1


@pytest.mark.parametrize("function", [in_two_parts, in_columns, written_in_pairs, of_columns], ids=lambda f: f.__name__)
def test_views_of_nothing_lie_in_order(function):
    """Split or not: where there are no elements, a view in another size has the strides of rows, as in eager."""
    pliant.reset()
    compiled = pliant.compile(function, backend="aot_eager", dynamic=True)
    for rows, length in ((3, 8), (2, 3), (0, 4), (2, 0), (3, 1), (1, 2), (1, 4)):
        x = torch.randn(rows, length, 6)
        assert outcome(compiled, x) == outcome(function, x)
