"""Modules of torch that ask whether they are compiled do not compute something else for it."""

import pytest
import torch
from torch import nn

import pliant


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_encoder_with_padding_gives_zeros_where_eager_does():
    pliant.reset()
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
    compiled = pliant.compile(model)
    for batch in (2, 3):
        x = torch.randn(batch, 5, 16)
        padding = torch.arange(5)[None] >= torch.arange(3, 3 + batch)[:, None]
        with torch.no_grad():
            expected, found = (m(x, src_key_padding_mask=padding) for m in (model, compiled))
        torch.testing.assert_close(found, expected)
        assert not expected[padding].any()
    assert all("nested tensor" in why for why in pliant.stats()["fallback_reasons"])
