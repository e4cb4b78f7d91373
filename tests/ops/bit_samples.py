"""Calls of operators for which loops are to have eager's bits, and the values they are tried on.

`CALLS[name]`: a function of three tensors of one dtype. `given(dtype)`: by name, three tensors: pairs of special values and
random ones, flat, along another dimension, broadcast, beside numbers in memory, with gaps between elements. Lengths are no
multiples of a vector, and zeros of unlike sign stand at the end, too: eager's kernels may treat it otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
inf, nan = float("inf"), float("nan")
_SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-3, inf, -inf, nan, 6.0, 2.5, 1e-40, -1e-45, 88.0, -104.0, 0.1, 7.3, -3e4, 6e4,
]  # fmt: skip
_LAST = [(0.0, -0.0), (-0.0, 0.0), (0.0, nan), (nan, -0.0), (-0.0, -0.0), (1.0, -0.0), (-0.0, nan)]
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _floats(dtype: torch.dtype) -> Three:
    g = torch.Generator().manual_seed(0)
    pairs = torch.tensor(list(itertools.product(_SPECIAL, _SPECIAL)), dtype=torch.float64)
    spread = torch.exp(torch.randn(600, 2, generator=g, dtype=torch.float64) * 3)
    drawn = torch.randn(600, 2, generator=g, dtype=torch.float64) * spread
    x, y = torch.cat([pairs, drawn, torch.tensor(_LAST, dtype=torch.float64)]).unbind(1)
    z = torch.randn(len(x), generator=g, dtype=torch.float64) * 2
    z[::13] = torch.tensor(_SPECIAL, dtype=torch.float64).repeat(len(z))[: len(z[::13])]
    return x.to(dtype), y.to(dtype), z.to(dtype)


def _integers(dtype: torch.dtype) -> Three:
    g, info = torch.Generator().manual_seed(0), torch.iinfo(dtype)
    special = [0, 1, 2, 3, 7, 64, 100, info.max, info.min, info.max - 1] + ([] if info.min == 0 else [-1, -2, -3, -100])
    pairs = torch.tensor(list(itertools.product(special, special)), dtype=dtype)
    drawn = torch.randint(max(-120, info.min), 120, (300, 2), generator=g).to(dtype)
    x, y = torch.cat([pairs, drawn]).unbind(1)
    return x.clone(), y.clone(), x.roll(7)


def given(dtype: torch.dtype) -> dict[str, Three]:
    x, y, z = _floats(dtype) if dtype.is_floating_point else _integers(dtype)
    n = len(x) // 8 * 8
    return {
        "flat": (x, y, z),
        "columns": tuple(t[:n].view(8, -1).t() for t in (x, y, z)),  # type: ignore[dict-item]
        "broadcast": (x[:60].view(60, 1), y[:37].clone(), z[:37].view(1, 37).clone()),
        "beside a number": (x, y[3].clone(), z[5].clone()),
        "gaps": tuple(torch.stack([t, t, t], 1)[:, 1] for t in (x, y, z)),  # type: ignore[dict-item]
    }


def _same_shapes(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y, z: f(x, y, z) if x.shape == y.shape == z.shape else x


def _finite(x: torch.Tensor) -> torch.Tensor:
    return x.nan_to_num(1, 1, 1)


_ONE = "sqrt rsqrt reciprocal floor ceil trunc round abs neg sign square frac isnan isinf isfinite logical_not relu deg2rad"
_TWO = (
    "add sub mul div eq ne lt le gt ge minimum maximum fmin copysign floor_divide remainder fmod nextafter hypot logical_and atan2 "
    "true_divide logical_or logical_xor fmax"
)
_DERIVATIVES = {
    **{f"{name} {rest}": (name, rest) for name in ("threshold_backward",) for rest in ((0.5,), (0,))},
    "sigmoid_backward": ("sigmoid_backward", ()),
    "tanh_backward": ("tanh_backward", ()),
    "leaky_relu_backward": ("leaky_relu_backward", (0.1, False)),
    "hardtanh_backward": ("hardtanh_backward", (-1, 1)),
    "hardsigmoid_backward": ("hardsigmoid_backward", ()),
    "hardswish_backward": ("hardswish_backward", ()),
    "silu_backward": ("silu_backward", ()),
    "gelu_backward": ("gelu_backward", ()),
    "logit_backward": ("logit_backward", ()),
    "hardshrink_backward": ("hardshrink_backward", (0.5,)),
    "softshrink_backward": ("softshrink_backward", (0.5,)),
}
FLOATS: dict[str, Callable[..., Any]] = {
    **{name: (lambda x, y, z, f=getattr(torch, name): f(x)) for name in _ONE.split()},
    **{name: (lambda x, y, z, f=getattr(torch, name): f(x, y)) for name in _TWO.split()},
    **{name: _same_shapes(lambda x, y, z, f=getattr(aten, op), rest=rest: f(x, y, *rest)) for name, (op, rest) in _DERIVATIVES.items()},
    "and numbers": lambda x, y, z: (x + 0.1, x - 0.1, 0.1 - x, x * 0.3, x / 0.3, x / 3, 0.3 / x, x + 1001),
    "compared with numbers": lambda x, y, z: (x > 0.1, x == 0.1, x <= 7.3, x != 7.3),
    "division that rounds": lambda x, y, z: (torch.div(x, y, rounding_mode="trunc"), torch.div(x, 0.3, rounding_mode="floor")),
    "times alpha": lambda x, y, z: (torch.add(x, y, alpha=0.3), torch.sub(x, y, alpha=0.3), torch.rsub(x, y, alpha=0.3)),
    "times minus one": lambda x, y, z: (torch.add(x, y, alpha=-1), torch.add(x, 0.7, alpha=0.3), torch.sub(x, y, alpha=-2)),
    "powers": lambda x, y, z: (x**2, x**3, x**0.5, x**-0.5, x**-1, x**-2, x**1, x**0, x**1.7, 2**x, x**y),
    "where": lambda x, y, z: (torch.where(x > y, y, z), torch.where(x > y, 0.1, z), x.masked_fill(x > y, 0.1)),
    "clamp": lambda x, y, z: (x.clamp(-0.1, 2), x.clamp(min=0), x.clamp(max=-0.0), F.relu6(x), F.hardtanh(x)),
    "clamp by tensors": lambda x, y, z: (torch.clamp(x, y, z), torch.clamp_min(x, y), torch.clamp_max(x, y)),
    "addcmul": lambda x, y, z: (torch.addcmul(x, y, z), torch.addcmul(x, y, z, value=0.3)),
    "addcdiv": lambda x, y, z: (torch.addcdiv(x, y, z), torch.addcdiv(x, y, z, value=-0.3)),
    "lerp": lambda x, y, z: (torch.lerp(x, y, 0.1), torch.lerp(x, y, 0.7), torch.lerp(x, y, z)),
    "activations": lambda x, y, z: (F.leaky_relu(x, 0.1), F.hardsigmoid(x), F.hardswish(x), F.threshold(x, 0.1, 20)),
    "shrinking": lambda x, y, z: (F.hardshrink(x), F.softshrink(x, 0.75), torch.nan_to_num(x), torch.rad2deg(x)),
    "smooth activations": lambda x, y, z: (F.silu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.elu(x), F.softplus(x), F.mish(x)),
    "functions": lambda x, y, z: (x.exp(), x.log(), x.tanh(), x.sigmoid(), x.sin(), x.erf(), x.log1p(), x.expm1(), x.lgamma()),
    "prelu": lambda x, y, z: (aten._prelu_kernel(x, y), *aten._prelu_kernel_backward(x, y, z)),
    "dropout": lambda x, y, z: aten.native_dropout_backward(x, y > 0, 1.25),
    "losses": _same_shapes(
        lambda x, y, z: (
            F.mse_loss(x, y, reduction="none"), F.smooth_l1_loss(x, y, reduction="none", beta=0.3), F.mse_loss(x, y),
            aten.mse_loss_backward(x, y, z, 0), aten.mse_loss_backward(x, y, z, 1),
        )
    ),
    "casts": lambda x, y, z: (x.bfloat16(), x.half(), x.float(), x.double(), x.bool(), x.bfloat16().float()),
    "casts to integers": lambda x, y, z: (_finite(x).clamp(-100, 100).long(), _finite(x).clamp(0, 100).byte(), z.int()),
    "fills": lambda x, y, z: (x * torch.full_like(x, 0.1), torch.full_like(x, 0.1) + y, x + torch.ones_like(y)),
    "of several dtypes": lambda x, y, z: (x + y.float(), x * y.float(), x * z.double(), x / (y > z).long(), torch.where(x > y, y.float(), z)),
    "beside integers": lambda x, y, z: (x + (y > z).long() * 1001, x * ((y > z).long() * 1001), x > (y > z).long()),
    "running": lambda x, y, z: [op(_finite(t), d) for op in (torch.cumsum, torch.cumprod) for t in (x, z) for d in (0, -1)],
    "extremes": lambda x, y, z: (x.argmax(0), x.argmin(-1), x.argmax(), x.amax(0), x.amin(), *x.max(0), *z.min(-1)),
    "truths": lambda x, y, z: (x.any(0), x.all(-1), x.any(), x.count_nonzero(0), x.isfinite().all()),
    "sums": lambda x, y, z: (z.sum(0), z.sum(), z.mean(-1), z.softmax(0), z.log_softmax(-1), z.var(0), z.norm(), z.prod(0)),
    "moved": lambda x, y, z: (torch.cat([x, x * 3]), torch.stack([x, x + 1]), x[:5], x.flip(0), x.roll(3, 0)),
    "padded": lambda x, y, z: (F.pad(x * 3, (1, 2), value=0.1), (x + 1).repeat(3, *[1] * (x.dim() - 1))),
    "chain": lambda x, y, z: ((x + y) * z - x / y).relu().mul(0.3).add(0.1).tanh() * x.sqrt() + z.sum(0),
    "written in place": lambda x, y, z: x.clone().mul_(0.9).add_(0.25 * x, alpha=-0.1).clamp_(-5, 5),
}  # fmt: skip
INTEGERS: dict[str, Callable[..., Any]] = {
    **{name: FLOATS[name] for name in "add sub mul eq ne lt le gt ge minimum maximum abs neg sign square relu logical_and".split()},
    "bits": lambda x, y, z: (x & y, x | y, x ^ y, ~x),
    "and numbers": lambda x, y, z: (x + 3, 5 - x, x * 7, x / 3, x * 0.3, x + 0.1),
    "division that rounds": lambda x, y, z: (x // 3, x % 3, torch.fmod(x, 3), torch.div(x, 3, rounding_mode="trunc")),
    "times alpha": lambda x, y, z: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=3), torch.rsub(x, y, alpha=2)),
    "quotients": lambda x, y, z: x / y,
    "powers": lambda x, y, z: (x**2, x**3, x**5),
    "clamp": lambda x, y, z: (x.clamp(2, 50), torch.clamp(x, y, z), x.clamp(max=3)),
    "where": FLOATS["where"],
    "reductions": lambda x, y, z: (x.sum(0), x.sum(), x.prod(0), x.amax(0), x.amin(), *x.max(0), x.argmin(0), x.any(0), x.cumsum(0)),
    "casts": lambda x, y, z: (x.float(), x.double(), x.bfloat16(), x.half(), x.bool(), x.long(), x.to(torch.int8), x.byte()),
}  # fmt: skip


def same_bits(ours: torch.Tensor, eager: torch.Tensor) -> bool:
    """Whether two tensors are the same, zeros' signs too; a NaN is as good as another."""
    if ours.dtype != eager.dtype or ours.shape != eager.shape:
        return False
    if not eager.is_floating_point():
        return torch.equal(ours, eager)
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[eager.element_size()]
    alike = ours.contiguous().view(words) == eager.contiguous().view(words)
    return bool((alike | ours.isnan() & eager.isnan()).all())
