"""Programs of transforms against eager: values, gradients and gradients of these, for sizes that change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.end_to_end.transform_programs import PROGRAMS
from torch.utils._pytree import tree_leaves

import pliant
from pliant.debug import events


def derivatives(program: Any, rows: int) -> list[Any]:
    """Zeros for what has no gradient, so that a missing one is one of zeros."""
    generator = torch.Generator().manual_seed(rows)
    x, w = (torch.randn(n, 4, dtype=torch.float64, generator=generator).requires_grad_() for n in (rows, 4))
    results = tree_leaves(program(x, w))
    weighted = [(r * torch.linspace(0.5, 1.5, r.numel(), dtype=r.dtype).view(r.shape)).sum() for r in results]
    first = torch.autograd.grad(sum(weighted), (x, w), create_graph=True, materialize_grads=True)
    size = sum((one**2).sum() for one in first)
    return [*results, *first, *torch.autograd.grad(size, (x, w), materialize_grads=True)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    program = PROGRAMS[name]
    compiled = pliant.compile(program, backend="aot_eager", fullgraph=True)
    with events.collect("fallback", "skip", "recompile_limit") as failures:
        for rows in (3, 5, 4):
            torch.testing.assert_close(derivatives(compiled, rows), derivatives(program, rows), rtol=1e-7, atol=1e-9)
    assert not failures
