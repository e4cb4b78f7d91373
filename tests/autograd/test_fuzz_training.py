"""Some random training programs; `python -m tests.autograd.fuzz_training --count 500 [--theme hooks]` runs more."""

import pytest
import torch
from tests.autograd.fuzz_training import WHERE, Line, Program, disagreement, program_of
from tests.autograd.fuzz_training_eager import Shaken, spread, within, without_extra
from tests.autograd.fuzz_training_themes import NAMED


@pytest.mark.parametrize("first", range(0, 18, 6))
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


def test_what_rounding_explains_is_told_from_what_it_does_not():
    """The sine of a large sum has no digits, the others have."""

    def computed():
        x = torch.linspace(0.1, 1, 8, dtype=torch.float64)
        return torch.stack([(x.exp().sum() * 1e9).sin(), x.exp().sum()])

    theirs, shaken = computed(), []
    for seed in range(3):
        with Shaken(seed):
            shaken.append(computed())
    measure = spread(theirs, shaken)
    assert 1e-8 < float(measure[0]) and float(measure[1]) < 1e-13
    for difference, explained in (([1e-8, 0], True), ([0, 1e-6], False), ([0, 1e-9], True)):
        mine = theirs + torch.tensor(difference, dtype=torch.float64)
        assert within([("a", mine)], [("a", theirs)], [[None, measure]], _equal) == explained


def _equal(mine, theirs):
    return isinstance(mine, str) and mine == theirs


def test_moved_values_are_not_shaken():
    x = torch.linspace(0.1, 1, 8, dtype=torch.float64)
    with Shaken(0):
        moved = torch.where(x > 0.5, x, x.flip(0)).relu().clone()
        assert not torch.equal(x.exp(), x.exp())
    assert torch.equal(moved, torch.where(x > 0.5, x, x.flip(0)))


def test_calls_of_hooks_that_eager_has_not_count_for_functions_alone():
    theirs = [("np1", 0), ("h2", 0)]
    assert without_extra([("np1", 0), ("np1", 0), ("h2", 0), ("np1", 0)], theirs, "np") == theirs
    assert without_extra([("h2", 0), ("h2", 0)], theirs, "np") == [("h2", 0), ("h2", 0)]


def _program(body, results, *driver):
    made = "x = q = torch.rand(n, 3, dtype=D).requires_grad_()\ny = b = p = x\nc = {'u': x, 'w': [torch.rand(n, 3).requires_grad_() * 2]}"
    setup = ["torch.manual_seed(0)", "D = torch.float64", *made.split("\n")]
    lines = [list(map(Line, one)) for one in (setup, body.split("\n"), ("w0 = make(4)", "o0 = call(f, w0)", *driver))]
    return Program(lines[0], lines[1], results, lines[2])


def test_an_error_of_functions_that_results_share_is_none_of_the_program():
    again = ("backward(o0, [0, 1])", "o1 = call(f, w0)", "backward(o1, [1])")
    assert disagreement(_program("w = c['w'][0]; w.fill_(0.5)\nv = x * 2", ["w", "v"], *again)) is None
    twice = ("backward(o0, [0])", "backward(o0, [0])")
    assert disagreement(_program("v = x.sin()", ["v"], *twice)) is None
