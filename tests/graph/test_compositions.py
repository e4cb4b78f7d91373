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
    torch.diagonal: lambda x: torch.diagonal(input=x, offset=x.shape[0] - 2, dim1=0, dim2=1),
    torch.Tensor.diagonal: lambda x: x.diagonal(offset=1 - x.shape[0]),
    torch.linalg.diagonal: lambda x: torch.linalg.diagonal(A=x, offset=x.shape[0] - 2),
    torch.diag: lambda x: torch.diag(input=x, diagonal=x.shape[0] - 2),
    torch.Tensor.diag: lambda x: x.diag(diagonal=x.shape[0] - 2),
    torch.diag_embed: lambda x: torch.diag_embed(input=x, offset=-x.shape[0]),
    torch.Tensor.diag_embed: lambda x: x.diag_embed(offset=x.shape[0]),
    torch.diagflat: lambda x: torch.diagflat(input=x, offset=x.shape[0]),
    torch.Tensor.diagflat: lambda x: x.diagflat(offset=x.shape[0]),
    torch.rot90: lambda x: torch.rot90(input=x, k=2 * x.shape[0], dims=(1, 0)),
    torch.Tensor.rot90: lambda x: x.rot90(k=2 * x.shape[0]),
    torch.vander: lambda x: torch.vander(x=x[0], N=x.shape[0], increasing=True),
    torch.linalg.vander: lambda x: torch.linalg.vander(x=x, N=x.shape[0]),
    torch.gradient: lambda x: torch.gradient(input=x, spacing=2.0, dim=0)[0],
    torch.bartlett_window: lambda x: torch.bartlett_window(window_length=x.shape[0], periodic=False),
    torch.tensor_split: lambda x: torch.tensor_split(input=x, sections=3, dim=0)[1],
    torch.Tensor.tensor_split: lambda x: x.tensor_split(sections=3)[1],
    torch.reshape: lambda x: torch.reshape(input=x, shape=(4, x.shape[0])),
    torch.Tensor.reshape: lambda x: x.t().reshape(2, 2, x.shape[0]),
    torch.linspace: lambda x: torch.linspace(start=0, end=1, steps=x.shape[0], dtype=torch.float64),
    torch.logspace: lambda x: torch.logspace(start=0, end=1, steps=x.shape[0], base=2.0),
    F.affine_grid: lambda x: F.affine_grid(theta=torch.ones(1, 2, 3), size=(1, 1, x.shape[0], 4), align_corners=False),
    torch.avg_pool1d: lambda x: torch.avg_pool1d(input=x.t().contiguous(), kernel_size=x.shape[0], stride=(1,)),
    F.avg_pool2d: lambda x: F.avg_pool2d(input=x[None], kernel_size=x.shape, padding=0),
    F.avg_pool3d: lambda x: F.avg_pool3d(input=x[None, None], kernel_size=(1, *x.shape)),
    torch.max_pool1d: lambda x: torch.max_pool1d(input=x[None], kernel_size=2, stride=1, padding=1),
    F.max_pool1d: lambda x: F.max_pool1d(input=x.t(), kernel_size=2, ceil_mode=True),
    torch.max_pool2d: lambda x: torch.max_pool2d(input=x[None], kernel_size=x.shape, dilation=1),
    F.max_pool2d: lambda x: F.max_pool2d(input=x[None], kernel_size=x.shape),
    torch.max_pool3d: lambda x: torch.max_pool3d(input=x[None, None], kernel_size=(1, *x.shape)),
    F.max_pool3d: lambda x: F.max_pool3d(input=x[None, None], kernel_size=(1, *x.shape), stride=1),
    torch.hsplit: lambda x: torch.hsplit(input=x, indices=(1, x.shape[0]))[1],
    torch.Tensor.hsplit: lambda x: x.hsplit(indices=(1, x.shape[0]))[1],
    torch.vsplit: lambda x: torch.vsplit(input=x, indices=(1, x.shape[0]))[1],
    torch.Tensor.vsplit: lambda x: x.vsplit(indices=(1, x.shape[0]))[1],
    torch.dsplit: lambda x: torch.dsplit(input=x[None], indices=(1, x.shape[0]))[1],
    torch.Tensor.dsplit: lambda x: x[None].dsplit(indices=(1, x.shape[0]))[1],
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


def test_a_block_without_dimensions_counts_less_for_the_dtype():
    def call(x):
        return torch.block_diag(torch.ones((), dtype=torch.float64), x)

    x = torch.rand(2, 3)
    assert pliant.compile(call, backend="eager")(x).dtype is call(x).dtype is torch.float32
