"""Weak references by which PyTorch's own compiler notes modules are not the program's."""

import gc
import weakref

import pytest
import torch
from torch import nn

import pliant
from pliant.torch_adapter import PEER


class Breaking(nn.Module):
    def forward(self, x):
        pliant.graph_break()
        return x + 1


@pytest.mark.parametrize("module", [f"{PEER}.utils", "program"])
def test_modules_that_are_let_go_of_behind_a_break(module):
    pliant.reset()

    def noted(reference):
        pass

    noted.__module__ = module
    model = nn.Sequential(Breaking(), nn.Linear(4, 4), nn.Linear(4, 4))
    references = [weakref.ref(one, noted) for one in model.modules()]
    x = torch.randn(2, 4)
    torch.testing.assert_close(pliant.compile(model)(x), model(x))
    reasons = set(pliant.stats()["break_reasons"])
    assert reasons == ({"user-request", "unknown-object"} if module == "program" else {"user-request"})
    assert all(reference() is not None for reference in references)


def test_references_that_an_earlier_trace_left_as_garbage_are_its_own():
    class Owner: ...

    def program(x, n, given, kept):
        loop = [weakref.ref(Owner, lambda reference, held=(given,): held)]
        loop.append(loop)
        kept.append(weakref.ref(Owner, lambda reference: None))
        return x + n

    kept: list = []
    compiled = [pliant.compile(program, backend="eager") for _ in range(2)]
    gc.disable()
    try:
        for function in compiled:
            for n in (2, 3):
                assert torch.equal(function(torch.ones(1), 1, n, kept), torch.ones(1) + 1)
    finally:
        gc.enable()
    assert len(kept) == 4
