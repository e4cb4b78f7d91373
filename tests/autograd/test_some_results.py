"""Gradients of some of a program's results, then of others: what eager gives, frees and does not touch."""

import pytest
import torch

import pliant


def _heads(x, p, q):
    return (x * p).sin().sum(), x.sqrt(), (q * q).sum(), x.clone()


def _chained(x, p, q):
    hidden = torch.tanh(x @ (p.unsqueeze(1) * q))
    return hidden, torch.stack([hidden, hidden * 2]), hidden.cumsum(0) + x, x / x.sum()


def _written_through_views(x, p, q):
    part, whole = x.clone(), p.clone()
    part[0].add_(1)
    whole[1:].mul_(2)
    return part, whole, part[:2] + q[:2], x + 1


def _world():
    torch.manual_seed(0)
    x = torch.rand(5)
    x[0] = 0
    return x.requires_grad_(), torch.rand(5, requires_grad=True), torch.rand(5, requires_grad=True)


def _after(f, order, **options):
    tensors, calls, found = _world(), [], []
    tensors[2].register_hook(lambda g: calls.append(g.clone()))
    tensors[1].register_hook(lambda g: g * 2)
    outputs = f(*tensors)
    for place in order:
        try:
            outputs[place].sum().backward(**options)
        except RuntimeError as error:
            assert "second time" in str(error)
            found.append(-1)
        found.append([None if t.grad is None else t.grad.clone() for t in tensors])
    return [found, calls]


@pytest.mark.spread(2, "order", "program", "dynamic")
@pytest.mark.parametrize("order", [(0,), (1,), (2, 0, 3, 1), (3, 3, 0, 0, 2), (2, 2), (1, 0, 2)])
@pytest.mark.parametrize("program", [_heads, _chained, _written_through_views])
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_one_after_the_other(program, order, dynamic):
    f = pliant.compile(program, dynamic=dynamic)
    torch.testing.assert_close(_after(f, order), _after(program, order), equal_nan=True)
    torch.testing.assert_close(
        _after(f, order, retain_graph=True), _after(program, order, retain_graph=True), equal_nan=True
    )


def test_what_no_result_depends_on_is_left_alone():
    """The engine does not get to tensors that only results without gradients were computed from."""

    def program(x, p, q):
        return x * 2, (p > q).float()

    for f in (program, pliant.compile(program)):
        x, p, q = _world()
        q.register_hook(lambda g: g * 2)
        f(x, p * 1, q)[0].sum().backward()
        assert p.grad is None and q.grad is None and x.grad is not None


def test_gradients_that_a_function_makes_of_nothing_are_zeros():
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 1, y * 2

        @staticmethod
        def backward(ctx, g, h):
            return g, h * 2

    def program(x, p, q):
        one, other = Both.apply(x, p)
        return one, other.sin()

    for f in (program, pliant.compile(program)):
        x, p, q = _world()
        f(x, p, q)[0].sum().backward()
        assert p.grad.eq(0).all()


def test_what_is_written_between_matters_to_what_reads_it():
    def program(x, p, q):
        return (x * p).sum(), (q * q).sum()

    for f in (program, pliant.compile(program)):
        x, p, q = _world()
        first, second = f(x, p, q)
        with torch.no_grad():
            p.mul_(2)
        second.backward()
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            first.backward()


def test_views_of_storage_behind_detach_have_no_history():
    for f in (lambda x: x.data.as_strided((2,), (1,), 1), lambda x: x.detach().as_strided((2,), (1,), 1)):
        assert not pliant.compile(f)(_world()[0]).requires_grad


def test_writes_concern_the_results_that_read_what_was_written():
    def program(x, p, q):
        return (x * 2).sin().sum(), p.exp(), q * 2

    for f in (program, pliant.compile(program)):
        x, p, q = _world()
        first, second, _ = f(x, p * 1, q)
        with torch.no_grad():
            second.mul_(2)
        first.backward()
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            second.sum().backward()


class KeepsMore(torch.autograd.Function):
    """The gradient of its sum reads nothing of what it keeps."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, of_product, of_sum):
        x, y = ctx.saved_tensors
        dx = dy = 0
        if of_product is not None:
            dx, dy = of_product * y, of_product * x
        if of_sum is not None:
            dx, dy = dx + of_sum, dy + of_sum
        return dx, dy


def test_writes_of_what_only_eager_reads_concern_the_results_behind_it():
    """The derivative of a root of a square, simplified, reads no root."""

    def program(x, p, q):
        return x * 2, p.pow(2).sqrt(), q * 2

    for f in (program, pliant.compile(program)):
        first, second, _ = f(*_world())
        with torch.no_grad():
            second.mul_(2)
        first.sum().backward()
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            second.sum().backward()


@pytest.mark.parametrize("asked", [0, 1, 2])
@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("all_results", [False, True])
def test_writes_of_what_a_custom_function_keeps_are_noticed(asked, written, all_results):
    def f(x, y):
        product, total = KeepsMore.apply(x, y)
        return product if all_results else x.sum(), total, x * 2

    def outcome(call):
        leaves = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        inputs = leaves[0] * 2, leaves[1] * 3
        results = call(*inputs)
        with torch.no_grad():
            inputs[written].mul_(2)
        try:
            return torch.autograd.grad(results[asked].sum(), leaves, allow_unused=True)
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)

    assert str(outcome(pliant.compile(f))) == str(outcome(f))


class KeepsBoth(torch.autograd.Function):
    """Its gradient unpacks two tensors, and may read one."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * y, gradient * x if ctx.needs_input_grad[1] else None


@pytest.mark.parametrize("late", [False, True])
def test_writes_of_what_a_custom_function_keeps_unread_are_noticed(late):
    def f(x, y):
        result = KeepsBoth.apply(x, y)
        if not late:
            x.relu_()
        return result

    def fails(call):
        x = torch.ones(3, requires_grad=True) * 2
        result = call(x, torch.ones(3))
        if late:
            x.relu_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()

    fails(f)
    fails(pliant.compile(f))


def test_a_result_whose_gradient_cannot_do_without_another_is_computed_by_the_program():
    """The sum of both gradients lies as that of the other result, of which a saved tensor was written."""

    def program(x, turned):
        first = x.exp()
        return first, torch.autograd.grad((turned * x).sin().sum(), x, create_graph=True)[0], turned

    def gradient(function):
        x = torch.linspace(1, 2, 12).view(4, 3).requires_grad_() * 2
        first, _, turned = function(x, torch.linspace(1, 2, 12).view(3, 4).t())
        turned.add_(1)
        return torch.autograd.grad(first, x, torch.ones(4, 3))

    torch.testing.assert_close(gradient(pliant.compile(program)), gradient(program))


def test_what_saves_nothing_is_there_again():
    """Eager frees what the functions of a result saved; those that save nothing give their gradients as often as asked."""

    def program(x, p):
        return x.exp(), p.mean(0) + x

    seen = []
    for f in (program, pliant.compile(program)):
        x, p = torch.ones(3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
        results = f(x, p)
        results[0].sum().backward()
        gradient = torch.autograd.grad(results[1].sum(), p, create_graph=True)[0]
        results[1].sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(results[0].sum(), x, create_graph=True)
        seen.append([gradient, x.grad, p.grad])
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_sign_of_a_real_determinant_has_no_gradient(dtype):
    """In eager that of a complex one has a gradient, and a real one's is None though the sign says that it requires one."""
    x = torch.randn(3, 3, dtype=dtype, requires_grad=True)

    def program(x):
        sign, logarithm = torch.linalg.slogdet(x.sin())
        return sign * 2, logarithm, sign

    compiled = pliant.compile(program)
    for places in ([0], [1], [2], [0, 2], [0, 1, 2]):
        found, wanted = (
            torch.autograd.grad([f(x)[i].abs().sum() for i in places], x, allow_unused=True)[0]
            for f in (compiled, program)
        )
        assert (found is None) == (wanted is None)
        if wanted is not None:
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("again", [(0, 0), (0, 1), (0, 2), (2, 2), (2, 0)])
def test_results_that_lead_to_no_input_are_freed_as_in_eager(again):
    """The first two read what one function saved, the last comes from one that saves nothing."""

    def program(x):
        leaf = x.detach().requires_grad_()
        root = leaf.sqrt()
        return root * 1, root + 1, leaf + 1

    def errors(call):
        results, found = call(torch.ones(3)), []
        for number in again:
            try:
                results[number].sum().backward()
                found.append(False)
            except RuntimeError as error:
                found.append("second time" in str(error))
        return found

    assert errors(pliant.compile(program, backend="aot_eager")) == errors(program)


def _into(make):
    def f(x):
        y = x.sin()
        copy = make(x)
        copy.copy_(y)
        return y.pow(2), copy

    return f


@pytest.mark.parametrize("make", [torch.zeros_like, lambda x: x * 2, lambda x: torch.empty(2, *x.shape)])
def test_a_copy_of_what_is_saved_may_be_written(make):
    f = _into(make)
    found = []
    for run in (f, pliant.compile(f, fullgraph=True)):
        x = torch.linspace(0.0, 1.0, 4).requires_grad_()
        result, copy = run(x)
        with torch.no_grad():
            copy.add_(1)
        result.sum().backward()
        found.append((result, copy, x.grad))
    torch.testing.assert_close(found[1], found[0])
