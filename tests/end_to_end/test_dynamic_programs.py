"""Programs of many kinds are compiled once for all sizes, and right at each."""

import pytest
from tests.end_to_end.dynamic_programs import PROGRAMS, SIZES, check


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_sizes(name):
    assert not check(name, True, True, SIZES[:3])


@pytest.mark.parametrize("name", [*PROGRAMS][::6])
def test_by_default_and_at_small_sizes(name):
    assert not check(name, False, None, (*SIZES[:2], (1, 6), (0, 6)))
