"""In-place changes of an intermediate's shape are views of it; those of an input are refused and run eagerly."""

import pytest
import torch

import pliant
from pliant.errors import PliantError


def transposed(x):
    y = x * 2
    y.t_()
    y.add_(1)
    return y


def unsqueezed(x):
    y = x.sin()
    y.unsqueeze_(0)
    return y * y


def pooled(x):
    y = x.reshape(1, 3, 4, 1).to(memory_format=torch.channels_last)
    return torch.nn.functional.adaptive_avg_pool2d(y, 1)


@pytest.mark.parametrize("function", [transposed, unsqueezed, pooled])
def test_intermediates(function):
    results, grads = [], []
    for call in (function, pliant.compile(function, backend="aot_eager")):
        x = torch.arange(12.0).reshape(3, 4).requires_grad_()
        out = call(x)
        out.square().sum().backward()
        results.append(out)
        grads.append(x.grad)
    torch.testing.assert_close(results[1], results[0])
    assert results[1].stride() == results[0].stride()
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("name, args", [("t_", ()), ("unsqueeze_", (0,)), ("as_strided_", ((2, 2), (2, 1)))])
@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
def test_earlier_views_keep_their_shape(backend, name, args):
    def program(x):
        whole = x + 1
        part = whole[:1]
        getattr(whole, name)(*args)
        whole.mul_(2)
        return whole, part

    x = torch.arange(12.0).reshape(3, 4)
    found, expected = pliant.compile(program, backend=backend)(x), program(x)
    torch.testing.assert_close(found, expected)
    assert [one.stride() for one in found] == [one.stride() for one in expected]


@pytest.mark.fallbacks_expected
def test_what_uses_an_input_before_its_shape_changes_has_its_shape_before():
    def program(x, y):
        x = x * 1
        x.index_add_(0, torch.tensor([0]), y[:1])
        y.relu_().unsqueeze_(0)
        return x

    ours, theirs = torch.ones(4, 4), torch.ones(4, 4)
    pliant.reset()
    found = pliant.compile(program)(torch.ones(4, 4), ours)
    assert pliant.stats()["fallback_reasons"] == {"`unsqueeze_` changes the shape of an input": 1}
    assert torch.equal(found, program(torch.ones(4, 4), theirs)) and ours.shape == theirs.shape
    with pytest.raises(PliantError, match="`unsqueeze_` changes the shape of an input"):
        pliant.export(program, (torch.ones(4, 4), torch.ones(4, 4)))


def _half(x, other):
    part = x.chunk(2)[0]
    x.data = part * 2
    return part + 1


def _turned(x, other):
    total = x.sum(0)
    x.data = (other * 2).t().contiguous().t()
    return total, x * 2


def _twice(x, other):
    x.data = other[:3] * x[:3].detach()
    x.data = x.data[1:]
    return x.sum()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
@pytest.mark.parametrize("program", [_half, _turned, _twice])
def test_what_is_computed_before_data_of_another_layout_is_given(program, backend, dynamic):
    """The graph's input lies as the caller's tensor does at the call."""

    def outcome(call):
        x, other = torch.arange(12.0).reshape(4, 3), torch.arange(12.0, 24.0).reshape(4, 3)
        results = call(x, other)
        return results, x, x.stride()

    compiled = pliant.compile(program, backend=backend, dynamic=dynamic)
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled), outcome(program), rtol=0, atol=0)


class _Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


def _added(given, p):
    given.data = given.detach() * 2
    given.add_(p)
    return given * 2


def _added_to_part(given, p):
    given.data = given.detach() * 2
    given[0].add_(p)
    return given * 2


def _written_by_a_function(given, p):
    given.data = (given + p).detach()
    _Tripled.apply(given)
    return given * p


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("of_leaf", [False, True])
@pytest.mark.parametrize("program", [_added, _added_to_part, _written_by_a_function])
def test_recorded_writes_of_a_tensor_that_was_given_data(program, of_leaf, backend):
    """They are part of its history, which the caller sees."""
    seen = []
    for call in (program, pliant.compile(program, backend=backend)):
        p, leaf = torch.tensor(0.7, requires_grad=True), torch.arange(6.0).reshape(2, 3).requires_grad_()
        given = leaf * 2 if of_leaf else torch.arange(6.0).reshape(2, 3)
        result = call(given, p)
        (given.sum() + result.sum()).backward()
        seen.append((given.requires_grad, given.grad_fn is None, p.grad, leaf.grad, given.detach(), result.detach()))
    torch.testing.assert_close(seen[1], seen[0])


# C++ takes the dimension that a product of a vector has too many away in place.
PRODUCTS = {
    "turned": lambda v, m: (lambda h: (h.transpose(0, -1), h))(v @ m),
    "a row of it": lambda v, m: (lambda h: (h[None], h))(v @ m),
    "a part of it behind": lambda v, m: (lambda h: (h, h[1:]))(v @ m),
    "in place": lambda v, m: (lambda h: (h[:], h))((v * 2)[None].clone().squeeze_(0)),
}


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_results_beside_views_of_them_have_a_history(name, backend):
    compiled = pliant.compile(PRODUCTS[name], backend=backend)
    for n in (3, 3, 4):
        v, m = torch.rand(n, requires_grad=True), torch.rand(n, 5, requires_grad=True)
        gradients = []
        for function in (PRODUCTS[name], compiled):
            one, other = function(v, m)
            loss = one.sin().sum() + other.cos().sum()
            gradients.append(torch.autograd.grad(loss, (v, m), allow_unused=True))
        torch.testing.assert_close(gradients[1], gradients[0])


def _with_an_earlier_view(p):
    whole = p * 2
    part = whole[0]
    whole.unsqueeze_(0)
    return whole, part


def _with_views_before_and_after(p):
    whole = p * 2
    row = whole[0]
    whole.t_()
    column = whole[1]
    whole.mul_(3)
    return row, column, whole


def _changed_twice(p):
    whole = p * 2
    row = whole.t_()[1]
    whole.unsqueeze_(0)
    return row, whole


def _of_a_fresh_tensor(p):
    whole = torch.zeros(4, 3).add_(p)
    row = whole[0]
    return row, whole.transpose_(0, 1)


CHANGED = [_with_an_earlier_view, _with_views_before_and_after, _changed_twice, _of_a_fresh_tensor]


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", CHANGED)
def test_a_result_that_was_changed_is_what_its_views_are_of(program, requires_grad, backend):
    """A hook on it has the gradients of its views too."""

    def seen(call):
        p, noted = torch.arange(12.0).reshape(4, 3).requires_grad_(requires_grad), []
        results = call(p)
        facts = [(one._version, one._is_view(), [one._base is other for other in results], one.stride()) for one in results]
        if requires_grad:
            whole = next(one for one in results if not one._is_view())
            whole.register_hook(lambda g: noted.append(g.tolist()) or g * 2)
            sum(one.sum() * (n + 1) for n, one in enumerate(results)).backward()
        return facts, noted, None if p.grad is None else p.grad.tolist(), [one.tolist() for one in results]

    assert seen(pliant.compile(program, backend=backend)) == seen(program)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
def test_a_parameter_that_requires_gradients_for_a_while_gets_them(backend):
    frozen = torch.nn.Parameter(torch.arange(3.0), requires_grad=False)

    def program(x):
        frozen.requires_grad_(True)
        result = (frozen * x).sum()
        frozen.requires_grad_(False)
        return result

    result = pliant.compile(program, backend=backend)(torch.ones(2, 3))
    frozen.requires_grad_(True)
    result.backward()
    assert frozen.grad.tolist() == [2, 2, 2]


def _halved(p, x):
    out = (p * x).sum()
    p.data /= 2
    return out


def _halved_after_gradients(p, x):
    out = (p * x).sum()
    out.backward()
    p.data /= 2
    return out.detach()


def _own_with_a_new_write(p, x):
    own = p.data
    before = (p * p * x).sum()
    own.mul_(3)
    p.data = own
    return before + (p * x).sum()


def _given_by_a_vector(p, x):
    with torch.no_grad():
        flat = p.view(-1)
        p.data = (flat * 2).view_as(p).data
    return (p * x).sum() + flat.sum()


@pytest.mark.parametrize("program", [_halved, _halved_after_gradients, _own_with_a_new_write, _given_by_a_vector])
def test_data_is_the_tensors_own(program):
    """`p.data /= 2` assigns the memory that the tensor has; views without a history have no gradients to read it."""
    pliant.reset()

    def outcome(call):
        p, x = torch.nn.Parameter(torch.arange(1.0, 4)), torch.ones(3, requires_grad=True)
        out = call(p, x)
        if out.requires_grad:
            out.backward()
        return out.item(), str(p.data), str(p.grad), str(x.grad), p._version

    compiled = pliant.compile(program, fullgraph=True)
    for _ in range(2):
        assert outcome(compiled) == outcome(program)


@pytest.mark.parametrize("repeat", [1, 2])
def test_a_view_without_a_history_that_is_computed_with(repeat):
    pliant.reset()

    def program(p, x):
        with torch.no_grad():
            whole = p.view(3, 1)
        out = (whole[:, 0] * x).sum()
        p.data = torch.full((3,), 5.0)
        return out + (p * x).sum()

    p, q, x = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3)), torch.ones(3)
    compiled = pliant.compile(program)
    for _ in range(repeat):
        found, expected = compiled(p, x), program(q, x)
        found.backward()
        expected.backward()
        torch.testing.assert_close((found, p, p.grad), (expected, q, q.grad))
    assert pliant.stats()["graph_breaks"] and not pliant.stats()["fallbacks"]


def _used_up(weight, x):
    before = weight.detach().clone()
    (weight * x).exp().sum().backward()
    with torch.no_grad():
        weight.add_(weight.grad, alpha=0.1)
        weight.grad = None
    loss = (weight * x).exp().sum()
    loss.backward()
    weight.data = before
    return loss


def _kept(weight, x):
    loss = (weight * weight).sum()
    loss.backward(retain_graph=True)
    weight.data = x
    loss.backward()
    return loss


def _walked_by_another(weight, x):
    other = weight.exp().sum()
    (weight * weight).sum().backward()
    weight.data = x
    other.backward()
    return other


@pytest.mark.parametrize(("program", "breaks"), [(_used_up, 0), (_kept, 1), (_walked_by_another, 1)])
def test_data_given_behind_a_backward(program, breaks):
    """As sharpness-aware optimizers put weights back: no gradient reads them any more, unless the history was kept."""

    def outcome(call):
        weight, found = torch.nn.Parameter(torch.arange(3.0)), []
        for i in range(2):
            loss = call(weight, torch.full((3,), 0.5 + i))
            found += [loss.detach(), weight.grad.clone(), weight.detach().clone()]
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                loss.backward()
            weight.grad = None
        return found

    pliant.reset()
    torch.testing.assert_close(outcome(pliant.compile(program)), outcome(program))
    assert bool(pliant.stats()["graph_breaks"]) == bool(breaks)
