"""A sample of the fuzzer of pairs of processes: `python -m tests.entries.fuzz_processes` runs more."""

import pytest
from tests.entries import fuzz_processes

# Pairs between which nothing, a function, a hyperparameter, a patch... changed.
SEEDS = (2, 8, 15, 13)


@pytest.fixture(scope="module", autouse=True)
def compiler():
    fuzz_processes.load_compiler()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_second_process_computes_what_its_eager_does(seed):
    first, second, one, other = fuzz_processes.pair(seed)
    assert not one["wrong"] and not other["wrong"]
    assert one["entries"].get("kept") or one["entries"].get("not kept")
    if first == second and one["entries"].get("kept"):
        assert other["entries"]["found"]
