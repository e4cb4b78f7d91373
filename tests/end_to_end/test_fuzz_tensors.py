"""A few random tensor programs; `python -m tests.end_to_end.fuzz_tensors --count 500` runs more."""

import pytest
from tests.end_to_end.fuzz_tensors import disagreement

import pliant


@pytest.mark.parametrize("seed", [1, 17, 52, 117, 118, 230, 42000614, 43000109])
def test_random_programs_agree_with_eager(seed):
    pliant.reset()
    assert disagreement(seed) is None
