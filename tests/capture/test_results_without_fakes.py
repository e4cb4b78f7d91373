"""Results that a size, a stride and a dtype do not describe, and questions about memory that a fake has not got: the graph breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant

INDEX = torch.tensor([[0, 1], [1, 0]])


def _sparse(x: torch.Tensor) -> torch.Tensor:
    return torch.sparse_coo_tensor(INDEX, x, (3, 3))


def _quantized(x: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)


def _gradient(x: torch.Tensor) -> torch.Tensor:
    table = x.reshape(2, 1).requires_grad_()
    looked_up = torch.nn.functional.embedding(torch.tensor([0, 1, 0]), table, sparse=True)
    return torch.autograd.grad(looked_up.sum(), table)[0]


def _gathered(x: torch.Tensor) -> torch.Tensor:
    x.requires_grad_()
    return torch.autograd.grad(torch.gather(x, 0, torch.tensor([0, 0]), sparse_grad=True).sum(), x)[0]


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "dense": lambda x: _sparse(x).to_dense(),
    "layout": lambda x: _sparse(x).layout,
    "is_sparse": lambda x: _sparse(x).is_sparse,
    "returned": lambda x: (_sparse(x), _sparse(x) * 2),
    "without elements": lambda x: (x, torch.sparse_coo_tensor((3, 3)).to_dense()),
    "times a matrix": lambda x: _sparse(x) @ torch.ones(3, 2),
    "gradient": lambda x: (_gradient(x).is_sparse, _gradient(x).to_dense()),
    "gradient of a gather": lambda x: (_gathered(x).is_sparse, _gathered(x).to_dense()),
    "quantized": lambda x: (_quantized(x).is_quantized, _quantized(x).dtype),
    "dequantized": lambda x: _quantized(x).clone().dequantize(),
    "scale": lambda x: _quantized(x).q_scale(),
    "shared": lambda x: ((x * 2).share_memory_().is_shared(), x.is_shared()),
    "pickled": lambda x: (x * 2).__reduce_ex__(2)[0].__name__,
}


@pytest.mark.fallbacks_expected  # behind the break, of what is sparse or quantized
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:Sparse", "ignore:torch.quantize")
def test_as_in_eager(name: str) -> None:
    program = PROGRAMS[name]
    compiled = pliant.compile(program)
    for n in (1, 2):
        x = torch.arange(2.0) + n
        found, expected = compiled(x.clone()), program(x.clone())
        assert str(found) == str(expected)
        assert pliant.stats()["graph_breaks"] > 0


def test_memory_that_is_shared_later() -> None:
    compiled = pliant.compile(lambda x: (x + 1, x.is_shared()))
    assert not compiled(torch.ones(2))[1]
    assert compiled(torch.ones(2).share_memory_())[1]
