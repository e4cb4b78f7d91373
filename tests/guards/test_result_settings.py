"""Settings of PyTorch that results depend on; `python -m tests.guards.result_settings` tries every program under each."""

import contextlib

import pytest
import torch
from tests.guards.result_settings import PAIRS, SETTINGS, disagreement

import pliant


@pytest.mark.parametrize(("setting", "program"), PAIRS)
@pytest.mark.fallbacks_expected  # tensors on a default device of another kind
def test_a_setting_changed_between_calls(setting, program):
    assert disagreement(setting, program, first=False) == ""


@pytest.mark.parametrize("strict", ["deterministic", "deterministic, warning"])
def test_the_kind_of_determinism_is_told_apart(strict):
    """What may run with a warning is an error where only deterministic operators may run."""
    other = next(one for one in ("deterministic", "deterministic, warning") if one != strict)
    put = pliant.compile(lambda x: x.put_(torch.tensor([1]), torch.tensor([2.0])))
    for setting in (other, strict, None, other):
        expected = pytest.raises(RuntimeError) if setting == "deterministic" else contextlib.nullcontext()
        with SETTINGS[setting]() if setting else contextlib.nullcontext(), expected:
            assert put(torch.zeros(3)).tolist() == [0, 2, 0]


def test_code_compiled_while_denormals_are_zeros_holds_where_they_are_not():
    assert disagreement("no denormals", "denormals", first=True) == ""


def test_dropout_that_drops_nothing_returns_what_it_was_given_in_inference_mode():
    drop = pliant.compile(lambda x: torch.nn.functional.dropout(x, 0.5, training=False))
    x = torch.ones(3)
    with torch.inference_mode():
        assert drop(x) is x
