"""What custom autograd functions return of what they were given: in its memory, with a history of their own."""

import pytest
import torch

import pliant


class AsIs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, y * 2

    @staticmethod
    def backward(ctx, g, h):
        return g * 3, h * 2


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.t()

    @staticmethod
    def backward(ctx, g):
        return g.t() * 2


def _intermediate(x, y):
    doubled = x * 2
    same, more = AsIs.apply(doubled, y)
    return doubled, same, same[1:], more


def _behind_detach(x, y):
    leaf = x.detach().requires_grad_()
    return leaf.unflatten(0, (-1, 2)), x * y


PROGRAMS = {
    "input": lambda x, y: AsIs.apply(x, y),
    "plain input": lambda x, y: AsIs.apply(x.detach(), y),
    "view of input": lambda x, y: AsIs.apply(x, y)[0].chunk(2)[1],
    "intermediate": _intermediate,
    "view": lambda x, y: Turned.apply(x),
    "behind detach": _behind_detach,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_histories_and_memory_are_those_of_eager(name):
    seen = []
    for f in (PROGRAMS[name], pliant.compile(PROGRAMS[name])):
        torch.manual_seed(0)
        leaf, y = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)
        x = leaf * 1
        found = f(x, y)
        outputs = found if isinstance(found, tuple) else (found,)
        shares = [o.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for o in outputs]
        sum(o.sin().sum() for o in outputs).backward()
        seen.append([[(o.requires_grad, o.is_leaf) for o in outputs], shares, leaf.grad, y.grad])
    torch.testing.assert_close(seen[1], seen[0])


def test_views_returned_with_what_they_view_lead_through_it():
    def program(x):
        row = x.sin()[0]
        return row[1:].view(-1, 1), row, x.cos()

    for f in (program, pliant.compile(program)):
        view, row, _ = f(torch.rand(3, 3, requires_grad=True))
        assert torch.autograd.grad(view.sum(), row)[0].tolist() == [0, 1, 1]


@pytest.mark.parametrize("make", [torch.Tensor.detach, torch.ones_like, lambda x: (x * 2).detach()])
def test_views_of_returned_tensors_without_a_history(make):
    """Autograd knows the custom function's result as a view of what it was given, and so refuses that it is written."""

    def program(x, y):
        plain = make(x)
        return AsIs.apply(plain, y)[0], plain, plain[1:]

    for call in (program, pliant.compile(program, backend="aot_eager")):
        x, y = torch.rand(4, 3, requires_grad=True) * 2, torch.rand(4, 3, requires_grad=True)
        view, plain, part = call(x, y)
        assert view._base is plain and not plain.requires_grad and part.data_ptr() == view[1:].data_ptr()
        with pytest.raises(RuntimeError, match="view"):
            view.mul_(2)


@pytest.mark.parametrize("make", [torch.Tensor.detach, lambda x: (x * 2).detach(), lambda x: (x * 2).detach().mul_(2)])
def test_views_of_tensors_without_a_history_that_nobody_else_has(make):
    pliant.reset()

    def program(x, y):
        return AsIs.apply(make(x), y)

    for call in (program, pliant.compile(program, backend="aot_eager")):
        view, _ = call(torch.rand(4, 3, requires_grad=True) * 2, torch.rand(4, 3, requires_grad=True))
        assert view._base is not None
        with pytest.raises(RuntimeError, match="view"):
            view.mul_(2)


def _of_a_view_without_gradient(x, y):
    rows = x.reshape(-1, 2)  # of which no gradient comes, but later views say that it is asked for
    with torch.enable_grad():
        same, more = AsIs.apply(rows, y)
    return same, same.view(-1), more


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
def test_views_of_inputs_that_get_no_gradient(backend):
    pliant.reset()
    seen = []
    for f in (_of_a_view_without_gradient, pliant.compile(_of_a_view_without_gradient, backend=backend)):
        x, y = torch.ones(4, 2, requires_grad=True), torch.ones(3, requires_grad=True)
        called = []
        x.register_hook(called.append)
        x.register_post_accumulate_grad_hook(called.append)
        with torch.no_grad():
            same, view, more = f(x, y)
        told = [(o.requires_grad, o._base is x) for o in (same, view, more)]
        (same.sum() + more.sum()).backward()
        seen.append((told, x.grad, y.grad.tolist(), called))
    assert seen[0] == seen[1]
    assert not pliant.stats()["fallbacks"] and not pliant.stats()["assumptions"]
