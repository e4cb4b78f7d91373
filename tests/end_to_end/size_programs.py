"""More programs for `dynamic_programs.check`: operators whose results' sizes are computed, and Python code that computes sizes.

By hand, over all sizes, modes and small sizes: `python -m tests.end_to_end.size_programs [names]`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tests.end_to_end.dynamic_programs import MORE, SIZES, SMALL, batch, check, image, matrix, randn, tokens, two
from tests.end_to_end.dynamic_programs import PROGRAMS as OTHERS
from torch import Tensor


def square(n: int, m: int) -> tuple[Tensor]:
    a = randn(n, n)
    return (a @ a.mT + torch.eye(n) * (n + 1),)


def squares(n: int, m: int) -> tuple[Tensor]:
    a = randn(m, n, n)
    return (a @ a.mT + torch.eye(n) * (n + 1),)


def tall(n: int, m: int) -> tuple[Tensor]:
    return (randn(n + m, m),)


def system(n: int, m: int) -> tuple[Tensor, Tensor]:
    return (*square(n, m), randn(n, m))


def vector(n: int, m: int) -> tuple[Tensor]:
    return (randn(n + m),)


def signal(n: int, m: int) -> tuple[Tensor]:
    return (randn(n, 16 + 2 * m),)


def sequence(n: int, m: int) -> tuple[Tensor]:
    return (randn(n, 4, m + 4),)


def volume(n: int, m: int) -> tuple[Tensor]:
    return (randn(2, 3, n + 2, m + 2, 4),)


def sized(n: int, m: int) -> tuple[Tensor, int, int]:
    return randn(n, m), n, m


def labelled(n: int, m: int) -> tuple[Tensor, Tensor]:
    return randn(n, m), torch.arange(n) % m


Inputs = Callable[[int, int], tuple[Any, ...]]

_LINALG: dict[str, tuple[Inputs, Callable[..., Any]]] = {
    "lstsq": (tall, lambda x: torch.linalg.lstsq(x, x[:, :1] * 2).solution),
    "lstsq by driver": (tall, lambda x: torch.linalg.lstsq(x, x.sum(1, keepdim=True), driver="gelsd").solution),
    "solve": (system, lambda a, b: torch.linalg.solve(a, b)),
    "solve of a vector": (system, lambda a, b: torch.linalg.solve(a, b.sum(1))),
    "solve from the right": (system, lambda a, b: torch.linalg.solve(a, b.mT, left=False)),
    "triangular solve": (system, lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False)),
    "inverse": (square, lambda a: torch.linalg.inv(a)),
    "inverses": (squares, lambda a: torch.linalg.inv(a) @ a),
    "determinant": (squares, lambda a: torch.linalg.det(a / a.size(-1))),
    "log determinant": (squares, lambda a: torch.linalg.slogdet(a).logabsdet + torch.logdet(a)),
    "cholesky": (squares, lambda a: torch.linalg.cholesky(a)),
    "cholesky solve": (system, lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a))),
    "qr": (tall, lambda x: torch.linalg.qr(x).R.abs()),
    "singular values": (tall, lambda x: torch.linalg.svdvals(x)),
    "eigenvalues": (squares, lambda a: torch.linalg.eigvalsh(a)),
    "eigenvectors": (square, lambda a: torch.linalg.eigh(a).eigenvectors.abs()),
    "pseudo inverse": (tall, lambda x: torch.linalg.pinv(x)),
    "matrix power": (square, lambda a: torch.linalg.matrix_power(a / a.size(0), 3)),
    "matrix exponential": (square, lambda a: torch.linalg.matrix_exp(a / (a.size(0) + 1) / 9)),
    "lu": (square, lambda a: torch.linalg.lu(a).U),
    "lu solve": (system, lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b)),
    "norms": (matrix, lambda x: torch.linalg.norm(x) + torch.linalg.vector_norm(x, 3) + torch.linalg.matrix_norm(x)),
    "nuclear norm": (tall, lambda x: torch.linalg.matrix_norm(x, "nuc")),
    "condition": (square, lambda a: torch.linalg.cond(a, 1)),
    "rank": (tall, lambda x: torch.linalg.matrix_rank(x) + x.sum()),
    "multi dot": (two, lambda x, y: torch.linalg.multi_dot([x, y.mT, x])),
    "cross": (batch, lambda x: torch.linalg.cross(x[..., :3], x[..., 3:6])),
    "vander": (vector, lambda x: torch.linalg.vander(x, N=4)),
    "householder": (tall, lambda x: torch.linalg.householder_product(x.tril(-1) / 9, x[0] / 9)),
    "covariance": (matrix, lambda x: torch.cov(x) + torch.corrcoef(x).nan_to_num()),
    "cdist": (two, lambda x, y: torch.cdist(x, y) + torch.cdist(x, y, p=1.0)),
    "pdist": (matrix, lambda x: F.pdist(x.detach()).sum() + x),
    "kron": (matrix, lambda x: torch.kron(x, x[:2, :2])),
    "block diagonal": (two, lambda x, y: torch.block_diag(x, y)),
    "bilinear": (tall, lambda x: F.bilinear(x[:, :2], x[:, 1:3], x[:8, 0].view(2, 2, 2).detach(), x[0, :2])),
    "tensordot": (batch, lambda x: torch.tensordot(x, x, dims=([1, 2], [1, 2]))),
    "trapezoid": (matrix, lambda x: torch.trapezoid(x, dx=0.5) + torch.cumulative_trapezoid(x.mT).sum()),
    "renorm": (matrix, lambda x: torch.renorm(x, 2, 0, 1.0)),
    "baddbmm": (batch, lambda x: torch.baddbmm(x[:, :, :1], x, x.mT, beta=0.5, alpha=2)),
    "chain": (square, lambda a: torch.chain_matmul(a, a, a) / a.size(0)),
}
_SIGNALS: dict[str, tuple[Inputs, Callable[..., Any]]] = {
    "fft": (matrix, lambda x: torch.fft.fft(x).abs()),
    "fft to a size": (matrix, lambda x: torch.fft.fft(x, n=x.size(1) * 2).real),
    "fft of all": (matrix, lambda x: torch.fft.fftn(x).real + torch.fft.ifft2(x).imag),
    "rfft": (signal, lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=x.size(1))),
    "hfft": (signal, lambda x: torch.fft.hfft(x, norm="ortho")),
    "frequencies": (signal, lambda x: torch.fft.fftfreq(x.size(1)) * x + torch.fft.rfftfreq(x.size(1) * 2 - 1)),
    "fftshift": (matrix, lambda x: torch.fft.fftshift(x) + torch.fft.ifftshift(x, dim=0)),
    "stft": (signal, lambda x: torch.stft(x, 8, 4, return_complex=True, window=torch.ones(8)).abs()),
    "stft and back": (
        signal,
        lambda x: torch.istft(
            torch.stft(x, 8, 2, return_complex=True, window=torch.hann_window(8)),
            8, 2, window=torch.hann_window(8), length=x.size(1),
        ),
    ),
    "windows": (signal, lambda x: x * torch.hann_window(x.size(1)) + torch.hamming_window(x.size(1), False)),
    "convolution": (sequence, lambda x: F.conv1d(x, torch.ones(2, 4, 3), padding="same", dilation=1)),
    "strided convolution": (sequence, lambda x: F.conv1d(x, torch.ones(4, 1, 3), stride=2, padding=1, groups=4)),
    "transposed convolution": (image, lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 3, 3), stride=2, output_padding=1)),
    "convolution of volumes": (volume, lambda x: F.conv3d(x, torch.ones(2, 3, 2, 2, 2))),
    "kernel from a size": (sequence, lambda x: F.avg_pool1d(x, 2, ceil_mode=True) + 1),
    "max pool with indices": (image, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[2:])),
    "average pool": (image, lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)),
    "power pool": (image, lambda x: F.lp_pool2d(x.abs() + 1, 2, 2)),
    "pool of volumes": (volume, lambda x: F.max_pool3d(x, 2) + F.avg_pool3d(x, 2)),
    "adaptive pool": (image, lambda x: F.adaptive_avg_pool2d(x, (2, None))),
    "adaptive max pool": (sequence, lambda x: F.adaptive_max_pool1d(x, 3)),
    "pixel shuffle": (image, lambda x: F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2)),
    "pixel unshuffle": (image, lambda x: F.pixel_unshuffle(x.repeat(1, 1, 2, 2), 2)),
    "channel shuffle": (image, lambda x: F.channel_shuffle(x.repeat(1, 2, 1, 1), 3)),
    "upsampled": (image, lambda x: F.interpolate(x, scale_factor=(2.0, 1.5), mode="bilinear")),
    "resized to half": (image, lambda x: F.interpolate(x, size=[s // 2 for s in x.shape[2:]], mode="nearest")),
    "resized cubic": (image, lambda x: F.interpolate(x, size=(x.size(3), x.size(2)), mode="bicubic")),
    "resized lines": (sequence, lambda x: F.interpolate(x, size=x.size(2) * 3, mode="linear", align_corners=True)),
    "resized volumes": (volume, lambda x: F.interpolate(x, scale_factor=2, mode="nearest")),
    "grid sample": (
        image,
        lambda x: F.grid_sample(
            x, F.affine_grid(torch.eye(2, 3) + x.mean((2, 3))[:, None] / 9, x.shape, False), align_corners=False
        ),
    ),
    "circular padding": (image, lambda x: F.pad(x, (1, 2, 2, 1), mode="circular")),
    "constant padding": (matrix, lambda x: F.pad(x, (x.size(0), 1, 0, 2), value=2.5)),
    "negative padding": (image, lambda x: F.pad(x, (-1, 2, 1, -1))),
    "unfold and fold": (image, lambda x: F.fold(F.unfold(x, 2, stride=1), x.shape[2:], 2)),
    "instance norm": (image, lambda x: F.instance_norm(x)),
    "group norm": (image, lambda x: F.group_norm(x.repeat(1, 2, 1, 1), 3)),
    "local response": (image, lambda x: F.local_response_norm(x, 2)),
    "batch norm": (image, lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3), training=True)),
    "rms norm": (batch, lambda x: F.rms_norm(x, (x.size(-1),))),
    "glu": (batch, lambda x: F.glu(x, -1) + F.softmin(x[..., :4], 1)),
    "cosine": (two, lambda x, y: F.cosine_similarity(x, y) + F.pairwise_distance(x, y)),
}  # fmt: skip
_MADE: dict[str, tuple[Inputs, Callable[..., Any]]] = {
    "arange": (matrix, lambda x: torch.arange(x.size(0)) [:, None] * x + torch.arange(2, x.size(1) * 2 + 2, 2)),
    "full": (sized, lambda x, n, m: torch.full((n, m), 0.5) + torch.zeros(n, m) + x + torch.ones([n, 1])),
    "full of a number": (sized, lambda x, n, m: x + torch.full((n, m), n / 2) + torch.full_like(x, m)),
    "empty and fill": (matrix, lambda x: x.new_empty(x.shape).fill_(3) * x + x.new_full((x.size(1),), 2.0)),
    "eye": (matrix, lambda x: torch.eye(x.size(0)) @ x + torch.eye(*x.shape)),
    "linspace": (matrix, lambda x: x * torch.linspace(0, 1, x.size(1)) + torch.linspace(1, 0, x.size(1), dtype=torch.float64).float()),
    "indices of triangles": (square, lambda a: a[tuple(torch.tril_indices(a.size(0), a.size(0)))] * 2),
    "upper indices": (matrix, lambda x: x[tuple(torch.triu_indices(x.size(0), x.size(1), 1))].sum()),
    "meshgrid": (matrix, lambda x: sum(torch.meshgrid(x[0], x[:, 0], indexing="xy")) + x),
    "cartesian": (vector, lambda x: torch.cartesian_prod(x, x[:2])),
    "combinations": (vector, lambda x: torch.combinations(x[:5], 2).prod(1)),
    "one hot": (labelled, lambda x, y: F.one_hot(y, x.size(1)) * x),
    "bincount": (labelled, lambda x, y: torch.bincount(y, minlength=x.size(1)) + x),
    "histogram": (matrix, lambda x: torch.histc(x.detach(), bins=5, min=-2, max=2) + x.sum()),
    "scatter": (labelled, lambda x, y: torch.zeros(x.size(1), x.size(0)).scatter(0, y[None], x[:, :1].mT)),
    "scatter reduce": (labelled, lambda x, y: x.new_zeros(x.size(1)).scatter_reduce(0, y, x[:, 0], "sum")),
    "index put": (labelled, lambda x, y: x.index_put((torch.arange(x.size(0)), y), x.new_ones(()), accumulate=True)),
    "index fill": (matrix, lambda x: x.index_fill(1, torch.arange(0, x.size(1), 2), 0.5)),
    "index select": (matrix, lambda x: x.index_select(1, torch.arange(x.size(1) - 1, -1, -1))),
    "take along": (matrix, lambda x: torch.take_along_dim(x, x.argsort(1), 1) + x.take(torch.arange(x.numel())).view_as(x)),
    "gather": (labelled, lambda x, y: x.gather(1, y[:, None]).squeeze(1)),
    "put": (matrix, lambda x: x.put(torch.arange(0, x.numel(), 2), x.flatten()[::2] * 2)),
    "masked scatter": (matrix, lambda x: x.masked_scatter(x.detach() > 0, x.flatten())),
    "where": (matrix, lambda x: torch.where(torch.arange(x.size(1)) < x.size(0), x, -x)),
    "searchsorted": (matrix, lambda x: torch.searchsorted(x.detach().sort(1).values, x.detach()) + x),
    "repeats": (matrix, lambda x: x.repeat_interleave(torch.arange(x.size(1)), 1)),
    "repeats of a size": (matrix, lambda x: x.repeat_interleave(3, 1)[:, :: x.size(1) // x.size(1)]),
    "tensor of sizes": (matrix, lambda x: x * torch.tensor([x.size(0), x.size(1)]).prod() + torch.tensor(x.size(0) / 2)),
    "random choice": (matrix, lambda x: x[torch.arange(x.size(0)).flip(0)] * x.numel()),
    "embedding bag": (tokens, lambda ids, t: F.embedding_bag(ids, t, mode="max")),
    "embedding bag with weights": (tokens, lambda ids, t: F.embedding_bag(ids, t, per_sample_weights=t[ids, 0], mode="sum")),
    "cross entropy": (labelled, lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1) + F.nll_loss(x, y)),
    "losses": (two, lambda x, y: F.mse_loss(x, y) + F.huber_loss(x, y) + F.kl_div(x, y, reduction="batchmean")),
    "bernoulli loss": (two, lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach().sigmoid())),
    "triplets": (two, lambda x, y: F.triplet_margin_loss(x, y, y.roll(1, 0))),
    "ctc": (
        lambda n, m: (randn(m + 8, n, 6), torch.randint(1, 6, (n, 3))),
        lambda x, y: F.ctc_loss(x.log_softmax(-1), y, torch.full((x.size(1),), x.size(0)), torch.full((x.size(1),), 3)),
    ),
    "unique": (labelled, lambda x, y: torch.unique(y, return_counts=True)[1].sum() + x),
    "nonzero": (matrix, lambda x: (x.detach() > 0).nonzero().float().mean() + x),
    "quantile": (matrix, lambda x: x.quantile(0.5, dim=1) + x.nanmedian(1).values),
    "mode": (labelled, lambda x, y: torch.mode(y).values + x),
    "aminmax": (matrix, lambda x: sum(torch.aminmax(x)) + x),
    "logcumsumexp": (matrix, lambda x: x.logcumsumexp(1) + x.cumsum(0)),
    "cumprod": (matrix, lambda x: x.cumprod(1)),
    "polygamma": (matrix, lambda x: torch.special.polygamma(1, x.abs() + 1) + torch.special.zeta(x.abs() + 2, 2.0).detach()),
    "special": (matrix, lambda x: torch.special.log_softmax(x, 1) + torch.special.entr(x.abs() + 0.1) + torch.special.i0(x)),
    "addcmul": (two, lambda x, y: torch.addcmul(x, x, y, value=0.5) + torch.lerp(x, y, 0.25)),
}  # fmt: skip
_PYTHON: dict[str, tuple[Inputs, Callable[..., Any]]] = {
    "ceil": (matrix, lambda x: F.pad(x, (0, math.ceil(x.size(1) / 4) * 4 - x.size(1))).view(x.size(0), -1, 4).sum(2)),
    "floor division": (matrix, lambda x: x[: x.size(0) // 2].sum(0) + x[-(x.size(0) // 3) :].sum(0)),
    "ceiling division": (matrix, lambda x: x.new_ones(-(-x.size(1) // 3)).sum() * x),
    "remainder": (matrix, lambda x: x.roll(x.size(0) % 3, 0) * (x.size(1) % 4)),
    "divmod": (matrix, lambda x: x * divmod(x.size(1), 4)[0] + divmod(x.size(1), 4)[1]),
    "smallest and largest": (matrix, lambda x: x[: min(x.size(0), x.size(1))].sum(0) * max(x.shape)),
    "root": (matrix, lambda x: x / math.sqrt(x.size(1)) * math.log(x.size(0) + 1)),
    "powers": (matrix, lambda x: x * x.size(0) ** 2 / x.size(1) ** 0.5),
    "rounding": (matrix, lambda x: x * round(x.size(1) / 4) + int(x.size(0) * 0.75)),
    "steps": (matrix, lambda x: x[:, ::3].sum() + x[1::2, :-1].sum() + x[..., 1:-1:2].sum()),
    "chunk": (matrix, lambda x: torch.cat([c.cumsum(0) for c in x.chunk(2)], 0)),
    "split": (matrix, lambda x: sum(c.sum() for c in x.split((x.size(1) + 1) // 2, 1))),
    "split in parts": (matrix, lambda x: torch.cat(x.split([1, x.size(0) - 1])[::-1])),
    "unsafe chunk": (batch, lambda x: x.chunk(4, -1)[1] + x.hsplit([1])[0][:, :, :2] + x.dsplit(4)[0]),
    "unbind": (batch, lambda x: sum(p.sin() for p in x.unbind(-1))),
    "reshape": (batch, lambda x: x.reshape(-1, x.size(-1)).reshape(x.size(0), -1).sum(1)),
    "reshape from size": (batch, lambda x: x.reshape(x.size(0) * 2, x.size(1), x.size(2) // 2).mT),
    "view of a dtype": (matrix, lambda x: x.detach().view(torch.int32).bitwise_and(1) + x),
    "view of a smaller dtype": (matrix, lambda x: x.detach().view(torch.int16).sum(1) + x.sum(1)),
    "unfold": (matrix, lambda x: x.unfold(1, 1, 1).squeeze(-1) * 2 + x.unfold(0, 2, 1).sum()),
    "expand": (vector, lambda x: x.expand(3, -1) + x[:, None].expand(x.size(0), 4).sum(1)),
    "squeeze": (matrix, lambda x: x[:, None].squeeze() * x.unsqueeze(1).squeeze(1)),
    "flip and rot": (matrix, lambda x: x.rot90().flip(0) + x.mT.fliplr().flipud()),
    "diagonal": (matrix, lambda x: x.diagonal(1).sum() + torch.diag(x[0]).sum(0) + x.trace()),
    "diagonal scatter": (square, lambda a: torch.diagonal_scatter(a, a.new_ones(a.size(0)))),
    "slice scatter": (matrix, lambda x: torch.slice_scatter(x, x[1:] * 2, 0, 1) + torch.select_scatter(x, x[0], 0, 0)),
    "einsum": (batch, lambda x: torch.einsum("abc,abd->acd", x, x) + torch.einsum("abc->c", x)),
    "einsum of three": (two, lambda x, y: torch.einsum("ab,ab,cb->ac", x, y, y)),
    "broadcast": (two, lambda x, y: torch.broadcast_tensors(x[:, None], y)[0].sum(0) + x.size(0)),
    "loop over a few": (matrix, lambda x: sum(x * i for i in range(3)) + sum(n for n in x.shape)),
    "condition": (matrix, lambda x: x.sum() if x.numel() >= 0 else x),
    "list of sizes": (batch, lambda x: x.view([*x.shape[:-1], 2, -1]).transpose(1, 2).flatten(2)),
    "numbers out": (batch, lambda x: (x + 1, x.shape, x.numel(), x.size(0) * 2, x.stride(), len(x))),
    "returns of sizes": (matrix, lambda x: {"n": x.size(0), "half": x.size(1) / 2, "x": x, "big": x.size(0) > 100}),
    "softmax with scale": (batch, lambda x: (x @ x.mT / x.size(-1) ** 0.5 + math.log2(x.size(1) + 1)).softmax(-1)),
    "nested list": (sized, lambda x, n, m: [x * i for i in (n, m, n * m, n - m)]),
    "attention mask": (
        batch,
        lambda x: F.scaled_dot_product_attention(
            x, x, x, attn_mask=torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
        ),
    ),
    "checked": (matrix, lambda x: x.view(x.size(0), -1) if x.dim() == 2 and x.is_contiguous() else x),
    "in place": (matrix, lambda x: (lambda y: (y.__setitem__((slice(None, None, 2),), 0.0), y.mul_(y.size(1)), y)[2])(x * 1)),
    "triangle mask": (square, lambda a: a.masked_fill(torch.triu(torch.ones_like(a), 1).bool(), -1.0)),
    "sorted and unique count": (matrix, lambda x: x.sort(0, stable=True).values + x.argsort(1, descending=True)),
    "top fraction": (matrix, lambda x: x.topk(math.ceil(x.size(1) * 0.5), 1).values.sum(1)),
    "moving average": (signal, lambda x: x.unfold(1, 4, 2).mean(-1)),
    "cumulative windows": (signal, lambda x: x.view(x.size(0), -1, 2).sum(1)),
    "as strided": (vector, lambda x: x.as_strided((x.size(0) - 1, 2), (1, 1)).prod(1)),
    "swapped": (batch, lambda x: x.permute(2, 0, 1).contiguous().view(8, -1).T.reshape_as(x)),
    "type from size": (matrix, lambda x: x.to(torch.float64 if x.size(0) >= 0 else torch.float32).sum()),
    "filled diagonal": (matrix, lambda x: (x @ x.t()).fill_diagonal_(2.0)),
}  # fmt: skip

# One compile a value: C++ reads these sizes, or loops over them; each is named by a record `specialize`.
SPECIALIZED = frozenset(("cumprod",))
# More graphs or breaks, at all or by size: orders of products, data that decides on sizes.
BROKEN = frozenset(("covariance", "lstsq by driver", "hfft", "ctc", "repeats"))

PROGRAMS = {**_LINALG, **_SIGNALS, **_MADE, **_PYTHON}
# The order of products; whether a slice is all of a tensor; which side of a triangle is cut off, or of a matrix is longer.
MORE.update({"multi dot": 1, "floor division": 1, "upper indices": 1, "diagonal": 1})
OTHERS.update({name: (function, inputs) for name, (inputs, function) in PROGRAMS.items()})

if __name__ == "__main__":
    for one in sys.argv[1:] or PROGRAMS:
        for mode in [(train, dynamic) for train in (False, True) for dynamic in (None, True)]:
            for line in check(one, *mode, (*SIZES, *SMALL)):
                print(one, mode, line.replace("\n", " ")[:300], flush=True)
