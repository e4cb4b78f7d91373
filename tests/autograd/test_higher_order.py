"""Gradients of gradients through compiled code: equal to eager's, to third order."""

import pytest
import torch
from torch import nn

import pliant


def leaf(*size):
    return torch.randn(*size, dtype=torch.float64, requires_grad=True)


def make(function, **options):
    return pliant.compile(function, backend="aot_eager", **options)


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for mine, eager in zip(ours, theirs):
        assert (mine is None) == (eager is None)
        if eager is not None:
            torch.testing.assert_close(mine, eager, rtol=1e-10, atol=1e-12)


def field(x, w1, w2):
    return torch.tanh(torch.sin(x @ w1) @ w2)


@pytest.mark.parametrize("dynamic", [False, True])
def test_third_derivatives_of_a_field(dynamic):
    x, w1, w2 = leaf(5, 2), leaf(2, 8), leaf(8, 1)

    def residual(call):
        y = call(x, w1, w2)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (g2,) = torch.autograd.grad(g[:, 0].sum(), x, create_graph=True)
        (g3,) = torch.autograd.grad(g2[:, 1].sum(), x, create_graph=True)
        loss = (g3**2).sum() + (g * y).sum()
        return [y, g, g2, g3, *torch.autograd.grad(loss, [x, w1, w2])]

    same(residual(make(field, dynamic=dynamic)), residual(field))


def test_hessian():
    w = torch.randn(4, 4, dtype=torch.float64)

    def energy(x):
        return (torch.sin(x) @ w @ x.exp()).sum()

    x = leaf(4)
    same([torch.autograd.functional.hessian(make(energy), x)], [torch.autograd.functional.hessian(energy, x)])


def test_gradient_penalty_with_dropout_and_norms():
    torch.manual_seed(0)
    critic = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 1)
    ).double()
    x = leaf(3, 1, 8, 8)

    def step(call):
        torch.manual_seed(3)
        score = call(x)
        (g,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        loss = ((g.flatten(1).norm(2, dim=1) - 1) ** 2).mean() + score.mean()
        critic.zero_grad()
        loss.backward()
        return [loss, torch.rand(1), *[p.grad.clone() for p in critic.parameters()]]

    same(step(make(critic)), step(critic))


def test_forces_of_an_energy():
    a, b = leaf(6, 3), leaf(8, 1)

    def energy(positions, scale):
        distances = ((positions[:, None] - positions[None]).square().sum(-1) + 0.1).sqrt()
        return (scale.sum() * (-distances).exp().triu(1)).sum() + positions.detach().norm() * positions.sum()

    def step(call):
        e = call(a, b)
        (forces,) = torch.autograd.grad(-e, a, create_graph=True)
        return [e, forces, *torch.autograd.grad((forces**2).sum() + e**2, [a, b])]

    same(step(make(energy)), step(energy))


def test_inner_step_of_meta_learning():
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    names = [name for name, _ in model.named_parameters()]
    x, y, x2, y2 = (torch.randn(4, n, dtype=torch.float64) for n in (2, 1, 2, 1))

    def loss(x, y, *values):
        out = torch.func.functional_call(model, dict(zip(names, values)), (x,))
        return ((out - y) ** 2).mean()

    def outer(call):
        values = list(model.parameters())
        for _ in range(2):
            grads = torch.autograd.grad(call(x, y, *values), values, create_graph=True)
            values = [v - 0.1 * g for v, g in zip(values, grads)]
        return torch.autograd.grad(call(x2, y2, *values), list(model.parameters()))

    same(outer(make(loss)), outer(loss))


def test_what_is_cut_off_stays_cut_off():
    def function(x):
        with torch.no_grad():
            scale = x.norm()
        return (x * x.detach() * scale + x**3).sum()

    def second(call):
        x = torch.arange(1.0, 4, dtype=torch.float64).requires_grad_()
        (g,) = torch.autograd.grad(call(x), x, create_graph=True)
        return [g, *torch.autograd.grad(g.sum(), x)]

    same(second(make(function)), second(function))


def test_history_of_the_tangent():
    def function(x):
        return x.sin() * x

    def second(call):
        x, v = torch.arange(3.0, dtype=torch.float64).requires_grad_(), torch.ones(3, dtype=torch.float64)
        v.requires_grad_()
        (g,) = torch.autograd.grad(call(x), x, v, create_graph=True)
        return torch.autograd.grad(g.square().sum(), [x, v])

    same(second(make(function)), second(function))


def test_written_inputs_are_kept_as_they_were():
    def function(x, w, buffer):
        y = (x * buffer * w).square()
        x.mul_(2)
        buffer.add_(1)
        return (y.sin() * x).sum()

    def second(call):
        x, w = torch.arange(1.0, 4, dtype=torch.float64).requires_grad_(), torch.ones(3, dtype=torch.float64)
        w.requires_grad_()
        buffer = torch.full((3,), 0.5, dtype=torch.float64)
        given = x * 1
        try:
            out = call(given, w, buffer)
            (g,) = torch.autograd.grad(out, w, create_graph=True)
            return [out, buffer, g, *torch.autograd.grad(g.square().sum(), [x, w])]
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return []

    same(second(make(function)), second(function))


def test_written_input_not_saved_by_eager():
    def function(x, w):
        y = (x + w) ** 3
        x.add_(1)
        return y.sum() + x.sum()

    def second(call):
        x, w = leaf_of([1.0, 2.0]), leaf_of([3.0, 4.0])
        out = call(x * 1, w)
        (g,) = torch.autograd.grad(out, w, create_graph=True)
        return [out, g, *torch.autograd.grad(g.square().sum(), [x, w])]

    def leaf_of(values):
        return torch.tensor(values, dtype=torch.float64, requires_grad=True)

    same(second(make(function)), second(function))


def test_an_input_written_after_the_call_is_noticed():
    x = leaf(3)
    y = make(lambda x: (x + 1) * 2)(x)
    with torch.no_grad():
        x.add_(1)
    y.sum().backward()  # eager saves nothing here

    y = make(lambda x: (x + 1) ** 3)(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_many_sizes_run_without_compiling_each():
    call = make(field, dynamic=True)
    for n in range(2, 14):
        x, w1, w2 = leaf(n, 2), leaf(2, 3), leaf(3, 1)
        found = []
        for f in (call, field):
            (g,) = torch.autograd.grad(f(x, w1, w2).sum(), x, create_graph=True)
            found.append(torch.autograd.grad(g.square().sum(), [x, w1, w2]))
        same(*found)


def test_inputs_computed_from_each_other_where_the_gradient_is_not_compiled():
    """Complex second derivatives run operator by operator; there inputs are real tensors with histories."""

    def function(x):
        t = x.transpose(0, 1)
        return t, t.sin(), x.cos()

    found = []
    for call in (pliant.compile(function, backend="aot_eager"), function):
        torch.manual_seed(0)
        leaf = torch.rand(3, 3, dtype=torch.complex64).requires_grad_()
        outputs = call(leaf * 1)
        (first,) = torch.autograd.grad(outputs, leaf, [torch.ones_like(o) for o in outputs], create_graph=True)
        found.append([first, *torch.autograd.grad(first.abs().sum(), leaf)])
    torch.testing.assert_close(*found)


def test_an_input_that_moves_to_other_memory():
    def f(x, b):
        b.data = b.data * 2
        return x * b

    def second(call):
        x, b = torch.arange(1.0, 4.0).requires_grad_(), torch.tensor([1.0, 2.0, 3.0])
        (slope,) = torch.autograd.grad(call(x, b).pow(3).sum(), x, create_graph=True)
        return slope, *torch.autograd.grad(slope.sum(), x), b

    torch.testing.assert_close(second(pliant.compile(f)), second(f))


def test_gradients_that_are_sums_of_products():
    """They are added up in place: what the inputs' values are kept for is told by the graph as it is then."""

    def energy(x, w):
        y = x @ w
        return (x.t() @ y).sum() + (y @ w.t()).sin().sum()

    found = []
    for call in (make(energy), energy):
        torch.manual_seed(0)
        inputs = leaf(4, 4), leaf(4, 4)
        first = torch.autograd.grad(call(*inputs), inputs, create_graph=True)
        found.append([*first, *torch.autograd.grad(sum(g.cos().sum() for g in first), inputs)])
    same(*found)


def test_writes_that_autograd_does_not_see_reach_what_it_saved():
    def scaled(p):
        before = p.sin()
        p.data.mul_(2)
        return before + (p * p).sin()

    def second(call):
        p = torch.linspace(0.1, 0.5, 4, dtype=torch.float64, requires_grad=True)
        first = call(p)
        call(p)  # writes what the first call's gradient reads
        (g,) = torch.autograd.grad(first.sum(), p, create_graph=True)
        return [first, g, *torch.autograd.grad(g.sum(), p)]

    same(second(make(scaled)), second(scaled))


def test_a_program_that_saves_nothing_is_differentiated_twice():
    def linear(x):
        return x + x.sum()

    def twice(call):
        x = leaf(4).detach().fill_(1).requires_grad_()
        y = call(x)
        y.sum().backward()
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return [x.grad, g]

    same(twice(make(linear)), twice(linear))


def test_batched_gradients_of_an_input_with_permuted_strides():
    def program(x):
        return torch.nn.functional.silu(x) * x

    x = (torch.rand(4, 3) + 0.5).t().contiguous().t().requires_grad_()
    tangents = torch.rand(2, 4, 3)
    for backend in ("aot_eager", "pliant"):
        found, expected = (
            torch.autograd.grad(f(x), [x], tangents, is_grads_batched=True)[0]
            for f in (pliant.compile(program, backend=backend), program)
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
def test_further_gradients_call_hooks_of_results_that_they_read(backend):
    """The derivative of `sqrt` reads its result."""

    def seen(f):
        x, found = torch.linspace(1, 2, 3, dtype=torch.float64).requires_grad_(), []
        root, _ = f(x)
        root.register_hook(lambda g: found.append(g.detach().clone()))
        root.register_hook(lambda g: g * 2)
        (first,) = torch.autograd.grad(root.sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x), found

    def program(x):
        return x.sqrt(), x * x

    torch.testing.assert_close(seen(pliant.compile(program, backend=backend)), seen(program))


def test_a_program_that_starts_where_nothing_is_recorded():
    """Behind a graph break in a block of `no_grad` the write is no part of the gradient, the first nor the next."""

    def program(x, y):
        with torch.no_grad():
            pliant.graph_break()
            y.mul_(3)
        return (x * y).sin() * y

    def gradients(call):
        x = torch.linspace(0.1, 0.5, 4, dtype=torch.float64, requires_grad=True)
        y = x.flip(0)
        (first,) = torch.autograd.grad(call(x, y).sum(), x, create_graph=True)
        return [first, *torch.autograd.grad(first.sum(), x)]

    same(gradients(make(program)), gradients(program))
