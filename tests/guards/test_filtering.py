"""Guards that a program leaves out by `guard_filter_fn`."""

import pytest
import torch

import pliant
from pliant.errors import ConfigError

scale = 2


def program(x, by=1):
    return x * scale * by


def compiled(which):
    pliant.reset()
    return pliant.compile(program, backend="eager", options={"guard_filter_fn": which})


@pytest.fixture(autouse=True)
def scale_is_two():
    yield
    globals()["scale"] = 2


@pytest.mark.parametrize(
    "which", [lambda guards: [not g.is_global for g in guards], torch.compiler.skip_guard_on_globals_unsafe]
)
def test_globals_are_left_out(which):
    f = compiled(which)
    assert f(torch.ones(1)) == 2
    globals()["scale"] = 3
    assert f(torch.ones(1)) == 2 and f(torch.ones(1), 2) == 6


def test_facts_of_tensors_are_kept():
    f = compiled(torch.compiler.keep_tensor_guards_unsafe)
    assert f(torch.ones(1)) == 2
    globals()["scale"] = 3
    assert f(torch.ones(1)) == 2 and f(torch.ones(1, dtype=torch.float64)) == 3


def test_what_is_shown():
    seen = []
    compiled(lambda guards: seen.extend(guards) or [True] * len(guards))(torch.ones(1), 5)
    found = {g.name: g for g in seen}
    x, by, other = found["x"], found["by"], found["scale"]
    assert x.guard_type == "TENSOR_MATCH" and torch.equal(x.value, torch.ones(1)) and not x.is_global
    assert (by.value, by.text, by.is_global) == (5, "`by` is 5", False)
    assert other.is_global and other.origin.line == program.__code__.co_firstlineno + 1


@pytest.mark.parametrize(
    ("which", "why"),
    [
        (lambda guards: [True], "it returned 1 values for"),
        (lambda guards: 1 // 0, "it raised ZeroDivisionError"),
        (lambda guards: None, "not iterable"),
        (3, "cannot be called"),
    ],
)
def test_a_wrong_filter_is_the_programs_mistake(which, why):
    with pytest.raises(ConfigError, match=why):
        compiled(which)(torch.ones(1))
