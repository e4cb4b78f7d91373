"""Results whose gradients eager has none of: the program is compiled, and asking for these gradients is eager's error."""

import pytest
import torch

import pliant


def _returned_after_its_own_backward(x):
    y = x.exp()
    y.sum().backward()
    return y


def _beside_others(x):
    y = x.exp()
    y.sum().backward()
    return y[:2], x * 2, x + 1


def _halves_of_integers(x):
    return x // 2, x.sin()


def _unique(x):
    return x.round().unique() * 2, x.sin(), torch.heaviside(x, x)


def _added(x):
    return (x // 2).sum() + x.sum(), x.sin()


@torch.library.custom_op("test_refused::doubled", mutates_args=())
def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


_doubled.register_fake(torch.empty_like)


def _by_an_operator_without_derivative(x):
    return _doubled(x), x.sin(), _doubled(x.detach()) + x


def _scattered(x):
    return x.new_zeros(3).scatter(0, torch.tensor([0, 2]), x), x.sin(), x.scatter_add(0, torch.tensor([0, 2]), x)


PROGRAMS = (
    _by_an_operator_without_derivative, _returned_after_its_own_backward, _beside_others, _halves_of_integers, _unique, _added,
    _scattered,
)  # fmt: skip


def _asked(f, order, create_graph):
    x = torch.full((3,), 1.5, requires_grad=True)
    results = f(x)
    results = results if isinstance(results, tuple) else (results,)
    found = []
    for place in [one for one in order if one < len(results)]:
        x.grad = None
        try:
            results[place].sum().backward(create_graph=create_graph)
            found.append(x.grad.detach())
        except RuntimeError as error:
            found.append("second time" if "second time" in str(error) else f"{type(error).__name__}: {error}")
    return found


@pytest.mark.spread(2, "create_graph", "order", "program")
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore:Using backward")
def test_error_comes_where_a_gradient_is_asked(program, order, create_graph):
    pliant.reset()
    compiled = pliant.compile(program, backend="aot_eager", fullgraph=True)
    for found, expected in zip(_asked(compiled, order, create_graph), _asked(program, order, create_graph), strict=True):
        torch.testing.assert_close(found, expected) if isinstance(expected, torch.Tensor) else None
        assert isinstance(found, torch.Tensor) == isinstance(expected, torch.Tensor)
        assert isinstance(found, torch.Tensor) or found == expected
    assert pliant.stats()["fallbacks"] == 0


def test_all_gradients_at_once_are_the_error_of_the_one():
    def program(x):
        return x // 2, x.sin()

    for f in (program, pliant.compile(program)):
        x = torch.rand(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="derivative for aten::floor_divide"):
            torch.autograd.backward([one.sum() for one in f(x)])


@pytest.mark.parametrize("asked", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_gradients_are_errors_where_they_lead_through_what_is_gone(place, asked):
    def program(x, w):
        h = x.tanh()
        (h * w).sum().backward()
        return (h.detach() + w).sum(), (h + w).sum(), h.sum(), (x * w).sum()

    seen = []
    for f in (program, pliant.compile(program, backend="aot_eager", fullgraph=True)):
        given = torch.full((3,), 0.5, requires_grad=True), torch.full((3,), 0.7, requires_grad=True)
        result = f(*given)[place]
        try:
            found = torch.autograd.grad(result, [given[i] for i in asked], allow_unused=True)
            seen.append([None if one is None else one.tolist() for one in found])
        except RuntimeError as error:
            assert "second time" in str(error)
            seen.append("error")
    assert seen[0] == seen[1]


def test_gradients_of_a_part_are_left_to_eager():
    """A result some of whose leaves have a gradient: eager's engine gets to these if only they are asked for."""

    def program(x, y):
        return (x // 2).sum() + (y * 2).sum()

    pliant.reset()
    compiled = pliant.compile(program)
    x, y = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x, y), y)[0], torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="derivative for"):
        compiled(x, y).backward()
    assert pliant.stats()["fallbacks"] == 2


def _sums(results):
    for one in results:
        try:
            total = one.sum()
        except RuntimeError as error:
            yield str(error)
        else:
            total.backward(retain_graph=True)
            yield total


def _written_beside(x):
    x.chunk(2, 1)[0].detach().fill_(3)
    return x.sum()


def _returned_after_a_write(x):
    part = x.chunk(2, 1)[0]
    part.detach().fill_(3)
    return part


def _added_after_a_write(x):
    parts = x.unbind(0)
    total = parts[0] + parts[1]
    x.detach().mul_(2)
    return total, x * 2, parts[0]


@pytest.mark.fallbacks_expected
@pytest.mark.parametrize("program", [_written_beside, _returned_after_a_write, _added_after_a_write])
def test_views_that_autograd_refuses_to_look_at(program):
    """Nothing is wrong with the compiler there: no crash is reported."""
    pliant.reset()
    found = []
    with pliant.config.patch(strict=True):
        for run in (program, pliant.compile(program, backend="aot_eager")):
            leaf = torch.arange(8.0).reshape(2, 4).requires_grad_()
            x = leaf * 1
            results = run(x)
            sums = list(_sums(results if isinstance(results, tuple) else (results,)))
            found.append([x, *sums, "no gradient" if leaf.grad is None else leaf.grad])
    for ours, theirs in zip(*reversed(found), strict=True):
        assert ours == theirs if isinstance(theirs, str) else torch.equal(ours, theirs)
    assert program is not _written_beside or not pliant.stats()["fallbacks"]
