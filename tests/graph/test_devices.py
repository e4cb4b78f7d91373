"""Calls of tensors that lie on several devices, as fakes: what eager refuses is left to it."""

import pytest
import torch

from pliant.graph.fake_mode import FakeMode
from pliant.graph.unsupported import UnsupportedOperator
from pliant.symbolic.shape_env import ShapeEnv

aten = torch.ops.aten
CPU, GPU, OTHER = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)
TAKES_BOTH = {
    "copies": lambda x, host, number: aten.copy_(x, host[:1]),
    "indices": lambda x, host, number: aten.index(x, [host]),
    "stores": lambda x, host, number: aten.index_put(x, [host], number),
    "numbers": lambda x, host, number: x * number,
    "filled": lambda x, host, number: aten.masked_fill(x, x > 0, number),
    "lists": lambda x, host, number: aten._foreach_add([x, host], 1),
}
REFUSES = {
    "sums": lambda x, host, other: x + host,
    "gathers": lambda x, host, other: aten.gather(x, 0, host),
    "fills": lambda x, host, other: aten.index_fill_(x, 0, host, 0.5),
    "joins": lambda x, host, other: aten.cat([x, other]),
    "out": lambda x, host, other: torch.mul(x, 2, out=aten.empty([0], device=CPU)),
    "number_out": lambda x, host, other: torch.sum(x, 0, out=aten.empty([], device=CPU)),
    "indices_elsewhere": lambda x, host, other: aten.index(x, [other.long()]),
    "indices_of_host": lambda x, host, other: aten.index(host, [x.long()]),
}


def fakes():
    mode = FakeMode(ShapeEnv())
    return mode, mode.new((4,), (1,), torch.float32, GPU), mode.new((3,), (1,), torch.int64, CPU)


@pytest.mark.parametrize("name", TAKES_BOTH)
def test_taken(name):
    mode, x, host = fakes()
    with mode:
        TAKES_BOTH[name](x, host, mode.new((), (), torch.float32, CPU))


@pytest.mark.parametrize("name", REFUSES)
def test_refused(name):
    mode, x, host = fakes()
    with mode, pytest.raises((UnsupportedOperator, RuntimeError), match="devices"):
        REFUSES[name](x, host, mode.new((4,), (1,), torch.float32, OTHER))
