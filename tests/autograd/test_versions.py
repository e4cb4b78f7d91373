"""How often a tensor was written, as its version says."""

import itertools

import pytest
import torch

import pliant


class AddsOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def marked_dirty(x):
    y = x.clone()
    AddsOne.apply(y)
    return (y,)


def written_thrice(x):
    y = x.clone()
    y.add_(1)
    y[0] = 3
    return (y.relu_(),)


def out_argument(x):
    y = torch.empty(3, 4)
    torch.add(x.detach(), 1, out=y)
    return (y,)


def written_view_alone(x):
    y = x.clone()
    return (y[0].add_(1),)


def view_of_what_is_written(x):
    y = x.clone()
    view = y[0]
    y.add_(1)
    return y, view


def detached_and_written(x):
    y = x.clone()
    return y, y.detach().add_(1)


def written_through_data(x):
    y = x.clone()
    y.data.add_(1)
    return (y,)


class SetsRowsUnseen(torch.autograd.Function):
    """What is written through `data` counts nowhere, inside an own function as outside of one."""

    @staticmethod
    def forward(ctx, table, row):
        table.data[0] = row
        return table

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient[0]


def transposed(x):
    y = x.clone()
    return (y.t_(), y.add_(1).unsqueeze_(0))


def one_of_several(x):
    y = x.exp()
    y.add_(1)
    return y, x * 2


def written_without_grad(x):
    y = x.clone()
    with torch.no_grad():
        y.add_(1)
    return (y,)


def fresh_and_given_values(x):
    y = torch.zeros_like(x).copy_(x)
    return y, torch.ones(3, 4).add_(x).mul_(2), y[0], torch.empty_like(x).copy_(x)


def of_a_leaf_made_inside(x):
    y = torch.ones(3, 4, requires_grad=True) * x.detach()
    z = y * 3
    z.add_(1).mul_(2)
    return y, z, z[1:]


OF_RESULTS = [
    written_thrice, out_argument, written_view_alone, view_of_what_is_written, detached_and_written,
    written_through_data, one_of_several, written_without_grad, fresh_and_given_values,
    of_a_leaf_made_inside,
]  # fmt: skip


def versions(tensors):
    return [one._version for one in tensors]


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize(
    ("program", "requires_grad"), [*itertools.product(OF_RESULTS, (False, True)), *itertools.product([marked_dirty, transposed], (False, True))]
)
def test_of_a_result(program, requires_grad, backend):
    def behind_a_break(x):
        results = program(x)
        pliant.graph_break()
        return results, [one._version for one in results]

    x = torch.ones(3, 4, requires_grad=requires_grad)
    expected = versions(program(x))
    assert versions(pliant.compile(program, backend=backend)(x)) == expected
    results, seen = pliant.compile(behind_a_break, backend=backend)(x)
    assert seen == versions(results) == expected


def test_of_a_result_that_the_backward_reads():
    def program(x):
        y = x * 2
        y.add_(1)
        return y.exp_()

    x = torch.ones(3, requires_grad=True)
    result = pliant.compile(program)(x)
    assert result._version == 2
    assert torch.equal(*(torch.autograd.grad(one.sum(), x)[0] for one in (result, program(x))))
    with torch.no_grad():
        result = pliant.compile(program)(x)
        assert result._version == 2


def test_an_input_that_own_functions_write_through_data():
    table, x = torch.zeros(2, 4), torch.ones(4, requires_grad=True)
    result = pliant.compile(lambda table, x: SetsRowsUnseen.apply(table, x.sin()))(table, x)
    assert table._version == 0
    (gradient,) = torch.autograd.grad(result.sum(), x)  # of a view, which eager looks at only if it was not written
    assert torch.allclose(gradient, x.detach().cos())


def test_a_result_written_outside_is_noticed():
    def program(x):
        return (x * 2).exp_()

    result = pliant.compile(program)(torch.ones(3, requires_grad=True))
    result.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


OF_INPUTS = {
    "once": lambda x: x.add_(1),
    "twice": lambda x: x.add_(1).mul_(2),
    "a part": lambda x: x[:1].add_(1),
    "from itself": lambda x: x.copy_(x.flip(0)),
    "by an operator of many numbers": lambda x: torch.cat([x[:1].clone(), x[:1].clone()], out=x),
    "of random numbers": lambda x: x.random_(3),
    "of data": lambda x: x.data.add_(1),
    "of strided data": lambda x: x.data.as_strided((2,), (1,)).add_(1),
    "of detached data": lambda x: x.detach().add_(1).mul_(2),
    "by a function": AddsOne.apply,
}


@pytest.mark.spread(2, "backend", "dtype", "requires_grad", "write")
@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("write", OF_INPUTS)
def test_of_an_input(write, requires_grad, dtype, backend):
    def program(x):
        OF_INPUTS[write](x)
        return x.clone()

    if write == "of random numbers" and dtype.is_complex or write.startswith("by an op") and requires_grad:
        return

    def seen(function):
        x = torch.ones(2, dtype=dtype, requires_grad=requires_grad) * 1
        return versions([function(x), x])

    assert seen(pliant.compile(program, backend=backend)) == seen(program)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("write", OF_INPUTS)
@torch.inference_mode()
def test_of_an_input_from_outside_inference_mode(write, backend):
    def program(x):
        OF_INPUTS[write](x)
        return x.sum()

    def seen(function):
        with torch.inference_mode(False):
            x = torch.ones(2)
        function(x)
        return x._version, x.is_inference()

    assert seen(pliant.compile(program, backend=backend)) == seen(program)


@pytest.mark.parametrize("requires_grad", [False, True])
@torch.inference_mode()
def test_views_in_inference_mode_of_what_was_made_outside(requires_grad):
    def program(x):
        x[0].mul_(2)
        one, other = x.chunk(2)
        one.add_(1)
        return x.t()[1:], other, x.diagonal(), x.unfold(0, 2, 1) * 2

    pliant.reset()
    found = []
    for function in (program, pliant.compile(program, fullgraph=True)):
        with torch.inference_mode(False):
            x = torch.ones(4, 3).requires_grad_(requires_grad)
        results = function(x)
        found.append([(one.tolist(), one.is_inference(), one.requires_grad) for one in results])
    assert found[0] == found[1] and pliant.stats()["fallbacks"] == 0


@torch.no_grad()
def test_inference_tensors_are_not_written_outside_inference_mode():
    def program(x):
        x.add_(1)
        return x * 2

    compiled = pliant.compile(program)
    compiled(torch.ones(2))
    for function in (program, compiled):
        with torch.inference_mode():
            made = torch.ones(2)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            function(made)
        assert made.tolist() == [2, 2]  # eager writes it first


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
def test_of_data_that_is_returned(backend, mode):
    def program(x):
        y = x.data
        y.add_(1)
        z = y.view(-1)
        return x, y, z.mul_(2)

    expected, found = (mode()(f)(torch.ones(2)) for f in (program, pliant.compile(program, backend=backend)))
    assert versions(found) == versions(expected) == [0, 2, 2]


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("read_first", [False, True])
def test_views_that_are_written_unseen_have_a_new_history_from_then_on(read_first, backend):
    """The view's own gradient is that of what reads it afterwards."""

    def program(view):
        if read_first:
            result = view.softmax(0)
        view.detach().mul_(2)
        return result if read_first else view.softmax(0)

    def gradients(function):
        leaf = torch.linspace(0, 1, 4).requires_grad_()
        view = leaf[:]
        result = function(view)
        return torch.autograd.grad(result[0], [leaf, view], allow_unused=True)

    mine, theirs = gradients(pliant.compile(program, backend=backend)), gradients(program)
    assert (mine[1] is None) == (theirs[1] is None) == read_first
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("leaf_is_seen", [False, True])
def test_views_of_a_view_that_is_written_unseen_lead_to_its_base(leaf_is_seen, backend):
    """Their functions are made anew, from what both are views of."""

    def program(view):
        flat = view.view(-1)
        flat.detach().mul_(2)
        return flat.sin()

    def gradients(function):
        leaf = torch.linspace(0, 1, 4).requires_grad_()
        view = leaf[:] if leaf_is_seen else leaf * 1
        result = function(view)
        return torch.autograd.grad(result[0], [leaf, view], allow_unused=True)

    pliant.reset()
    mine, theirs = gradients(pliant.compile(program, backend=backend)), gradients(program)
    assert (mine[1] is None) == (theirs[1] is None) == leaf_is_seen
    torch.testing.assert_close(mine, theirs)
    assert not pliant.stats()["fallback_reasons"]


def read_through_an_old_view(view):
    flat = view.view(-1)
    view.detach().mul_(2)
    return flat.sin() + view * 3


def read_twice(view):
    result = view * 5
    view.detach().mul_(2)
    return result + view * 3


def read_between(view):
    flat = view.view(-1)
    view.detach().mul_(2)
    result = flat * 5
    view.detach().mul_(2)
    return result + view * 3


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("is_view", [False, True])
@pytest.mark.parametrize("program", [read_through_an_old_view, read_twice, read_between])
def test_a_view_that_is_written_unseen_has_the_gradient_of_later_readings_alone(program, is_view, backend):
    """A part of what reads it; it is all of that where the tensor is no view, and then there is a graph."""

    def gradients(function):
        leaf = torch.linspace(0, 1, 4).requires_grad_()
        given = leaf[:] if is_view else leaf * 1
        return torch.autograd.grad(function(given).sum(), [leaf, given])

    pliant.reset()
    torch.testing.assert_close(gradients(pliant.compile(program, backend=backend)), gradients(program))
    assert bool(pliant.stats()["fallback_reasons"]) == is_view


def dropped(x):
    return torch.utils.checkpoint.checkpoint(lambda a: torch.dropout(a, 0.5, True).sin(), x, use_reentrant=False)


def waved(x):
    return torch.utils.checkpoint.checkpoint(lambda a: a.sin().cos(), x, use_reentrant=False)


def joined(x):
    return torch.view_as_real(torch.complex(x, x))


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
@pytest.mark.parametrize("program", [dropped, waved, joined])
def test_what_eager_alone_saves_may_be_written_and_changes_no_gradient(program, backend):
    """Eager raises an error: it saved what the gradient does not depend on, or runs the region again."""

    def gradient(run, write):
        x = torch.arange(12.0, dtype=torch.float64, requires_grad=True)
        taken = x * 2
        torch.manual_seed(0)
        result = run(taken)
        if write:
            taken.mul_(2)
        return torch.autograd.grad(result.sum(), x)[0]

    compiled = pliant.compile(program, backend=backend)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradient(program, True)
    expected = gradient(program, False)
    assert torch.allclose(gradient(compiled, False), expected)
    try:
        found = gradient(compiled, True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        assert torch.allclose(found, expected)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
def test_views_from_before_a_write_have_a_history_where_the_input_is_told_to_later(backend):
    """Autograd makes their functions anew; those of views that came after the write not."""

    def program(x):
        before = x[0]
        before.add_(1)
        return before, x[0], x * 2

    def facts(function):
        x = torch.ones(2, 2)
        views = function(x)
        x.requires_grad_()
        return [(one.is_leaf, one.requires_grad, one.grad_fn is None) for one in views]

    pliant.reset()
    assert facts(pliant.compile(program, backend=backend)) == facts(program)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("twice", [False, True])
def test_running_statistics_are_written_uncounted(backend, twice):
    """Eager keeps them with each call, and calls before the backward are no error."""

    def steps(function, norm):
        x = torch.linspace(0, 1, 12).view(3, 4).requires_grad_()
        (function(x).sum() + function(x * 2).sum()).backward()
        return norm.running_mean._version, norm.running_var._version, norm.num_batches_tracked._version, x.grad, norm.running_var

    found = []
    for compiled in (False, True):
        norm = torch.nn.BatchNorm1d(4)

        def program(x, norm=norm):
            result = norm(x).sin()
            return norm(result) if twice else result

        found.append(steps(pliant.compile(program, backend=backend) if compiled else program, norm))
    assert found[0][:3] == found[1][:3]
    torch.testing.assert_close(found[1][3:], found[0][3:])
