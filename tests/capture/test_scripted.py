"""Functions that torch.jit.script compiled are followed as what they were made from."""

import warnings

import torch
from tests.capture.against_eager import check

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def gate(x, y):
        return torch.sigmoid(x) * y


def test_a_scripted_function():
    check(lambda x: gate(x, x + 1) * 2, torch.randn(4, requires_grad=True))
