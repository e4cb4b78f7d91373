"""Some random programs of transforms; `python -m tests.capture.fuzz_transforms --count 500` runs more."""

import pytest
from tests.capture.fuzz_transforms import disagreement, program_of


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(1, 15, 7))
def test_random_transforms_agree_with_eager(first):
    for seed in range(first, first + 7):
        assert disagreement(program_of(seed)) is None, seed
