"""Scalars of NumPy vary as Python's numbers do, with their own arithmetic and types."""

import numpy as np
import pytest
from tests.capture.numpy_scalars import ASKING, PROGRAMS, VARYING, differences, values_of

import pliant


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    yield
    pliant.reset()


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
