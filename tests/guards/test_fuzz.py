"""Each change of each facet is seen by compiled code, and so is its undoing; random programs of several facets too."""

import pytest
from tests.guards.fuzz import disagreement
from tests.guards.state_facets import FACETS

import pliant


@pytest.fixture(autouse=True)
def many_compilations():
    with pliant.config.patch(recompile_limit=64):
        yield


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_state(first):
    for seed in range(first, first + 10):
        assert disagreement(seed) == ""


@pytest.mark.parametrize("facet", FACETS, ids=[f.name for f in FACETS])
def test_each_change(facet):
    for number, change in enumerate(facet.changes):
        assert disagreement(number, facet.name, change=change) == ""
