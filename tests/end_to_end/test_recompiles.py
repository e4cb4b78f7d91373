"""The table of compiles as arguments vary holds: at most so many, right results, nothing eager unannounced."""

import pytest
from benchmarks.recompiles import SERIES, measure

# The others are run by `python -m benchmarks.recompiles`.
QUICK = (
    "batch 2 to 9", "int argument", "float argument", "cache growing", "list of 1 to 6", "int of a module",
    "text of a size", "turns of a loop",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_compiles_stay_within_their_limit(name):
    row = measure(SERIES[name])
    assert row["captures"] <= SERIES[name].limit, row["why"]
    assert (row["wrong"], row["eager"]) == (0, 0)
