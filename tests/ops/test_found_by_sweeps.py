"""The smallest programs behind what the sweeps found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from ops.gradient_check import check, compilers


@pytest.fixture(autouse=True)
def _fresh() -> None:
    pliant.reset()


def _passes(function: Callable[..., Any], *args: Any, whole: bool = True) -> None:
    verdict = check(function, args, {}, *compilers(function, False))
    assert (verdict.status, verdict.fallback) == ("pass", ""), verdict
    assert verdict.whole or not whole, verdict.why


def test_named_results() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    _passes(lambda x: (torch.max(x, 1), torch.sort(x), torch.linalg.slogdet(x @ x.T)), x)
    assert type(pliant.compile(torch.topk)(x, 2)) is torch.return_types.topk


def test_results_that_no_gradient_reaches() -> None:
    x = torch.randn(3, requires_grad=True)
    _passes(lambda x: torch.linalg.vector_norm(x, 0), x)
    norm = pliant.compile(lambda x: torch.linalg.vector_norm(x, 0))(x)
    assert torch.autograd.grad(norm, x, allow_unused=True, create_graph=True) == (None,)


def test_sizes_that_only_the_backward_learns() -> None:
    x, value = torch.randn(2, 4, requires_grad=True), torch.randn((), requires_grad=True)
    mask = torch.tensor([True, False])
    _passes(lambda x, value: x.index_put((mask,), value), x, value)
    _passes(lambda x, value: x.index_fill(1, torch.tensor([0, 0, 2]), value), x, value)


def test_what_resizes_breaks_the_graph() -> None:
    _passes(lambda x: torch.resize_as_(x.clone(), torch.empty(2, 2)) + 1, torch.randn(4), whole=False)


def test_strides_of_results_of_permuted_inputs() -> None:
    x = torch.randn(2, 5, 3).transpose(1, 2).requires_grad_()
    index = torch.zeros(2, 3, 5, dtype=torch.int64)
    _passes(lambda x: (x.softmax(1).view(-1), x.log_softmax(2), x.cumsum(1).view(6, 5)), x)
    _passes(lambda x: (x.scatter_add(1, index, x), x.roll(1, 1), torch.nn.functional.glu(x[..., :4])), x)
    _passes(lambda x: torch.nn.functional.dropout(x, 0.5), x)


def test_compositions_write_into_out() -> None:
    x, out = torch.randn(2, 3), torch.zeros(4, 9)
    _passes(lambda out, x: torch.kron(x, x, out=out) * 2, out, x)
    _passes(lambda x: torch.kron(x, x, out=torch.empty(4, 9)), x)


def test_the_first_call_of_a_lazy_module_runs_eagerly() -> None:
    module = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.ReLU())
    compiled = pliant.compile(module, fullgraph=True)
    x = torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), compiled(x))


def test_rounding_to_what_few_bits_hold() -> None:
    x, scale, zero = torch.randn(2, 3, 4, requires_grad=True), torch.tensor([0.1]), torch.zeros(1)
    every, integers = torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int32)
    _passes(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 1, -8, 7), x)
    _passes(lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, -8, 7), x, scale, zero.int())
    _passes(lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -8, 7), x, every, integers)
    learnt = scale.requires_grad_(), zero.requires_grad_()
    _passes(lambda x, s, z: torch._fake_quantize_learnable_per_tensor_affine(x, s, z, -8, 7, 0.5), x, *learnt)


def test_resizing_to_the_same_size() -> None:
    _passes(lambda x, y: (x.mul_(2).resize_(x.shape), x + y.resize_((3,))), torch.ones(3), torch.ones(3))


@pytest.mark.parametrize("dim", [0, -1])
def test_split_at_places_in_a_tensor(dim: int) -> None:
    def program(x: torch.Tensor, places: torch.Tensor) -> Any:
        return torch.tensor_split(x * 2, places, dim=dim)

    compiled = pliant.compile(program, fullgraph=True)
    for places in ([1, 3], [0, 6], [2, 2], [4, 2], [1, 40]):
        x, at = torch.randn(6, 6), torch.tensor(places)
        torch.testing.assert_close(compiled(x, at), program(x, at))
    assert not pliant.stats()["fallbacks"]


def test_a_derivative_that_takes_no_symbolic_sizes() -> None:
    compiled = pliant.compile(lambda a, b: torch.linalg.lstsq(a, b)[0], dynamic=True)
    for n in (3, 4):
        a, b = torch.randn(n, n) + 4 * torch.eye(n), torch.randn(n, 2)
        mine, theirs = ([one.clone().requires_grad_() for one in (a, b)] for _ in range(2))
        compiled(*mine).sum().backward()
        torch.linalg.lstsq(*theirs)[0].sum().backward()
        for one, other in zip(mine, theirs):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-4)
    assert not pliant.stats()["fallbacks"] and not pliant.stats()["graph_breaks"]


def test_split_into_as_many_parts_as_a_tensor_says() -> None:
    def program(x: torch.Tensor, many: torch.Tensor) -> Any:
        return [*torch.tensor_split(x * 2, many), *x.tensor_split(torch.tensor(2), 1)]

    compiled = pliant.compile(program, fullgraph=True)
    for many, n in ((2, 5), (2, 6), (3, 7), (2, 9)):
        mine, theirs = (torch.ones(n, n, requires_grad=True) for _ in range(2))
        got, want = compiled(mine, torch.tensor(many)), program(theirs, torch.tensor(many))
        torch.testing.assert_close(got, want)
        got[0].sum().backward(), want[0].sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert not pliant.stats()["fallbacks"]


@pytest.mark.spread(2, "which", "correction")
@pytest.mark.parametrize("which", ["fweights", "aweights", "both"])
@pytest.mark.parametrize("correction", [1, 0])
def test_covariance_with_weights(which: str, correction: int) -> None:
    def program(x: torch.Tensor, f: torch.Tensor, a: torch.Tensor) -> Any:
        kwargs = {"fweights": f, "aweights": a} if which == "both" else {which: f if which == "fweights" else a}
        return torch.cov(x, correction=correction, **kwargs)

    compiled = pliant.compile(program, fullgraph=True)
    for n in (4, 6, 7):
        f = torch.arange(n) + 1
        mine, theirs = ([torch.arange(3.0 * n).reshape(3, n).sin().requires_grad_(),
                         torch.linspace(0.5, 1.0, n).requires_grad_()] for _ in range(2))  # fmt: skip
        got, want = compiled(mine[0], f, mine[1]), program(theirs[0], f, theirs[1])
        torch.testing.assert_close(got, want)
        got.sum().backward(), want.sum().backward()
        torch.testing.assert_close([one.grad for one in mine], [one.grad for one in theirs])
    assert not pliant.stats()["fallbacks"]


@pytest.mark.filterwarnings("ignore:cov")
def test_weights_that_are_refused() -> None:
    compiled, x = pliant.compile(lambda x, f: torch.cov(x, fweights=f)), torch.randn(2, 3)
    made_here = pliant.compile(lambda x: torch.cov(x, fweights=torch.tensor([1, -1, 2])))
    torch.testing.assert_close(compiled(x, torch.tensor([1, 2, 3])), torch.cov(x, fweights=torch.tensor([1, 2, 3])))
    single = torch.tensor([0, 1, 0])
    torch.testing.assert_close(compiled(x, single), torch.cov(x, fweights=single), equal_nan=True)
    for weights in ([0, 0, 0], [1, -1, 2]):
        with pytest.raises(RuntimeError, match="weights"):
            compiled(x, torch.tensor(weights))
    with pytest.raises(RuntimeError, match="negative"):
        made_here(x)


def test_distances_take_a_product_where_either_has_many_rows() -> None:
    """Of the other no guard asks how many it has."""
    for first, second in (((2, 30), (5, 30)), ((30, 2), (30, 5)), ((5, 40), (6, 50))):
        compiled = pliant.compile(lambda x, y: torch.cdist(x, y))
        pliant.reset()
        for rows in (first, second, (60, 60), first):
            x, y = (torch.randn(2, n, 4) for n in rows)
            assert torch.equal(compiled(x, y), torch.cdist(x, y))
        assert pliant.stats()["graphs"] <= 3
    pliant.reset()
    for rows in ((2, 30), (5, 31), (24, 32), (40, 33)):
        x, y = (torch.randn(2, n, 4) for n in rows)
        assert torch.equal(compiled(x, y), torch.cdist(x, y))
    assert pliant.stats()["graphs"] == 2
