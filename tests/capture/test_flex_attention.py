"""`flex_attention` is one graph, with eager's results."""

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import pliant

GENERATOR = torch.Generator().manual_seed(3)
BIAS = torch.randn(4, 40, 40, generator=GENERATOR)
DOCUMENT = torch.arange(40) // 7
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])


def causal(b, h, q, kv):
    return q >= kv


def documents(b, h, q, kv):
    return (DOCUMENT[q] == DOCUMENT[kv]) & (q != 3)  # row 3 attends to nothing


def inputs(length, kv_heads=4, dtype=torch.float32):
    sizes = [(2, 4, length, 8), (2, kv_heads, length, 8), (2, kv_heads, length, 16)]
    return [torch.randn(size, generator=GENERATOR).to(dtype) for size in sizes]


def masked(mask):
    def attention(q, k, v):
        block_mask = create_block_mask(mask, None, None, q.shape[2], k.shape[2], device="cpu")
        return flex_attention(q, k, v, block_mask=block_mask)

    return attention


CASES = {
    "plain": flex_attention,
    "relative": lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * SLOPES[h]),
    "table": lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + BIAS[h, i, j], scale=0.7),
    "soft cap": lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: 5 * torch.tanh(s / 5)),
    "causal": masked(causal),
    "documents": masked(documents),
    "statistics": lambda q, k, v: flex_attention(q, k, v, return_aux=AuxRequest(lse=True)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name):
    compiled = pliant.compile(CASES[name], fullgraph=True)
    for length in (16, 24, 40):
        given = inputs(length)
        expected = CASES[name](*given)  # first: it loads what block masks are made with
        torch.testing.assert_close(compiled(*given), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_fewer_heads_of_keys_and_other_types(dtype):
    given = inputs(16, 2, dtype)
    found = pliant.compile(flex_attention, fullgraph=True)(*given, enable_gqa=True)
    expected = flex_attention(*given, enable_gqa=True)
    assert found.dtype == dtype
    exact = flex_attention(*[one.double() for one in given], enable_gqa=True)
    assert (found - exact).abs().max() <= 2 * (expected - exact).abs().max() + 1e-12


def test_gradients_are_refused_as_in_eager():
    given = [one.requires_grad_() for one in inputs(16)]
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        pliant.compile(flex_attention)(*given)
