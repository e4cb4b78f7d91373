"""Scalars of NumPy vary as Python's numbers do, with their own arithmetic and types."""

import numpy as np
import pytest
import torch
from tests.capture.numpy_scalars import ASKING, PROGRAMS, VARYING, differences, values_of

import pliant


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    yield
    pliant.reset()


@pytest.mark.spread(2, "kind", "name")
@pytest.mark.parametrize("kind", [np.int64, np.float32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name, kind):
    assert not differences(name, values_of(kind)[:4])


@pytest.mark.parametrize("kind", [np.int8, np.float64])
@pytest.mark.parametrize("name", ["arithmetic", "overflow", "other types", "text", "a tensor of it", "powers"])
def test_other_widths(name, kind):
    assert not differences(name, values_of(kind)[:4])


@pytest.mark.parametrize("name", ["arithmetic", "overflow", "rounding", "times a tensor"])
def test_kernels(name):
    assert not differences(name, values_of(np.int64)[:3], backend="pliant")


@pytest.mark.spread(2, "kind", "name")
@pytest.mark.parametrize("kind", [np.int64, np.float64, np.float32])
@pytest.mark.parametrize("name", VARYING)
def test_does_not_compile_once_a_value(name, kind):
    values = [kind(n) for n in range(7, 13)]
    assert not differences(name, values)
    assert pliant.stats()["calls"]["capture"] <= 2 + 2 * pliant.stats()["graph_breaks"]


@pytest.mark.parametrize("name", ["a branch", "truth", "even or odd"])
def test_branches_compile_once_a_branch(name):
    assert name in ASKING
    assert not differences(name, [np.int64(n) for n in (7, 2, 9, 1, 12, 3)])
    assert pliant.stats()["calls"]["capture"] <= 3
    assert pliant.stats()["graph_breaks"] == 0


# A scalar that stays, beside numbers that vary: the result has NumPy's type and precision.
BESIDE_NUMBERS = """
n * np.int64(3) ;; np.int64(3) * n ;; f * np.float64(2) ;; f / np.float32(3) ;; n + np.float32(0.1) ;; f * np.int32(3)
n < np.int64(2) ;; np.float64(2) ** n ;; -np.int64(2) * n ;; n // np.int64(2) ;; x.shape[0] * np.int64(2) ;; (n > 2) * np.int64(2)
x.sum().item() * np.int32(3) ;; x.sum().item() > np.float32(1) ;; sum([n, np.int64(1)]) ;; round(f) * np.int64(1)
"""


def test_a_fixed_scalar_beside_numbers_that_vary():
    texts = [text for line in BESIDE_NUMBERS.split("\n") for text in line.split(" ;; ") if text]
    namespace = {"np": np}
    exec(f"def f(x, n, f): return x + 1, [{', '.join(texts)}]", namespace)
    compiled = pliant.compile(namespace["f"], backend="eager", dynamic=True)
    for n, f in ((3, 1.1), (2, 2.5)):
        x = torch.ones(n)
        for text, got, want in zip(texts, compiled(x, n, f)[1], namespace["f"](x, n, f)[1]):
            assert (type(got), got) == (type(want), want), text


# Who decides about dtypes: NumPy of its arrays beside a tensor; PyTorch takes a truth of NumPy for a float, and a factor
# that is a tensor for a number.
PROMOTED = (
    lambda x: x.half() - np.array([1, 2, 3]),
    lambda x: x / np.array(2.5),
    lambda x: x * np.array([1, 2, 3], dtype=np.float32),
    lambda x: x.int() + np.bool_(True),
    lambda x: torch.floor_divide(x.int(), np.bool_(True)),
    lambda x: torch.add(x.bool(), x.bool(), alpha=torch.tensor(3)),
    lambda x: torch.add(x.int(), x.int(), alpha=torch.tensor(3)),
    lambda x: torch.add(x[0], x[0], alpha=torch.tensor(2.0, dtype=torch.float64)),
    lambda x: torch.tensor(np.bool_(True)),
)


@pytest.mark.parametrize("program", PROMOTED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_who_decides_about_dtypes(program):
    x = torch.tensor([1.0, 2.0, 3.0])
    got, want = pliant.compile(program, backend="eager")(x), program(x)
    assert got.dtype == want.dtype
    assert torch.equal(got, want)


@pytest.mark.parametrize("loop", [list, tuple, lambda one: [v for v in one], enumerate])
def test_arrays_without_dimensions_are_not_iterable(loop):
    def outcomes(x, number, array):
        for one in (number, array, np.ones(3).sum(), x.numpy()):
            try:
                yield loop(one)
            except TypeError as error:
                yield str(error)

    def f(x, number, array):
        return [*outcomes(x, number, array)]

    compiled = pliant.compile(f, backend="eager")
    with pliant.config.patch(strict=True):
        for number in (np.int64(3), np.int64(4), np.int64(5)):
            arguments = torch.tensor(1.0), number, np.array(3.0)
            assert compiled(*arguments) == f(*arguments)


@pytest.mark.parametrize("use", [
    lambda x: x.view(np.prod(x.shape)),
    lambda x: x * int(np.prod(x.shape[1:])) / np.sum(x.shape),
    lambda x: (x + 1, np.prod([x.shape[0], 3]) // 2, np.max(x.shape), f"{np.min(x.shape)}"),
    lambda x: x + 1 if np.prod(x.shape) > 0 else x - 1,
])  # fmt: skip
def test_products_of_shapes_are_scalars_that_vary(use):
    compiled = pliant.compile(use, backend="eager", fullgraph=True)
    for n in (5, 6, 7, 9):
        found, expected = compiled(x := torch.ones(n, 4)), use(x)
        assert torch.equal(*(one[0] if type(one) is tuple else one for one in (found, expected)))
        assert type(found) is not tuple or (found[1:], *map(type, found)) == (expected[1:], *map(type, expected))
    assert pliant.stats()["graphs"] <= 2
    pliant.reset()


@pytest.mark.parametrize("use", [
    lambda x: x * 2 if x.shape[0] % np.int64(12) != 0 else x,
    lambda x: x * 2 if x.shape[0] // np.lcm(4, 6) > 0 else x,
    lambda x: x[: np.int64(12) - x.shape[0] % np.int64(12)],
    lambda x: x * 2 if np.int64(3) * x.shape[0] + np.int64(1) > 3 else x,
    lambda x: (x, divmod(x.shape[0], np.int64(4)), x.shape[0] - np.int64(2)),
    lambda x: x * 2 if x.shape[0] < np.int64(90) else x,
    lambda x: x * 2 if np.int64(3) <= x.shape[0] != np.int64(90) else x,
])  # fmt: skip
def test_sizes_beside_fixed_scalars_vary(use):
    pliant.reset()
    compiled = pliant.compile(use, backend="eager", fullgraph=True)
    for n in (13, 14, 15, 17):
        found, expected = compiled(x := torch.ones(n)), use(x)
        assert torch.equal(*(one[0] if type(one) is tuple else one for one in (found, expected)))
        assert type(found) is not tuple or (found[1:], *map(type, found)) == (expected[1:], *map(type, expected))
    assert pliant.stats()["graphs"] <= 2
    pliant.reset()


ROOTS = {
    "of a size": lambda x, s: (x / np.sqrt(x.shape[0]), np.sqrt(x.shape[0])),
    "one over it": lambda x, s: (x.clamp(max=1 / np.sqrt(x.shape[0])), 1 / np.sqrt(x.shape[0])),
    "of a number": lambda x, s: (x * np.sqrt(s), np.sqrt(s)),
    "as a size": lambda x, s: (x[: int(np.sqrt(x.shape[0] * 3))], int(np.sqrt(s))),
}


@pytest.mark.spread(2, "dynamic", "kind", "name")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("kind", [int, float, np.int64, np.float64])
@pytest.mark.parametrize("name", ROOTS)
def test_roots_of_what_varies(name, kind, dynamic):
    pliant.reset()
    compiled = pliant.compile(ROOTS[name], backend="aot_eager", dynamic=dynamic, fullgraph=True)
    for n in (3, 4, 5, 7, 9, 10, 12, 16, 17, 30):
        x = torch.linspace(0.1, 2, 2 * n).view(n, 2)
        for found, wanted in zip(compiled(x, kind(n)), ROOTS[name](x, kind(n)), strict=True):
            assert type(found) is type(wanted)
            torch.testing.assert_close(found, wanted) if isinstance(wanted, torch.Tensor) else None
            assert isinstance(wanted, torch.Tensor) or found == wanted
    assert pliant.stats()["graphs"] <= 3 and pliant.stats()["fallbacks"] == 0
    with np.errstate(invalid="ignore"):
        found = compiled(torch.ones(2, 2), kind(-1))[1] if name == "of a number" else np.nan
    assert np.isnan(found)


TRUTHS = {
    "==": lambda x, y: (x > 0) == (y > 0), "!=": lambda x, y: (x > 0) != (y < 0), "^": lambda x, y: (x > 0) ^ (y > 0),
    "&": lambda x, y: (x < 0) & (y > 0), "logical_or": lambda x, y: np.logical_or(x > 0, y < 0), "isnan": lambda x, y: np.isnan(x) == (y < 0),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUTHS)
def test_truth_values_that_numpy_has_once(name):
    pliant.reset()
    compiled = pliant.compile(TRUTHS[name], backend="eager", fullgraph=True)
    for x, y in ((1.0, 1.0), (-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0)):
        found, wanted = (one(np.array(x), np.array(y)) for one in (compiled, TRUTHS[name]))
        assert type(found) is type(wanted) is np.bool_ and found == wanted
