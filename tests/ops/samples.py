"""Inputs worth trying, one row an operator: edges, infinities, empty and non-contiguous tensors, broadcasting.

`ROWS[name]`: (function of tensors, list of argument tuples). Arguments that are dtypes stand for `values(dtype)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
inf, nan = float("inf"), float("nan")
f32, f64, i64, boolean, bf16, f16 = torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.float16

_EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 20.5, -30.0, 1e-3, inf, -inf, nan, 88.0, -104.0]


def values(dtype: torch.dtype) -> torch.Tensor:
    """Fifteen edge values as 3 x 5."""
    if dtype is boolean:
        return torch.tensor([0, 1, 1, 0, 1] * 3, dtype=boolean).view(3, 5)
    if dtype is i64:
        return torch.tensor([0, 1, -1, 2, -2, 3, 7, -7, 64, -65, 100, -3, 5, 1 << 40, -(1 << 40)]).view(3, 5)
    return torch.tensor(_EDGES, dtype=dtype).view(3, 5)


def ramp(*shape: int, dtype: torch.dtype = f32) -> torch.Tensor:
    """Distinct moderate values."""
    n = 1
    for s in shape:
        n *= s
    return ((torch.arange(n) * 37 % 101).to(torch.float64) / 25 - 2).to(dtype).view(shape)


FLOATS = [(f32,), (f64,), (bf16,), (ramp(4, 3).t(),), (torch.empty(0, 3),)]
DENSE = [(f32,), (f64,), (bf16,), (torch.empty(0, 3),)]
ANY = [*FLOATS, (i64,)]
PAIRS = [
    (f32, f32),
    (f32, ramp(5)),
    (f64, f64),
    (bf16, bf16),
    (i64, i64),
    (f32, i64),
    (ramp(3, 1), ramp(1, 4)),
    (ramp(0, 2), ramp(2)),
]
FLOAT_PAIRS = [p for p in PAIRS if i64 not in p]

Row = tuple[Callable[..., Any], list[tuple[Any, ...]]]

_UNARY = (
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sigmoid tanh sin cos tan asin acos atan sinh cosh asinh acosh "
    "atanh erf erfc lgamma reciprocal"
)

ROWS: dict[str, Row] = {
    **{name: (getattr(torch, name), ANY if name != "lgamma" else FLOATS) for name in _UNARY.split()},
    **{
        name: (getattr(torch, name), ANY)
        for name in "floor ceil trunc round abs neg sign square isnan isinf isfinite isposinf isneginf signbit".split()
    },
    **{name: (getattr(torch, name), PAIRS) for name in "add sub mul div eq ne lt le gt ge minimum maximum".split()},
    **{
        name: (getattr(torch, name), FLOAT_PAIRS)
        for name in "atan2 hypot copysign fmin fmax floor_divide remainder fmod pow".split()
    },
    **{
        f"bitwise_{k}": (getattr(torch, f"bitwise_{k}"), [(i64, i64), (boolean, boolean)]) for k in ("and", "or", "xor")
    },
    **{
        f"logical_{k}": (getattr(torch, f"logical_{k}"), [(f32, i64), (boolean, boolean)]) for k in ("and", "or", "xor")
    },
    "shifts": (  # by none of the bits, by all, by fewer than none
        lambda x, y: (x << y, x >> y),
        [(i64, torch.tensor([0, 1, 63, 64, -1])), (values(i64).to(torch.int8), torch.tensor([0, 1, 7, 8, -1], dtype=torch.int8))],
    ),
    "shifts by numbers": (
        lambda x: (x << 3, x >> 3, x >> 100, x << 40, 5 << x),
        [(values(i64).to(dtype),) for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, i64)],
    ),
    "heaviside": (torch.heaviside, [*FLOAT_PAIRS, (i64, i64)]),
    "bitwise_not": (torch.bitwise_not, [(i64,), (boolean,)]),
    "logical_not": (torch.logical_not, [(f32,), (i64,), (boolean,)]),
    "add alpha": (lambda x, y: torch.add(x, y, alpha=2), PAIRS),
    "sub number": (lambda x: x - 3, ANY),
    "rsub": (lambda x: 3 - x, ANY),
    "mul number": (lambda x: x * 2.5, [*ANY, (boolean,)]),
    "add bool": (lambda x, y: x + y, [(boolean, boolean), (boolean, i64), (boolean, f32)]),
    "div modes": (lambda x: (torch.div(x, 3, rounding_mode="floor"), torch.div(x, 3, rounding_mode="trunc")), ANY),
    "remainder number": (lambda x: (x % 3, torch.fmod(x, 3), x // -4), ANY),
    "pow numbers": (lambda x: (x**2, x**3, x**0.5, x**-1, x**-0.5, x**1.7), FLOATS),
    "pow of a number": (lambda x: 2**x, DENSE),
    "logsigmoid": (F.logsigmoid, DENSE),
    "pow integers": (lambda x: (x**2, x**5), [(i64,)]),
    "where": (
        lambda c, x, y: torch.where(c, x, y),
        [(boolean, f32, f32), (boolean, f32, i64), (boolean, ramp(5), ramp(3, 1))],
    ),
    "fill with an element": (
        lambda x, y, n: (torch.fill(x, y.sum()), torch.fill(n, n.sum()), torch.fill(y.double(), y[0, 0]), torch.fill(x, n.sum())),
        [(ramp(3, 4), ramp(3, 4), i64), (ramp(3, 4).bfloat16(), ramp(3, 4), i64)],
    ),
    "masked_fill": (lambda x, m: x.masked_fill(m, -inf), [(f32, boolean), (bf16, boolean)]),
    "clamp": (lambda x: (x.clamp(-1, 2), x.clamp(min=0), x.clamp(max=1.5)), ANY),
    "lerp": (lambda x, y: (torch.lerp(x, y, 0.3), torch.lerp(x, y, 0.7)), [(ramp(3, 4), ramp(3, 4))]),
    "addcmul": (
        lambda x, y: (torch.addcmul(x, y, y, value=0.5), torch.addcdiv(x, y, y, value=2)),
        [(ramp(3, 4), ramp(3, 4))],
    ),
    "casts": (lambda x: (x.to(bf16), x.to(f64), x.bool(), x.to(bf16).float()), [(f32,), (i64,), (bf16,), (boolean,)]),
    "nan_to_num": (torch.nan_to_num, FLOATS),
    **{name: (getattr(torch, name), DENSE) for name in "digamma sinc deg2rad rad2deg".split()},
    "polygamma": (lambda x: (torch.polygamma(0, x), torch.polygamma(1, x)), [(ramp(3, 4),), (ramp(3, 4, dtype=f64),)]),
    "entr": (torch.special.entr, DENSE),
    **{name: (getattr(torch, name), FLOAT_PAIRS) for name in "xlogy logaddexp logaddexp2".split()},
    "xlogy of numbers": (lambda x: (torch.xlogy(x, 2.5), torch.xlogy(2, x), torch.special.xlog1py(x, 0.5)), DENSE),
    "xlog1py": (torch.special.xlog1py, FLOAT_PAIRS),
    "ldexp": (torch.ldexp, [(f32, ramp(5)), (f32, torch.tensor([1, 3, -2, 0, 5]))]),
    # activations
    **{
        name: (getattr(F, name), FLOATS)
        for name in "relu gelu silu mish softplus elu leaky_relu hardtanh hardsigmoid hardswish relu6 celu hardshrink".split()
    },
    "softshrink": (lambda x: F.softshrink(x, 0.75), FLOATS),
    "celu of a slope": (lambda x: F.celu(x, 1.5), DENSE),
    "glu": (lambda x: (F.glu(x, 0), F.glu(x.relu(), 1)), [(ramp(4, 6),), (ramp(2, 80, dtype=bf16),), (ramp(2, 80, 2),)]),
    "glu_backward": (
        lambda g, x: (aten.glu_backward(g, x, 1), aten.glu_backward(g.exp(), x * 2, 1)),
        [(ramp(3, 40), ramp(3, 80)), (ramp(3, 2, 4), ramp(3, 4, 4)), (ramp(3, 2, dtype=f64), ramp(3, 4, dtype=f64))],
    ),
    "logit_backward": (
        lambda g, x: (aten.logit_backward(g, x), aten.logit_backward(g, x, 0.1)),
        [(f32, ramp(3, 5)), (f64, ramp(3, 5, dtype=f64))],
    ),
    "shrink_backward": (
        lambda g, x: (aten.hardshrink_backward(g, x, 0.5), aten.softshrink_backward(g, x, 0.75)),
        [(f32, ramp(3, 5)), (f64, ramp(3, 5, dtype=f64))],
    ),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), FLOATS),
    "threshold": (lambda x: F.threshold(x, 0.1, 20), FLOATS),
    **{
        f"{name}_backward": (
            lambda g, x, op=getattr(aten, f"{name}_backward"), rest=rest: op(g, x, *rest),
            [(f32, f32), (bf16, bf16), (f64, f64)],
        )
        for name, rest in {
            "threshold": (0.5,),
            "gelu": (),
            "silu": (),
            "sigmoid": (),
            "tanh": (),
            "leaky_relu": (0.1, False),
            "hardtanh": (-1, 1),
            "hardsigmoid": (),
            "hardswish": (),
            "softplus": (1, 20),
        }.items()
    },
    "gelu_backward tanh": (
        lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
        [(ramp(3, 4), ramp(3, 4)), (bf16, bf16)],
    ),
    "elu_backward": (lambda g, x: aten.elu_backward(g, 1.5, 1, 1, False, x), [(f32, f32)]),
    # made from nothing
    "full": (lambda x: x + torch.full((5,), 2.5) + torch.zeros_like(x), [(f32,)]),
    "arange": (lambda x: x + torch.arange(5) * torch.arange(0, 2.5, 0.5), [(f32,)]),
    "tril": (lambda x: (x.tril(), x.triu(1), x.tril(-1)), [(f32,), (i64,), (ramp(2, 3, 4),)]),
    # views
    "transpose": (lambda x: (x.t() * 2, x.permute(1, 0) + 1), [(f32,), (ramp(4, 3).t(),)]),
    "reshape": (
        lambda x: (x.reshape(2, 6) * 2, (x * 2).reshape(-1), (x + 1).t().reshape(6, 2)),
        [(ramp(4, 3),), (ramp(3, 4).t(),)],
    ),
    "reshape groups": (lambda x: (x + 1).view(2, 3, 2, 2).permute(0, 2, 1, 3).reshape(4, 6).exp(), [(ramp(6, 4),)]),
    "slice": (lambda x: (x[1:] * 2, x[:, ::2] + 1, x[-2:, :-1], x[:, 3]), [(f32,), (ramp(3, 5, 2),)]),
    "expand": (lambda x: x.unsqueeze(1).expand(3, 4, 5) * 2, [(ramp(3, 5),)]),
    "squeeze": (lambda x: ((x + 1).squeeze(1), x.squeeze()), [(ramp(3, 1, 4),)]),
    "diagonal": (lambda x: ((x + 1).diagonal(), x.diagonal(1) * 2, x.diagonal(-1)), [(ramp(4, 4),)]),
    "split": (lambda x: [p * 2 for p in (x + 1).split(2, 1)] + list((x * 2).unbind(0)), [(ramp(3, 5),)]),
    "unfold": (lambda x: x.unfold(0, 3, 2) * 2, [(ramp(9),)]),
    "flip roll": (lambda x: (x.flip(0, 1), x.roll(1, 0), x.roll((1, -2), (0, 1))), [(ramp(3, 4),)]),
    # reductions
    "sum": (
        lambda x: (x.sum(), x.sum(0), x.sum((0, 1), keepdim=True)),
        [(ramp(3, 5),), (i64,), (boolean,), (bf16,), (torch.empty(0, 3),)],
    ),
    "nansum": (lambda x: (x.nansum(), x.nansum(1, keepdim=True), x.nansum(0)), [(torch.tensor([[1.0, nan], [2, 3]]),), (bf16,)]),
    "count_nonzero": (
        lambda x: (x.count_nonzero(), x.count_nonzero(1), x.count_nonzero((0, 1))),
        [(f32,), (i64,), (boolean,), (bf16,), (torch.empty(0, 3),)],
    ),
    "mean": (
        lambda x: (x.mean(), x.mean(1, keepdim=True)),
        [(ramp(3, 5),), (ramp(3, 5, dtype=bf16),), (torch.empty(0, 3),)],
    ),
    "amax": (lambda x: (x.amax(1), x.amin(0), x.max(), x.min()), [(f32,), (i64,), (bf16,), (ramp(4, 3).t(),)]),
    "max dim": (lambda x: (*x.max(1), *x.min(0, keepdim=True)), [(f32,), (i64,), (torch.ones(3, 4),)]),
    "argmax": (lambda x: (x.argmax(), x.argmax(1), x.argmin(0)), [(f32,), (i64,), (torch.ones(3, 4),)]),
    "any": (lambda x: (x.any(), x.any(1), x.all(), x.all(0)), [(boolean,), (f32,), (torch.empty(0, 3),)]),
    "prod": (lambda x: (x.prod(), x.prod(1)), [(ramp(3, 5),), (i64,)]),
    "var": (
        lambda x: (x.var(), x.std(1), x.var(0, correction=0), *torch.var_mean(x, 1, keepdim=True)),
        [(ramp(3, 5),), (ramp(3, 5, dtype=f64),)],
    ),
    "var of one": (lambda x: (x.var(1), x.var(0)), [(ramp(3, 1),)]),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), [(ramp(3, 5),), (torch.full((2, 3), -inf),)]),
    "norm": (
        lambda x: (x.norm(), torch.linalg.vector_norm(x, 2, 1), torch.linalg.vector_norm(x, 1, 0)),
        [(ramp(3, 5),)],
    ),
    "softmax": (
        lambda x: (x.softmax(1), x.log_softmax(0)),
        [(ramp(3, 5),), (ramp(3, 5, dtype=bf16),), (torch.empty(0, 3),), (ramp(2, 3, 4),)],
    ),
    "safe softmax": (
        lambda x: aten._safe_softmax(x, 1),
        [(ramp(3, 5),), (torch.full((2, 3), -inf),), (ramp(3, 5, dtype=bf16),)],
    ),
    "softmax_backward": (
        lambda g, y: aten._softmax_backward_data(g, y, 1, y.dtype),
        [(ramp(3, 5), ramp(3, 5).softmax(1))],
    ),
    "log_softmax_backward": (
        lambda g, y: aten._log_softmax_backward_data(g, y, 1, y.dtype),
        [(ramp(3, 5), ramp(3, 5).log_softmax(1))],
    ),
    # normalization
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (5,), w, b),
        [(ramp(3, 5), ramp(5), ramp(5)), (ramp(2, 3, 5), ramp(5), ramp(5))],
    ),
    "layer_norm plain": (lambda x: F.layer_norm(x, x.shape[1:]), [(ramp(3, 4, 2),)]),
    "layer_norm_backward": (
        lambda g, x, w: aten.native_layer_norm_backward(
            g, x, [5], x.mean(1, True), x.std(1, keepdim=True), w, w, [True, True, True]
        ),
        [(ramp(3, 5), ramp(3, 5), ramp(5))],
    ),
    "batch_norm": (
        lambda x, w, m, v: aten._native_batch_norm_legit_functional(x, w, w, m, v.abs(), True, 0.1, 1e-5),
        [(ramp(4, 3), ramp(3), ramp(3), ramp(3)), (ramp(2, 3, 4), ramp(3), ramp(3), ramp(3))],
    ),
    "batch_norm eval": (
        lambda x, w, m, v: F.batch_norm(x, m, v.abs(), w, w, False),
        [(ramp(4, 3), ramp(3), ramp(3), ramp(3)), (ramp(2, 3, 2, 2), ramp(3), ramp(3), ramp(3))],
    ),
    "batch_norm_backward": (
        lambda g, x, w: aten.native_batch_norm_backward(
            g, x, w, None, None, x.mean((0, 2)), x.std((0, 2)), True, 1e-5, [True] * 3
        ),
        [(ramp(2, 3, 4), ramp(2, 3, 4), ramp(3))],
    ),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w, w), [(ramp(2, 4, 3), ramp(4)), (ramp(2, 4, 3, 3), ramp(4))]),
    "mse_loss": (
        lambda x, y: (F.mse_loss(x, y), F.mse_loss(x, y, reduction="none"), F.mse_loss(x, y, reduction="sum")),
        [(ramp(3, 4), ramp(4, 3).t())],
    ),
    "losses by distance": (
        lambda x, y: tuple(
            loss(x, y, reduction=how)
            for loss in (F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss)
            for how in ("none", "mean", "sum")
        ),
        [(ramp(3, 4), ramp(4, 3).t())],
    ),
    "losses by distance of a width": (
        lambda x, y: (F.smooth_l1_loss(x, y, beta=0.25), F.smooth_l1_loss(x, y, beta=0.0), F.huber_loss(x, y, delta=0.25)),
        [(ramp(3, 4), ramp(4, 3).t())],
    ),
    "derivatives of losses by distance": (
        lambda g, x, y: (
            aten.smooth_l1_loss_backward(g, x, y, 1, 0.25),
            aten.huber_loss_backward(g, x, y, 2, 0.25),
            aten.soft_margin_loss_backward(g, x, y, 1),
            aten.mse_loss_backward(g, x, y, 1),
        ),
        [(torch.tensor(0.5), ramp(3, 4), ramp(4, 3).t()), (torch.tensor(0.5), ramp(3, 4), ramp(3, 4))],
    ),
    "binary_cross_entropy_with_logits": (
        lambda x, y, w: (
            F.binary_cross_entropy_with_logits(x, y),
            F.binary_cross_entropy_with_logits(x, y, weight=w, reduction="none"),
            F.binary_cross_entropy_with_logits(x, y, pos_weight=w, reduction="sum"),
        ),
        [(ramp(3, 4), ramp(4, 3).t(), ramp(4).abs())],
    ),
    "binary_cross_entropy_backward": (
        lambda g, x, y, w: (
            aten.binary_cross_entropy_backward(g, x, y, None, 1),
            aten.binary_cross_entropy_backward(g, x, y, w, 2),
        ),
        [(torch.tensor(0.5), ramp(3, 4).sigmoid(), ramp(3, 4), ramp(4)), (torch.tensor(0.5), torch.eye(3), ramp(3, 3), ramp(3))],
    ),
    # positions in tensors
    "embedding": (
        lambda w, i: F.embedding(i, w),
        [(ramp(7, 3), torch.tensor([[1, 6], [0, 1]])), (ramp(7, 3), torch.empty(0, dtype=i64))],
    ),
    "index": (
        lambda x, i: (x[i], x[:, i], x[i, i], x[-i]),
        [(ramp(4, 4), torch.tensor([1, 0, 3])), (ramp(4, 4, 2), torch.tensor([[1], [2]]))],
    ),
    "index apart": (lambda x, i: x[i, :, i], [(ramp(4, 3, 4), torch.tensor([1, 0, -1]))]),
    "gather": (lambda x, i: torch.gather(x, 1, i), [(ramp(3, 4), torch.tensor([[1, 0], [3, 3], [0, 2]]))]),
    "index_select": (lambda x, i: torch.index_select(x, 1, i), [(ramp(3, 4), torch.tensor([1, 3, 3]))]),
    "scatter": (
        lambda x, i: (x.scatter(1, i, 1.5), x.scatter_add(1, i, x)),
        [(ramp(3, 4), torch.tensor([[1, 0], [3, 3], [0, 2]]))],
    ),
    "index_put": (lambda x, i: torch.index_put(x, [i], x[i], accumulate=True), [(ramp(4, 3), torch.tensor([1, 1, 0]))]),
    "cross_entropy": (
        lambda x, t: (
            F.cross_entropy(x, t),
            F.cross_entropy(x, t, reduction="none"),
            F.cross_entropy(x, t, reduction="sum"),
        ),
        [(ramp(3, 5), torch.tensor([4, 0, -100])), (ramp(2, 5, 3), torch.tensor([[4, 0, 1], [1, 2, 3]]))],
    ),
    "cross_entropy with weights": (
        lambda x, t, w: (F.cross_entropy(x, t, w), F.cross_entropy(x, t, w, reduction="none")),
        [
            (ramp(3, 5), torch.tensor([4, 0, -100]), ramp(5).abs()),
            (ramp(2, 3, 2, 2), torch.tensor([[[0, 2], [1, -100]], [[1, 1], [0, 2]]]), ramp(3).abs()),
        ],
    ),
    "cross_entropy of images": (
        lambda x, t: (F.cross_entropy(x, t), F.cross_entropy(x, t, reduction="none")),
        [(ramp(2, 3, 2, 2), torch.tensor([[[0, 2], [1, -100]], [[1, 1], [0, 2]]]))],
    ),
    "derivatives of cross-entropy with weights": (
        lambda g, x, t, w: (
            aten.nll_loss2d_backward(g, x, t, w, 1, -100, torch.tensor(2.0)),
            aten.nll_loss2d_backward(g.expand(2, 2, 2), x, t, None, 0, -100, torch.tensor(2.0)),
        ),
        [(torch.tensor(0.5), ramp(2, 3, 2, 2), torch.tensor([[[0, 2], [1, -100]], [[1, 1], [0, 2]]]), ramp(3))],
    ),
    "nll_loss_backward": (
        lambda g, x, t: aten.nll_loss_backward(g, x, t, None, 1, -100, torch.tensor(2.0)),
        [(torch.tensor(0.5), ramp(3, 5), torch.tensor([4, 0, -100]))],
    ),
    # joining
    "cat": (
        lambda x, y: (torch.cat([x, y], 1), torch.cat([x * 2, y + 1, x], 1)),
        [(ramp(3, 4), ramp(3, 2)), (ramp(3, 0), ramp(3, 2))],
    ),
    "cat dtypes": (lambda x, y: torch.cat([x, y]), [(f32, i64), (bf16, f32)]),
    "stack": (lambda x, y: (torch.stack([x, y], 1), torch.stack([x * 2, y], -1)), [(ramp(3, 4), ramp(3, 4))]),
    "pad": (
        lambda x: (F.pad(x, (1, 2, -1, 1), value=3.0), F.pad(x, (0, 1)), F.pad(x, (-1, -1))),
        [(ramp(3, 4),), (i64,)],
    ),
    "slice_scatter": (
        lambda x, y: (x.slice_scatter(y, 1, 1, 3), x.select_scatter(y[:, 0], 1, -1)),
        [(ramp(3, 4), ramp(3, 2))],
    ),
    "repeat": (lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1)), [(ramp(3, 4),), (ramp(1, 4),)]),
    # library calls
    "mm": (lambda x, y: torch.relu(x @ y) + 1, [(ramp(3, 4), ramp(4, 5)), (ramp(4, 3).t(), ramp(4, 5))]),
    "matmul": (torch.matmul, [(ramp(3), ramp(3, 5)), (ramp(2, 3, 4), ramp(4, 5)), (ramp(3, 4), ramp(4))]),
    "addmm": (lambda b, x, y: torch.addmm(b, x * 2, y), [(ramp(5), ramp(3, 4), ramp(4, 5))]),
    "bmm": (lambda x, y: torch.bmm(x, y.transpose(1, 2)), [(ramp(2, 3, 4), ramp(2, 5, 4))]),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1).relu(), [(ramp(2, 3, 6, 6), ramp(4, 3, 3, 3))]),
    "max pool": (
        lambda x: (
            F.max_pool2d(x, 2),
            *F.max_pool2d(x.sin(), 3, 2, 1, return_indices=True),
            *F.max_pool2d(x, (2, 3), (3, 1), (1, 0), ceil_mode=True, return_indices=True),
            F.max_pool2d(x, 2, dilation=2),
            F.max_pool2d(x, 5, 1),
        ),
        [(ramp(2, 3, 6, 6),), (ramp(3, 7, 5).bfloat16(),), (ramp(2, 4, 5, 6).to(memory_format=torch.channels_last),)],
    ),
    "larger images": (
        lambda x: (
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, scale_factor=(3, 1)),
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x.sin(), scale_factor=(4, 2), mode="bilinear"),
            F.interpolate(x, size=(5, 9), mode="bilinear"),
        ),
        [(ramp(2, 3, 6, 8),), (ramp(1, 2, 3, 20).bfloat16(),), (ramp(2, 4, 5, 6).to(memory_format=torch.channels_last),)],
    ),
    "gradients of larger images": (
        lambda g: (
            aten.upsample_nearest2d_backward(g, [8, 24], [2, 3, 4, 8], 2.0, 3.0),
            aten.upsample_bilinear2d_backward(g, [8, 24], [2, 3, 2, 12], False, 4.0, 2.0),
            aten.avg_pool2d_backward(g, g.new_zeros(2, 3, 8, 24), [3, 3], [1, 1], [1, 1], False, True, None),
            aten.avg_pool2d_backward(g, g.new_zeros(2, 3, 16, 48), [3, 2], [2, 2], [1, 0], False, True, None),
        ),
        [(ramp(2, 3, 8, 24),), (ramp(2, 3, 8, 24).bfloat16(),)],
    ),
    "shuffled channels": (
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2)),
        [(ramp(2, 8, 4, 6),), (ramp(1, 4, 2, 40),)],
    ),
    "prelu": (lambda x, w: F.prelu(x, w), [(ramp(2, 3, 4), ramp(3)), (ramp(2, 3, 4), ramp(1))]),
    "average pool": (
        lambda x: (
            F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, (2, 3), (3, 1), (1, 0), divisor_override=-4, ceil_mode=True),
            F.avg_pool2d(x, 2, 3, 1, ceil_mode=True),
            F.avg_pool2d(x, 2, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 5, 1),
        ),
        [
            (ramp(2, 3, 6, 8),),
            (ramp(3, 7, 5).bfloat16(),),
            (ramp(2, 4, 5, 6).to(memory_format=torch.channels_last),),
            (ramp(3, 7, 5).double().transpose(1, 2),),
        ],
    ),
    "running sums": (
        lambda x: ((x * 2).cumsum(-1), x.flip(-1).cumprod(-1)), [(ramp(3, 40),), (ramp(2, 2, 320),), (ramp(7),)]),
    "sort": (lambda x: (*x.sort(1), x.cumsum(0), *x.topk(2)), [(ramp(3, 5),)]),
    "complex": (lambda x: torch.view_as_real(torch.view_as_complex(x) * 2), [(ramp(3, 2),)]),
}
