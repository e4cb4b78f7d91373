"""Results that are written into given tensors (`out=`, in place): where eager refuses a dtype, or memory that is read too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant

CASTS: dict[str, Callable[..., Any]] = {
    "cast": lambda x, wide, places: torch.add(x, 1, out=wide),
    "truth": lambda x, wide, places: torch.eq(x, 1, out=places),
    "not cast": lambda x, wide, places: torch.abs(x, out=wide),
    "to integers": lambda x, wide, places: torch.mul(x, 2, out=places),
    "reduced": lambda x, wide, places: torch.sum(x, 0, out=wide[0]),
    "two results": lambda x, wide, places: torch.cummax(x, 0, out=(wide, places)),
    "composition": lambda x, wide, places: torch.diff(x, out=wide[:2]),
    "gathered": lambda x, wide, places: torch.gather(x, 0, places, out=wide),
    "overload": lambda x, wide, places: torch.ops.aten.abs.out(x, out=wide),
}
READS_ITSELF: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "index_fill_": lambda x, places: places.index_fill_(0, places, 2),
    "scatter_": lambda x, places: x.scatter_(0, places, x),
    "scatter_add_": lambda x, places: places.scatter_add_(0, places, places),
    "scatter_reduce_": lambda x, places: x.scatter_reduce_(0, places, x, "sum"),
    "index_add_": lambda x, places: x.index_add_(0, places, x),
    "index_copy_": lambda x, places: x.index_copy_(0, places, x),
    "index_put_": lambda x, places: places.index_put_((places,), torch.tensor(1)),
    "assignment": lambda x, places: x.__setitem__(places, x),
    "put_": lambda x, places: x.put_(places, x),
    "gather": lambda x, places: torch.gather(x, 0, places, out=x),
    "index_select": lambda x, places: torch.index_select(x, 0, places, out=x),
    "take": lambda x, places: torch.take(x, places, out=x),
    "cat": lambda x, places: torch.cat([x], out=x),
}


def _outcome(function: Callable[..., Any], *given: torch.Tensor) -> tuple[Any, str]:
    given = tuple(one.clone() for one in given)
    try:
        result = str(function(*given))
    except Exception as error:
        result = f"{type(error).__name__}: {str(error).splitlines()[0][:140]}"
    return result, str(given)


@pytest.mark.parametrize("name", CASTS)
def test_dtypes(name: str) -> None:
    compiled = pliant.compile(CASTS[name])
    for _ in range(2):
        given = torch.tensor([1.5, 0.5, 2.5]), torch.zeros(3, dtype=torch.float64), torch.arange(3)
        assert _outcome(compiled, *given) == _outcome(CASTS[name], *given)


@pytest.mark.parametrize("name", READS_ITSELF)
def test_memory_that_is_read_too(name: str) -> None:
    compiled = pliant.compile(READS_ITSELF[name])
    for _ in range(2):
        given = torch.tensor([1.5, 0.5, 2.5]), torch.arange(3)
        expected = _outcome(READS_ITSELF[name], *given)
        assert _outcome(compiled, *given) == expected
        assert "single memory location" in expected[0]


def test_parts_beside_each_other_are_one_graph() -> None:
    def program(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x[:2].index_add_(0, places[:2], x[2:4])
        return x

    compiled = pliant.compile(program, fullgraph=True)
    given = torch.arange(5.0), torch.arange(3)
    assert _outcome(compiled, *given) == _outcome(program, *given)
