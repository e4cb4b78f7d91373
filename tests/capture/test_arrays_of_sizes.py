"""NumPy arrays made of numbers that vary, sizes above all, or that only running the graph tells: one graph for all values."""

import collections

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import pliant

WHOLE = {
    "a product": lambda x: x * np.array(x.shape).prod(),
    "returned": lambda x: np.array([x.shape[0], x.shape[1]]) * 2,
    "of other types": lambda x: np.array([x.shape[0], 2.5, True]),
    "small integers": lambda x: np.asarray(x.shape, dtype=np.uint8) + 1,
    "nested": lambda x: np.array([[x.shape[0], 2], [1, x.shape[1]]]) @ np.array([1, 2]),
    "without dimensions": lambda x: np.array(x.shape[0]),
    "sizes": lambda x: x.new_zeros(tuple(np.array(x.shape) * 2)),
    "a list of sizes": lambda x: x.new_zeros((np.array(x.shape) // 2 + 1).tolist()),
    "sizes of a resize": lambda x: F.interpolate(x[None, None], size=tuple(np.array(x.shape[-2:]) * 2)),
    "the end of a slice": lambda x: x[:, : np.array(x.shape)[1] // 2],
    "a branch": lambda x: x * 2 if (np.array(x.shape) > 1).all() else x,
    "a branch on an element": lambda x: x * 2 if np.array(x.shape)[0] > 1 else x,
    "a branch on the largest": lambda x: x * 2 if np.array(x.shape).max() > 1 else x,
}


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph(name):
    f = WHOLE[name]
    pliant.reset()
    compiled = pliant.compile(f, fullgraph=True, dynamic=True)
    for rows, columns in ((3, 5), (4, 7), (2, 9), (6, 11)):
        x = torch.randn(rows, columns)
        found, expected = compiled(x), f(x)
        assert type(found) is type(expected)
        if isinstance(found, np.ndarray):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        else:
            torch.testing.assert_close(found, expected)
    assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


def test_a_number_too_large_is_an_error():
    pliant.reset()
    compiled = pliant.compile(lambda x: np.array(x.shape, dtype=np.int8), dynamic=True)
    assert compiled(torch.ones(3)).tolist() == [3]
    with pytest.raises(OverflowError):
        compiled(torch.ones(300))


ITEMS = {
    "an array": lambda x: np.array([x.sum().item(), 1.0]) * 2,
    "an array of integers": lambda x: np.array([x.argmax().item(), 1]) * 2,
    "a mean": lambda x: np.mean([v.item() for v in x[:2, 0]]),
    "a mean of a deque": lambda x: np.mean(collections.deque([v.item() for v in x[:, 0]], maxlen=2)),
    "a mean of integers": lambda x: np.mean([x.argmax().item(), 3]),
    "a sum in the graph": lambda x: np.sum([v.item() for v in x[:2, 0]]) * x,
    "others": lambda x: np.array([f([v.item() for v in x[:2, 0]]) for f in (np.std, np.max, np.min, np.prod, np.average, np.var)]),
    "a root": lambda x: np.sqrt(x.abs().sum().item()),
    "a root of an integer": lambda x: np.sqrt(x.argmax().item()),
    "a larger one": lambda x: np.maximum(x.argmax().item(), 2),
    "a factor": lambda x: x * float(np.exp(x.sum().item() / 100)),
}


@pytest.mark.parametrize("name", ITEMS)
def test_numbers_that_only_running_tells(name):
    torch.manual_seed(0)
    f = ITEMS[name]
    pliant.reset()
    compiled = pliant.compile(f, fullgraph=True, dynamic=True)
    for _ in range(4):
        x = torch.randn(3, 5)
        found, expected = compiled(x), f(x)
        assert type(found) is type(expected)
        if isinstance(found, torch.Tensor):
            torch.testing.assert_close(found, expected)
        else:
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


OTHER_TYPES = {
    "of less precision": lambda x: np.array([x.sum().item() * 1e300], dtype=np.float32),
    "too large": lambda x: np.array([x.argmax().item() + 300], dtype=np.int8),
    "cut off": lambda x: np.array([x.sum().item()], dtype=np.int64),
    "beside a narrow number": lambda x: np.multiply(x.sum().item(), np.float32(2)),
    "beside a narrow array": lambda x: np.maximum(np.ones(2, np.float32), x.sum().item()),
}


@pytest.mark.parametrize("name", OTHER_TYPES)
def test_types_are_those_of_numpy(name):
    torch.manual_seed(0)
    def outcome(f, x):
        try:
            return f(x)
        except OverflowError as error:
            return str(error)

    pliant.reset()
    compiled = pliant.compile(OTHER_TYPES[name])
    for _ in range(3):
        x = torch.randn(3, 5)
        found, expected = outcome(compiled, x), outcome(OTHER_TYPES[name], x)
        assert type(found) is type(expected)
        if not isinstance(found, str):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
