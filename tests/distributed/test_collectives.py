"""Messages between two processes: in graphs as eager sends them, or behind a graph break that can be seen."""

import pytest
from tests.distributed import programs, sharded, two_ranks

pytestmark = pytest.mark.multiprocess


@pytest.fixture(scope="module")
def results():
    return two_ranks.run("tests.distributed.programs")


@pytest.mark.parametrize("name", [*programs.WHOLE, *(f"{name} compiled" for name in programs.COMPILED)])
def test_in_the_graph(results, name):
    for one in results[name]:
        assert not one["wrong"], one["wrong"]
        assert one["graphs"] and not one["graph_breaks"] and not one["fallbacks"], one


@pytest.mark.parametrize("name", [*programs.BREAKING, *sharded.PROGRAMS])
def test_behind_a_break(results, name):
    for one in results[name]:
        assert not one["wrong"], one["wrong"]
        assert one["graph_breaks"] or one["fallbacks"], one


def test_both_processes_end_well(results):
    assert results.codes == [0, 0], results.said
