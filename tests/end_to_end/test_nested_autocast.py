"""A part of the table of nested blocks of autocast: what it found, and a sample of the rest."""

import random

import pytest
import torch
from tests.end_to_end.nested_autocast import cases, difference

import pliant
from pliant.debug import events

FOUND = [
    ("bf16", "f16", "layer", "inside"),  # eager meets the parameter's cast to the outer dtype
    ("default", "f16", "buffer", "inside"),
    ("f16", "bf16", "parameter", "broken"),  # both operands are kept casts: the inner dtype counts for nothing
    ("bf16", "f16", "both", "cleared"),
]


@pytest.mark.parametrize("case", [*FOUND, *random.Random(1).sample(list(cases()), 6)], ids=", ".join)
def test_case_is_as_in_eager(case):
    assert difference(case) is None
    pliant.reset()


def test_a_break_among_mixed_casts_is_an_event():
    layer = torch.nn.Linear(4, 4)

    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            a = layer(x)
            with torch.autocast("cpu", torch.float16):
                pliant.graph_break()
                return a, layer.weight @ layer.weight

    with events.collect("fallback") as fallbacks:
        assert [one.dtype for one in pliant.compile(f)(torch.ones(2, 4))] == [torch.bfloat16] * 2
    assert "casts to several dtypes" in fallbacks[0].line
