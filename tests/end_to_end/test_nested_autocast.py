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
    ("bf16", "f16", "layer", "broken before"),  # the graph before the break left no casts
    ("default", "uncached f16", "view of a parameter", "broken before"),
    ("f16", "bf16", "both", "disabled"),  # the program has them where it calls what is not compiled
    ("bf16", "f16", "layer", "broken in a callee"),
    ("bf16", "f16", "layer", "kept of before"),  # only until the block ends
    ("bf16", "f16", "layer", "in eager"),  # eager's cast of before the call is taken
]


@pytest.mark.fallbacks_expected  # code that casts of before the call, or of before a break, may decide about runs eagerly
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


def _broken_between(layer, first, second, x):
    with torch.autocast("cpu", first):
        a = layer(x)
        pliant.graph_break()
        with torch.autocast("cpu", second):
            return a, layer.weight @ layer.weight


def test_casts_that_compiled_code_did_not_keep_are_an_event_and_then_eagers():
    f = pliant.compile(_broken_between)
    given = (torch.nn.Linear(4, 4), torch.bfloat16, torch.float16, torch.ones(2, 4))
    with events.collect("fallback") as fallbacks:
        f(*given)
        assert [one.dtype for one in f(*given)] == [torch.bfloat16] * 2
    assert "autocast to a dtype in a block of another" in fallbacks[0].line
    assert "casts that autocast keeps, at a graph break" in fallbacks[1].line


def test_blocks_of_one_dtype_and_blocks_behind_one_another_are_cut():
    @pliant.compile
    def behind(layer, x):
        with torch.autocast("cpu", torch.bfloat16):
            a = layer(x)
        with torch.autocast("cpu", torch.float16):
            pliant.graph_break()
            return a, layer(x)

    layer, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    with events.collect("fallback") as fallbacks:
        assert [one.dtype for one in behind(layer, x)] == [torch.bfloat16, torch.float16]
        pliant.compile(_broken_between)(layer, torch.bfloat16, torch.bfloat16, x)
    assert not fallbacks
    pliant.reset()
