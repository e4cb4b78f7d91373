"""The patterns that `benchmarks.patterns` measures: small functions whose time is memory's, and what makes their inputs.

In:     a pattern, a size, a dtype.
Out:    `INFERENCE` and `TRAINING`, `inputs`, `gradients`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

SIZES = {"tiny": (64, 256), "small": (128, 512), "medium": (1024, 1024), "large": (8192, 2048)}  # rows, columns
Make = Callable[[int, int, torch.dtype], torch.Tensor]


@dataclass(frozen=True)
class Pattern:
    function: Callable[..., Any]
    makers: tuple[Make, ...]
    name: str


INFERENCE: list[Pattern] = []
TRAINING: list[Pattern] = []


def pattern(
    *makers: Make, infer: bool = True, train: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        found = Pattern(function, makers, function.__name__.lstrip("_"))
        INFERENCE.extend([found] * infer)
        TRAINING.extend([found] * train)
        return function

    return add


def table(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(r, c, dtype=dtype)


def row(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(c, dtype=dtype)


def lookups(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, r, (r,))


def labels(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, c, (r,))


def columns(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, c, (r, c))


def mask(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.rand(r, c) > 0.3


def bytes_(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(-128, 128, (r, c), dtype=torch.int8)


def images(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(max(1, r * c // (64 * 1024)), 64, 32, 32, dtype=dtype)


def channels_last(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return images(r, c, dtype).to(memory_format=torch.channels_last)


def channels(r: int, c: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.rand(64, dtype=dtype) + 0.5


def inputs(of: Pattern, size: str, dtype: torch.dtype, training: bool, device: str = "cpu") -> list[torch.Tensor]:
    made = [maker(*SIZES[size], dtype).to(device) for maker in of.makers]
    return [t.requires_grad_() if training and t.is_floating_point() else t for t in made]


def leaves(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in leaves(v)]


def gradients(f: Callable[..., Any], args: list[torch.Tensor], grads: list[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients of what requires one, for gradients of what `f` returns that has one."""
    given = [t for t in leaves(f(*args)) if t.requires_grad]
    return list(torch.autograd.grad(given, [t for t in args if t.requires_grad], grads))


@pattern(table, train=True)
def gelu(a):
    return F.gelu(a)


@pattern(table)
def tanh(a):
    return torch.tanh(a)


@pattern(table, row)
def bias_gelu_tanh(a, b):
    return F.gelu(a + b, approximate="tanh")


@pattern(table, table, train=True)
def gated(a, b):
    return F.silu(a) * b


@pattern(table, train=True)
def softmax(a):
    return torch.softmax(a, -1)


@pattern(table, mask)
def masked_softmax(a, m):
    return torch.softmax((a * 0.125).masked_fill(m, -1e9), -1)


@pattern(table, labels, train=True)
def cross_entropy(a, t):
    return F.cross_entropy(a, t)


@pattern(table, table, row, row, train=True)
def residual_layer_norm(a, r, w, b):
    return F.layer_norm(a + r, a.shape[-1:], w, b)


@pattern(table, row, train=True)
def rms_norm(a, w):
    return a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-6) * w


@pattern(images, channels, channels, train=True)
def group_norm_silu(a, w, b):
    return F.silu(F.group_norm(a, 8, w, b))


@pattern(images, channels, channels, infer=False, train=True)
def batch_norm_relu(a, w, b):
    return F.relu(F.batch_norm(a, None, None, w, b, training=True))


@pattern(channels_last, channels, channels, infer=False, train=True)
def batch_norm_relu_last(a, w, b):
    return F.relu(F.batch_norm(a, None, None, w, b, training=True))


@pattern(images, train=True)
def max_pool(a):
    return F.max_pool2d(F.relu(a), 2)


@pattern(channels_last)
def average_pool(a):
    return F.avg_pool2d(a, 2) * 2


@pattern(table, table)
def transposed_sum(a, b):
    return a.t() + b.reshape(b.shape[1], b.shape[0])


@pattern(table)
def column_moments(a):
    return torch.var_mean(a, 0)


@pattern(table)
def running_sum(a):
    return torch.cumsum(a * 2, -1)


@pattern(table)
def largest(a):
    return torch.softmax(torch.topk(a * 2, 8, -1).values, -1)


@pattern(table, lookups, row, train=True)
def embedding(a, i, p):
    return a[i] + p


@pattern(table, columns, table)
def scatter_add(a, i, b):
    return torch.scatter_add(a, 1, i, b * 2)


@pattern(table, lookups, table)
def index_put(a, i, b):
    return torch.index_put(a, (i,), b * 2, accumulate=True)


@pattern(table)
def to_half_and_back(a):
    return (a.to(torch.float16) * 2).to(a.dtype)


@pattern(bytes_, row)
def from_int8(a, scale):
    return a.to(scale.dtype) * scale


@pattern(table)
def to_int8(a):
    return (a * 20).round().clamp(-128, 127).to(torch.int8)


@pattern(table, table, table, table)
def adam(p, g, m, s):
    m = m * 0.9 + g * 0.1
    s = s * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (s.abs().sqrt() + 1e-8), m, s


@pattern(table, table, row, row)
def foreach_update(p, g, q, h):
    return torch._foreach_add(torch._foreach_mul([p, q], 0.99), [g, h], alpha=-0.01)
