"""Arguments that may be one object: guarded where it can matter, and nowhere else."""

import itertools

import pytest
import torch
from tests.capture import fuzz_shared
from torch import nn

import pliant

ORDERS = [((0, 1), (0, 0)), ((0, 0), (0, 1))]  # of calls: with two tensors, with one twice


class Tagged(torch.Tensor):
    pass


def leaf():
    return torch.tensor([1.0, 2.0, 3.0], requires_grad=True)


def captures():
    return pliant.stats()["calls"].get("capture", 0)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_with_shared_arguments(seed):
    with pliant.config.patch(strict=True, recompile_limit=64):
        assert fuzz_shared.disagreement(seed) == ""


@pytest.mark.parametrize(
    "make",
    [leaf, lambda: nn.Parameter(torch.ones(3)), lambda: leaf() * 2, lambda: torch.ones(3).as_subclass(Tagged)],
    ids=["leaf", "parameter", "result", "subclass"],
)
def test_one_entry_serves_whichever_are_one_where_they_are_read(make):
    pliant.reset()
    pool = [make(), make()]

    def read(a, b, c):
        return (a * b).sum() + c, a

    compiled = pliant.compile(read, backend="eager")
    for which in itertools.product((0, 1), repeat=3):
        given = [pool[i] for i in which]
        found = compiled(*given)
        assert torch.equal(found[0], read(*given)[0])
        assert found[1] is given[0]
    assert captures() == 1


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_asked_inside_are_of_all_ways_to_a_leaf(order):
    def asked(a, b):
        return torch.autograd.grad((a * b * b).sum(), a)[0]

    pliant.reset()
    compiled, pool = pliant.compile(asked), [leaf(), leaf()]
    for which in (*order, *order):
        given = [pool[i] for i in which]
        assert torch.equal(compiled(*given), asked(*given))
    assert captures() == 2


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_a_write_of_the_data_is_one_of_the_tensor(order, requires_grad):
    def write(a, b):
        a.data.mul_(2)
        return a * b

    pliant.reset()
    compiled = pliant.compile(write)
    for which in (*order, *order):
        mine, others = ([torch.tensor([1.0, 3.0], requires_grad=requires_grad) for _ in range(2)] for _ in range(2))
        assert torch.equal(compiled(*[mine[i] for i in which]), write(*[others[i] for i in which]))
    assert captures() == 2


def test_which_nodes_of_autograds_graph_are_one_is_asked_outside():
    def ask(a, b):
        return (a + 1).grad_fn.next_functions[0][0] is (b + 1).grad_fn.next_functions[0][0]

    pliant.reset()
    compiled, one = pliant.compile(ask, backend="eager"), leaf()
    assert not compiled(one, leaf())
    assert compiled(one, one)


class Member(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("buffer", torch.zeros(2))
        self.weight = torch.nn.Parameter(torch.zeros(2))
        self.inner = torch.nn.Identity()


WRITES_OF_MEMBERS = {
    "buffer": lambda m, x: setattr(m, "buffer", x),
    "parameter": lambda m, x: setattr(m, "weight", torch.nn.Parameter(x)),
    "registered": lambda m, x: m.register_buffer("buffer", x),
    "deleted": lambda m, x: delattr(m, "buffer"),
    "plain": lambda m, x: setattr(m, "plain", x),
}


@pytest.mark.parametrize("name", WRITES_OF_MEMBERS)
def test_members_given_to_a_module_that_another_argument_is_too(name):
    def program(first, second, x):
        WRITES_OF_MEMBERS[name](first, x)
        return getattr(second, "buffer", x * 7) + second.weight + getattr(second, "plain", 3)

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for same in (False, True, False):
        found = []
        for run in (program, compiled):
            first = Member()
            found.append(run(first, first if same else Member(), torch.full((2,), 5.0)))
        torch.testing.assert_close(found[1], found[0])
