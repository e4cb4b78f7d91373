"""Weak references by which PyTorch's own compiler notes modules are not the program's."""

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
