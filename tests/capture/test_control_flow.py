"""Branches and loops on values: the public operators inside compiled functions against plain Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, map, scan, while_loop

import pliant
from pliant.debug import events

WEIGHT = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def cond(x: torch.Tensor) -> Any:
    pair = torch.cond(x.sum() > 0, lambda a: (a @ WEIGHT, a.sin()), lambda a: (a.cos() * 2, WEIGHT.sum() + a), (x,))
    return pair[0] + pair[1]


def plain_cond(x: torch.Tensor) -> Any:
    return x @ WEIGHT + x.sin() if x.sum() > 0 else x.cos() * 2 + (WEIGHT.sum() + x)


def loop(x: torch.Tensor) -> Any:
    def body(i: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, a * 1.1 + WEIGHT.sum()

    return while_loop(lambda i, a: i < x.shape[0], body, (torch.tensor(0), x))[1]


def plain_loop(x: torch.Tensor) -> Any:
    for _ in range(x.shape[0]):
        x = x * 1.1 + WEIGHT.sum()
    return x


def recurrence(h: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    new = torch.tanh(h @ WEIGHT + v)
    return new, new * 2


def scanned(x: torch.Tensor) -> Any:
    last, every = scan(recurrence, WEIGHT[0], x, dim=0)
    return last + every


def plain_scanned(x: torch.Tensor) -> Any:
    h, every = WEIGHT[0], []
    for v in x:
        h, y = recurrence(h, v)
        every.append(y)
    return h + torch.stack(every)


def nested(x: torch.Tensor) -> Any:
    def step(h: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.cond(v.sum() > 0, lambda a: a * 2, lambda a: a.sin(), (h + v,))
        return h, h.clone()

    return scan(step, WEIGHT[1], x, reverse=True)[1]


def plain_nested(x: torch.Tensor) -> Any:
    h, every = WEIGHT[1], []
    for v in reversed(list(x)):
        h = (h + v) * 2 if v.sum() > 0 else (h + v).sin()
        every.append(h)
    return torch.stack(every[::-1])


def mapped(x: torch.Tensor) -> Any:
    return map(lambda v, factor: (v @ WEIGHT) * factor, x, 3.0)


def plain_mapped(x: torch.Tensor) -> Any:
    return torch.stack([(v @ WEIGHT) * 3.0 for v in x])


def products(x: torch.Tensor) -> Any:
    return associative_scan(lambda a, b: a * b, x.exp(), 0, combine_mode="generic")


def plain_products(x: torch.Tensor) -> Any:
    return x.exp().cumprod(0)


PAIRS = [
    (cond, plain_cond), (loop, plain_loop), (scanned, plain_scanned), (nested, plain_nested), (mapped, plain_mapped),
    (products, plain_products),
]  # fmt: skip


def derivatives(function: Callable[..., torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    """The result, its gradients, and the gradient of their size."""
    result = function(x)
    given = [one for one in (x, WEIGHT) if one.requires_grad]
    first = torch.autograd.grad((result**2).sum(), given, create_graph=True, materialize_grads=True)
    size = sum((g**2).sum() for g in first)
    return [result, *first, *torch.autograd.grad(size, given, materialize_grads=True)]


@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
@pytest.mark.parametrize(("function", "plain"), PAIRS)
def test_values_and_gradients(function: Any, plain: Any, backend: str) -> None:
    loaded = set(sys.modules)
    compiled = pliant.compile(function, fullgraph=True, backend=backend)
    for size, sign in ((3, 1), (5, -1), (6, 1)):
        x = (torch.rand(size, 4, dtype=torch.float64) * sign).requires_grad_()
        torch.testing.assert_close(derivatives(compiled, x), derivatives(plain, x))
    assert not [name for name in set(sys.modules) - loaded if name.startswith("torch._dynamo")]


def test_a_predicate_of_python_chooses_when_it_is_known() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.shape[0] > 4, torch.sin, torch.cos, (x,))

    compiled = pliant.compile(function, fullgraph=True, dynamic=True)
    for size in (3, 5, 7):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), x.sin() if size > 4 else x.cos())


def test_only_the_branch_that_is_taken_runs() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.cond(i < 3, lambda a: a.index_select(0, i).squeeze(0), lambda a: a[0] * 0, (x,))

    compiled = pliant.compile(function, fullgraph=True)
    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(x, torch.tensor(2)), x[2])
    torch.testing.assert_close(compiled(x, torch.tensor(7)), x[0] * 0)


def test_random_numbers_of_a_branch_are_those_of_its_backward() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: nn.functional.dropout(a, 0.5) * 3, lambda a: a.cos(), (x,))

    compiled = pliant.compile(function, fullgraph=True)
    x = torch.rand(64).requires_grad_()
    y = compiled(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert 0 < (y == 0).sum() < 64
    torch.testing.assert_close(gradient * x, y)


def test_inference_and_modules() -> None:
    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.mean() > 0, self.one, self.other, (x,))

    model = Router()
    compiled = pliant.compile(model, fullgraph=True)
    for x in (torch.rand(2, 4), -torch.rand(2, 4)):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), (model.one if x.mean() > 0 else model.other)(x))


def test_different_branches_are_refused() -> None:
    compiled = pliant.compile(lambda x: torch.cond(x.sum() > 0, lambda a: a[:1], lambda a: a, (x,)), fullgraph=True)
    with pytest.raises(Exception, match="torch.cond's branches"):
        compiled(torch.randn(3))


def test_bodies_are_compiled_once_for_all_sizes() -> None:
    """Each body with gradients and without; what has a symbolic size outside has one inside."""
    compiled = pliant.compile(loop, fullgraph=True, dynamic=True)
    with events.collect("capture", "recompile", "fallback") as seen:
        for size in (3, 5, 7):
            x = torch.rand(size, 4, dtype=torch.float64).requires_grad_()
            torch.testing.assert_close(derivatives(compiled, x), derivatives(plain_loop, x))
    bodies = [one for one in seen if one.kind == "capture" and one.fields["name"] == "a body of control flow"]
    assert len(bodies) == 3  # the condition has no gradients
    assert not [one for one in seen if one.kind != "capture"]


def rows(f: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.stack([f(v) for v in x])


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        (lambda x: torch.vmap(cond)(x), rows(plain_cond)),
        (lambda x: torch.vmap(scanned)(x), rows(plain_scanned)),
        (lambda x: torch.vmap(loop)(x), rows(plain_loop)),
        (lambda x: torch.func.grad(lambda a: cond(a).sum())(x[0]), lambda x: torch.func.grad(lambda a: plain_cond(a).sum())(x[0])),
    ],
    ids=["vmap of cond", "vmap of scan", "vmap of while_loop", "grad of cond"],
)  # fmt: skip
def test_below_transforms(function: Any, plain: Any) -> None:
    x = torch.rand(2, 3, 4, dtype=torch.float64)
    x[1] -= 1
    torch.testing.assert_close(pliant.compile(function, fullgraph=True)(x), plain(x))


def test_a_body_that_writes_what_it_closes_over_is_refused() -> None:
    norm = nn.BatchNorm1d(4)
    compiled = pliant.compile(lambda x: torch.cond(x.sum() > 0, norm, torch.sin, (x,)), fullgraph=True)
    with pytest.raises(Exception, match="writes what it is given or closes over"):
        compiled(torch.randn(3, 4))


def test_a_loop_without_a_turn() -> None:
    """The engine's zeros have no memory."""

    def function(x: torch.Tensor) -> Any:
        return while_loop(lambda a: a.sum() < 50, lambda a: (a.abs() * 1.5 + 0.1,), (x,))[0]

    def plain(x: torch.Tensor) -> torch.Tensor:
        while x.sum() < 50:
            x = x.abs() * 1.5 + 0.1
        return x

    for start in (-1.0, 60.0):
        x = torch.full((3,), start, dtype=torch.float64).requires_grad_()
        torch.testing.assert_close(derivatives(pliant.compile(function), x)[:2], derivatives(plain, x)[:2])


def put(i: torch.Tensor, a: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a = a.clone()
    a[i] = x[i].cumsum(0) * x[i - 1, 0]
    return i + 1, a


INDEXED = [
    (
        lambda x: while_loop(lambda i, a: i < len(x), lambda i, a: put(i, a, x), (torch.tensor(0), x * 0))[1],
        lambda x: x.cumsum(1) * x.roll(1, 0)[:, :1],
    ),
    (lambda x: map(lambda i: x[i] * x[:, i], torch.arange(4)), lambda x: x[:4] * x.t()[:, :4]),
    (lambda x: torch.cond(x.sum() > 0, lambda a: a[a[:, 0].argmax()], lambda a: a[0], (x,)), lambda x: x[x[:, 0].argmax()]),
    (lambda x: torch.vmap(lambda a, i: a[-i])(x, torch.arange(len(x)) % 4), lambda x: x[range(len(x)), -(torch.arange(len(x)) % 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "plain"), INDEXED, ids=["while_loop", "map", "cond", "vmap"])
def test_numbers_in_tensors_index_inside_bodies(function: Any, plain: Any) -> None:
    compiled = pliant.compile(function, fullgraph=True)
    for size in (4, 4) if function is INDEXED[1][0] else (3, 5):
        x = torch.rand(size, 4, dtype=torch.float64).requires_grad_()
        torch.testing.assert_close(derivatives(compiled, x), derivatives(plain, x))


@pytest.mark.parametrize("training", [False, True])
def test_one_body_serves_all_steps_of_a_scan(training: bool) -> None:
    """Slices of what is scanned lie otherwise than results of steps: what is scanned is brought in order first."""

    def combined(x: torch.Tensor, y: torch.Tensor) -> Any:
        def step(left: Any, right: Any) -> Any:
            return left[0] * right[0], right[0] * left[1] + right[1]

        return associative_scan(step, (x, y), dim=2, combine_mode="generic")[1]

    def plain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = [y[:, :, 0]]
        for i in range(1, x.shape[2]):
            made.append(x[:, :, i] * made[-1] + y[:, :, i])
        return torch.stack(made, 2)

    pliant.reset()
    compiled = pliant.compile(combined)
    recompiled = []
    for size in (2, 3, 4):
        x, y = (torch.rand(size, 5, 4 + size, 3, requires_grad=training) for _ in range(2))
        with events.collect("recompile") as seen:
            ours, eagers = compiled(x, y), plain(x, y)
            torch.testing.assert_close(ours, eagers)
            if training:
                found = [torch.autograd.grad(result.square().sum(), (x, y)) for result in (ours, eagers)]
                torch.testing.assert_close(*found)
        recompiled.append(len(seen))
    assert recompiled == [0, 1, 0]


def test_bodies_in_inference_mode():
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        y.add_(1)
        z = torch.cond(y.sum() > 0, lambda a: a * y, lambda a: a.sin(), (y,))
        return associative_scan(lambda a, b: a * b, z, 0, combine_mode="generic")

    x = torch.rand(3, 4)
    with torch.inference_mode():
        ours = pliant.compile(program, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(ours, (x.exp() + 1).square().cumprod(0))


def test_gradients_of_transposed_scans_lie_as_described() -> None:
    """What follows them was traced for such strides: a view that joins dimensions."""

    def transposed(x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 3, 2).transpose(0, 1)

    def f(x: torch.Tensor) -> Any:
        return associative_scan(lambda a, b: a * b, transposed(x), 2, combine_mode="generic")

    x = torch.linspace(0.1, 1, 12, dtype=torch.float64, requires_grad=True)
    found = []
    for function in (pliant.compile(f, backend="aot_eager"), lambda x: transposed(x).cumprod(2)):
        (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        found.append((first, *torch.autograd.grad(first.square().sum(), x)))
    torch.testing.assert_close(*found)
