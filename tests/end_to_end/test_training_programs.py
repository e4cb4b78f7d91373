"""A few of the training programs, whole steps and models alone; all of them run by hand."""

import pytest
from tests.end_to_end.training_programs import compare

CASES = [
    ("seq2seq", "step"),
    ("teacher_and_average", "step"),
    ("weight_tying", "model"),
    ("gan", "model"),
    ("policy_gradient", "step"),
    ("batch_norm_net", "model"),
    ("lora", "model"),
    ("detached_branches", "step"),
]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_training_is_as_in_eager(name, how):
    assert compare(name, how) == ""
