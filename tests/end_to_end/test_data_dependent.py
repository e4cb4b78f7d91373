"""Programs with data-dependent numbers and sizes: as eager, with gradients, on changing data, in whole graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

import pliant
from end_to_end.data_dependent_programs import PROGRAMS, Case


def _given(case: Case, seed: int) -> tuple[Any, ...]:
    inputs = case.inputs(torch.Generator().manual_seed(seed))
    if not case.gradients:
        return inputs
    return tree_map_only(torch.Tensor, lambda t: t.requires_grad_() if t.is_floating_point() else t, inputs)


def _gradients(outputs: Any, inputs: tuple[Any, ...]) -> list[Any]:
    roots = [t for t in tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    return list(torch.autograd.grad([t.sum() for t in roots], leaves, allow_unused=True))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, dynamic):
    pliant.reset()
    case = PROGRAMS[name]
    compiled = pliant.compile(case.program, dynamic=dynamic)
    for seed in (0, 1, 2):
        expected_in, found_in = _given(case, seed), _given(case, seed)
        expected, found = case.program(*expected_in), compiled(*found_in)
        torch.testing.assert_close(found, expected)
        if case.gradients:
            torch.testing.assert_close(_gradients(found, found_in), _gradients(expected, expected_in))
    seen = pliant.stats()
    assert seen["fallbacks"] == 0
    assert sum(seen["break_reasons"].values()) <= case.breaks
