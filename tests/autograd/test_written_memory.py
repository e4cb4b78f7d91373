"""Memory that several tensors share and somebody writes: values, gradients and histories are eager's, or the program is
refused where it shows."""

import pytest
import torch
from tests.autograd.test_inner_results import Turned

import pliant
from pliant.debug import events


def _world(backend):
    pliant.reset()
    torch.manual_seed(0)
    leaf = torch.rand(2, 3).requires_grad_()
    return (lambda f: pliant.compile(f, backend=backend) if backend else f), leaf


def _facts(*tensors):
    return [(t.detach().clone(), t.requires_grad, t.is_leaf, t.stride()) for t in tensors]


def _view_of_a_new_tensor(compiled, leaf):
    def f(p):
        b = torch.ones(2, 3)
        view = b[:, 1:2]
        factor = p.sum().sin()
        view.mul_(factor)
        return factor, b.sin()

    factor, result = compiled(f)(leaf)
    (factor + result.sum()).backward()
    return _facts(factor, result), leaf.grad


def _view_of_an_input(compiled, leaf):
    def f(p, b):
        view = b[:, 1:2]
        factor = p.sum().sin()
        view.mul_(factor)
        return factor, b.sin()

    b = torch.rand(2, 3)
    factor, result = compiled(f)(leaf, b)
    (factor + result.sum()).backward()
    return _facts(factor, result, b), leaf.grad


def _view_made_before_the_write(compiled, leaf):
    def f(x):
        view = x.view(x.shape)
        x.diagonal().fill_(2.0)
        return view, x[1:]

    x = (leaf * 2)[:]
    before, after = compiled(f)(x)
    missing = torch.autograd.grad(before.sum(), x, allow_unused=True, retain_graph=True)
    found = torch.autograd.grad(after.sum(), x, retain_graph=True)
    before.sum().backward()
    return _facts(before, after, x), missing, found, leaf.grad


def _views_on_both_sides_of_an_unrecorded_write(compiled, leaf):
    def f(x):
        before = x.t()
        x.detach().mul_(2)
        return before, x.t()

    x = leaf[:]
    found = []
    for view in compiled(f)(x):
        found += torch.autograd.grad(view.sum(), [x, leaf], allow_unused=True, retain_graph=True)
    return found


def _views_of_a_view_that_is_returned(compiled, leaf):
    def f(x):
        y = x * 3
        view = y[1:]
        before = view[:1]
        y.detach().mul_(2)
        return view, before, view[:1]

    view, *parts = compiled(f)(leaf)
    found = [torch.autograd.grad(p.sum(), view, allow_unused=True, retain_graph=True) for p in parts]
    return found, torch.autograd.grad([p.sum() for p in parts], leaf)


def _views_of_views_from_before_the_write(compiled, leaf):
    def f(x):
        rows = x.view(x.shape)
        before = rows.view_as(rows)
        rows.mul_(2)
        return before.t(), rows, before.t()[0]

    x = (leaf * 2)[:]
    of_all, rows, of_row = compiled(f)(x)
    return [torch.autograd.grad(v.sum(), [x, rows, leaf], allow_unused=True, retain_graph=True) for v in (of_all, of_row)]


def _custom_view_of_what_is_written(compiled, leaf):
    def f(x):
        x.mul_(3)
        with torch.no_grad():
            view = Turned.apply(x)
        return view.select(1, 1).split([1, 2], -1)[0]

    return _facts(compiled(f)((leaf * 2)[:]))


def _written_through_data(compiled, leaf):
    def f(p):
        p.data.mul_(2)
        return p.sin()

    g = compiled(f)
    first = g(leaf)
    g(leaf)
    first.sum().backward()
    return leaf.grad, leaf.detach().clone()


def _data_of_a_new_leaf(compiled, leaf):
    def f(x):
        w = torch.nn.Parameter(torch.ones_like(x))
        first = (x.detach() * w).sum()
        w.data = w.data * 2
        return torch.autograd.grad(first + (w * w).sum(), w)[0]

    return compiled(f)(leaf)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("of_input", [False, True])
def test_gradients_read_the_memory_that_a_tensor_was_given(of_input, create_graph):
    def f(x):
        x = x if of_input else x * 2
        result = x.sin()
        x.data = x.detach() * 30
        return result

    def gradient(backend):
        compiled, leaf = _world(backend)
        return torch.autograd.grad(compiled(f)(leaf).sum(), leaf, create_graph=create_graph)

    torch.testing.assert_close(gradient("aot_eager"), gradient(None))


def test_gradients_read_the_memory_that_a_leaf_with_hooks_was_given():
    """Behind a break, when the leaf is saved already."""

    def f(p):
        result = p.sin()
        print(end="")
        p.data = result.data.clone()
        return result

    def gradient(backend):
        compiled, leaf = _world(backend)
        leaf.register_hook(lambda grad: grad * 2)
        compiled(f)(leaf).sum().backward()
        return leaf.grad

    torch.testing.assert_close(gradient("aot_eager"), gradient(None))


def _written_through_data_behind_a_returned_tensor(compiled, leaf):
    def program(x):
        doubled = x * 2
        returned = x.cos()
        last = doubled * doubled + returned
        doubled.data.add_(1)
        return returned, last

    torch.autograd.backward([one.sum() for one in compiled(program)(leaf)])
    return leaf.grad


@pytest.mark.parametrize("change", [lambda t: t.squeeze_(0), lambda t: t.unsqueeze_(0), lambda t: t.mul_(2), lambda t: t.t_()])
def test_hooks_of_results_whose_function_is_another_by_then(change):
    seen = []
    for backend in (None, "aot_eager"):
        compiled, leaf = _world(backend)
        result = compiled(lambda p: p * 2)(leaf)
        change(result)
        result.register_hook(seen.append)
        result.sum().backward()
        seen.append(leaf.grad)
    torch.testing.assert_close(seen[2:], seen[:2])


@pytest.mark.parametrize(
    "program",
    [
        _view_of_a_new_tensor, _view_of_an_input, _view_made_before_the_write, _custom_view_of_what_is_written,
        _written_through_data, _data_of_a_new_leaf, _views_on_both_sides_of_an_unrecorded_write,
        _views_of_a_view_that_is_returned, _written_through_data_behind_a_returned_tensor,
        _views_of_views_from_before_the_write,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_is_as_in_eager(program):
    torch.testing.assert_close(program(*_world("aot_eager")), program(*_world(None)))


def test_views_on_both_sides_of_a_returned_tensor_are_refused_visibly():
    with events.collect("fallback") as fell:
        _view_of_a_new_tensor(*_world("aot_eager"))
    assert [one.fields["reason"] for one in fell] == ["returned-intermediate"]
    pliant.reset()


def test_an_input_that_requires_no_gradients_any_more():
    def result(backend):
        compiled, leaf = _world(backend)
        other = torch.rand(2, 3).requires_grad_()
        made = compiled(lambda x, y: x.sin() * y)(leaf, other)
        leaf.requires_grad_(False)
        made.backward(torch.ones_like(made), create_graph=True)
        return leaf.grad, other.grad.detach()

    torch.testing.assert_close(result("aot_eager"), result(None))


def test_results_of_an_inference_block_have_their_strides():
    @pliant.compile(backend="aot_eager")
    def f(x):
        with torch.inference_mode():
            made = x * 2
        return made.split([1, 2], -1)[1]

    assert f(torch.rand(4, 3)).stride() == (3, 1)


def test_what_inputs_are_is_asked_at_each_call():
    def f(x):
        before = x._version
        x[0] += 1.0
        return x.is_inference(), before > 0

    def answers(backend):
        compiled, _ = _world(backend)
        g, x = compiled(f), torch.rand(4, 3)
        with torch.inference_mode():
            made = torch.rand(4, 3)
            inside = [g(x), compiled(torch.Tensor.is_inference)(made)]
        return [*inside, g(x)]

    assert answers("aot_eager") == answers(None)
    pliant.reset()


OF_COPIES = {
    "expanded": lambda x: x.clone().expand(3, -1),
    "expanded, part": lambda x: x.clone()[None].expand(3, 4)[1:],
    "half": lambda x: x.clone().view(2, 2).chunk(2, 1)[1],
    "windows": lambda x: x.clone().unfold(0, 2, 1),
}


def _written_part(x):
    part = (x * 2).view(2, 2)[:, 1:]
    part.mul_(3)
    return part.t()


OF_COPIES["written part"] = _written_part


@pytest.mark.spread(2, "backend", "name")
@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
@pytest.mark.parametrize("name", OF_COPIES)
def test_writes_through_views_of_copies(name, backend):
    def written(call):
        x = torch.arange(4.0)
        result = call(x)
        result[0].add_(1)
        return result, result.stride(), x

    for dynamic in (False, True):
        compiled = pliant.compile(OF_COPIES[name], backend=backend, dynamic=dynamic)
        for _ in range(2):
            torch.testing.assert_close(written(compiled), written(OF_COPIES[name]))


@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
def test_what_data_gives_counts_its_writes_alone(backend):
    def f(x, y):
        z = x * 2
        return x.data, x.data[1:], x.detach(), z.data, z, y.data

    def versions(call):
        leaf = torch.ones(3, requires_grad=True)
        y = leaf * 2
        found = call(leaf, y)
        y.mul_(1)
        with torch.no_grad():
            counts = []
            for one in found:
                one.mul_(2)
                counts.append([t._version for t in (leaf, y)])
        return counts, found[3], found[4], leaf, y

    compiled = pliant.compile(f, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(versions(compiled), versions(f))


def _two(other, x):
    other.mul_(2)
    x.mul_(2)


def _part(other, x):
    other.mul_(2)
    x[1:] = 1
    return other + 1


def _caught(other, x):
    before = other.exp()
    other.mul_(2)
    try:
        x.add_(1)
    except RuntimeError:
        return before, other
    return x


@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
@pytest.mark.parametrize("program", [_two, _part, _caught])
def test_views_of_leaves_are_refused_where_eager_refuses_them(program, backend):
    """Writes before are done once. The view is passed first, later, and last."""

    def outcome(call, kind):
        leaf, other = torch.ones(4, 3, requires_grad=True), torch.ones(4, 3)
        x = leaf.view_as(leaf) if kind == "of a leaf" else (leaf * 2)[:] if kind == "view" else leaf * 2
        try:
            return [call(other, x)], other, x.detach()
        except RuntimeError as error:
            assert "view of a leaf" in str(error)
            return [], other, x.detach()

    for kinds in (("of a leaf", "made", "view", "of a leaf"), ("made", "of a leaf", "view"), ("view", "of a leaf")):
        compiled = pliant.compile(program, backend=backend)
        for kind in kinds:
            (got, *tensors), (want, *others) = outcome(compiled, kind), outcome(program, kind)
            assert (got in ([], [None])) == (want in ([], [None])) and len(got) == len(want)
            torch.testing.assert_close(tensors, others)


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
def test_what_a_custom_function_writes_is_written_though_eager_refuses_it(backend):
    def program(x, other):
        other.add_(1)
        Tripled.apply(x)
        other.add_(1)

    def outcome(call):
        leaf, other = torch.ones(3, requires_grad=True), torch.zeros(3)
        x = leaf[:]
        with pytest.raises(RuntimeError, match="view of a leaf"):
            call(x, other)
        return leaf.tolist(), other.tolist(), x._version, other._version

    pliant.reset()
    assert outcome(pliant.compile(program, backend=backend)) == outcome(program)


def _between_others(first, x, last):
    first.add_(1)
    x.mul_(2)
    last.add_(1)
    return first + last


def _behind_a_result(first, x, last):
    first.add_(1)
    made = first * x.sum()
    x.mul_(2)
    last.add_(1)
    return made, made.exp()


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("program", [_between_others, _behind_a_result])
@pytest.mark.parametrize("make", [lambda t: t[:], lambda t: t.chunk(2)[1]])
def test_writes_of_views_of_several_results_are_refused_where_eager_refuses_them(make, program, backend):
    """What comes before is written once, what comes after not; the first calls may give other tensors."""

    def outcome(call, make):
        memory = torch.ones(4, 3, requires_grad=True) * 1
        first, x, last = torch.zeros(3), make(memory), torch.zeros(3)
        error = ""
        try:
            call(first, x, last)
        except RuntimeError as stop:
            error = str(stop).splitlines()[0]
        return error, first.tolist(), memory.tolist(), last.tolist(), first._version, memory._version, last._version

    pliant.reset()
    compiled = pliant.compile(program, backend=backend)
    for each in (make, lambda t: t.chunk(2)[0], lambda t: t[:2]):
        assert outcome(compiled, each) == outcome(program, each)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
def test_writes_behind_a_break_where_nothing_is_recorded(backend):
    """The rest starts without gradients, and turns them on."""

    def program(x, room):
        with torch.no_grad():
            y = x + 1
            pliant.graph_break()
        room[0] = x[0]
        return y

    compile, leaf = _world(backend)
    room = torch.zeros(2, 3)
    compile(program)(leaf, room)
    room.sum().backward()
    assert room.requires_grad and leaf.grad.tolist() == [[1, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@torch.no_grad()
def test_strides_where_there_is_one_element(backend):
    def program(x):
        copy = x.clone()
        return copy.expand(2, *copy.shape)[1:], (x * 1).expand(1, 1, *x.shape)

    x = torch.rand(6, 4)[1:4].t()
    assert [t.stride() for t in pliant.compile(program, backend=backend)(x)] == [t.stride() for t in program(x)]


def test_the_graph_breaks_at_a_write_before_what_may_fail() -> None:
    """Eager could not run the call anew once autograd has recorded the write of an input."""

    def program(x, ids, table):
        y = x * 2
        pliant.graph_break()
        y += x
        z = y.sin()
        rows = torch.nn.functional.embedding(ids, table)
        return (z * 3 + rows).sin(), z, y

    pliant.reset()
    compiled = pliant.compile(program)
    kinds = []
    for size in (3, 4, 5):
        x, table = torch.rand(size, 4, requires_grad=True), torch.rand(5, 4, requires_grad=True)
        ids = torch.arange(size)
        with events.collect("graph_break", "fallback") as seen:
            found = compiled(x, ids, table)
            found += torch.autograd.grad(found[0].sum() + found[1].square().sum(), (x, table))
        wanted = program(x, ids, table)
        wanted += torch.autograd.grad(wanted[0].sum() + wanted[1].square().sum(), (x, table))
        torch.testing.assert_close(found, wanted)
        kinds.append([event.fields.get("reason", event.kind) for event in seen])
    assert kinds == [["user-request", "lasting-write"]] * 2 + [[]]
    with pytest.raises(IndexError):
        compiled(x, ids + 3, table)


@pytest.mark.parametrize("reach", [1, 2, 3])  # an element of the tensor, one between its rows, one behind them
def test_views_of_memory_beside_a_written_inputs_elements(reach):
    def program(a):
        view = a.as_strided((2,), (4 * reach - 3,))
        a.diagonal().zero_()
        return view * 1, a.clone()

    mine, theirs = (torch.arange(30.0)[4:28].view(3, 8)[:, :3] for _ in range(2))
    torch.testing.assert_close(pliant.compile(program, backend="aot_eager")(mine), program(theirs))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
def test_writes_by_position_of_an_input_that_begins_behind_its_memory(backend):
    def program(a):
        a.as_strided((2, 2), (1, 2), 4).mul_(3)
        a.as_strided((2, 2), (2, 1), 5).mul_(3)
        return a * 1

    pliant.reset()
    mine, theirs = torch.arange(24.0).view(8, 3), torch.arange(24.0).view(8, 3)
    found, wanted = pliant.compile(program, backend=backend)(mine[1:5].t()), program(theirs[1:5].t())
    assert torch.equal(found, wanted) and torch.equal(mine, theirs)
