"""Activation checkpoints are captured whole; their operators are marked for the partitioner."""

import functools

import pytest
import torch
import torch.nn.functional as F
from tests.capture.against_eager import WAYS, check
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import pliant

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
W = torch.randn(5, 5, generator=torch.Generator().manual_seed(2), requires_grad=True)


def block(a, b, *, scale=1.0):
    return torch.tanh(a @ b).sin() * scale


@pytest.mark.parametrize("reentrant", [True, False])
def test_region(reentrant):
    check(lambda x, w: checkpoint(block, x, w, use_reentrant=reentrant) * 2, X, W)


def test_options():
    def f(x, w):
        return checkpoint(block, x, w, use_reentrant=False, preserve_rng_state=False, scale=3.0)

    check(f, X, W)


@pytest.mark.parametrize("reentrant", [True, False])
def test_numbers_drawn_anew_in_the_backward(reentrant):
    def f(x, w):
        other = {"use_reentrant": reentrant, "preserve_rng_state": False}
        return checkpoint(lambda a: F.dropout(a @ w, 0.5).sin().exp(), x, **other) * torch.rand(5)

    def gradients(call):
        leaves = [t.detach().clone().requires_grad_() for t in (X, W)]
        torch.manual_seed(0)
        result = call(*leaves)
        result.sum().backward()
        return result, [t.grad for t in leaves], torch.rand(1)

    compiled = pliant.compile(f)
    for _ in range(2):
        torch.testing.assert_close(gradients(compiled), gradients(f))


def test_attention_without_dropout_draws_nothing():
    def f(x):
        attention = F.scaled_dot_product_attention
        return checkpoint(lambda a: attention(a, a, a), x, use_reentrant=False, preserve_rng_state=False)

    check(f, X[None, None].detach().requires_grad_())


def test_nested():
    def outer(a, b):
        return checkpoint(block, a, b, use_reentrant=False) + a

    check(lambda x, w: checkpoint(outer, x, w, use_reentrant=False), X, W)


def test_sequential():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Tanh()) for _ in range(4)])
    check(lambda m, x: checkpoint_sequential(m, 2, x, use_reentrant=False), layers, X)


def test_dropout_is_the_same_in_forward_and_backward():
    """Gradient of x * mask is the mask: it is seen in the forward's result."""

    def f(x):
        return checkpoint(lambda a: F.dropout(a, 0.5), x, use_reentrant=False)

    x = torch.ones(64, requires_grad=True)
    for way in WAYS:
        x.grad = None
        y = pliant.compile(f, fullgraph=True, **way)(x)
        y.sum().backward()
        torch.testing.assert_close(x.grad, y.detach())


def test_selective_policy():
    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    check(lambda x, w: checkpoint(block, x, w, use_reentrant=False, context_fn=contexts), X, W)


def test_the_joint_graph_is_marked():
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module

    def f(x, w):
        y = checkpoint(block, x, w, use_reentrant=False)
        z = checkpoint(block, y, w, use_reentrant=False)
        return z.cos()

    pliant.compile(f, backend=backend, fullgraph=True)(X, W)
    marks = [node.meta.get("recompute") for node in graphs[0].graph.nodes if node.op.startswith("call")]
    assert len(set(marks)) == 3
    assert marks[-1] is None


def test_reentrant_without_a_gradient_for_its_arguments():
    layer = torch.nn.Linear(5, 5)

    def f(x):
        return checkpoint(layer, x, use_reentrant=True)

    with pytest.warns(UserWarning, match="None of the inputs have requires_grad"):
        y = pliant.compile(f, fullgraph=True)(X.detach())
    assert not y.requires_grad


def test_without_saying_which():
    with pytest.warns(UserWarning, match="use_reentrant"):
        check(lambda x, w: checkpoint(block, x, w) * 2, X, W)


def test_a_function_that_makes_the_contexts():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    check(lambda x, w: checkpoint(block, x, w, use_reentrant=False, context_fn=contexts), X, W)


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_runs_twice_breaks(reentrant):
    """Eager runs the function once more in the backward, its effects too."""

    def calls(compile_it):
        torch.manual_seed(0)
        norm, seen = torch.nn.BatchNorm1d(5), []

        def region(x):
            seen.append(tuple(x.shape))
            return norm(x).sin()

        compiled = compile_it(
            lambda x: checkpoint(norm, checkpoint(region, x, use_reentrant=reentrant), use_reentrant=reentrant)
        )
        compiled(X).sum().backward()
        return len(seen), norm.running_mean, norm.num_batches_tracked

    torch.testing.assert_close(calls(pliant.compile), calls(lambda f: f))


def test_a_compiled_function_inside_is_differentiated_twice():
    compiled = pliant.compile(block)
    found = []
    for function in (compiled, block):
        y = checkpoint(function, X, W, use_reentrant=False)
        (first,) = torch.autograd.grad(y.sum(), X, create_graph=True)
        found.append([y, first, *torch.autograd.grad(first.pow(2).sum(), (X, W))])
    torch.testing.assert_close(*found)


def test_writes_through_data_of_what_a_checkpoint_made_do_not_change_its_gradient():
    def f(x):
        out = checkpoint(lambda a: a.sin().exp(), x, use_reentrant=False)
        out.data.mul_(2)
        return out

    for backend in ("aot_eager", "pliant"):
        mine, theirs = (X.detach().clone().requires_grad_() for _ in range(2))
        pliant.compile(f, backend=backend)(mine).sum().backward()
        f(theirs).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)


def saved(x, **options):
    return checkpoint(lambda a: (a * 2).tanh(), x, use_reentrant=False, **options)


def written(x):
    y = saved(x)
    y.mul_(2)
    return y


def written_by_a_block(x):
    return torch.nn.functional.relu_(checkpoint(lambda a: a.softmax(-1), x, use_reentrant=False)) + x


def written_reentrantly(x):
    y = checkpoint(lambda a: a.exp(), x, use_reentrant=True)
    y += x
    return y * y


def viewed_then_written(x):
    y = saved(x)
    row = y[0]
    y.add_(1)
    row.mul_(3)
    return y, row


def a_view_written(x):
    y = checkpoint(lambda a: a.sigmoid().view(-1), x, use_reentrant=False)
    y[:2] += 1
    return y.sin()


def in_another_checkpoint(x):
    def outer(a):
        y = saved(a)
        y.add_(1)
        return y.exp()

    z = checkpoint(outer, x, use_reentrant=False)
    z.mul_(2)
    return z


def passed_on(x):
    y = saved(x)
    row = y[0]
    z = checkpoint(lambda a: a, y, use_reentrant=False)
    z.mul_(2)
    return y, row, z


def of_two_results(x):
    y, z = checkpoint(lambda a: (a.exp(), a.tanh()), x, use_reentrant=False)
    z.add_(1)
    y.mul_(z)
    return y, z


@pytest.mark.spread(2, "backend", "program")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "pliant"])
@pytest.mark.parametrize("program", [
    written, written_by_a_block, written_reentrantly, viewed_then_written, a_view_written, in_another_checkpoint, passed_on,
    of_two_results,
])  # fmt: skip
def test_results_may_be_written_in_place(program, backend):
    check(program, torch.linspace(-1, 1, 6).view(2, 3).requires_grad_(), ways=[{"backend": backend}])


RETURNED = {
    "of a checkpoint": lambda x: checkpoint(lambda a: (a @ a).tanh(), x, use_reentrant=False),
    "a copy": lambda x: x.exp().clone(),
    "a copy in a checkpoint": lambda x: checkpoint(lambda a: a.exp().clone(), x, use_reentrant=False),
    "a copy of a checkpoint's": lambda x: checkpoint(torch.exp, x, use_reentrant=False).clone(),
    "a view of a copy": lambda x: x.exp().clone().view(-1)[2:],
}


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
@pytest.mark.parametrize("name", RETURNED)
def test_what_eager_does_not_keep_may_be_written_by_the_caller(name, backend):
    def gradient(function):
        x = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
        y = function(x)
        y.add_(1)
        y.sin().sum().backward()
        return x.grad

    torch.testing.assert_close(gradient(pliant.compile(RETURNED[name], backend=backend)), gradient(RETURNED[name]))


def test_views_of_what_a_maximum_compares_are_those_of_what_was_saved():
    def running(x, w):
        keys = F.linear(x, w)
        out, total, top = torch.zeros_like(keys), torch.zeros_like(keys[:, 0]), torch.zeros_like(keys[:, 0])
        for i in range(3):
            out[:, i] = total
            best = torch.maximum(top - 1, keys[:, i])
            total = torch.exp(top - best) * total + torch.exp(keys[:, i] - best)
            top = best
        return torch.sigmoid(x) * out

    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    compiled = pliant.compile(lambda x, w: checkpoint(running, x, w, use_reentrant=False).sum(), backend="aot_eager")
    found = torch.autograd.grad(compiled(x, W), (x, W))
    torch.testing.assert_close(found, torch.autograd.grad(running(x, W).sum(), (x, W)))
