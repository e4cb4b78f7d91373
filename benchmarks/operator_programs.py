"""The operators that `benchmarks.patterns --set operators` measures, each alone: pointwise ones, reductions, scans, pads, pools,
resampling, gathers and scatters, searches, losses, and the gradients of those that have one. Which of them are slower than
eager's, or far from a copy's speed, is asked of it before and after a change to loops.

In:     nothing; rows are an operator's name, a function, what makes its inputs.
Out:    `INFERENCE` and `TRAINING`, as in `pattern_programs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.pattern_programs import Make, Pattern, columns, images, labels, lookups, mask, row, table

INFERENCE: list[Pattern] = []
TRAINING: list[Pattern] = []


def add(name: str, function: Callable[..., Any], *makers: Make, train: bool = False) -> None:
    found = Pattern(lambda *args: function(*args), makers or (table,), name)
    INFERENCE.append(found)
    if train:
        TRAINING.append(found)


def positive(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.rand(r, c).mul(0.98).add(0.01).to(dtype)


def inside(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.rand(r, c).mul(1.96).sub(0.98).to(dtype)


def above_one(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.rand(r, c).mul(8).add(1.01).to(dtype)


def integers(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(-100, 100, (r, c), dtype=torch.int32)


def long_row(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(r * c, dtype=dtype)


def edges(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.linspace(-3, 3, 64).to(dtype)


def permutation(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randperm(c)


def signals(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(max(1, r // 16), 16, c, dtype=dtype)


_TRAINED = "sin cos tanh sigmoid exp expm1 exp2 erf erfc atan asinh sinh cosh tan sinc i0 abs square"
for _name in _TRAINED.split():
    add(_name, getattr(torch, _name), train=True)
for _name in "digamma lgamma sqrt rsqrt log log2 log10 log1p reciprocal logit xlogy_ entr_ ndtri_".split():
    _f = getattr(torch, _name, None) or getattr(torch.special, _name[:-1])
    if _name == "xlogy_":
        add("xlogy", torch.xlogy, positive, positive, train=True)
    else:
        add(_name.rstrip("_"), _f, positive, train=True)
for _name in "asin acos atanh erfinv".split():
    add(_name, getattr(torch, _name), inside, train=True)
add("acosh", torch.acosh, above_one, train=True)
for _name in "floor ceil trunc round frac sign neg isnan isinf isfinite signbit deg2rad logical_not nan_to_num".split():
    add(_name, getattr(torch, _name))
for _name in "i0e i1 i1e ndtr log_ndtr erfcx bessel_j0 bessel_j1".split():
    add(_name, getattr(torch.special, _name))
add("polygamma1", lambda a: torch.polygamma(1, a), positive)
add("polygamma2", lambda a: torch.polygamma(2, a), positive)
add("mvlgamma", lambda a: torch.mvlgamma(a + 2, 2), positive)
for _name in "add sub mul div maximum minimum fmin fmax atan2 hypot copysign fmod remainder floor_divide".split():
    add(_name, getattr(torch, _name), table, table, train=_name in ("div", "maximum", "atan2", "hypot"))
for _name in "eq lt nextafter ldexp logaddexp logaddexp2 heaviside".split():
    add(_name, getattr(torch, _name), table, table)
add("pow", torch.pow, positive, positive, train=True)
add("pow_2.5", lambda a: a**2.5, positive, train=True)
add("pow_3", lambda a: a**3, train=True)
add("zeta", torch.special.zeta, above_one, above_one)
add("lerp", lambda a, b: torch.lerp(a, b, 0.3), table, table)
add("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), table, table, table)
add("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), table, table, table)
add("clamp", lambda a: torch.clamp(a, -1, 1), train=True)
add("where", torch.where, mask, table, table, train=True)
add("masked_fill", lambda a, m: a.masked_fill(m, 0.0), table, mask)
for _name in "gcd bitwise_and bitwise_xor bitwise_left_shift".split():
    add(_name, getattr(torch, _name), integers, integers)
add("int_floor_divide", lambda a: a // 7, integers)
add("int_remainder", lambda a: a % 7, integers)

_ACTIVATIONS = (
    "relu relu6 gelu silu mish softplus elu selu celu leaky_relu hardtanh hardsigmoid hardswish logsigmoid tanhshrink "
    "softsign hardshrink softshrink glu"
)
for _name in _ACTIVATIONS.split():
    add(_name, getattr(F, _name), train=True)
add("gelu_tanh", lambda a: F.gelu(a, approximate="tanh"), train=True)
add("prelu", F.prelu, images, lambda r, c, d: torch.rand(64, dtype=d), train=True)

for _dim, _where in ((-1, "rows"), (0, "columns")):
    for _name in "sum mean amax amin prod logsumexp var std norm".split():
        add(f"{_name}_{_where}", lambda a, f=getattr(torch, _name), d=_dim: f(a, dim=d), train=_name != "prod")
    for _name in "argmax argmin any all count_nonzero aminmax_ nansum median_ mode_".split():
        if _name[-1] != "_":
            add(f"{_name}_{_where}", lambda a, f=getattr(torch, _name), d=_dim: f(a, dim=d))
    add(f"max_{_where}", lambda a, d=_dim: torch.max(a, d), train=True)
    for _name in "cumsum cumprod cummax logcumsumexp".split():
        add(f"{_name}_{_where}", lambda a, f=getattr(torch, _name), d=_dim: f(a, d), train=_name == "cumsum")
    for _name in "softmax log_softmax".split():
        add(f"{_name}_{_where}", lambda a, f=getattr(torch, _name), d=_dim: f(a, d), train=True)
    add(f"flip_{_where}", lambda a, d=_dim: a.flip(d), train=True)
    add(f"roll_{_where}", lambda a, d=_dim: a.roll(5, d), train=True)
    add(f"diff_{_where}", lambda a, d=_dim: torch.diff(a, dim=d), train=True)
    add(f"cat_{_where}", lambda a, b, d=_dim: torch.cat([a, b], d), table, table, train=True)
    add(f"topk_{_where}", lambda a, d=_dim: torch.topk(a, 8, d), train=_dim == -1)
add("sum_all", torch.sum)
add("norm_all", torch.linalg.vector_norm, train=True)
add("max_all", torch.max)
add("sort", lambda a: torch.sort(a, -1), train=True)
add("argsort", lambda a: torch.argsort(a, -1))
add("cdist_rows", lambda a: a.renorm(2, 0, 1.0))

add("roll_both", lambda a: a.roll((3, 5), (0, 1)), train=True)
add("repeat", lambda a: a.repeat(2, 3), train=True)
add("tile_rows", lambda a: a.repeat(4, 1), train=True)
add("repeat_interleave", lambda a: a.repeat_interleave(2, -1), train=True)
add("repeat_interleave_rows", lambda a: a.repeat_interleave(2, 0), train=True)
add("stack", lambda a, b: torch.stack([a, b], -1), table, table, train=True)
add("transpose", lambda a: a.t().contiguous(), train=True)
add("tril", torch.tril, train=True)
add("triu", torch.triu)
add("rot90", torch.rot90)
add("unfold", lambda a: a.unfold(1, 16, 8).contiguous(), train=True)
add("slice_step", lambda a: a[:, ::2].contiguous(), train=True)
add("slice_inner", lambda a: a[1:-1, 3:-3].contiguous(), train=True)
add("pixel_shuffle", lambda a: F.pixel_shuffle(a, 2), images, train=True)
add("pixel_unshuffle", lambda a: F.pixel_unshuffle(a, 2), images, train=True)
add("channel_shuffle", lambda a: F.channel_shuffle(a, 4), images)
for _mode in ("constant", "reflect", "replicate", "circular"):
    add(f"pad_{_mode}", lambda a, m=_mode: F.pad(a, (2, 2, 1, 1), mode=m), images, train=True)
    add(f"pad1d_{_mode}", lambda a, m=_mode: F.pad(a, (3, 3), mode=m), signals, train=True)

add("max_pool2", lambda a: F.max_pool2d(a, 2), images, train=True)
add("max_pool3s2", lambda a: F.max_pool2d(a, 3, 2, 1), images, train=True)
add("max_pool3s1", lambda a: F.max_pool2d(a, 3, 1, 1), images, train=True)
add("avg_pool2", lambda a: F.avg_pool2d(a, 2), images, train=True)
add("avg_pool3s1", lambda a: F.avg_pool2d(a, 3, 1, 1), images, train=True)
add("avg_pool3s1_nopad", lambda a: F.avg_pool2d(a, 3, 1, 1, count_include_pad=False), images, train=True)
add("lp_pool", lambda a: F.lp_pool2d(a, 2, 2), images)
add("adaptive_avg1", lambda a: F.adaptive_avg_pool2d(a, 1), images, train=True)
add("adaptive_avg7", lambda a: F.adaptive_avg_pool2d(a, 7), images, train=True)
add("adaptive_avg8", lambda a: F.adaptive_avg_pool2d(a, 8), images, train=True)
add("adaptive_max7", lambda a: F.adaptive_max_pool2d(a, 7), images, train=True)
add("max_pool1d", lambda a: F.max_pool1d(a, 2), signals, train=True)
add("avg_pool1d", lambda a: F.avg_pool1d(a, 2), signals, train=True)
for _mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
    add(f"up_{_mode}", lambda a, m=_mode: F.interpolate(a, scale_factor=2, mode=m), images, train=True)
add("up_linear", lambda a: F.interpolate(a, scale_factor=2, mode="linear"), signals, train=True)
add("down_bilinear", lambda a: F.interpolate(a, scale_factor=0.5, mode="bilinear"), images, train=True)

add("index_rows", lambda a, i: a[i], table, lookups, train=True)
add("index_select_columns", lambda a, i: a.index_select(1, i), table, permutation, train=True)
add("gather_columns", lambda a, i: a.gather(1, i), table, columns, train=True)
add("gather_rows", lambda a, i: a.gather(0, i % a.shape[0]), table, columns, train=True)
add("take", lambda a, i: torch.take(a, i), table, columns, train=True)
add("take_along_dim", lambda a, i: torch.take_along_dim(a, i, 1), table, columns)
add("index_pairs", lambda a, i: a[torch.arange(a.shape[0]), i], table, labels, train=True)
add("scatter", lambda a, i, b: a.scatter(1, i, b), table, columns, table)
add("scatter_value", lambda a, i: a.scatter(1, i, 1.0), table, columns)
add("scatter_add_columns", lambda a, i, b: a.scatter_add(1, i, b), table, columns, table, train=True)
add("scatter_reduce_max", lambda a, i, b: a.scatter_reduce(1, i, b, "amax"), table, columns, table)
add("index_add_rows", lambda a, i, b: a.index_add(0, i, b), table, lookups, table, train=True)
add("index_copy", lambda a, i, b: a.index_copy(1, i, b), table, permutation, table)
add("index_fill", lambda a, i: a.index_fill(0, i, 0.0), table, lookups)
add("one_hot", lambda i: F.one_hot(i % 64, 64), labels)
add("searchsorted", lambda a, e: torch.searchsorted(e, a), table, edges)
add("searchsorted_rows", lambda a: torch.searchsorted(a.sort(-1).values, a))
add("bucketize", lambda a, e: torch.bucketize(a, e), table, edges)
add("histc", lambda a: torch.histc(a.float(), 64, -3, 3))
add("bincount", lambda i: torch.bincount(i, minlength=64), labels)

for _name in "mse_loss l1_loss smooth_l1_loss huber_loss".split():
    add(_name, getattr(F, _name), table, table, train=True)
add("bce", F.binary_cross_entropy, positive, positive, train=True)
add("bce_logits", F.binary_cross_entropy_with_logits, table, positive, train=True)
add("kl_div", lambda a, b: F.kl_div(a, b, reduction="batchmean"), table, positive, train=True)
add("poisson_nll", F.poisson_nll_loss, table, positive, train=True)
add("nll_loss", F.nll_loss, table, labels, train=True)
add("layer_norm", lambda a, w: F.layer_norm(a, a.shape[-1:], w), table, row, train=True)
add("normalize", lambda a: F.normalize(a, dim=-1), train=True)
add("cosine", lambda a, b: F.cosine_similarity(a, b, -1), table, table, train=True)
add("instance_norm", F.instance_norm, images, train=True)
add("local_response", lambda a: F.local_response_norm(a, 5), images, train=True)
add("embedding_bag", lambda i, t: F.embedding_bag(i % t.shape[0], t, mode="sum"), columns, table)
add("to_bf16", lambda a: a.to(torch.bfloat16))
add("to_int32", lambda a: a.to(torch.int32))
add("to_int64", lambda a: a.to(torch.int64))
add("copy", lambda a: a.clone())
add("fill", lambda a: torch.full_like(a, 3.0))
add("arange", lambda a: torch.arange(a.shape[1], dtype=torch.float32) * 0.5, table)
