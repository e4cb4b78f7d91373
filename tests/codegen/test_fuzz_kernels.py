"""A sample of the random programs: `python -m tests.codegen.fuzz_kernels 0 2000` runs more."""

import pytest
from tests.codegen.fuzz_kernels import disagreement


@pytest.mark.parametrize("seed", [*range(12), 10055])
def test_values_are_as_near_as_eagers(seed):
    assert not disagreement(seed)
