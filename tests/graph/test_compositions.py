"""Functions that are composed for varying sizes are also called with all their arguments by name."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.graph.compositions import COMPOSITIONS

BY_NAME = {
    torch.kron: lambda x: torch.kron(input=x, other=x),
    torch.Tensor.kron: lambda x: x.kron(other=x),
    torch.cov: lambda x: torch.cov(input=x, correction=0),
    torch.Tensor.cov: lambda x: x.cov(correction=0),
    torch.cdist: lambda x: torch.cdist(x1=x, x2=x, p=2.0),
    torch.corrcoef: lambda x: torch.corrcoef(input=x),
    torch.Tensor.corrcoef: lambda x: x.corrcoef(),
    torch.take_along_dim: lambda x: torch.take_along_dim(input=x, indices=x.argsort(1), dim=1),
    torch.Tensor.take_along_dim: lambda x: x.take_along_dim(indices=x.argsort(1), dim=1),
    torch.bilinear: lambda x: F.bilinear(input1=x, input2=x, weight=torch.ones(3, 4, 4), bias=None),
    torch.block_diag: lambda x: torch.block_diag(x, x),
    torch.chain_matmul: lambda x: torch.linalg.multi_dot((x, x.T, x)),
    torch.linalg.multi_dot: lambda x: torch.linalg.multi_dot(tensors=[x, x.T, x]),
    torch.einsum: lambda x: torch.einsum("ij,kj->ik", x, x),
    torch.tril_indices: lambda x: torch.tril_indices(row=x.shape[0], col=4, offset=0),
    torch.triu_indices: lambda x: torch.triu_indices(row=x.shape[0], col=4, offset=0),
    torch.hann_window: lambda x: torch.hann_window(window_length=x.shape[0], periodic=True),
    torch.hamming_window: lambda x: torch.hamming_window(window_length=x.shape[0], periodic=True, alpha=0.5),
    torch.blackman_window: lambda x: torch.blackman_window(window_length=x.shape[0]),
    torch.fft.fftfreq: lambda x: torch.fft.fftfreq(n=x.shape[0], d=2.0),
    torch.fft.rfftfreq: lambda x: torch.fft.rfftfreq(n=x.shape[0], d=2.0),
    torch.alpha_dropout: lambda x: torch.alpha_dropout(input=x, p=0.5, train=False),
    torch.feature_alpha_dropout: lambda x: torch.feature_alpha_dropout(input=x, p=0.5, train=False),
    F.alpha_dropout: lambda x: F.alpha_dropout(input=x, p=0.5, training=False),
    F.feature_alpha_dropout: lambda x: F.feature_alpha_dropout(input=x, p=0.5, training=False),
    torch.Tensor.fill_diagonal_: lambda x: x.clone().fill_diagonal_(fill_value=2.0, wrap=False),
    torch.Tensor.to: lambda x: x.to(dtype=torch.float64, copy=True),
    F.group_norm: lambda x: F.group_norm(input=x, num_groups=2),
    F.rms_norm: lambda x: F.rms_norm(input=x, normalized_shape=(4,)),
    torch.rms_norm: lambda x: torch.rms_norm(input=x, normalized_shape=(4,)),
    F.interpolate: lambda x: F.interpolate(input=x[None, None], size=(x.shape[0] * 2, 8)),
    F.adaptive_avg_pool2d: lambda x: F.adaptive_avg_pool2d(input=x[None, None], output_size=1),
    torch.adaptive_avg_pool1d: lambda x: torch.adaptive_avg_pool1d(input=x[None], output_size=1),
    F.scaled_dot_product_attention: lambda x: F.scaled_dot_product_attention(query=x, key=x, value=x),
}


def test_each_composition_has_a_call():
    assert set(BY_NAME) == set(COMPOSITIONS)


@pytest.mark.parametrize("function", COMPOSITIONS, ids=lambda one: one.__name__)
def test_arguments_by_name(function):
    call = BY_NAME[function]
    pliant.reset()
    compiled = pliant.compile(call, backend="eager", fullgraph=True)
    for rows in (5, 7, 9):
        x = torch.rand(rows, 4)
        torch.testing.assert_close(compiled(x), call(x))
    stats = pliant.stats()
    assert (stats["graphs"], stats["fallbacks"]) == (2, 0)
