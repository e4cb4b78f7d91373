"""Writes: to intermediates, through views, to inputs."""

import pytest
import torch
from tests.autograd.programs import captured, check, compiled

import pliant
from pliant.autograd.runtime import build
from pliant.debug import events
from pliant.errors import Unsupported
from pliant.graph.interpret import eager


def leaf(*size):
    return torch.randn(*size, requires_grad=True)


def derived(*size):
    """A tensor that requires grad and is the result of earlier work."""
    return torch.randn(*size, requires_grad=True).clone()


def test_chain_of_writes():
    check(lambda x: ((x * 2).add_(1).mul_(x).relu_(),), [leaf(3, 4)])


def test_write_to_a_slice():
    def f(x):
        y = x * 2
        y[1:3].mul_(3)
        y[0] = 7.0
        y[:, 1] += x[:, 0]
        return (y,)

    check(f, [leaf(4, 3)])


def test_view_sees_a_later_write_to_its_base():
    def f(x):
        y = x * 2
        v = y.view(-1)[2:]
        y.add_(1)
        w = v * 3
        v.zero_()
        return w, y + 1

    check(f, [torch.randn(2, 4)])


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(), lambda t: t.transpose(0, 1), lambda t: t.permute(1, 0), lambda t: t.view(-1), lambda t:
        t.unsqueeze(1),
        lambda t: t.diagonal(), lambda t: t[1], lambda t: t[:, 1:3], lambda t: t[::2], lambda t: t.split(2)[1],
        lambda t: t.chunk(2, 1)[0], lambda t: t.unbind(1)[2], lambda t: t.as_strided((2, 2), (4, 1), 1), lambda t:
        t.detach(),
        lambda t: t.expand(4, 4), lambda t: t.narrow(0, 1, 2).t(), lambda t: t.reshape(2, 8)[1].view(2, 4)[0],
        lambda t: t.view(1, 4, 4).squeeze(0), lambda t: t.view(torch.int32), lambda t: t.split_with_sizes([1, 3])[1],
    ],
)  # fmt: skip
def test_write_through_views(view):
    def f(x):
        y = x + 1
        view(y).mul_(3)
        return y, view(y) * 2

    check(f, [torch.randn(4, 4)])


def test_buffer_is_written():
    def f(x, buffer):
        buffer.add_(x.detach().sum())
        return (x * buffer,)

    check(f, [leaf(3), torch.zeros(3)])


def test_parameter_is_written_without_grad():
    def f(p, x):
        y = p * x
        with torch.no_grad():
            p.mul_(0.5)
        return (y.detach(), x * 2)

    check(f, [torch.nn.Parameter(torch.randn(3)), leaf(3)])


def test_input_with_history_is_written():
    def f(x):
        x.mul_(2)
        return (x.sin(),)

    check(f, [derived(3)])


def test_written_input_is_returned():
    def f(x):
        x.mul_(2)
        return x, x[1:], x.detach()

    check(f, [derived(3)])
    check(f, [torch.randn(3)])


def test_written_input_comes_to_need_a_gradient():
    def f(buffer, w):
        buffer.add_(w)
        return (buffer * 2,)

    check(f, [torch.zeros(3), leaf(3)])


def test_old_value_of_a_written_input_is_saved():
    def f(x, w):
        y = x * w
        x.copy_(y.detach())
        return (y.sum(),)

    # Eager refuses this backward, as a saved tensor was written, but only when it is called.
    inputs = [torch.randn(3), leaf(3)]
    (total,) = compiled(f, inputs)(*inputs)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()

    def g(x, w):
        y = x.clone() * w
        x.zero_()
        return (y.sum(),)

    check(g, [torch.randn(3), leaf(3)])


def test_write_to_a_leaf_is_refused_as_in_eager():
    program = captured(lambda x: (x.add_(1),), [torch.randn(3)])
    program.inputs[0].example = leaf(3)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        build(program, eager)


def test_out_argument():
    def f(x, y):
        out = torch.empty(3)
        torch.add(x, y, out=out)
        return (out,)

    check(f, [torch.randn(3), torch.randn(3)])


def test_copy_casts_and_broadcasts():
    def f(x, y):
        z = torch.zeros(2, 3, dtype=torch.float64)
        z.copy_(x)
        y.copy_(z)
        return (z.t(),)

    check(f, [torch.randn(3), torch.zeros(2, 3)])


def test_index_put():
    def f(x, i):
        y = x.clone()
        y[i] = 0.0
        y.index_add_(0, i, x[:2])
        return (y.masked_fill_(y > 1, 9.0),)

    check(f, [leaf(4, 3), torch.tensor([0, 2])])


def test_random_fill():
    check(lambda x: (torch.empty(4).normal_() + x, torch.empty(4).uniform_(1, 2), torch.rand(4)), [torch.randn(4)])


@pytest.mark.parametrize("draw", [torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.bernoulli_, torch.rand_like])
@pytest.mark.parametrize("seen", [lambda y: y, lambda y: y.view_as(y), torch.Tensor.detach, lambda y: y[:, 1:]])
def test_random_numbers_come_in_the_order_of_memory(seen, draw):
    """Also where a write through a view has made a value that lies otherwise."""

    def f(x, source):
        y = x.t() + 1
        view = seen(y)
        view.masked_scatter_(view > 0.6, source)
        return y, draw(view).clone()

    check(f, [torch.rand(6, 5), torch.rand(5, 6)])


def test_shape_changed_in_place_is_refused():
    with pytest.raises(Unsupported):
        compiled(lambda x: (x.resize_(2),), [torch.randn(4)])


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
def test_written_input_comes_to_need_a_gradient_though_none_is_recorded_around_the_call(backend):
    def program(x, p):
        with torch.enable_grad():
            x.add_(p * 2)

    def seen(function):
        x, p = torch.zeros(3), torch.ones(3, requires_grad=True)
        with torch.no_grad():
            function(x, p)
        return x.requires_grad, torch.autograd.grad(x.sum(), p)

    mine, theirs = seen(pliant.compile(program, backend=backend)), seen(program)
    torch.testing.assert_close(mine, theirs)


def written_after(x):
    with torch.no_grad():
        view, other = x[0], x[1]
        view.add_(1)
        return view, other[1:], view * 2


def written_before(x):
    with torch.no_grad():
        view = x[0]
        x.mul_(2)
    return view, x * 3


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("program", [written_after, written_before])
@pytest.mark.parametrize("leaf", [True, False])
def test_views_of_inputs_that_autograd_refuses_since_they_were_written(leaf, program, backend):
    def function_of(tensor):
        try:
            return type(tensor.grad_fn)
        except RuntimeError as error:
            return str(error)

    def seen(function):
        x = torch.ones(2, 3, requires_grad=True)
        x = x if leaf else x * 1
        found = function(x)
        told = [(one._version, one._base is x, one.requires_grad) for one in (*found, x)]
        refused = ["forbidden" in str(function_of(one)) for one in found]
        return told, refused, [one.detach() for one in (*found, x)]

    pliant.reset()
    with events.collect("fallback", "graph_break") as unasked:
        mine = seen(pliant.compile(program, backend=backend))
    told, refused, values = seen(program)
    assert mine[:2] == (told, refused) and refused[0] and not unasked
    torch.testing.assert_close(mine[2], values)
