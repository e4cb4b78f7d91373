"""Gradients of compiled functions against central differences in float64: nothing of PyTorch's own backward is believed.

What fuses is compiled here: the forward and the backward kernels both, every other function with symbolic sizes. Second derivatives are
checked for some. Inputs keep away from kinks.
"""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import pliant

F = torch.nn.functional


def r(*size, seed=0, low=None):
    """Numbers apart from each other and from zero, so that no difference steps over a kink."""
    generator = torch.Generator().manual_seed(seed + len(size))
    count = math.prod(size)
    ranks = torch.randperm(count, generator=generator).double()
    values = (ranks - count / 2 + 0.3) / count * 3
    if low is not None:
        values = (ranks + 1) / count * 2 + low
    return values.reshape(size).requires_grad_()


def c(*size):
    return torch.complex(r(*size).detach(), r(*size, seed=5).detach()).requires_grad_()


IDS = torch.tensor([[0, 3, 1], [4, 1, 1]])
MASK = torch.tensor([[True, False, True, True], [False, True, True, False], [True, True, False, True]])


def written(x):
    y = x * 2
    y[1:, 0] = x[:-1, 1].exp()
    y.mul_(x)
    return y.t()[1:].cumsum(0)


def attention_by_hand(q, k, v):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(scores, -1) @ v


def layer_norm_by_hand(x, w):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(-1, keepdim=True) + 1e-5) * w


def group_means(x):
    sums = torch.zeros(5, x.shape[1], dtype=x.dtype).index_add(0, IDS[0].repeat(2)[: x.shape[0]], x)
    return sums / 3 + sums.amax(1, keepdim=True)


def rnn(x, w):
    h = torch.zeros(x.shape[1], w.shape[0], dtype=x.dtype)
    for step in x:
        h = torch.tanh(step @ w + h)
    return h


# name -> (function, its inputs)
FUNCTIONS = {
    # chains of elements
    "gelu": (lambda x: F.gelu(x * 2) + F.gelu(x, approximate="tanh"), [r(3, 5)]),
    "silu_mish": (lambda x: F.silu(x) * F.mish(x + 1), [r(3, 5)]),
    "sigmoid_tanh": (lambda x, y: torch.sigmoid(x) * torch.tanh(y) - torch.erf(x * y), [r(3, 5), r(5, seed=1)]),
    "kinks": (lambda x: F.relu(x) + F.leaky_relu(-x) + x.abs() + x.clamp(-1, 1) + F.hardswish(x), [r(3, 5)]),
    "softplus_elu": (lambda x: F.softplus(x, 2) + F.elu(x) + F.selu(x) + F.celu(x, 0.5) + F.logsigmoid(x), [r(3, 5)]),
    "powers": (lambda x, y: x**y + torch.sqrt(x) / torch.log1p(y) + x.rsqrt(), [r(3, 4, low=0.2), r(4, seed=1, low=0.2)]),
    "where": (lambda x, y: torch.where(x > y, x.sin(), y.cos()) + torch.maximum(x, y), [r(3, 5), r(5, seed=1)]),
    "atan2_hypot": (lambda x, y: torch.atan2(x, y) + torch.hypot(x, y) + torch.lerp(x, y, 0.3), [r(3, 5), r(3, 5, seed=2)]),
    "special": (lambda x: torch.lgamma(x) + torch.digamma(x) + torch.special.erfinv(x / 4), [r(6, low=0.4)]),
    "broadcast": (lambda x, y: (x[:, None] - y[None]).pow(2).sum(-1).exp().neg(), [r(3, 2), r(4, 2, seed=1)]),
    # reductions and normalization
    "softmax": (lambda x: torch.softmax(x, -1) * torch.log_softmax(x, 0), [r(3, 5)]),
    "logsumexp": (lambda x: torch.logsumexp(x, (0, 2)) + x.std((0, 2)) + x.var(0).sum(-1), [r(3, 4, 2)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), [r(3, 5), r(5, seed=1), r(5, seed=2)]),
    "layer_norm_by_hand": (layer_norm_by_hand, [r(3, 5), r(5, seed=1)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (5,), w), [r(3, 5), r(5, seed=1)]),
    "group_norm": (lambda x, w, b: F.silu(F.group_norm(x, 2, w, b)), [r(2, 4, 3, 3), r(4, seed=1), r(4, seed=2)]),
    "batch_norm": (
        lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True)),
        [r(3, 2, 3, 2), r(2, seed=1), r(2, seed=2)],
    ),
    "instance_norm": (lambda x: F.instance_norm(x).tanh(), [r(2, 2, 4, 3)]),
    "norms": (lambda x: x.norm(dim=1) + x.norm(3, dim=1) + x.abs().amax(1) + F.normalize(x).sum(1), [r(3, 5)]),
    "prod_mean": (lambda x: x.prod(1) + x.mean(1) + (x * x).sum(1).sqrt(), [r(3, 5)]),
    "max_median": (lambda x: x.max(1)[0] + x.min(0)[0].sum() + x.median(1)[0] + x.topk(2)[0].sum(1), [r(3, 5)]),
    "cumulative": (lambda x: x.cumsum(1) + x.cumprod(0) + torch.logcumsumexp(x, 1) + x.cummax(1)[0], [r(3, 5)]),
    "sort": (lambda x: x.sort(1)[0] * torch.arange(5), [r(3, 5)]),
    # losses
    "cross_entropy": (lambda x: F.cross_entropy(x, IDS[0], label_smoothing=0.1), [r(3, 6)]),
    "ignored": (lambda x: F.cross_entropy(x, torch.tensor([1, -100, 2]), torch.arange(1.0, 7).double()), [r(3, 6)]),
    "soft_targets": (lambda x, y: F.cross_entropy(x, y.softmax(1)) + F.kl_div(x, y.softmax(1)), [r(3, 4), r(3, 4, seed=1)]),
    "bce": (lambda x: F.binary_cross_entropy_with_logits(x, MASK.double()), [r(3, 4)]),
    "regression": (lambda x, y: F.huber_loss(x, y) + F.smooth_l1_loss(x, y) + F.gaussian_nll_loss(x, y, x * 0 + 2), [r(3, 4), r(3, 4, seed=3)]),
    "margins": (lambda x: F.multi_margin_loss(x, IDS[0]) + F.soft_margin_loss(x, x.detach().sign()), [r(3, 6)]),
    # products
    "linear_chain": (lambda x, w, b: F.gelu(F.linear(x, w, b)) @ w, [r(3, 4), r(5, 4, seed=1), r(5, seed=2)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [r(1, 2, 3, 4), r(1, 2, 5, 4, seed=1), r(1, 2, 5, 4, seed=2)]),
    "causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [r(1, 2, 4, 4), r(1, 2, 4, 4, seed=1), r(1, 2, 4, 4, seed=2)]),
    "masked": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=MASK[:, :, None].sum(2) > 0),
        [r(1, 3, 4), r(1, 4, 4, seed=1), r(1, 4, 4, seed=2)],
    ),
    "attention_by_hand": (attention_by_hand, [r(2, 4, 3), r(2, 4, 3, seed=1), r(2, 4, 3, seed=2)]),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->ik", x, y).sin(), [r(2, 3, 4), r(2, 4, 3, seed=1)]),
    "conv_act": (lambda x, w, b: F.silu(F.conv2d(x, w, b, padding=1)), [r(1, 2, 4, 4), r(3, 2, 3, 3, seed=1), r(3, seed=2)]),
    "conv_transpose": (lambda x, w: F.relu(F.conv_transpose1d(x, w, stride=2)) * 2, [r(1, 2, 4), r(2, 3, 3, seed=1)]),
    "rnn": (rnn, [r(3, 2, 3), r(3, 3, seed=1)]),
    "solve": (lambda a, b: torch.linalg.solve(a @ a.mT + torch.eye(3), b), [r(3, 3), r(3, 2, seed=1)]),
    # windows, sampling, indexes
    "max_pool": (lambda x: F.max_pool2d(x.exp(), 2) + F.avg_pool2d(x, 2), [r(1, 2, 4, 4)]),
    "adaptive_pool": (lambda x: F.adaptive_avg_pool2d(x, 2) * F.adaptive_max_pool2d(x, 2), [r(1, 2, 5, 5)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") ** 2, [r(1, 2, 3, 3)]),
    "grid_sample": (lambda x, g: F.grid_sample(x, g / 2, align_corners=False), [r(1, 2, 4, 4), r(1, 3, 3, 2, seed=1)]),
    "pad": (lambda x: F.pad(x, (1, 2), mode="reflect") + F.pad(x, (2, 1)), [r(1, 2, 5)]),
    "unfold": (lambda x: x.unfold(1, 3, 2).prod(-1) + F.unfold(x[None, None], 2).sum(), [r(3, 7)]),
    "embedding": (lambda w: F.embedding(IDS, w).tanh(), [r(5, 4)]),
    "embedding_bag": (lambda w: F.embedding_bag(IDS, w, mode="mean"), [r(5, 4)]),
    "index": (lambda x: x[IDS[0]] * x[:, IDS[1]][:3].sum() + x[IDS, IDS].sum(), [r(5, 5)]),
    "gather": (lambda x: x.gather(1, IDS) + x.take_along_dim(IDS, 1).exp(), [r(2, 5)]),
    "scatter": (lambda x: torch.zeros(2, 5).double().scatter_add(1, IDS, x.sin()) ** 2, [r(2, 3)]),
    "scatter_reduce": (lambda x: torch.ones(2, 5).double().scatter_reduce(1, IDS, x, "mean"), [r(2, 3)]),
    "scatter_amax": (lambda x: torch.zeros(5).double().scatter_reduce(0, IDS[0], x, "amax"), [r(3, low=0.1)]),
    "group_means": (group_means, [r(3, 4)]),
    "masked_fill": (lambda x: x.masked_fill(MASK, 2.0).prod(1) + torch.zeros(12).double().masked_scatter(MASK.reshape(-1), x).sum(), [r(3, 4)]),
    "cat_split": (lambda x, y: torch.cat([x, y.flip(1)], 1).split(3, 1)[1] * torch.stack([x, y]).sum(0), [r(3, 3), r(3, 3, seed=1)]),
    "rolls": (lambda x: x.roll(1, 0) * x.tril() + x.diagonal().sum() + x.rot90() + torch.trace(x), [r(4, 4)]),
    "written": (written, [r(3, 4)]),
    # complex
    "complex": (lambda x, y: (x * y.conj()).abs() + torch.angle(x) + (x @ y.mT).real[0], [c(3, 3), c(3, 3)]),
    "complex_result": (lambda x: torch.exp(1j * x) * x.conj() / 2, [c(3, 4)]),
    "fft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.arange(4), n=6), [r(2, 6)]),
    "polar": (lambda a, t: torch.view_as_real(torch.polar(a, t) ** 2), [r(4, low=0.3), r(4, seed=1)]),
}  # fmt: skip
SECOND = [
    "gelu", "powers", "softmax", "layer_norm", "batch_norm", "cross_entropy", "linear_chain", "conv_act", "rnn", "written",
    "complex", "max_pool",
]  # fmt: skip


def inputs_of(name):
    return tuple(x.detach().clone().requires_grad_() for x in FUNCTIONS[name][1])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient(name):
    dynamic = list(FUNCTIONS).index(name) % 2 == 1  # the operators' own tests take both
    assert gradcheck(pliant.compile(FUNCTIONS[name][0], dynamic=dynamic), inputs_of(name), nondet_tol=1e-12)


@pytest.mark.parametrize("name", SECOND)
def test_second_derivative(name):
    assert gradgradcheck(pliant.compile(FUNCTIONS[name][0]), inputs_of(name), nondet_tol=1e-12, atol=1e-4)
