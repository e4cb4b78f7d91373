"""A few random data-dependent programs; `python -m tests.end_to_end.fuzz_data_dependent --count 300` runs more."""

import pytest
from tests.end_to_end.fuzz_data_dependent import disagreement


@pytest.mark.parametrize("seed", [*range(6), 17, 42, 76, 41000241])
def test_as_eager(seed):
    assert disagreement(seed) is None
