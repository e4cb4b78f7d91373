"""Every sampler of PyTorch at fixed and at symbolic sizes, against eager: numbers, gradients, and the generator's state after.

python -m tests.end_to_end.random_table [--only TEXT]     every row
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import pliant

Program = Callable[[torch.Tensor], Any]

# Of `x: [n, 4]`, between 0.1 and 0.9, which requires grad.
_CALLS = """F.dropout(x, 0.5)|F.dropout(x, 0.0)|F.dropout(x, 1.0)|F.dropout(x * 2, 0.3, inplace=True)|F.dropout(x.t(), 0.5)|F.dropout(x[:, ::2], 0.5)
F.dropout(F.dropout(x, 0.5) * 2, 0.2)|F.dropout(x, 0.5, training=False)|torch.dropout(x, 0.4, True)|torch.native_dropout(x, 0.4, True)
F.alpha_dropout(x, 0.5, True)|F.feature_alpha_dropout(x[None, :, :, None], 0.5, True)|F.dropout1d(x[None], 0.5)|F.dropout2d(x[None, :, :, None], 0.5)
F.dropout3d(x[None, :, :, None, None], 0.5)|F.dropout(x.expand(3, *x.shape), 0.5)|F.dropout(x.bfloat16(), 0.5)|F.dropout(x.double(), 0.5)
torch.rand(x.shape) * x|torch.rand_like(x) * x|torch.randn(x.shape[0], 3)|torch.randn_like(x.t())|torch.randint(0, 9, (x.shape[0],))|torch.randint(9, x.shape)
torch.randint_like(x, 3, 9)|torch.randint_like(x, x.shape[0])|torch.randperm(x.shape[0])|x[torch.randperm(x.shape[0])]|torch.rand(x.shape, dtype=torch.float64)
torch.rand(x.shape, dtype=torch.bfloat16)|torch.randn(x.shape[0], 20)|torch.randn(x.shape[0], 3, dtype=torch.complex64)|torch.rand(())|torch.rand(0, x.shape[0])
torch.bernoulli(x)|torch.bernoulli(x, 0.3)|x.bernoulli(0.3)|torch.empty_like(x).bernoulli_(0.4)|torch.empty_like(x).bernoulli_(x.detach())|torch.bernoulli(x.t())
torch.bernoulli(x.detach().t(), 0.3)
torch.zeros(x.shape[0] + 12, 8)[:, ::2].normal_()|torch.zeros(x.shape[0] + 12, 3)[:, 1].normal_()|torch.bernoulli(x.detach(), out=torch.zeros(4, x.shape[0]).t())
torch.randn(x.shape[0], 4, out=torch.zeros(4, x.shape[0]).t())|torch.randn(x.shape, out=torch.zeros(x.shape[0], 4, dtype=torch.float64))
torch.multinomial(x, 2)|torch.multinomial(x, 9, replacement=True)|torch.multinomial(x.t(), x.shape[0])|torch.multinomial(x[0], 1)|torch.multinomial(x, 4)
torch.normal(x, 1.0)|torch.normal(0.0, x)|torch.normal(x, x)|torch.normal(0.0, 1.0, x.shape)|torch.normal(x.t(), x.t())|torch.poisson(x * 5)|torch.poisson(x.t() * 5)
torch.binomial(torch.full_like(x, 9.0), x)|torch.empty_like(x).exponential_(2.0)|torch.empty_like(x).uniform_(1, 3)|torch.empty_like(x).normal_(1, 2)
torch.empty_like(x).log_normal_()|torch.empty_like(x).cauchy_()|torch.empty_like(x).geometric_(0.3)|torch.empty_like(x).random_()|torch.empty_like(x).random_(9)
torch.empty_like(x).random_(3, 9)|torch.empty(x.shape, dtype=torch.long).random_()|torch.empty(x.shape[::-1]).t().normal_()|x.detach().clone().uniform_()
torch.empty(x.shape, dtype=torch.int8).random_()|torch.zeros(x.shape, dtype=torch.bool).bernoulli_(0.5)|torch.zeros(x.shape[0] + 2, 4)[1:-1].normal_()
F.rrelu(x - 0.5, training=True)|F.rrelu(x - 0.5)|F.rrelu_((x - 0.5) * 1, training=True)|torch.rrelu(x.t() - 0.5, training=True)
F.gumbel_softmax(x)|F.gumbel_softmax(x, hard=True, dim=0)|F.fractional_max_pool2d(x[None, None], 2, output_size=(2, 2))
F.fractional_max_pool3d(x[None, None, None].expand(1, 1, 4, -1, -1), 2, output_size=(2, 2, 2))
F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.3)|F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.3, is_causal=True)
F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], attn_mask=torch.zeros(x.shape[0], x.shape[0]), dropout_p=0.3)
nn.init.xavier_normal_(torch.empty_like(x).detach())|nn.init.kaiming_uniform_(torch.empty_like(x).detach())|nn.init.trunc_normal_(torch.empty_like(x).detach())
nn.init.orthogonal_(torch.empty(x.shape[0], 4))|nn.init.sparse_(torch.empty(x.shape[0], 4), 0.2)|nn.init.dirac_(torch.empty(x.shape[0], 4, 3))
D.Normal(x, 1.0).rsample()|D.Bernoulli(x).sample()|D.Categorical(x).sample((2,))|D.Gamma(x, 1.0).sample()|D.Beta(x, 2.0).sample()|D.Dirichlet(x).sample()
D.Poisson(x).sample()|D.Exponential(x).rsample()|D.Laplace(x, 1.0).rsample()|D.Gumbel(x, 1.0).rsample()|D.Cauchy(x, 1.0).rsample()|D.StudentT(x + 3).sample()
D.Uniform(0, x).rsample()|D.Multinomial(5, x).sample()|D.MultivariateNormal(x, torch.eye(4)).rsample()|D.Geometric(x).sample()|D.HalfNormal(x).rsample()
D.LogNormal(x, 1.0).rsample()|D.Chi2(x).sample()|D.VonMises(x, 1.0).sample()|D.Weibull(x, 1.0).rsample()|D.Pareto(x, 1.0).rsample()|D.Kumaraswamy(x, 1.0).rsample()
D.RelaxedBernoulli(torch.tensor(0.5), x).rsample()|D.RelaxedOneHotCategorical(torch.tensor(0.5), x).rsample()|D.OneHotCategorical(x).sample()
D.Binomial(5, x).sample()|D.NegativeBinomial(5, x).sample()|D.ContinuousBernoulli(x).rsample()
D.LowRankMultivariateNormal(x, torch.ones(4, 2), torch.ones(4)).rsample()
D.Independent(D.Normal(x, 1.0), 1).rsample()|D.FisherSnedecor(x + 2, x + 3).sample()|D.InverseGamma(x, 1.0).sample()
torch._standard_gamma(x)|torch._sample_dirichlet(x)|D.Gamma(x, 1.0).rsample()|D.Beta(x, 2.0).rsample()|D.Dirichlet(x).rsample()|D.Chi2(x).rsample()
D.StudentT(x + 3).rsample()|D.FisherSnedecor(x + 2, x + 3).rsample()|D.InverseGamma(x, 1.0).rsample()"""


class _Packed(nn.Module):
    """A recurrent layer over packed sequences."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = x[:, None].expand(-1, 2, -1)
        packed = nn.utils.rnn.pack_padded_sequence(steps, torch.tensor([5, 3]))
        found: torch.Tensor = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0])[0]
        return found


def _layers() -> dict[str, Program]:
    torch.manual_seed(0)
    found: dict[str, Program] = {}
    for kind, layers, both, first in itertools.product(
        (nn.RNN, nn.LSTM, nn.GRU), (1, 2, 3), (False, True), (False, True)
    ):
        name = f"{kind.__name__} layers={layers}{' bidirectional' * both}{' batch first' * first}"
        layer = kind(4, 6, layers, dropout=0.5 if layers > 1 else 0.0, bidirectional=both, batch_first=first)
        found[name] = lambda x, layer=layer: layer(x[:, None].expand(-1, 3, -1))
        if not first:
            found[f"{name} packed"] = _Packed(layer)
    found["LSTM with projections"] = nn.LSTM(4, 6, 2, dropout=0.5, proj_size=3)
    found["GRU without biases"] = nn.GRU(4, 6, 2, dropout=0.5, bias=False)
    found["RNN of relu"] = nn.RNN(4, 6, 2, dropout=0.5, nonlinearity="relu")
    found["GRU in evaluation"] = nn.GRU(4, 6, 2, dropout=0.5).eval()
    found["encoder layer"] = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3)
    found["attention"] = lambda x, layer=nn.MultiheadAttention(4, 2, dropout=0.3): layer(x, x, x)[0]
    return found


def rows() -> dict[str, Program]:
    torch.manual_seed(0)
    names = {"F": F, "D": torch.distributions, "nn": nn, "torch": torch}
    calls = [one for line in _CALLS.split("\n") for one in line.split("|")]
    return {text: eval(f"lambda x: {text}", names) for text in calls} | _layers()


def drawn(program: Program, size: int) -> list[Any]:
    """What two calls give, their gradients, and the generator's state after."""
    torch.manual_seed(size)
    found: list[Any] = []
    for _ in range(2):
        x = (torch.arange(size * 4).view(size, 4).sin() * 0.4 + 0.5).requires_grad_()
        try:
            results = program(x)
        except Exception as error:
            return [type(error).__name__]
        for one in results if isinstance(results, tuple) else (results,):
            one = one[0] if isinstance(one, tuple) else one
            found += [one.detach(), one.stride()]
            if one.requires_grad:
                found.append(_gradient(one.real.double().square().sum(), x))
    return [*found, torch.get_rng_state()]


def _gradient(loss: torch.Tensor, x: torch.Tensor) -> Any:
    try:
        return torch.autograd.grad(loss, x, allow_unused=True, retain_graph=True)[0]
    except RuntimeError as error:
        return type(error).__name__


def _alike(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one == other)
    return one.dtype == other.dtype and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def difference(name: str, program: Program, modes: tuple[bool | None, ...] = (False, True, None)) -> str | None:
    for dynamic in modes:
        compiled = pliant.compile(program, dynamic=dynamic)
        for size in (5, 7, 5, 9) if dynamic is not False else (5, 5):
            expected, found = drawn(program, size), drawn(compiled, size)
            if len(expected) != len(found) or not all(map(_alike, expected, found)):
                wrong = [n for n, (a, b) in enumerate(zip(expected, found)) if not _alike(a, b)]
                return f"{name} with dynamic={dynamic} at size {size}: {wrong} of {len(expected)} and {len(found)}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="0/1")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    chosen = dict([row for row in rows().items() if options.only in row[0]][part::parts])
    counts, failed = dict.fromkeys(("graph_breaks", "fallbacks"), 0), 0
    for name, program in chosen.items():
        pliant.reset()
        text = difference(name, program)
        for counted in counts:
            counts[counted] += bool(pliant.stats()[counted])
        if text is not None:
            failed += 1
            print(text, flush=True)
    print(f"{len(chosen)} rows, {failed} differ; {counts}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
