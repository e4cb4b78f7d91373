"""Blocks of `torch.inference_mode`, inside and around compiled code: which tensors come out of them."""

import contextlib

import pytest
import torch

import pliant


def block(x):
    with torch.inference_mode():
        y = x * 2
        viewed = x[:1]
    return y, y.is_inference(), viewed.is_inference(), x + 1


def switched_off(x):
    with torch.inference_mode(False):
        y = x * 2
        pliant.graph_break()
        z = y + 1
    return y, z, y.is_inference(), z.requires_grad


def off_without_a_break(x):
    with torch.inference_mode(False):
        y = (x * 2).add_(1)
    return y, x * 3


def off_within(x):
    with torch.inference_mode():
        before = x + 1
        with torch.inference_mode(False):
            y = torch.ones(3) * 2
            pliant.graph_break()
            z = y + 1
        after = z * 2
    return before, y, z, after


def gradients_recorded_again(x):
    with torch.inference_mode():
        with torch.enable_grad():
            y = x * 2
        z = torch.zeros(3)
    return y, z, x.sin()


def leaf_over_a_break(x):
    with torch.inference_mode():
        y = (x * 2).requires_grad_()
        pliant.graph_break()
        z = y + 1
    return y, z, x + 1


def made(kind):
    with torch.inference_mode() if kind == "inference" else contextlib.nullcontext():
        return torch.ones(3, requires_grad=kind == "leaf")


def seen(program, x, mode):
    """What a caller can tell of the results, or the error."""
    try:
        with torch.inference_mode() if mode else contextlib.nullcontext():
            found = program(x)
    except RuntimeError as error:
        return type(error)
    return [
        (t.tolist(), t.is_inference(), t.requires_grad, t.grad_fn is None) if isinstance(t, torch.Tensor) else t
        for t in found
    ]


@pytest.mark.spread(2, "program", "kind", "mode")
@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
@pytest.mark.parametrize("mode", (False, True), ids=("outside", "inside"))
@pytest.mark.parametrize("kind", ("plain", "leaf", "inference"))
@pytest.mark.parametrize(
    "program",
    (block, switched_off, off_without_a_break, off_within, gradients_recorded_again),
    ids=lambda p: p.__name__,
)
def test_inference_tensors(program, kind, mode, backend):
    x = made(kind)
    compiled = pliant.compile(program, backend=backend)
    want = seen(program, x, mode)
    assert seen(compiled, x, mode) == want
    assert seen(compiled, x, mode) == want


@pytest.mark.fallbacks_expected
def test_a_tensor_of_a_block_that_is_told_to_require_gradients_crosses_a_break():
    pliant.reset()
    x = made("leaf")
    assert seen(pliant.compile(leaf_over_a_break, backend="aot_eager"), x, False) == seen(leaf_over_a_break, x, False)
    pliant.reset()


MADE_OF = {
    "product": lambda x: x * 2,
    "view": lambda x: x.view(-1),
    "view of a product": lambda x: (x * 2)[:1].T,
    "copy or view": lambda x: x.reshape(-1),
    "itself": lambda x: x.contiguous(),
    "converted": lambda x: x.double(),
    "written": lambda x: x.add_(1),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "part": lambda x: x.split(1)[0],
    "one of two results": lambda x: torch.max(x, 0)[0],
    "copy that is written": lambda x: x.clone().relu_(),
    "given memory": lambda x: torch.add(x, 1, out=torch.empty(2, 2)),
    "new": lambda x: torch.ones(2),
}


@pytest.mark.parametrize("around", ["", "product", "inference"])
@pytest.mark.parametrize("name", MADE_OF)
def test_what_is_an_inference_tensor_is_known_where_kinds_meet(name, around):
    make = MADE_OF[name]

    def program(x):
        if around == "product":
            x = x * 3
        with torch.inference_mode():
            y = make(x)
            inside = y.is_inference()
        z = make(x.clone())
        return inside, torch.is_inference(y), x.is_inference(), z.is_inference()

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    with torch.inference_mode() if around == "inference" else contextlib.nullcontext():
        for size in (2, 3):
            x = torch.ones(2, size)[:, :2]
            assert compiled(x.clone()) == program(x.clone())


def test_results_of_transforms_are_asked_in_eager():
    def program(x):
        with torch.inference_mode():
            y = torch.func.vmap(lambda row: row * 2)(x)
        return y.is_inference()

    assert pliant.compile(program)(torch.ones(2, 2))


@pytest.mark.parametrize("make", [
    lambda: torch.rand(4, 3).requires_grad_(), lambda: torch.rand(4, 3).requires_grad_() * 2, lambda: torch.rand(4, 3),
    lambda: (torch.rand(5, 3).requires_grad_() + 1)[1:],
])  # fmt: skip
def test_views_require_grad_as_what_they_view(make):
    def program(y):
        views = [y[0], y.t()[1:], *y.unbind(0), y.flatten(), y.detach(), y.data, y.detach()[0], y * 2, y.t().reshape(-1)]
        return [one.requires_grad for one in views], y + 1

    y = make()
    compiled = pliant.compile(program, backend="eager")
    with torch.inference_mode():
        assert compiled(y)[0] == program(y)[0]


def test_a_tensor_that_requires_gradients_is_resized_in_a_block():
    def program(x):
        y = x * 2
        with torch.inference_mode():
            y.resize_(2, 2)
        return y

    x = torch.randn(4, 3, requires_grad=True)
    compiled = pliant.compile(program, backend="aot_eager")
    torch.testing.assert_close(compiled(x), program(x))
    stats = pliant.stats()
    assert stats["break_reasons"]["unsupported-operator"] == 1 and stats["fallback_reasons"] == {}


def halves(x):
    x = x * 2
    x /= 3  # a write of other memory
    return x.view(torch.div(x.size(0), 2, rounding_mode="trunc"), 2, 3)


def written_since(x):
    many = torch.div(x.size(0), 2, rounding_mode="trunc")
    x = x * 2
    same = many.view(1)
    many += 1
    return x[:many], x[:same], x.new_ones(many)


def written_between(x):
    start = torch.zeros(2, dtype=torch.int64)
    start[1] = x.size(0)
    copy = start + 0
    start[0] = 1
    return x[start[0] : copy[1]], x[copy[0] : start[1] - 1]


@pytest.mark.parametrize("program", [halves, written_since, written_between])
def test_numbers_in_tensors_are_known_in_a_block_until_something_is_written(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="eager", dynamic=True, fullgraph=program is halves)
    for rows in (6, 8, 10):
        x = torch.randn(rows, 3)
        with torch.inference_mode():
            found, wanted = compiled(x), program(x)
        torch.testing.assert_close(found, wanted)
    assert program is not halves or pliant.stats()["graphs"] == 1


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def _checkpointed(x):
    return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True)


@pytest.mark.parametrize("call", [Doubled.apply, _checkpointed], ids=["own function", "checkpoint"])
def test_own_functions_record_gradients_in_a_block_that_says_so(call):
    """Other operators do not; the call is made by eager code, behind a break."""
    pliant.reset()

    def program(x):
        with torch.inference_mode(), torch.enable_grad():
            y = call(x)
        return y, x * 2

    x = torch.ones(3, requires_grad=True)
    found, expected = pliant.compile(program, backend="eager")(x), program(x)
    assert [(y.requires_grad, y.is_inference()) for y in found] == [(y.requires_grad, y.is_inference()) for y in expected]
    assert torch.equal(found[0], expected[0]) and found[0].requires_grad
    assert pliant.stats()["break_reasons"]["unsupported-operator"] == 1


@pytest.mark.parametrize("enabled", [True, False])
def test_whether_gradients_are_recorded_at_a_break_in_a_block(enabled):
    pliant.reset()
    seen = []

    def program(x):
        with torch.inference_mode(), torch.set_grad_enabled(enabled):
            pliant.disable(lambda: seen.append(torch.is_grad_enabled()))()
        seen.append(torch.is_grad_enabled())
        return x + 1

    pliant.compile(program, backend="eager")(torch.ones(2))
    assert seen == [enabled, True]
