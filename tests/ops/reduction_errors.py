"""Errors of reductions against float64 beside eager's: `python -m tests.ops.reduction_errors [name ...]`.

In:     `REDUCTIONS`: programs of a matrix; `SHAPES`: rows long and short, many and few.
Out:    `worse`: the results, forward and backward, of which the error is over `ALLOWED` times eager's and over `FLOOR`.
Holds:  an error is the largest of any element, by the largest element, the worst of some seeds: one sum may be exact by chance.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

import pliant

ALLOWED, FLOOR = 2, 2.0**-22  # times eager's own error; two units in the last place of float32 are roundings of the result
SEEDS = 3
SHAPES = [(1024, 1024), (16, 40000), (40000, 16), (300, 500), (2, 200_001), (17, 2049), (2049, 7)]
Program = Callable[[Tensor], Tensor]


def _labels(x: Tensor) -> Tensor:
    return torch.arange(len(x)) % x.shape[1]


def _weights(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1]).to(x.dtype) / x.shape[1] + 0.5


REDUCTIONS: dict[str, Program] = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(-1),
    "sum of columns": lambda x: x.sum(0),
    "mean": lambda x: (x * x).mean(),
    "mean of rows": lambda x: x.mean(-1),
    "mean of columns": lambda x: x.mean(0),
    "variance": lambda x: torch.var(x),
    "variance of rows": lambda x: torch.var(x + 3, -1),
    "variance of columns": lambda x: torch.var(x, 0),
    "moments of columns": lambda x: torch.cat(torch.var_mean(x, 0)),
    "product of rows": lambda x: torch.prod(1 + x / 1000, -1),
    "product of columns": lambda x: torch.prod(1 + x / 1000, 0),
    "norm": lambda x: x.norm(),
    "norm of columns": lambda x: x.norm(dim=0),
    "norm of rows": lambda x: torch.linalg.vector_norm(x, 3, -1),
    "softmax of rows": lambda x: torch.softmax(x * 3, -1),
    "softmax of columns": lambda x: torch.softmax(x * 3, 0),
    "log-softmax of rows": lambda x: torch.log_softmax(x, -1),
    "log-softmax of columns": lambda x: torch.log_softmax(x, 0),
    "logsumexp of rows": lambda x: torch.logsumexp(x, -1),
    "logsumexp of columns": lambda x: torch.logsumexp(x, 0),
    "cross entropy": lambda x: functional.cross_entropy(x, _labels(x)),
    "cross entropy, sum": lambda x: functional.cross_entropy(x, _labels(x), reduction="sum"),
    "cross entropy, weights": lambda x: functional.cross_entropy(x, _labels(x), _weights(x), label_smoothing=0.1),
    "square error": lambda x: functional.mse_loss(x, x.detach().flip(0)),
    "absolute error": lambda x: functional.l1_loss(x, x.detach().flip(0) + 0.1),
    "huber loss": lambda x: functional.smooth_l1_loss(x, x.detach().flip(0) + 0.1),
    "divergence": lambda x: functional.kl_div(
        torch.log_softmax(x, -1), torch.softmax(x.detach().flip(0), -1), reduction="batchmean"
    ),
    "binary cross entropy": lambda x: functional.binary_cross_entropy_with_logits(x, (x.detach() > 0).to(x.dtype)),
    "gathered": lambda x: x.gather(1, _labels(x)[:, None]).sum(),
    "selected rows": lambda x: x[torch.arange(2 * len(x)) % len(x)].sum(0),
    "masked": lambda x: torch.where(x > 0.5, x, 0).sum(-1) + x.clamp(min=0).mean(),
    "layer norm": lambda x: functional.layer_norm(x * 2 + 1, x.shape[1:], _weights(x), _weights(x)),
    "batch norm": lambda x: functional.batch_norm(x, None, None, _weights(x), _weights(x), training=True),
    "root mean square norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * _weights(x),
    "row of a bias": lambda x: (x + x.sum(0)).sum(-1),
    "cumulative sum": lambda x: torch.cumsum(x, -1),
    "cumulative sum of columns": lambda x: torch.cumsum(x, 0),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, -1),
    "dot": lambda x: (x * x.flip(0)).sum(),
    "trace": lambda x: x.diagonal().sum(),
}


def results(program: Program, x: Tensor) -> list[Tensor]:
    """The value, and the gradient of a tangent."""
    x = x.detach().clone().requires_grad_()
    y = program(x)
    tangent = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).view(y.shape)
    return [y.detach(), torch.autograd.grad(y, x, tangent.to(y.dtype))[0]]


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).abs().max() / exact.abs().max().clamp_min(1e-30))


def worse(program: Program, shape: tuple[int, ...], seeds: int = SEEDS) -> list[str]:
    """What is worse than the rule allows, in words."""
    compiled = pliant.compile(program, dynamic=False)
    ours, eagers = [0.0, 0.0], [0.0, 0.0]
    for seed in range(seeds):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        exact = results(program, x.double())
        for k, (mine, theirs) in enumerate(zip(results(compiled, x), results(program, x), strict=True)):
            ours[k] = max(ours[k], error(mine, exact[k]))
            eagers[k] = max(eagers[k], error(theirs, exact[k]))
    return [
        f"{what} {tuple(shape)}: {mine * 2**23:.2f} units in the last place, eager {theirs * 2**23:.2f}"
        for what, mine, theirs in zip(("value", "gradient"), ours, eagers, strict=True)
        if mine > ALLOWED * theirs and mine > FLOOR
    ]


def main() -> None:
    names = sys.argv[1:] or REDUCTIONS
    for name, shape in itertools.product(names, SHAPES):
        for line in worse(REDUCTIONS[name], shape):
            print(f"{name}: {line}", flush=True)


if __name__ == "__main__":
    main()
