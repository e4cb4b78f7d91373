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


OVERWRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "mv": lambda a, x: torch.mv(a, x, out=x),
    "mm": lambda a, x: torch.mm(a, a, out=a),
    "matmul": lambda a, x: torch.matmul(a, x, out=x),
    "addmv": lambda a, x: torch.addmv(x, a, x, out=x),
}


@pytest.mark.parametrize("name", OVERWRITES)
def test_products_into_what_they_read_are_left_to_eager(name: str) -> None:
    pliant.reset()
    compiled = pliant.compile(OVERWRITES[name], backend="aot_eager")
    given = torch.arange(1.0, 10).reshape(3, 3), torch.arange(1.0, 4)
    assert _outcome(compiled, *given) == _outcome(OVERWRITES[name], *given)
    assert pliant.stats()["graph_breaks"] == 1


WHOLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "in place": lambda x: torch.cumsum(x, 0, out=x),
    "pointwise": lambda x: torch.add(x, x, out=x),
    "zeros": lambda x: torch.zeros(3, out=x) + 1,
    "ones": lambda x: torch.ones((3,), out=x) + 1,
    "full": lambda x: torch.full((3,), 2, out=x) + 1,
    "arange": lambda x: torch.arange(1, 4, out=x) + 1,
    "linspace": lambda x: torch.linspace(0, 1, 3, out=x) + 1,
    "eye": lambda x: torch.eye(1, 3, out=x.view(1, 3)) + x,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
@pytest.mark.parametrize("name", WHOLE)
def test_given_results_are_part_of_the_graph(name: str, dtype: torch.dtype) -> None:
    compiled = pliant.compile(WHOLE[name], backend="aot_eager", fullgraph=True)
    given = torch.tensor([3, 1, 2], dtype=dtype)
    if name in ("linspace", "in place") and dtype is torch.int32:
        given = given.double()
    assert _outcome(compiled, given) == _outcome(WHOLE[name], given)


@pytest.mark.parametrize("write", [lambda x: x.cumsum_(0), lambda x: x.cumprod_(0), lambda x: x.logical_not().cumsum_(0)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float32])
def test_running_sums_in_place_keep_their_dtype(write: Callable[[torch.Tensor], Any], dtype: torch.dtype) -> None:
    compiled = pliant.compile(write, backend="aot_eager", fullgraph=True)
    given = torch.tensor([1, 0, 1, 1]).to(dtype)
    assert _outcome(compiled, given) == _outcome(write, given)


@pytest.mark.fallbacks_expected
@pytest.mark.parametrize("write", [
    lambda x: x.as_strided((3, 2), (1, 1)).add_(1), lambda x: x.as_strided((3, 2), (1, 1))[0].add_(1),
    lambda x: (x * 1).as_strided((2, 3), (2, 1)).mul_(2),
])  # fmt: skip
def test_views_that_reach_elements_twice(write: Callable[[torch.Tensor], Any]) -> None:
    given = torch.arange(6.0)
    assert _outcome(pliant.compile(write, backend="aot_eager"), given) == _outcome(write, given)


def test_parts_of_numbers_that_are_not_complex_are_no_failure_of_the_compiler() -> None:
    compiled = pliant.compile(lambda x: torch.view_as_real(x)[..., 0])
    with pytest.raises(RuntimeError, match="only supported for complex tensors"):
        compiled(torch.ones(3))
