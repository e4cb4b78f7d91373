"""The patterns of `benchmarks.patterns` are programs: they run, differentiate, and are measured as documented."""

import argparse

import pytest
import torch
from benchmarks import operator_programs, pattern_programs, patterns

ROWS = [(p, False) for p in pattern_programs.INFERENCE] + [(p, True) for p in pattern_programs.TRAINING]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(pattern_programs.SIZES, "tiny", (16, 32))


@pytest.mark.spread(2, "dtype", "pattern")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("pattern", "training"), ROWS, ids=lambda v: getattr(v, "name", str(v)))
def test_a_pattern_runs(pattern, training, dtype):
    args = pattern_programs.inputs(pattern, "tiny", dtype, training)
    outs = pattern_programs.leaves(pattern.function(*args))
    if training:
        grads = pattern_programs.gradients(pattern.function, args, [torch.ones_like(t) for t in outs])
        assert [g.shape for g in grads] == [t.shape for t in args if t.requires_grad]
    assert all(t.isfinite().all() for t in outs)


@pytest.mark.parametrize("pattern", operator_programs.INFERENCE, ids=lambda p: p.name)
def test_an_operator_runs(pattern):
    training = pattern in operator_programs.TRAINING
    args = pattern_programs.inputs(pattern, "tiny", torch.float32, training)
    outs = pattern_programs.leaves(pattern.function(*args))
    if training:
        given = [torch.ones_like(t) for t in outs if t.requires_grad]
        assert all(g is not None for g in pattern_programs.gradients(pattern.function, args, given))


def test_operators_have_names_of_their_own():
    names = [p.name for p in operator_programs.INFERENCE]
    assert len(set(names)) == len(names)


def test_a_row_is_measured():
    by_name = {p.name: p for p in pattern_programs.INFERENCE}
    options = argparse.Namespace(budget=0.01, wall=False, peer=False, device="cpu")
    row = patterns.measure(by_name["tanh"], False, "tiny", torch.float32, options)
    assert row["eager"] > 0 and row["pliant"] > 0 and row["floor"] > 0
    assert 0 <= row["error"] < 30
