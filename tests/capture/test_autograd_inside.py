"""Gradients computed inside a compiled function: `torch.autograd.grad`, `backward()`, whole training steps."""

import copy
from functools import partial

import pytest
import torch
from tests.capture.against_eager import check

import pliant
from pliant.debug import events
from pliant.errors import ConfigError
from pliant.guards import tensor_words

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
W = torch.randn(5, 5, generator=torch.Generator().manual_seed(2), requires_grad=True)


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


# ---- torch.autograd.grad
def test_grad():
    check(lambda x, w: torch.autograd.grad((x @ w).sin().sum(), (x, w)), X, W)


def test_grad_of_intermediates():
    def f(x):
        y = x.sin()
        (g,) = torch.autograd.grad((y**3).sum(), y)
        return g * 2

    check(f, X)


def test_grad_with_given_gradients():
    def f(x, w):
        y = x @ w
        return torch.autograd.grad([y, x * 2], [x, w], grad_outputs=[torch.ones_like(y), torch.full_like(x, 3.0)])

    check(f, X, W)


def test_create_graph():
    def penalty(x, w):
        y = (x @ w).sigmoid().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return y + (g.norm(2, dim=1) - 1).pow(2).mean()

    check(penalty, X, W)


def test_second_derivatives():
    def pde(model, x):
        u = model(x)
        (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
        return (ddu.sum(-1, keepdim=True) - u).pow(2).mean()

    check(pde, net(), X)


def test_force_field():
    def forces(model, positions):
        energy = model(positions).sum()
        return energy, -torch.autograd.grad(energy, positions, create_graph=True)[0]

    check(forces, net(), X)


def test_inner_loop():
    def maml(x, w):
        fast = w
        for _ in range(2):
            (g,) = torch.autograd.grad((x @ fast).pow(2).mean(), fast, create_graph=True)
            fast = fast - 0.1 * g
        return (x @ fast).pow(2).mean()

    check(maml, X, W)


def test_unused_and_materialized():
    check(lambda x, w: torch.autograd.grad(x.sum(), (x, w), allow_unused=True)[0], X, W)
    check(lambda x, w: torch.autograd.grad(x.sum(), (x, w), materialize_grads=True), X, W)


def test_result_without_create_graph_beside_outputs():
    def f(x):
        y = x.sin().sum()
        (g,) = torch.autograd.grad(y, x, retain_graph=True)
        return y, g

    check(f, X)


def test_a_leaf_made_inside():
    def f(x):
        leaf = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((leaf**2).sum(), leaf)
        return g + x

    check(f, X)


def test_history_from_outside_breaks():
    def f(y, x):
        return torch.autograd.grad(y.sum(), x)[0]

    x = X.detach().clone().requires_grad_()
    compiled = pliant.compile(f)
    torch.testing.assert_close(compiled(x * 3, x), torch.full_like(x, 3.0))


def test_errors_are_eagers():
    compiled = pliant.compile(lambda x: torch.autograd.grad(x.sin(), x))
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        compiled(X)


# ---- backward
def test_backward_fills_grad():
    def f(x, w):
        loss = (x @ w).sin().sum()
        loss.backward()
        return x.grad * 2

    check(f, X, W, backward=False)


def test_gradients_accumulate_in_place():
    def f(x):
        (x * 2).sum().backward()
        (x.sin()).sum().backward()

    for way in ({"backend": "eager"}, {}):
        x = X.detach().clone().requires_grad_()
        compiled = pliant.compile(f, fullgraph=True, **way)
        compiled(x)
        first = x.grad
        torch.testing.assert_close(first, 2 + x.detach().cos())
        compiled(x)
        assert x.grad is first
        torch.testing.assert_close(first, 2 * (2 + x.detach().cos()))


def test_gradients_do_not_share_memory():
    def f(x, w):
        ((x + w) * x.detach()).sum().backward()

    x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    pliant.compile(f, fullgraph=True)(x, w)
    torch.testing.assert_close(x.grad, w.grad)
    assert x.grad.data_ptr() != w.grad.data_ptr()


def test_gradient_has_the_leafs_layout():
    def f(x):
        (x * 2).sum().backward()
        x.t().sum().backward()

    x = torch.randn(3, 4).t().requires_grad_()
    pliant.compile(f, fullgraph=True)(x)
    assert x.grad.stride() == x.stride()


def test_backward_with_gradient_and_inputs():
    def f(x, w):
        y = x @ w
        y.backward(torch.ones_like(y), inputs=[w])
        return y.detach()

    check(f, X, W, backward=False)


def test_autograd_backward_of_several():
    def f(x, w):
        torch.autograd.backward([x.sin().sum(), (x @ w).sum()])

    check(f, X, W, backward=False)


def test_backward_through_the_outside_breaks():
    def f(y):
        (y * 2).sum().backward()

    x = X.detach().clone().requires_grad_()
    pliant.compile(f)(x * 3)
    torch.testing.assert_close(x.grad, torch.full_like(x, 6.0))


def test_hooks_of_leaves_run():
    x = X.detach().clone().requires_grad_()
    x.register_hook(lambda g: g * 10)
    compiled = pliant.compile(lambda x: x.sum().backward())
    compiled(x)
    torch.testing.assert_close(x.grad, torch.full_like(x, 10.0))


def test_a_later_hook_is_seen():
    x = X.detach().clone().requires_grad_()
    compiled = pliant.compile(lambda x: x.sum().backward())
    compiled(x)
    x.grad = None

    def enlarge(p):
        p.grad.mul_(10)

    x.register_post_accumulate_grad_hook(enlarge)
    compiled(x)
    torch.testing.assert_close(x.grad, torch.full_like(x, 10.0))


def test_a_break_at_hooks_ends_with_them():
    p = torch.ones(3, requires_grad=True)

    def by_backward(x):
        (p * x).sum().backward()
        gradient, p.grad = p.grad, None
        return gradient

    def by_grad(x):
        return torch.autograd.grad((p * x).sum(), p)[0]

    for f in (by_backward, by_grad):
        pliant.reset()
        compiled, handle = pliant.compile(f), p.register_hook(lambda g: g * 2)
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
        handle.remove()
        before = pliant.stats()
        assert compiled(torch.ones(3)).tolist() == [1, 1, 1]
        after = pliant.stats()
        assert after["graphs"] == before["graphs"] + 1
        assert after["graph_breaks"] == before["graph_breaks"] == 1


@pytest.mark.parametrize("set_to_none", [True, False])
def test_training_step(set_to_none):
    """Loss and backward in one graph; the update by hand."""

    def step(model, x):
        for p in model.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad.zero_()
        loss = model(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.1)
        return loss.detach()

    mine, theirs = net(), net()
    compiled = pliant.compile(step, fullgraph=True)
    for _ in range(4):
        torch.testing.assert_close(compiled(mine, X), step(theirs, X))
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q)
        torch.testing.assert_close(p.grad, q.grad)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_training_step_with_optimizer(optimizer):
    def make():
        model = net()
        return model, optimizer(model.parameters(), lr=0.05)

    def step(model, opt, x):
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss

    mine, theirs = make(), make()
    compiled = pliant.compile(step)
    for _ in range(4):
        torch.testing.assert_close(compiled(*mine, X), step(*theirs, X))
    for p, q in zip(mine[0].parameters(), theirs[0].parameters(), strict=True):
        torch.testing.assert_close(p, q)


# ---- modes
def test_grad_modes():
    def f(x, w):
        with torch.no_grad():
            y = x @ w
        with torch.enable_grad():
            z = x * y
        with torch.set_grad_enabled(False):
            z2 = x * 2
        return z, z2

    check(f, X, W)


@torch.no_grad()
def decorated(x):
    return x * 2


def test_decorated_with_no_grad():
    check(lambda x: decorated(x) + x, X)


def test_inference_mode_inside():
    def f(x):
        with torch.inference_mode():
            y = x * 2
        return y.sum()

    compiled = pliant.compile(f)
    torch.testing.assert_close(compiled(X.detach()), f(X.detach()))
    assert not compiled(X).requires_grad


def test_inference_mode_outside():
    compiled = pliant.compile(lambda x: x.sin() * 2)
    with torch.inference_mode():
        y = compiled(X.detach())
    torch.testing.assert_close(y.clone(), X.detach().sin() * 2)
    y = compiled(copy.deepcopy(X))
    assert y.requires_grad


@pytest.mark.fallbacks_expected  # a hook that may change what is saved
def test_saved_tensors_hooks_inside():
    packed = []

    def pack(tensor):
        packed.append(type(tensor))
        return tensor

    def f(x):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor * 2):
            y = x * x
        return y.sum()

    x = X.detach().clone().requires_grad_()
    pliant.compile(f)(x).backward()
    assert set(packed) == {torch.Tensor}
    torch.testing.assert_close(x.grad, 4 * x.detach())


def double(tensor):
    return tensor * 2


HOOKS = {
    "pack": (double, lambda tensor: tensor),
    "unpack": (lambda tensor: (tensor, 1), lambda packed: packed[0] * 3),
    "only results": (lambda tensor: tensor if tensor.is_leaf else tensor * 2, lambda tensor: tensor),
    "builtin": (torch.square, torch.neg),
}


def product(x, w):
    return (x * w).exp()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("hooks", HOOKS)
def test_hooks_that_change_saved_values(hooks, inside):
    def program(function, x, w):
        with torch.autograd.graph.saved_tensors_hooks(*HOOKS[hooks]):
            return function(x, w)

    def gradients(call):
        leaves = [X.detach().clone().requires_grad_() for _ in range(2)]
        return torch.autograd.grad(call(*leaves).sum(), leaves)

    compiled = pliant.compile(partial(program, product) if inside else product)
    torch.testing.assert_close(gradients(compiled)[0], gradients(partial(program, product) if inside else product)[0])
    events.reset()
    call = compiled if inside else partial(program, compiled)
    torch.testing.assert_close(gradients(call), gradients(partial(program, product)))
    assert pliant.stats()["fallbacks"]
    if not inside:
        torch.testing.assert_close(gradients(compiled), gradients(product))


def test_hooks_that_change_what_a_gradient_saves():
    def second(function):
        x = X.detach().clone().requires_grad_()
        y = function(x, x).sum()
        with torch.autograd.graph.saved_tensors_hooks(double, lambda tensor: tensor):
            (first,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)

    torch.testing.assert_close(second(pliant.compile(product)), second(product))


def test_hooks_that_keep_saved_values_are_given_what_compiled_code_saves():
    packed = []

    @pliant.keeps_saved_values
    def pack(tensor):
        packed.append(tensor)
        return tensor

    events.reset()
    x = X.detach().clone().requires_grad_()
    compiled = pliant.compile(lambda x: x.sin().cos().exp().sum())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled(x).backward()
    assert len(packed) == 1 and not pliant.stats()["fallbacks"]
    with pytest.raises(ConfigError):
        pliant.keeps_saved_values(packed.append)


def test_hooks_on_saved_tensors_see_nothing_of_how_tensors_are_laid_out():
    """The experiments that find it are made when the first call needs them."""
    tensor_words._layout.cache_clear()
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        tensor_words._layout()
    assert not packed


def _written_inside(x):
    v = x.clone()
    w = v.sin()
    v.add_(1)
    return w.sum()


def _written_behind(x):
    with torch.autograd.graph.saved_tensors_hooks(pliant.keeps_saved_values(lambda t: (t.clone(),)), lambda t: t[0]):
        return _written_inside(x)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
@pytest.mark.fallbacks_expected  # the write fails in the trace without the hook
def test_hooks_that_copy_keep_what_was_saved_before_it_is_written(inside, backend):
    x = X.detach().clone().requires_grad_()
    if inside:
        loss = pliant.compile(_written_behind, backend=backend)(x)
    else:
        compiled = pliant.compile(_written_inside, backend=backend)
        pack = pliant.keeps_saved_values(lambda t: (t.clone(),))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t[0]):
            loss = compiled(x)
    loss.backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_further_gradients_refuse_inputs_written_since_under_hooks_too():
    x, y = X.detach().clone().requires_grad_(), X.detach().clone()
    compiled = pliant.compile(lambda x, y: (x * y).sin().sum(), backend="aot_eager")
    pack = pliant.keeps_saved_values(lambda t: (t.clone(),))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t[0]):
        loss = compiled(x, y)
    y.add_(1)
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    torch.testing.assert_close(first, ((y - 1) * (x * (y - 1)).cos()).detach())
    with pytest.raises(RuntimeError, match="was written after the call"):
        torch.autograd.grad(loss, x, create_graph=True)


def test_saved_tensors_hooks_outside():
    x = X.detach().clone().requires_grad_()
    compiled = pliant.compile(lambda x: x.sin().exp().sum())
    with torch.autograd.graph.save_on_cpu():
        loss = compiled(x)
    loss.backward()
    torch.testing.assert_close(x.grad, (x.cos() * x.sin().exp()).detach())


def test_detect_anomaly():
    def f(x):
        with torch.autograd.detect_anomaly(check_nan=False):
            return (x * 2).sum()

    x = X.detach().clone().requires_grad_()
    with pytest.warns(UserWarning, match="Anomaly Detection"):
        pliant.compile(f)(x).backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.0))
    assert not torch.is_anomaly_enabled()


@pytest.mark.parametrize("assigned", [False, True])
def test_an_argument_is_to_require_gradients(assigned: bool) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))

    def f(x: torch.Tensor) -> torch.Tensor:
        if assigned:
            x.requires_grad = True
        else:
            x.requires_grad_()
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        return slope.pow(2).sum()

    compiled = pliant.compile(f)
    for _ in range(2):
        x, y = (torch.ones(2, 3) for _ in range(2))
        with events.collect("fallback", "graph_break") as seen:
            torch.testing.assert_close(compiled(x), f(y))
        assert x.requires_grad and all(event.kind == "graph_break" for event in seen)


def test_a_break_at_gradients_says_what_to_do():
    def flagged(x):
        y = x + 1
        x.requires_grad_()
        return torch.autograd.grad((x * x * y).sum(), x)

    def cut(x):
        y = (x * x).sum()
        pliant.graph_break()
        return torch.autograd.grad(y, x)

    [told] = pliant.explain(flagged)(torch.ones(3)).breaks
    assert "x.detach().requires_grad_()" in told and "register_fake" not in told
    told = pliant.explain(cut)(torch.ones(3, requires_grad=True)).breaks[-1]
    assert "in the same compiled function" in told and "register_fake" not in told
