"""Numbers in tensors that constants alone lead to are known while capturing, until their memory is written."""

import pytest
import torch

import pliant


def _written_through_a_view(x):
    a = torch.tensor(2)
    known = x * int(a + 1)
    a.view(1).add_(1)
    return known * int(a + 1)


def _written_after_it_was_read(x):
    a = torch.tensor([1, 2])
    b = a + 1
    a.add_(5)
    return x * b.tolist()[0] + a.tolist()[1]


def _given_other_data(x):
    a = torch.tensor(2)
    before = int(a)
    a.data = torch.tensor(7)
    return x * before + int(a * 2)


def _written_through_what_was_given_its_memory(x):
    a, b = torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])
    a.data = b[1:]
    a.mul_(2)
    return x * b[1].item() + a.tolist()[0]


def _written_where_memory_was_given_on(x):
    a, b, c = torch.zeros(3), torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
    a.data = b
    c.data = a
    c[1:].add_(1)
    return x * b.tolist()[1] + a.sum().item()


def _statistics(x):
    mean, variance = torch.zeros(2), torch.ones(2)
    torch.nn.functional.batch_norm(torch.arange(8.0).view(4, 2), mean, variance, training=True)
    return x * mean.tolist()[1] + variance.sum().item()


def _written_by_out(x):
    a, b = torch.tensor(2), torch.tensor(3)
    known = int(a)
    torch.add(a, b, out=a)
    return x * known + int(a)


def _in_inference_mode(x):
    with torch.inference_mode():
        a = torch.tensor(2)
        b = a * 2
        a.add_(1)
        return x * int(b) + int(a)


def _of_another_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    try:
        a = torch.tensor(0.1)
    finally:
        torch.set_default_dtype(torch.float32)
    return x * float(a) + float(a.sqrt())


def _with_several_results(x):
    values, places = torch.tensor([3, 1, 2]).sort()
    return x * int(values[0]) + int(places[0])


PROGRAMS = [
    _written_through_a_view, _written_after_it_was_read, _given_other_data, _written_by_out, _in_inference_mode,
    _written_through_what_was_given_its_memory, _written_where_memory_was_given_on, _statistics,
    _of_another_default_dtype, _with_several_results,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_known_numbers_are_those_of_eager(program):
    compiled, x = pliant.compile(program, backend="eager"), torch.randn(4)
    for _ in range(2):
        assert torch.equal(compiled(x), program(x))


def test_a_write_of_one_tensor_leaves_the_others_known():
    def program(x):
        rows, steps = torch.tensor(4.0).sqrt(), torch.tensor(1)
        steps.add_(1)
        return x.view(int(rows), -1), steps

    graphs = []
    compiled = pliant.compile(program, backend=lambda module, inputs: graphs.append(module) or module.forward, fullgraph=True)
    x = torch.randn(6)
    assert torch.equal(compiled(x)[0], program(x)[0])
    assert not any(node.target == "item" for node in graphs[0].graph.nodes)


def test_numbers_that_are_drawn_are_not_constants():
    def program(x):
        return x * torch.rand(()).add(1).item()

    compiled, x = pliant.compile(program, backend="eager"), torch.ones(2)
    torch.manual_seed(0)
    found = [compiled(x) for _ in range(3)]
    torch.manual_seed(0)
    assert all(torch.equal(one, program(x)) for one in found)


def _next(x, step, steps):
    """As schedulers of diffusion look up where they are."""
    at = torch.where(steps == step)[0]
    return x * 2 if at == len(steps) - 1 else x * steps[at + 1] + 1


def in_steps(x):
    steps = torch.tensor([1008, 512, 3])
    for step in steps:
        x = _next(x, step, steps)
    return x


def as_many_as_are_set(x):
    found = []
    for bits in ([1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]):
        at = torch.tensor(bits).nonzero()
        found.append((at, at.size(0), x * at.sum(0)))
    return found


def none_is_set(x):
    at = torch.where(torch.tensor([False, False]))[0]
    return x + (1 if len(at) == 0 else 2), at


def set_before(x):
    mask = torch.tensor([False, True, True])
    first = torch.where(mask)[0]
    mask[0] = True
    return x + len(first), first, torch.where(mask)[0]


@pytest.mark.parametrize("program", [in_steps, as_many_as_are_set, none_is_set, set_before], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["eager", "pliant"])
def test_places_of_what_is_set_in_constants_are_known(program, backend):
    pliant.reset()
    compiled = pliant.compile(program, backend=backend, fullgraph=True, dynamic=True)
    for n in (2, 3):
        torch.testing.assert_close(compiled(torch.ones(n, 1)), program(torch.ones(n, 1)))
    assert pliant.stats()["graphs"] == 1 and not pliant.stats()["assumptions"]
