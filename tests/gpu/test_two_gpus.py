"""Messages between processes that compute on a GPU each, through NCCL: as eager sends them."""

import pytest
import torch
from tests.distributed import programs, sharded, two_ranks
from tests.distributed.checks import check_behind_a_break, check_breaks_around_a_model, check_in_the_graph

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs"),
]


@pytest.fixture(scope="module")
def results():
    return two_ranks.run("tests.distributed.programs", "cuda")


@pytest.mark.parametrize("name", [*programs.WHOLE, *programs.compiled_names(), *sharded.AROUND])
def test_in_the_graph(results, name):
    check_in_the_graph(results[name])


@pytest.mark.parametrize("name", sorted({*programs.BREAKING, *sharded.PROGRAMS} - programs.GLOO_ALONE))
def test_behind_a_break(results, name):
    check_behind_a_break(results[name])


@pytest.mark.parametrize("name", sharded.DATA_PARALLEL)
def test_breaks_around_a_model_alone(results, name):
    check_breaks_around_a_model(results[name])


def test_both_processes_end_well(results):
    assert results.codes == [0, 0], results.said
