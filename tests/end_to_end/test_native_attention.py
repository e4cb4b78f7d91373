"""`nn.MultiheadAttention` in evaluation, where PyTorch calls one operator."""

import pytest
import torch
from torch import nn

import pliant

QUESTIONS = {"none": {"need_weights": False}, "mean": {}, "of each head": {"average_attn_weights": False}}


@pytest.mark.parametrize("weights", QUESTIONS)
def test_attention_with_and_without_its_weights(weights):
    pliant.reset()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    asked = QUESTIONS[weights]
    compiled = pliant.compile(lambda x: attention(x, x, x, **asked), fullgraph=True)
    with torch.no_grad():
        for length in (5, 7, 9):
            x = torch.randn(3, length, 8)
            (found, found_weights), (expected, expected_weights) = compiled(x), attention(x, x, x, **asked)
            torch.testing.assert_close(found, expected)
            assert (found_weights is None) == (expected_weights is None)
            if expected_weights is not None:
                torch.testing.assert_close(found_weights, expected_weights)
    stats = pliant.stats()
    assert (stats["graphs"], stats["assumptions"]) == (2, 0)
