"""Each change of each facet is seen by compiled code, and so is its undoing; random programs of several facets too."""

import pytest
from tests.guards.fuzz import FACETS, disagreement

import pliant


@pytest.fixture(autouse=True)
def many_compilations():
    with pliant.config.patch(recompile_limit=64):
        yield


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_random_state(first):
    for seed in range(first, first + 10):
        assert disagreement(seed) == ""


@pytest.mark.fallbacks_expected  # the limit is reached
def test_past_the_limit():
    """Guards are asked in another order there."""
    with pliant.config.patch(recompile_limit=1):
        for seed in range(100, 110):
            assert disagreement(seed) == ""


@pytest.mark.parametrize("facet", FACETS, ids=[f.name for f in FACETS])
@pytest.mark.fallbacks_expected  # some patch the standard library, which the compiler calls too, or enter modes
def test_each_change(facet):
    for number, change in enumerate(facet.changes):
        assert disagreement(number, facet.name, change=change) == ""
