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


BESIDE_NUMBERS = {
    "arithmetic": lambda a, n: (a + n) * n - n // 2,
    "a comparison": lambda a, n: (a > n) | (a == n),
    "a choice": lambda a, n: np.where(a > n, a + n, 0),
    "an element": lambda a, n: a[n % 3],
    "an element of a row": lambda a, n: a[n % 3, 1] + a[1, -1 - n % 3],
    "a row": lambda a, n: np.concatenate([a, a[n % 3][None]]),
    "a written element": lambda a, n: (a.__setitem__((n % 3, 1), 5), a)[1],
    "a written row": lambda a, n: (a.__setitem__(n % 3, a[0] + 1), a)[1],
}


@pytest.mark.parametrize("name", BESIDE_NUMBERS)
@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_an_array_beside_numbers_that_vary_is_one_graph(name, kind):
    f = BESIDE_NUMBERS[name]
    pliant.reset()
    compiled = pliant.compile(f, fullgraph=True)
    for n in (1, 2, 4, 7, 8, 9):
        a = np.arange(12).reshape(3, 4).astype(kind)
        found, expected = compiled(a.copy(), n), f(a.copy(), n)
        assert type(found) is type(expected) and found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected)
    assert pliant.stats()["recompiles"] <= 1


@pytest.mark.spread(2, "f", "kind")
@pytest.mark.parametrize(
    "f",
    [
        lambda a, n: a < n,
        lambda a, n: (a == n).any(),
        lambda a, n: np.searchsorted(a, n),
        lambda a, n: (a.__setitem__(1, n), a)[1],
        lambda a, n: (a.fill(n), a)[1],
        lambda a, n: np.full((2,), n, dtype=a.dtype),
        lambda a, n: a + n,
        lambda a, n: (a > 1) ** n if type(n) is int else a,
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int64])
def test_a_number_that_the_type_has_not_is_numpys_matter(f, kind):
    pliant.reset()
    compiled = pliant.compile(f)
    for n in (1, 3, 2, 300, 0, 2.5, 1.5, float("nan"), 2**40, 5):
        results = []
        for run in (f, compiled):
            try:
                results.append(run(np.arange(5, dtype=kind), n))
            except (ValueError, OverflowError) as error:
                results.append(type(error))
        assert getattr(results[0], "dtype", None) == getattr(results[1], "dtype", None)
        if isinstance(results[0], type):
            assert results[0] is results[1]
        elif not (isinstance(n, float) and n != n):
            np.testing.assert_array_equal(*results)
