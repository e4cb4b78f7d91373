"""A part of the table of hooks: what it found, and a sample of the rest."""

import random

import pytest
import torch
from tests.autograd.hook_table import Case, cases, difference

import pliant

FOUND = [
    Case("computed", "scaled", "used and returned"),  # a gradient of a result passes through the hooks of that result
    Case("computed", "closure over itself", "returned twice"),  # which later hooks come after
    Case("computed", "affine", "beside"),  # no gradient is not a gradient of zeros
    Case("computed", "seen", "beside"),  # a hook of a result that no gradient gets to is not called
    Case("view of a computed", "scaled", "part used"),  # a view is made for the caller from what it is a view of
    Case("computed", "retained between", "used"),  # hooks before a graph break come before those behind it
    Case("computed", "retained", "gradient inside"),  # gradients asked for inside are kept
    Case("computed", "scaled", "gradient inside"),
]


@pytest.mark.parametrize("case", [*FOUND, *random.Random(4).sample(list(cases()), 9)], ids=str)
def test_case_is_as_in_eager(case):
    assert difference(case) is None
    pliant.reset()


def test_a_hook_of_a_result_breaks_no_graph():
    pliant.reset()
    assert difference(FOUND[0]) is None
    stats = pliant.stats()
    assert (stats["graphs"], stats["graph_breaks"], stats["fallbacks"]) == (1, 0, 0)
    pliant.reset()


def test_more_sets_of_results_than_backwards_are_compiled_for():
    def f(x):
        ys = [x * i for i in range(12)]
        for y in ys:
            y.register_hook(lambda g: g + 1)
        return [y.exp() for y in ys]

    compiled = pliant.compile(f, fullgraph=True)
    for place in range(12):
        x = torch.ones(3, requires_grad=True)
        found, expected = [torch.autograd.grad(call(x)[place].sum(), x) for call in (compiled, f)]
        torch.testing.assert_close(found, expected)
    batched = [torch.autograd.grad(call(x)[3], x, torch.eye(3), is_grads_batched=True) for call in (compiled, f)]
    torch.testing.assert_close(*batched)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("view_first", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_inputs_behind_views_of_them_come_in_eagers_order(inside, view_first, backend):
    """Autograd's engine gets last to what was recorded first."""

    def order(compile):
        seen = []

        def program(x, y):
            if view_first:
                view = x[1:][0]
            made = (y * 2).exp()
            if inside:
                made.register_hook(lambda gradient: seen.append("made"))
            return (view if view_first else x[1:][0]), made

        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        for name, one in (("x", x), ("y", y)):
            one.register_hook(lambda gradient, name=name: seen.append(name))
        view, made = compile(program)(x, y)
        if not inside:
            made.register_hook(lambda gradient: seen.append("made"))
        (view.sum() + made.sum()).backward()
        return seen

    pliant.reset()
    assert order(lambda f: pliant.compile(f, backend=backend)) == order(lambda f: f)
