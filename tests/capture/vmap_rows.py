"""Functions below `vmap`, with arguments for one sample: what `vmap_table` compares with eager at batches of any size.

A row: a name, the function, and what makes its arguments. Tensors among these have a batch in the table's programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Row = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]


def r(*size: int) -> Tensor:
    """Floats."""
    return torch.randn(*size)


def i(high: int, *size: int) -> Tensor:
    """Indices below `high`."""
    return torch.randint(0, high, size)


def b(*size: int) -> Tensor:
    """Flags."""
    return torch.rand(*size) > 0.5


def p(*size: int) -> Tensor:
    """Between 0 and 1."""
    return torch.rand(*size) * 0.8 + 0.1


POINTWISE: dict[str, Row] = {
    name: (getattr(torch, name, None) or getattr(F, name), lambda: (p(3, 4),))
    for name in (
        "abs acos asin atan ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma log log10 log1p log2 "
        "logit neg reciprocal relu round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh trunc i0 isnan isfinite "
        "nan_to_num signbit positive gelu silu mish elu selu celu leaky_relu hardtanh hardswish hardsigmoid relu6 softplus "
        "softsign tanhshrink logsigmoid hardshrink softshrink"
    ).split()
}

BINARY: dict[str, Row] = {
    name: (getattr(torch, name), lambda: (p(3, 4), p(4)))
    for name in (
        "add sub mul div pow maximum minimum fmod remainder atan2 eq ne lt le gt ge logaddexp hypot copysign floor_divide "
        "fmax fmin xlogy nextafter"
    ).split()
}

REDUCTIONS: dict[str, Row] = {
    "sum": (torch.sum, lambda: (r(3, 4),)),
    "sum dim": (torch.sum, lambda: (r(3, 4), 0)),
    "mean": (torch.mean, lambda: (r(3, 4), -1)),
    "prod": (torch.prod, lambda: (r(3, 4), 1)),
    "prod all": (torch.prod, lambda: (r(3, 4),)),
    "var": (torch.var, lambda: (r(3, 4), 0)),
    "std": (torch.std, lambda: (r(3, 4),)),
    "var_mean": (torch.var_mean, lambda: (r(3, 4), 1)),
    "amax": (torch.amax, lambda: (r(3, 4), 1)),
    "amin": (torch.amin, lambda: (r(3, 4), (0, 1))),
    "max": (torch.max, lambda: (r(3, 4),)),
    "max dim": (torch.max, lambda: (r(3, 4), 0)),
    "min dim": (torch.min, lambda: (r(3, 4), 1)),
    "argmax": (torch.argmax, lambda: (r(3, 4), 0)),
    "argmax all": (torch.argmax, lambda: (r(3, 4),)),
    "argmin": (torch.argmin, lambda: (r(3, 4), -1)),
    "aminmax": (torch.aminmax, lambda: (r(5),)),
    "median": (torch.median, lambda: (r(3, 5),)),
    "median dim": (torch.median, lambda: (r(3, 5), 1)),
    "nanmedian": (torch.nanmedian, lambda: (r(3, 5), 1)),
    "mode": (torch.mode, lambda: (i(3, 5), 0)),
    "kthvalue": (torch.kthvalue, lambda: (r(3, 5), 2)),
    "quantile": (torch.quantile, lambda: (r(3, 5), 0.3, 1)),
    "norm": (torch.norm, lambda: (r(3, 4),)),
    "vector_norm": (torch.linalg.vector_norm, lambda: (r(3, 4), 3, 1)),
    "matrix_norm": (torch.linalg.matrix_norm, lambda: (r(3, 4),)),
    "logsumexp": (torch.logsumexp, lambda: (r(3, 4), 1)),
    "any": (torch.any, lambda: (b(3, 4), 0)),
    "all": (torch.all, lambda: (b(3, 4),)),
    "count_nonzero": (torch.count_nonzero, lambda: (b(3, 4), 0)),
    "nansum": (torch.nansum, lambda: (r(3, 4), 0)),
    "cumsum": (torch.cumsum, lambda: (r(3, 4), 0)),
    "cumprod": (torch.cumprod, lambda: (r(3, 4), 1)),
    "cummax": (torch.cummax, lambda: (r(3, 4), 1)),
    "cummin": (torch.cummin, lambda: (r(3, 4), 0)),
    "logcumsumexp": (torch.logcumsumexp, lambda: (r(3, 4), 1)),
    "softmax": (torch.softmax, lambda: (r(3, 4), 1)),
    "log_softmax": (torch.log_softmax, lambda: (r(3, 4), 0)),
    "softmin": (F.softmin, lambda: (r(3, 4), 0)),
    "trace": (torch.trace, lambda: (r(4, 4),)),
    "diff": (torch.diff, lambda: (r(3, 4),)),
    "dist": (torch.dist, lambda: (r(3, 4), r(3, 4))),
}

PLACES: dict[str, Row] = {
    "gather": (torch.gather, lambda: (r(5, 3), 0, i(5, 2, 3))),
    "gather 1d": (torch.gather, lambda: (r(5), 0, i(5, 3))),
    "take_along_dim": (torch.take_along_dim, lambda: (r(5, 3), i(5, 2, 3), 0)),
    "take": (torch.take, lambda: (r(5, 3), i(15, 4))),
    "scatter": (torch.scatter, lambda: (r(5, 3), 0, i(5, 2, 3), r(2, 3))),
    "scatter number": (torch.scatter, lambda: (r(5), 0, i(5, 2), 2.0)),
    "scatter_add": (torch.scatter_add, lambda: (r(5, 3), 0, i(5, 2, 3), r(2, 3))),
    "scatter_reduce": (lambda x, n, v: torch.scatter_reduce(x, 0, n, v, "amax"), lambda: (r(5), i(5, 4), r(4))),
    "scatter_mean": (lambda x, n, v: x.scatter_reduce(0, n, v, "mean"), lambda: (r(5), i(5, 4), r(4))),
    "index_select": (torch.index_select, lambda: (r(5, 3), 0, i(5, 4))),
    "index_add": (torch.index_add, lambda: (r(5, 3), 0, i(5, 4), r(4, 3))),
    "index_copy": (torch.index_copy, lambda: (r(5, 3), 0, torch.randperm(5)[:2], r(2, 3))),
    "index_fill": (torch.index_fill, lambda: (r(5, 3), 0, i(5, 2), 1.5)),
    "index_put": (lambda x, n, v: x.index_put((n,), v), lambda: (r(5, 3), torch.randperm(5)[:2], r(2, 3))),
    "index_put add": (lambda x, n, v: x.index_put((n,), v, accumulate=True), lambda: (r(5, 3), i(5, 4), r(4, 3))),
    "index": (lambda x, n: x[n], lambda: (r(5, 3), i(5, 4))),
    "index 2": (lambda x, n, m: x[n, m], lambda: (r(5, 3), i(5, 4), i(3, 4))),
    "index last": (lambda x, n: x[:, n], lambda: (r(5, 3), i(3, 4))),
    "index ends": (lambda x, n, m: x[n, :, m], lambda: (r(5, 2, 3), i(5, 4), i(3, 4))),
    "embedding": (F.embedding, lambda: (i(7, 4), r(7, 3))),
    "one_hot": (lambda n: F.one_hot(n, 5), lambda: (i(5, 4),)),
    "masked_fill": (torch.masked_fill, lambda: (r(3, 4), b(3, 4), 0.5)),
    "where": (torch.where, lambda: (b(3, 4), r(3, 4), r(4))),
    "masked_scatter": (torch.masked_scatter, lambda: (r(3, 4), b(3, 4), r(3, 4))),
    "select_scatter": (torch.select_scatter, lambda: (r(3, 4), r(4), 0, 1)),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 0, 1, 3), lambda: (r(4, 3), r(2, 3))),
    "diagonal_scatter": (torch.diagonal_scatter, lambda: (r(4, 4), r(4))),
    "bucketize": (torch.bucketize, lambda: (r(4), torch.randn(3).sort()[0])),
    "searchsorted": (torch.searchsorted, lambda: (torch.randn(5).sort()[0], r(4))),
    "sort": (torch.sort, lambda: (r(3, 4), 0)),
    "argsort": (torch.argsort, lambda: (r(3, 4), 1)),
    "topk": (torch.topk, lambda: (r(3, 5), 2)),
    "msort": (torch.msort, lambda: (r(3, 5),)),
    "isin": (torch.isin, lambda: (i(5, 4), i(5, 3))),
    "setitem": (lambda x, y: torch.Tensor.clone(x).index_copy_(0, torch.tensor([1, 0]), y), lambda: (r(4, 3), r(2, 3))),
}

SHAPES: dict[str, Row] = {
    "reshape": (torch.reshape, lambda: (r(3, 4), (2, 6))),
    "view": (lambda x: x.view(-1), lambda: (r(3, 4),)),
    "flatten": (torch.flatten, lambda: (r(2, 3, 4), 1)),
    "unflatten": (torch.unflatten, lambda: (r(6, 4), 0, (2, 3))),
    "transpose": (torch.transpose, lambda: (r(3, 4), 0, 1)),
    "permute": (torch.permute, lambda: (r(2, 3, 4), (2, 0, 1))),
    "movedim": (torch.movedim, lambda: (r(2, 3, 4), 0, 2)),
    "expand": (lambda x: x.expand(3, 4), lambda: (r(4),)),
    "repeat": (lambda x: x.repeat(2, 3), lambda: (r(4),)),
    "repeat_interleave": (torch.repeat_interleave, lambda: (r(4, 3), 2, 0)),
    "tile": (torch.tile, lambda: (r(3, 4), (2, 1))),
    "cat": (lambda x, y: torch.cat([x, y]), lambda: (r(3, 4), r(2, 4))),
    "stack": (lambda x, y: torch.stack([x, y], 1), lambda: (r(3, 4), r(3, 4))),
    "hstack": (lambda x, y: torch.hstack([x, y]), lambda: (r(3, 4), r(3, 2))),
    "split": (lambda x: x.split(2), lambda: (r(5, 4),)),
    "chunk": (lambda x: x.chunk(2, 1), lambda: (r(3, 4),)),
    "unbind": (torch.unbind, lambda: (r(3, 4),)),
    "narrow": (torch.narrow, lambda: (r(5, 4), 0, 1, 3)),
    "squeeze": (torch.squeeze, lambda: (r(3, 1, 4),)),
    "unsqueeze": (torch.unsqueeze, lambda: (r(3, 4), 1)),
    "flip": (torch.flip, lambda: (r(3, 4), (0, 1))),
    "roll": (torch.roll, lambda: (r(3, 4), 1, 0)),
    "roll flat": (torch.roll, lambda: (r(3, 4), 2)),
    "rot90": (torch.rot90, lambda: (r(3, 4),)),
    "tril": (torch.tril, lambda: (r(4, 4),)),
    "triu": (torch.triu, lambda: (r(4, 4), 1)),
    "diag": (torch.diag, lambda: (r(4),)),
    "diag of matrix": (torch.diag, lambda: (r(4, 4),)),
    "diagonal": (torch.diagonal, lambda: (r(4, 4),)),
    "diag_embed": (torch.diag_embed, lambda: (r(3, 4),)),
    "unfold": (lambda x: x.unfold(0, 2, 1), lambda: (r(5, 3),)),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 2)), lambda: (r(8),)),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), lambda: (r(3), r(4))),
    "cartesian_prod": (torch.cartesian_prod, lambda: (r(3), r(2))),
    "block_diag": (torch.block_diag, lambda: (r(2, 3), r(1, 2))),
    "broadcast_to": (lambda x: x.broadcast_to(2, 3, 4), lambda: (r(3, 4),)),
    "zeros_like": (torch.zeros_like, lambda: (r(3, 4),)),
    "full_like": (lambda x: torch.full_like(x, 2.0) + x, lambda: (r(3, 4),)),
    "new_zeros": (lambda x: x.new_zeros(3) + x, lambda: (r(2, 3),)),
    "eye_plus": (lambda x: torch.eye(3) + x, lambda: (r(3, 3),)),
    "clone_strided": (lambda x: x.t().contiguous().view(-1), lambda: (r(3, 4),)),
    "to": (lambda x: x.to(torch.float64), lambda: (r(3, 4),)),
    "pad": (lambda x: F.pad(x, (1, 2)), lambda: (r(3, 4),)),
    "pad reflect": (lambda x: F.pad(x, (1, 2), "reflect"), lambda: (r(2, 5),)),
    "pad replicate": (lambda x: F.pad(x, (1, 1, 1, 1), "replicate"), lambda: (r(2, 4, 4),)),
    "pad circular": (lambda x: F.pad(x, (1, 1), "circular"), lambda: (r(2, 4),)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), lambda: (r(4, 2, 3),)),
    "view_as_complex": (torch.view_as_complex, lambda: (r(3, 2),)),
    "combinations": (torch.combinations, lambda: (r(4),)),
    "vander": (torch.vander, lambda: (r(4),)),
}

PRODUCTS: dict[str, Row] = {
    "matmul": (torch.matmul, lambda: (r(3, 4), r(4, 2))),
    "matmul 1d": (torch.matmul, lambda: (r(4), r(4, 2))),
    "matmul 3d": (torch.matmul, lambda: (r(2, 3, 4), r(4, 2))),
    "mm": (torch.mm, lambda: (r(3, 4), r(4, 2))),
    "mv": (torch.mv, lambda: (r(3, 4), r(4))),
    "bmm": (torch.bmm, lambda: (r(2, 3, 4), r(2, 4, 3))),
    "dot": (torch.dot, lambda: (r(4), r(4))),
    "outer": (torch.outer, lambda: (r(3), r(4))),
    "addmm": (torch.addmm, lambda: (r(2), r(3, 4), r(4, 2))),
    "addmv": (torch.addmv, lambda: (r(3), r(3, 4), r(4))),
    "baddbmm": (torch.baddbmm, lambda: (r(2, 3, 3), r(2, 3, 4), r(2, 4, 3))),
    "addr": (torch.addr, lambda: (r(3, 4), r(3), r(4))),
    "linear": (F.linear, lambda: (r(3, 4), r(2, 4), r(2))),
    "linear vector": (F.linear, lambda: (r(4), r(2, 4), r(2))),
    "bilinear": (F.bilinear, lambda: (r(3, 4), r(3, 5), r(2, 4, 5), r(2))),
    "einsum": (lambda x, y: torch.einsum("ij,jk->ik", x, y), lambda: (r(3, 4), r(4, 2))),
    "tensordot": (lambda x, y: torch.tensordot(x, y, 1), lambda: (r(3, 4), r(4, 2))),
    "kron": (torch.kron, lambda: (r(2, 3), r(3, 2))),
    "cross": (torch.linalg.cross, lambda: (r(4, 3), r(4, 3))),
    "cdist": (torch.cdist, lambda: (r(3, 4), r(5, 4))),
    "cosine_similarity": (F.cosine_similarity, lambda: (r(3, 4), r(3, 4))),
    "pairwise_distance": (F.pairwise_distance, lambda: (r(3, 4), r(3, 4))),
    "normalize": (F.normalize, lambda: (r(3, 4),)),
    "attention": (F.scaled_dot_product_attention, lambda: (r(2, 5, 4), r(2, 6, 4), r(2, 6, 4))),
    "attention 4d": (F.scaled_dot_product_attention, lambda: (r(1, 2, 5, 4), r(1, 2, 6, 4), r(1, 2, 6, 4))),
    "attention causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda: (r(2, 5, 4),) * 3,
    ),
    "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + 4 * torch.eye(3)), lambda: (r(3, 3),)),
    "inv": (lambda x: torch.linalg.inv(x + 4 * torch.eye(3)), lambda: (r(3, 3),)),
    "solve": (lambda x, y: torch.linalg.solve(x + 4 * torch.eye(3), y), lambda: (r(3, 3), r(3, 2))),
    "det": (torch.linalg.det, lambda: (r(3, 3),)),
    "slogdet": (torch.linalg.slogdet, lambda: (r(3, 3),)),
    "eigh": (lambda x: torch.linalg.eigvalsh(x + x.mT), lambda: (r(3, 3),)),
    "svdvals": (torch.linalg.svdvals, lambda: (r(3, 4),)),
    "qr": (torch.linalg.qr, lambda: (r(4, 3),)),
    "pinv": (torch.linalg.pinv, lambda: (r(4, 3),)),
    "matrix_power": (lambda x: torch.matrix_power(x, 3), lambda: (r(3, 3),)),
    "matrix_exp": (torch.matrix_exp, lambda: (r(3, 3),)),
    "triangular": (
        lambda x, y: torch.linalg.solve_triangular(x.tril() + 4 * torch.eye(3), y, upper=False),
        lambda: (r(3, 3), r(3, 2)),
    ),
    "multi_dot": (lambda x, y, z: torch.linalg.multi_dot([x, y, z]), lambda: (r(2, 3), r(3, 4), r(4, 2))),
    "fft": (lambda x: torch.fft.fft(x).abs(), lambda: (r(3, 4),)),
    "rfft": (lambda x: torch.view_as_real(torch.fft.rfft(x)), lambda: (r(3, 4),)),
    "irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x)), lambda: (r(3, 4),)),
}

LAYERS: dict[str, Row] = {
    "layer_norm": (lambda x, w, c: F.layer_norm(x, (4,), w, c), lambda: (r(3, 4), r(4), r(4))),
    "layer_norm plain": (lambda x: F.layer_norm(x, (3, 4)), lambda: (r(2, 3, 4),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), lambda: (r(3, 4), r(4))),
    "group_norm": (lambda x, w, c: F.group_norm(x, 2, w, c), lambda: (r(3, 4, 5), r(4), r(4))),
    "instance_norm": (lambda x: F.instance_norm(x), lambda: (r(3, 4, 5),)),
    "batch_norm eval": (lambda x, m, v, w, c: F.batch_norm(x, m, v, w, c), lambda: (r(3, 4), r(4), p(4), r(4), r(4))),
    "batch_norm training": (
        lambda x, w, c: F.batch_norm(x, None, None, w, c, training=True),
        lambda: (r(3, 4), r(4), r(4)),
    ),
    "local_response_norm": (lambda x: F.local_response_norm(x, 2), lambda: (r(2, 4, 5),)),
    "conv1d": (F.conv1d, lambda: (r(2, 3, 6), r(4, 3, 3), r(4))),
    "conv2d": (F.conv2d, lambda: (r(1, 3, 6, 6), r(4, 3, 3, 3), r(4))),
    "conv2d unbatched": (F.conv2d, lambda: (r(3, 6, 6), r(4, 3, 3, 3), r(4))),
    "conv2d groups": (
        lambda x, w: F.conv2d(x, w, groups=2, stride=2, padding=1),
        lambda: (r(2, 4, 6, 6), r(4, 2, 3, 3)),
    ),
    "conv3d": (F.conv3d, lambda: (r(1, 2, 4, 4, 4), r(3, 2, 2, 2, 2))),
    "conv_transpose1d": (F.conv_transpose1d, lambda: (r(2, 3, 5), r(3, 4, 3), r(4))),
    "conv_transpose2d": (F.conv_transpose2d, lambda: (r(2, 3, 5, 5), r(3, 4, 3, 3), r(4))),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), lambda: (r(2, 3, 6),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), lambda: (r(2, 3, 6, 6),)),
    "max_pool2d unbatched": (lambda x: F.max_pool2d(x, 2), lambda: (r(3, 6, 6),)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), lambda: (r(1, 2, 4, 4, 4),)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), lambda: (r(2, 3, 6),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), lambda: (r(2, 3, 6, 6),)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), lambda: (r(1, 2, 4, 4, 4),)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 2), lambda: (r(2, 3, 6),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 2), lambda: (r(2, 3, 5, 5),)),
    "adaptive_avg_pool2d 1": (lambda x: F.adaptive_avg_pool2d(x, 1), lambda: (r(2, 3, 5, 5),)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), lambda: (r(2, 3, 5, 5),)),
    "interpolate nearest": (lambda x: F.interpolate(x, scale_factor=2), lambda: (r(2, 3, 4, 4),)),
    "interpolate bilinear": (lambda x: F.interpolate(x, size=(6, 6), mode="bilinear"), lambda: (r(2, 3, 4, 4),)),
    "interpolate bicubic": (lambda x: F.interpolate(x, size=(6, 6), mode="bicubic"), lambda: (r(2, 3, 4, 4),)),
    "interpolate linear": (lambda x: F.interpolate(x, size=6, mode="linear"), lambda: (r(2, 3, 4),)),
    "unfold layer": (lambda x: F.unfold(x, 2), lambda: (r(1, 3, 4, 4),)),
    "fold": (lambda x: F.fold(x, (4, 4), 2), lambda: (r(1, 12, 9),)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), lambda: (r(2, 3, 4, 4), r(2, 5, 5, 2))),
    "affine_grid": (lambda t: F.affine_grid(t, (2, 3, 4, 4), align_corners=False), lambda: (r(2, 2, 3),)),
    "glu": (F.glu, lambda: (r(3, 4),)),
    "prelu": (F.prelu, lambda: (r(3, 4), p(1))),
    "prelu channels": (F.prelu, lambda: (r(3, 4), p(4))),
    "threshold": (lambda x: F.threshold(x, 0.1, 2.0), lambda: (r(3, 4),)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), lambda: (r(3, 4),)),
    "clamp tensor": (torch.clamp, lambda: (r(3, 4), r(4) - 2, r(4) + 2)),
    "lerp": (torch.lerp, lambda: (r(3, 4), r(3, 4), p(4))),
    "addcmul": (torch.addcmul, lambda: (r(3, 4), r(3, 4), r(4))),
    "addcdiv": (torch.addcdiv, lambda: (r(3, 4), r(3, 4), p(4))),
    "polygamma": (lambda x: torch.polygamma(1, x), lambda: (p(3, 4),)),
    "multi_head": (
        lambda x, w, v: F.multi_head_attention_forward(
            x, x, x, 4, 2, w, None, None, None, False, 0.0, v, None, need_weights=False
        )[0],
        lambda: (r(3, 2, 4), r(12, 4), r(4, 4)),
    ),
}

LOSSES: dict[str, Row] = {
    "cross_entropy": (F.cross_entropy, lambda: (r(3, 4), i(4, 3))),
    "cross_entropy one": (F.cross_entropy, lambda: (r(4), i(4))),
    "cross_entropy weight": (lambda x, y, w: F.cross_entropy(x, y, w), lambda: (r(3, 4), i(4, 3), p(4))),
    "cross_entropy ignore": (lambda x, y: F.cross_entropy(x, y, ignore_index=1), lambda: (r(6, 4), i(4, 6))),
    "cross_entropy none": (lambda x, y: F.cross_entropy(x, y, reduction="none"), lambda: (r(3, 4), i(4, 3))),
    "cross_entropy sum": (lambda x, y: F.cross_entropy(x, y, reduction="sum"), lambda: (r(3, 4), i(4, 3))),
    "cross_entropy smooth": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), lambda: (r(3, 4), i(4, 3))),
    "cross_entropy image": (F.cross_entropy, lambda: (r(2, 4, 3, 3), i(4, 2, 3, 3))),
    "cross_entropy probabilities": (lambda x, y: F.cross_entropy(x, y.softmax(-1)), lambda: (r(3, 4), r(3, 4))),
    "nll_loss": (F.nll_loss, lambda: (r(3, 4), i(4, 3))),
    "mse_loss": (F.mse_loss, lambda: (r(3, 4), r(3, 4))),
    "l1_loss": (F.l1_loss, lambda: (r(3, 4), r(3, 4))),
    "smooth_l1_loss": (F.smooth_l1_loss, lambda: (r(3, 4), r(3, 4))),
    "huber_loss": (F.huber_loss, lambda: (r(3, 4), r(3, 4))),
    "binary_cross_entropy": (F.binary_cross_entropy, lambda: (p(3, 4), p(3, 4))),
    "binary_cross_entropy weight": (F.binary_cross_entropy, lambda: (p(3, 4), p(3, 4), p(4))),
    "bce_with_logits": (F.binary_cross_entropy_with_logits, lambda: (r(3, 4), p(3, 4))),
    "kl_div": (
        lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        lambda: (r(3, 4), r(3, 4)),
    ),
    "cosine_embedding_loss": (
        lambda x, y, t: F.cosine_embedding_loss(x, y, t * 2 - 1),
        lambda: (r(3, 4), r(3, 4), i(2, 3)),
    ),
    "hinge_embedding_loss": (lambda x, t: F.hinge_embedding_loss(x, t * 2 - 1), lambda: (r(3, 4), i(2, 3, 4))),
    "margin_ranking_loss": (lambda x, y, t: F.margin_ranking_loss(x, y, t * 2 - 1), lambda: (r(3), r(3), i(2, 3))),
    "soft_margin_loss": (lambda x, t: F.soft_margin_loss(x, t * 2 - 1), lambda: (r(3, 4), i(2, 3, 4))),
    "triplet_margin_loss": (F.triplet_margin_loss, lambda: (r(3, 4), r(3, 4), r(3, 4))),
    "multi_margin_loss": (F.multi_margin_loss, lambda: (r(3, 4), i(4, 3))),
    "poisson_nll_loss": (F.poisson_nll_loss, lambda: (r(3, 4), p(3, 4))),
    "gaussian_nll_loss": (F.gaussian_nll_loss, lambda: (r(3, 4), r(3, 4), p(3, 4))),
}

ROWS: dict[str, Row] = POINTWISE | BINARY | REDUCTIONS | PLACES | SHAPES | PRODUCTS | LAYERS | LOSSES
