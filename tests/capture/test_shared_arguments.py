"""Arguments that may be one object: guarded where it can matter, and nowhere else."""

import collections
import itertools

import pytest
import torch
from tests.capture import fuzz_shared
from torch import nn

import pliant

ORDERS = [((0, 1), (0, 0)), ((0, 0), (0, 1))]  # of calls: with two tensors, with one twice


class Tagged(torch.Tensor):
    pass


class Box:
    def __init__(self):
        self.weight, self.count = torch.randn(3), 0


class Finalized(Box):
    gone = 0

    def __del__(self):
        Finalized.gone += 1


class Scale(nn.Module):
    def __init__(self, value=2.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), value))
        self.register_buffer("seen", torch.ones(3))

    def forward(self, x):
        return x * self.weight


def defined_together(value):
    weight = torch.full((3,), value)
    return lambda x: x * weight, lambda x: x + weight


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


@pytest.mark.fallbacks_expected  # nodes of the engine cannot be made again
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


# ---- objects
@pytest.mark.parametrize(
    "make, read",
    [
        (Scale, lambda one: one(torch.ones(3))),
        (Box, lambda one: one.weight * 2),
        (lambda: [torch.randn(3)], lambda one: one[0] * 2),
        (lambda: {"weight": torch.randn(3)}, lambda one: one["weight"] * 2),
    ],
    ids=["module", "object", "list", "dict"],
)
def test_two_entries_serve_whichever_objects_are_one_where_they_are_read(make, read):
    pliant.reset()
    pool = [make(), make()]

    def total(a, b, c):
        return read(a) + read(b) * read(c), c

    compiled = pliant.compile(total, backend="eager")
    for which in itertools.product((0, 1), repeat=3):
        given = [pool[i] for i in which]
        found = compiled(*given)
        assert torch.equal(found[0], total(*given)[0])
        assert found[1] is given[2]
    assert captures() <= 2


def writes(a, b, c):
    c.count += 1
    return b.weight * a.count


def stores(a, b, c):
    c.late = 3
    return b.weight + getattr(a, "late", 0)


def compares(a, b, c):
    return a.weight + (b is c) * 2 + (a is c)


@pytest.mark.parametrize("function", [writes, stores, compares])
def test_objects_that_were_one_and_are_two_are_what_they_are_where_it_matters(function):
    def seen(a, b, c):
        return (a.weight + b.weight + c.weight) if a.count < 0 else function(a, b, c)

    pliant.reset()
    compiled = pliant.compile(seen, backend="eager")
    orders = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0), (0, 1, 1)]
    with pliant.config.patch(recompile_limit=16):
        for which in orders:
            mine = [Box() for _ in range(2)]
            others = [Box() for _ in range(2)]
            for one, other in zip(mine, others):
                other.weight = one.weight
            assert torch.equal(compiled(*[mine[i] for i in which]), seen(*[others[i] for i in which]))
            assert [vars(one).keys() for one in mine] == [vars(one).keys() for one in others]
            assert [one.count for one in mine] == [one.count for one in others]


def test_no_object_is_made_that_ends_with_code_of_the_program():
    pool, before = [Finalized(), Finalized()], Finalized.gone
    compiled = pliant.compile(lambda a, b, c: a.weight + b.weight * c.weight, backend="eager")
    for which in itertools.product((0, 1), repeat=3):
        compiled(*[pool[i] for i in which])
    assert Finalized.gone == before


def assigned(a, b):
    a.weight = nn.Parameter(a.weight.detach() * 2)
    return b.weight * 1


def buffered(a, b):
    a.seen = a.seen * 2
    return b.seen * 1


def deleted(a, b):
    del a.seen
    return torch.ones(3) * hasattr(b, "seen")


def registered(a, b):
    a.register_buffer("late", torch.ones(3))
    return torch.ones(3) * hasattr(b, "late")


@pytest.mark.parametrize("function", [assigned, buffered, deleted, registered])
@pytest.mark.parametrize("order", ORDERS)
def test_what_a_module_is_given_concerns_the_module_wherever_it_is_met(function, order):
    pliant.reset()
    compiled = pliant.compile(function, backend="eager")
    for which in order:
        mine, others = [Scale(), Scale(3.0)], [Scale(), Scale(3.0)]
        assert torch.equal(compiled(*[mine[i] for i in which]), function(*[others[i] for i in which]))


def test_modules_that_share_their_parameters_may_have_their_own():
    one, other, third = Scale(), Scale(), Scale(5.0)
    other.__dict__["_parameters"] = one._parameters

    def both(x, a, b):
        return a(x) + b(x) * 2

    compiled, x = pliant.compile(both, backend="eager"), torch.ones(3)
    for given in ((one, other), (one, third), (third, one), (one, other)):
        assert torch.equal(compiled(x, *given), both(x, *given))


def test_functions_that_share_what_they_close_over_may_have_their_own():
    (scale, shift), (other_scale, other_shift) = defined_together(2.0), defined_together(3.0)

    def both(x, a, b):
        return a(x) + b(x)

    compiled, x = pliant.compile(both, backend="eager"), torch.ones(3)
    for given in ((scale, shift), (scale, other_shift), (other_scale, shift), (scale, shift)):
        assert torch.equal(compiled(x, *given), both(x, *given))


class Own:
    """Compared by a method of its own, which C code asks for only where the objects differ."""

    def __init__(self):
        self.weight = torch.ones(3)

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def method(self):
        return self.weight


@pytest.mark.parametrize(
    "compare",
    [
        lambda a, b, c: (a, b) == (a, c),
        lambda a, b, c: [b] == [c],
        lambda a, b, c: [a, b, c].index(c),
        lambda a, b, c: [a, b].count(c),
        lambda a, b, c: b.method == c.method,
        lambda a, b, c: vars(b) is vars(c),
        lambda a, b, c: {a: 1, b: 2}.get(c),
    ],
    ids=["tuples", "lists", "index", "count", "methods", "namespaces", "keys"],
)
def test_c_code_that_compares_objects_sees_which_are_one(compare):
    pool = [Own(), Own(), Own()]

    def asked(a, b, c, quiet):
        return (a.weight + b.weight + c.weight, None if quiet else compare(a, b, c))

    compiled = pliant.compile(asked, backend="eager")
    calls = [((0, 0, 0), True), ((0, 0, 1), True), ((0, 1, 0), True)]
    calls += [(which, False) for which in ((0, 1, 2), (0, 0, 0), (0, 1, 1), (0, 0, 1), (0, 1, 0), (0, 1, 2))]
    with pliant.config.patch(recompile_limit=16, strict=True):
        for which, quiet in calls:
            given = [pool[i] for i in which]
            assert compiled(*given, quiet)[1] == asked(*given, quiet)[1]


@pytest.mark.parametrize("method", ["extend", "extendleft", "__iadd__"])
@pytest.mark.parametrize("limit", [None, 2])
def test_a_deque_given_twice_grows_by_itself_after_it_was_read(method, limit):
    def program(x, one, other):
        for item in one:
            x = x * item
        getattr(one, method)(other)
        return x

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for n in (2, 3, 2):
        mine, eagers = collections.deque(range(1, n), limit), collections.deque(range(1, n), limit)
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x, mine, mine), program(x, eagers, eagers))
        assert mine == eagers
