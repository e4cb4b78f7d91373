"""Some random training programs; `python -m tests.autograd.fuzz_training --count 500 [--theme hooks]` runs more."""

import pytest
from tests.autograd.fuzz_training import WHERE, disagreement, program_of
from tests.autograd.fuzz_training_themes import NAMED


@pytest.mark.parametrize("first", range(0, 30, 6))
def test_random_training_programs_agree_with_eager(first):
    for seed in range(first, first + 6):
        assert disagreement(program_of(seed)) is None, seed


@pytest.mark.parametrize("theme", NAMED)
def test_random_programs_of_a_theme_agree_with_eager(theme):
    for seed in range(2):
        assert disagreement(program_of(seed, theme)) is None, seed


def test_random_programs_agree_with_eager_behind_calls_of_other_sizes(monkeypatch):
    monkeypatch.setattr(WHERE, "warm", True)
    for seed in range(100, 104):
        assert disagreement(program_of(seed), "pliant") is None, seed
