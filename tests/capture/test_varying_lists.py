"""Lists whose length varies: two constants, then code for any length."""

import collections
import random

import pytest
import torch

import pliant
from pliant.debug import events


def loop(items):
    total = torch.zeros(3)
    for item in items:
        total = total + item.sin()
    return total / len(items)


def with_else(items):
    total = torch.zeros(3)
    for item in items:
        if item.shape[0] == 4:
            break
        total = total * item
    else:
        total = total - 1
    return total


def nested(items):
    total = torch.zeros(3)
    for item in items:
        for other in items:
            total = total + item * other
    return total


def collected(items):
    found = []
    for item in items:
        found.append(item * 2)
    return torch.stack(found).sum(0), len(found)


def by_helper(items):
    return loop(items) + loop(items[:2])


PROGRAMS = {
    "loop": loop,
    "loop with else": with_else,
    "nested loops": nested,
    "loop that appends": collected,
    "loop in a helper": by_helper,
    "comprehension": lambda items: torch.stack([item.cos() for item in items]).sum(0),
    "enumerate": lambda items: sum(item * i for i, item in enumerate(items)) + items[0],
    "zip": lambda items: sum((a * b for a, b in zip(items, items)), torch.zeros(3)),
    "sum": lambda items: sum(items) / len(items),
    "stack": lambda items: torch.stack(items).relu().mean(0),
    "length": lambda items: items[0] * len(items) + (1 if len(items) > 3 else 2),
    "ends": lambda items: items[0] + items[-1],
    "truth": lambda items: items[0] * 2 if items else None,
    "slice": lambda items: torch.cat(items[1:] + [items[0]]),
    "unpacking": lambda items: torch.stack([*items]).sum(0),
    "two lists": lambda items: loop(items) * len(items),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lists_of_any_length(name):
    pliant.reset()
    program = PROGRAMS[name]
    compiled = pliant.compile(program)
    for n in (1, 2, 3, 5, 4, 7, 3, 1, 8):
        items = [torch.randn(3, requires_grad=True) for _ in range(n)]
        mine, expected = compiled(items), program(items)
        torch.testing.assert_close(mine, expected)
        roots = [r if isinstance(r, torch.Tensor) else r[0] for r in (mine, expected)]
        grads = [torch.autograd.grad(r.sum(), items, allow_unused=True) for r in roots]
        torch.testing.assert_close(*[[g if g is not None else torch.zeros(3) for g in gs] for gs in grads])


@pytest.mark.parametrize("name", ["loop", "stack", "ends", "loop that appends"])
def test_at_most_three_captures(name):
    pliant.reset()
    compiled = pliant.compile(PROGRAMS[name])
    with events.collect("capture", "fallback", "skip", "recompile_limit") as found:
        for n in range(1, 10):
            compiled([torch.randn(3) for _ in range(n)])
    kinds = [e.kind for e in found]
    assert set(kinds) == {"capture"}
    names = [e.fields["name"] for e in found]
    assert names.count(compiled.__qualname__) <= 3
    assert max(map(names.count, names)) <= 6  # of what goes on behind a break, whose lists vary in turn


def test_pieces_serve_every_turn_and_every_length():
    pliant.reset()
    compiled = pliant.compile(loop)
    for n in (1, 2, 3, 5, 4, 6, 9):
        compiled([torch.randn(3) for _ in range(n)])
    assert pliant.stats()["graphs"] == 2 + 3  # for 1 and 2, then before, in and behind the loop


def counted(items):
    total = torch.zeros(3)
    for i, item in enumerate(items, 2):
        total = total + item * i
    return total


def counted_pairs(items):
    total = torch.zeros(3)
    for i, (item, other) in enumerate(zip(items, items)):
        total = total + item * other * i
    return total


def counted_until(items):
    total = torch.zeros(3)
    for i, item in enumerate(items):
        if i < 2 and len(items) < 9:
            items.append(item + 1)
        if i == 5:
            break
        total = total + item
    return total, i


@pytest.mark.parametrize("program", [counted, counted_pairs, counted_until])
def test_what_numbers_or_pairs_the_items_is_no_break(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for n in (1, 2, 3, 5, 4, 6, 9, 7, 2):
        mine, theirs = ([torch.full((3,), float(i)) for i in range(n)] for _ in range(2))
        torch.testing.assert_close(compiled(mine), program(theirs))
        torch.testing.assert_close(mine, theirs)
    stats = pliant.stats()
    assert set(stats["break_reasons"]) == {"varying-length"} and stats["graph_breaks"] <= 6


def test_one_graph_for_each_length_where_breaks_are_errors():
    pliant.reset()
    compiled = pliant.compile(loop, fullgraph=True)
    for n in range(1, 6):
        items = [torch.randn(3) for _ in range(n)]
        torch.testing.assert_close(compiled(items), loop(items))
    assert pliant.stats()["graphs"] == 5


def test_long_lists_are_not_taken_by_turns():
    pliant.reset()
    compiled = pliant.compile(loop)
    for n in (100, 101, 102, 103):
        items = [torch.randn(3) for _ in range(n)]
        torch.testing.assert_close(compiled(items), loop(items))
    assert pliant.stats()["graph_breaks"] == 0


def test_what_the_loop_does_to_its_list_is_seen():
    def program(items):
        for item in items:
            if len(items) < 6:
                items.append(item + 1)
        return items[-1]

    pliant.reset()
    compiled = pliant.compile(program)
    for n in (1, 2, 3, 4, 5):
        mine, other = ([torch.full((3,), float(i)) for i in range(n)] for _ in range(2))
        torch.testing.assert_close(compiled(mine), program(other))
        torch.testing.assert_close(mine, other)


def by_number(x, n):
    for i in range(n):
        x = x * 0.5 + i
    return x.relu()


def by_size(x, n):
    total = x.sum()
    for i in range(x.size(0)):
        total = total + x[i].sin().sum() * i
    return total * 2


def with_break(x, n):
    for i in range(1, 2 * n, 2):
        if i > 7:
            break
        x = x + i
    else:
        x = x - 1
    return x * n


def in_each_other(x, n):
    for i in range(n):
        for j in range(n):
            x = x * 0.5 + (i - j)
    return x


def of_a_list(x, n):
    for i in list(range(x.shape[0])):
        x = x + i if i % 2 else x * 0.5
    return x * n


def sum_of_a_generator(x, n):
    return sum(x.sin().sum() * i for i in range(n)) * 2


def in_a_list(x, n):
    return torch.stack([x.sum() * i for i in range(n + 1)])


def of_rows(x, n):
    found = [x.new_zeros(3)]
    for row in x:
        found.append(row.sin() * 2)
    return torch.stack(found)


def of_rows_together(x, n):
    total = x.new_zeros(3)
    for i, (row, other) in enumerate(zip(x, x.exp())):
        if i == 6:
            continue
        total = total + row * other * i
    return total


def of_rows_in_a_generator(x, n):
    return sum(row.exp() for row in x) * 2


COUNTING = [by_number, by_size, with_break, in_each_other, of_a_list, sum_of_a_generator, in_a_list]
OF_ROWS = [of_rows, of_rows_together, of_rows_in_a_generator]


@pytest.mark.parametrize("program", [*COUNTING, *OF_ROWS])
def test_loops_that_count_any_number_of_turns(program):
    torch.manual_seed(0)  # some sums cancel: their errors are large beside them
    pliant.reset()
    compiled = pliant.compile(program)
    for n in (3, 4, 5, 6, 7, 2, 9, 1, 0, 8, 13, *(14, 15, 16, 2, 3, 6) * (program in OF_ROWS)):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x, n), program(x, n))
    before = pliant.stats()["graphs"]
    for n in (10, 11, 12, 5):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x, n), program(x, n))
    assert pliant.stats()["graphs"] == before


def test_a_few_numbers_of_turns_are_one_graph_each():
    pliant.reset()
    compiled = pliant.compile(by_size, backend="eager")
    for n in (3, 5, 6, 8):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x, n), by_size(x, n))
    found = pliant.stats()
    assert (found["graphs"], found["graph_breaks"]) == (4, 0)


def range_with_break(x, items):
    for i in range(len(items)):
        x = x * 0.5 + i
        pliant.graph_break()
        x = x + i
    return x


def enumerate_with_break(x, items):
    for i, item in enumerate(items, 5):
        x = x + item * i
        pliant.graph_break()
        x = x - i
    return x


def zip_with_break(x, items):
    for i, item in zip(range(2, 50, 3), items):
        x = x + item * i
        pliant.graph_break()
        x = x - i
    return x


@pytest.mark.parametrize("program", [range_with_break, enumerate_with_break, zip_with_break])
def test_what_a_loop_counts_is_a_symbol_from_its_first_turn(program):
    """Before the loop, a turn, what comes behind it."""
    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    x, items = torch.randn(3), [torch.randn(3) for _ in range(6)]
    torch.testing.assert_close(compiled(x, items), program(x, items))
    assert pliant.stats()["graphs"] == 3


def until_done(x, n):
    for i in range(n):
        x = x * 1.5 + i
        if (x > 40).all():
            return x, i
    return x - 1, -1


def downwards(x, n):
    for i in range(n - 1, -1, -1):
        x = x * 0.5 + i
        pliant.graph_break()
    return x


def in_reverse(x, n):
    for i in reversed(range(0, n, 2)):
        x = x * 0.5 + i
        pliant.graph_break()
    return x


def from_a_number_on(x, n):
    for i in list(range(n, 3 * n, 2)):
        pliant.graph_break()
        x = x * 0.5 + i
    return x


def one_in_the_other(x, n):
    for i in range(n):
        for k in range(i, n):
            pliant.graph_break()
            x = x * 0.5 + k
    return x


def _plus(x, i):
    pliant.graph_break()
    return x + i


def in_a_comprehension(x, n):
    return sum([_plus(x, i) for i in range(n)])


ENDED = [until_done, downwards, in_reverse, from_a_number_on, one_in_the_other, in_a_comprehension]


@pytest.mark.parametrize("program", ENDED)
def test_a_break_in_a_loop_leaves_its_number_of_turns_open(program):
    """As in generation up to a number of tokens, which ends earlier where all are done."""
    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    x = torch.full((3,), 0.5)
    for n in (5, 6, 3, 2, 12):
        torch.testing.assert_close(compiled(x, n), program(x, n))
    before = pliant.stats()["graphs"]
    for n in (4, 7, 11, 17):
        torch.testing.assert_close(compiled(x, n), program(x, n))
    assert pliant.stats()["graphs"] == before
    assert not pliant.stats()["fallback_reasons"]


def test_a_loop_by_turns_counts_by_a_symbol():
    pliant.reset()
    compiled = pliant.compile(by_size, backend="eager")
    for n in (3, 5, 6, 8):
        compiled(torch.randn(n, 3), n)
    before = pliant.stats()["graphs"]
    for n in (9, 10, 4):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x, n), by_size(x, n))
    assert pliant.stats()["graphs"] == before + 3  # before the loop, a turn, what comes behind it


def by_data(x, n):
    y = x.relu() * 2
    for i in range((y > 0).sum().item() % (n + 1)):
        y = y + x * i
    return y.sin()


def test_loops_that_turn_as_often_as_data_says():
    pliant.reset()
    compiled = pliant.compile(by_data)
    for seed in range(12):
        torch.manual_seed(seed)
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x, 5), by_data(x, 5))
    with events.collect("capture") as found:
        for seed in range(12, 24):
            torch.manual_seed(seed)
            x = torch.randn(8)
            torch.testing.assert_close(compiled(x, 5), by_data(x, 5))
    assert not found and not pliant.stats()["fallback_reasons"]


def graphs(program, calls):
    """How many graphs these calls take, each compared with eager."""
    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for arguments in calls:
        mine, expected = compiled(*arguments), program(*arguments)
        torch.testing.assert_close(mine, expected)
    return pliant.stats()["graphs"]


def growing(count, start=200):
    return [(torch.ones(3), [*range(start), *([7] * i)]) for i in range(count)]


LONG = {
    "length": lambda x, items: x + len(items),
    "truth": lambda x, items: x + 1 if items else x,
    "comparison of the length": lambda x, items: x + 1 if len(items) > 100 else x,
    "one item": lambda x, items: x + items[3],
    "last item": lambda x, items: x + items[-1],
    "sum": lambda x, items: x + sum(items),
    "largest": lambda x, items: x + max(items),
    "sorted": lambda x, items: x + sorted(items)[0],
    "membership": lambda x, items: x + (7 in items),
}


@pytest.mark.parametrize("name", LONG)
def test_long_lists_that_grow(name):
    """Two captures, with a break the piece behind it: not one a length."""
    assert graphs(LONG[name], growing(9)) <= 3


def test_the_length_alone_under_fullgraph():
    pliant.reset()
    compiled = pliant.compile(LONG["length"], fullgraph=True, backend="eager")
    for x, items in growing(9):
        assert compiled(x, items)[0] == 1 + len(items)
    assert pliant.stats()["graphs"] == 2


@pytest.mark.parametrize("make", [dict.fromkeys, set, list])
def test_the_length_of_each_container(make):
    assert graphs(lambda x, items: x + len(items), [(x, make([*items, -len(items)])) for x, items in growing(9)]) <= 3


MIXED = [1, 2.5, -0.0, 0.0, float("nan"), True, "a", None, b"b", 2**80, 1 + 2j, torch.float32, 5, 10**20]
CHANGES = [7, 2, 0.0, -0.0, 1.0, 1, "b", False, b"c", 2**80 + 1, 1 + 3j, torch.float64, 5.0, "5"]


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("place", range(len(MIXED)))
def test_each_constant_of_a_long_list_is_seen(kind, place):
    """All under one guard: each change of value, sign, type or bit is a miss; an equal list is a hit."""

    def program(x, items):
        return x, list(items)[100 + place]

    items = [*range(100), *MIXED]
    compiled, x = pliant.compile(program, backend="eager", dynamic=False), torch.ones(1)
    pliant.reset()
    for _ in range(2):
        assert repr(compiled(x, kind(items))[1]) == repr(items[100 + place])
    assert compiled(x, kind([*items[:50], int("50"), *items[51:]]))[0] is x
    assert pliant.stats()["recompiles"] == 0
    items[100 + place] = CHANGES[place]
    assert repr(compiled(x, kind(items))[1]) == repr(CHANGES[place])


def test_items_of_a_long_list_that_change_become_symbols():
    def calls():
        items = list(range(200))
        for i in range(7):
            items[5] = 1000 + i
            yield torch.ones(3), list(items)

    assert graphs(lambda x, items: x + sum(items), calls()) == 2


def test_a_long_list_of_a_module():
    """What memory tells of it is watched."""

    class Table(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = list(range(300))

        def forward(self, x):
            return x + sum(self.steps)

    module = Table()
    compiled, x = pliant.compile(module, backend="eager"), torch.ones(2)
    for change in (lambda: None, lambda: module.steps.__setitem__(7, 900), module.steps.pop, module.steps.reverse):
        change()
        for _ in range(3):
            assert torch.equal(compiled(x), module(x))


def _broken(value):
    pliant.graph_break()
    return value


# What takes a generator over the list in which the graph breaks: at the first item, before C code has it.
CONSUMERS = {
    "any": lambda items: any(_broken(v) > 8 for v in items),
    "all": lambda items: all(_broken(v) < 5 for v in items),
    "sum": lambda items: sum(_broken(v) for v in items),
    "list": lambda items: list(_broken(v) for v in items),  # noqa: C400
    "sorted": lambda items: sorted(_broken(-v) for v in items),
    "max": lambda items: max(_broken(v) for v in items),
    "next": lambda items: next(_broken(v) for v in items),
    "join": lambda items: "".join(str(_broken(v)) for v in items),
    "dict": lambda items: dict((_broken(v), v) for v in items),  # noqa: C402
    "zip": lambda items: list(zip(items, (_broken(v) for v in items))),
    "star": lambda items: (lambda *a: a)(*(_broken(v) for v in items)),
    "map": lambda items: list(map(_broken, (v for v in items))),
    "in": lambda items: 4 in (_broken(v) for v in items),
    "unpacking": lambda items: (lambda a, *b: (a, b))(*[_broken(v) for v in items]),
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_a_break_in_a_generator_over_a_list_of_any_length(name):
    pliant.reset()
    program = CONSUMERS[name]

    def with_tensor(x, items):
        return x + 1, program(items)

    compiled, x = pliant.compile(with_tensor, backend="eager"), torch.ones(2)
    for n in (3, 4, 1, 6, 2, 9):
        assert compiled(x, list(range(1, n + 1)))[1] == program(list(range(1, n + 1)))


# ---- deques, as buffers of what is sampled later
class Finalized:
    def __del__(self):
        ENDED.append(len(ENDED))


ENDED = []


def _remembers(x, buffer):
    buffer.append(x.sum())
    return x * len(buffer)


def _remembers_twice(x, buffer):
    buffer.append(x + 1)
    buffer.append(x + 2)
    return x * len(buffer) if len(buffer) > 3 else x


def _samples(x, buffer):
    buffer.append(x)
    return x + sum(random.sample(buffer, 2)) if len(buffer) > 4 else x


@pytest.mark.parametrize("most", [None, 4])
@pytest.mark.parametrize("program", [_remembers, _remembers_twice, _samples])
def test_deques_that_grow(program, most):
    """A few graphs, not one for each length; a full one drops its first items."""
    pliant.reset()

    def results(call):
        random.seed(3)
        buffer = collections.deque(maxlen=most)
        return [(call(torch.full((2,), float(i)), buffer), [*buffer]) for i in range(12)]

    torch.testing.assert_close(results(pliant.compile(program, backend="eager")), results(program))
    assert pliant.stats()["graphs"] <= 8 and not pliant.stats()["fallback_reasons"]


def test_a_full_deque_drops_what_has_a_finalizer_in_time():
    def program(x, buffer):
        buffer.append(x)
        return x + len(ENDED)

    def results(call):
        ENDED.clear()
        buffer = collections.deque(maxlen=2)
        found = []
        for i in range(6):
            found.append(call(torch.ones(1), buffer).item())
            if i in (0, 3):
                buffer.append(Finalized())
        return found

    assert results(pliant.compile(program, backend="eager")) == results(program)
