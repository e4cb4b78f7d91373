"""Gradients that a program asks for itself, where the caller gets what they lead through, or has hooks on it."""

import pytest
import torch

import pliant


def _returned(b, p):
    product = b * p
    loss = product.sin().sum()
    loss.backward(retain_graph=True)
    return product, loss


def _written(b, p):
    b.copy_(p * 2)
    found = b.sin()
    found.sum().backward()
    return found.detach()


def _written_and_returned(b, p):
    b.copy_(p * 2)
    found = b.sin()
    found.sum().backward(retain_graph=True)
    return found


def _grad(b, p):
    product = b * p
    loss = product.sin().sum()
    (found,) = torch.autograd.grad(loss, p, create_graph=True)
    return product, loss, found


@pytest.mark.parametrize("program", [_returned, _written, _written_and_returned, _grad])
def test_gradients_get_through_what_is_returned(program):
    seen = []
    for f in (program, pliant.compile(program)):
        torch.manual_seed(0)
        p, b = torch.rand(3, requires_grad=True), torch.rand(4, 3)
        outputs = f(b, p)
        seen.append([outputs, None if p.grad is None else p.grad.clone()])
    torch.testing.assert_close(*seen)


def test_hooks_see_gradients_asked_for_inside():
    def program(p):
        return torch.autograd.grad((p * p).sum(), p)[0]

    f, calls = pliant.compile(program), []
    p = torch.rand(3, requires_grad=True)
    f(p)
    p.register_hook(lambda g: calls.append(g.clone()))
    f(p)
    torch.testing.assert_close(calls, [2 * p.detach()])


def test_hooks_of_parameters_are_called_with_gradients_alone():
    def program(x, p):
        return (x * p).sum(), x.sin().sum()

    for f in (program, pliant.compile(program)):
        calls = []
        p, x = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
        p.register_post_accumulate_grad_hook(lambda t, calls=calls: calls.append(t.grad.shape))
        first, second = f(x, p)
        p.register_hook(lambda g, calls=calls: calls.append(g.shape))
        second.backward(retain_graph=True)
        assert not calls
        (first + second).backward()
        assert len(calls) == 2


def test_writes_after_the_call_of_what_it_wrote_are_errors_where_eager_has_them():
    def program(x):
        x.relu_()
        return x

    for f in (program, pliant.compile(program)):
        x = torch.rand(3, requires_grad=True) * 1
        f(x).add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            x.sum().backward()


def test_backwards_that_turn_gradients_on_have_further_derivatives():
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                inner = x.detach().requires_grad_()
                (slope,) = torch.autograd.grad(inner.sin().sum(), inner)
            return g * slope

    def program(x):
        return Sine.apply(x).sin().prod()

    seen = []
    for f in (program, pliant.compile(program)):
        x = torch.arange(3.0, requires_grad=True)
        (first,) = torch.autograd.grad(f(x), x, create_graph=True)
        seen.append([first, *torch.autograd.grad(first.sum(), x)])
    torch.testing.assert_close(*seen)


def test_a_step_that_returns_what_its_loss_was_made_of_is_one_graph():
    layer = torch.nn.Linear(4, 3)

    def step(x, target):
        logits = layer(x)
        loss = torch.nn.functional.cross_entropy(logits, target)
        loss.backward()
        return loss, logits

    seen = []
    for f in (step, pliant.compile(step, fullgraph=True)):
        layer.zero_grad()
        x = torch.linspace(-1, 1, 20).view(5, 4)
        loss, logits = f(x, torch.arange(5) % 3)
        assert loss.requires_grad and logits.requires_grad
        seen.append([loss, logits, layer.weight.grad.clone(), layer.bias.grad.clone()])
    torch.testing.assert_close(*seen)


def test_what_inner_code_read_is_not_carried_over_a_break():
    """Gradients are asked for through `h`, which only a function that has ended reads: behind the break nobody holds it."""

    def program(x, w, heads):
        h = x * w

        def losses():
            return [(h * head).sum() for head in heads]

        a, b = losses()
        first = torch.autograd.grad(a, [w, heads[0]], retain_graph=True)
        second = torch.autograd.grad(b, [w, heads[1]])
        found = first[0] - second[0]
        pliant.graph_break()
        return found, a.detach(), b.detach()

    pliant.reset()
    x, (w, *heads) = torch.arange(3.0), (torch.full((3,), k, requires_grad=True) for k in (1.0, 2.0, 3.0))
    for got, want in zip(pliant.compile(program)(x, w, heads), program(x, w, heads), strict=True):
        torch.testing.assert_close(got, want)
    assert pliant.stats()["fallbacks"] == 0
