"""A part of the table of samplers and layers that draw: what it found, and a sample of the rest."""

import random

import pytest
from tests.end_to_end.random_table import difference, rows

import pliant

FOUND = [
    "GRU layers=2",  # dropout between layers of a symbolic length
    "LSTM layers=2 bidirectional batch first",
    "LSTM with projections",
    "torch.poisson(x.t() * 5)",  # laid out in the order of positions
    "torch.rrelu(x.t() - 0.5, training=True)",
    "torch.bernoulli(x.detach().t(), 0.3)",  # drawn in that order, where `bernoulli_` draws in the order of memory
    "torch.bernoulli(x.detach(), out=torch.zeros(4, x.shape[0]).t())",  # as that one
    "torch.zeros(x.shape[0] + 12, 8)[:, ::2].normal_()",  # memory with gaps is filled in another way
    "torch.randn(x.shape[0], 4, out=torch.zeros(4, x.shape[0]).t())",
    "torch.randn(x.shape, out=torch.zeros(x.shape[0], 4, dtype=torch.float64))",  # numbers of that type
]


def sampled():
    short = [name for name in rows() if "(" in name and name not in FOUND]
    return [*FOUND, *random.Random(2).sample(short, 3)]


@pytest.mark.parametrize("name", sampled())
def test_row_is_as_in_eager(name):
    modes = (True,) if name in FOUND else (False, None)
    assert difference(name, rows()[name], modes) is None
    pliant.reset()
