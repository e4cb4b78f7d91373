"""Random programs behave compiled as they do eagerly; so do small programs that once did not."""

import threading

import pytest
import torch
from tests.capture import fuzz_arguments, fuzz_entries, fuzz_standard
from tests.capture.fuzz_programs import disagreement

import pliant

LOCAL = threading.local()
LOCAL.value = 3


@pytest.mark.parametrize("first", range(0, 40, 10))
@pytest.mark.fallbacks_expected  # whatever random programs need
def test_random_programs_agree_with_eager(first):
    with pliant.config.patch(strict=True):
        for seed in range(first, first + 5):
            assert disagreement(seed) == ""


@pytest.mark.parametrize("seed", range(8))
def test_entries_are_in_proportion_to_behaviours(seed):
    with pliant.config.patch(strict=True, recompile_limit=64):
        assert fuzz_entries.disagreement(seed, calls=12) == ""


@pytest.mark.parametrize("first", range(0, 6, 3))
def test_programs_over_arguments_of_every_kind(first):
    with pliant.config.patch(strict=True, recompile_limit=64):
        for seed in range(first, first + 3):
            assert fuzz_arguments.disagreement(seed, calls=6) == ""


@pytest.mark.parametrize("first", range(0, 12, 6))
def test_programs_over_arguments_of_the_standard_library(first):
    with pliant.config.patch(strict=True, recompile_limit=64):
        for seed in range(first, first + 6):
            assert fuzz_standard.different(seed, calls=5) == ""


def _store_then_iterate(x, d):
    d[x.shape[0]] = 1
    return x + 1, sorted(d, key=str)


def _delete_and_store_again(x, d):
    del d["a"]
    d["a"] = x.shape[0]
    return x + 1


def _divide_a_known_size(x, d):
    n = int(str(x.shape[0]))
    return x + n, format(x.shape[0] / 2, ".2f")


def _thread_local(x, d):
    return x * getattr(LOCAL, "value", 7), hasattr(LOCAL, "value")


@pytest.mark.parametrize(
    "function", [_store_then_iterate, _delete_and_store_again, _divide_a_known_size, _thread_local]
)
def test_program_that_once_differed(function):
    compiled = pliant.compile(function, backend="eager")
    for rows in (4, 5, 6):
        want_dict, got_dict = {"a": 1, "b": 2}, {"a": 1, "b": 2}
        want, got = function(torch.ones(rows), want_dict), compiled(torch.ones(rows), got_dict)
        assert list(got_dict.items()) == list(want_dict.items())
        torch.testing.assert_close(got[0], want[0])
        assert str(got) == str(want)


def test_a_loop_that_breaks_in_each_turn_does_not_overflow_the_stack():
    def loop(x, n):
        for _ in range(n):
            x = x + 1
            if x.sum().item() > 1e9:
                x = x - 1
        return x

    torch.testing.assert_close(pliant.compile(loop, backend="eager")(torch.zeros(2), 2000), torch.full((2,), 2000.0))


def test_method_of_a_list_alive_at_a_break():
    """The list is reached only through its bound `append`, which stands on the stack while the argument breaks."""

    def program(x, items):
        items.append(float(x.sum().item()))
        return x + 1

    eager, captured = [], []
    x = torch.ones(3)
    compiled = pliant.compile(program, backend="eager")
    for _ in range(2):
        program(x, eager)
        compiled(x, captured)
    assert captured == eager
