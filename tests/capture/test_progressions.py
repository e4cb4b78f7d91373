"""Ranges of sizes, lists and tuples of them, repeated numbers: one graph for all sizes where no item is looked at, as eager
everywhere."""

import copy

import numpy as np
import pytest
import torch

import pliant
from pliant.debug import events


class Holder:
    numbers = None


# Answered for all sizes.
WHOLE = {
    "rows": lambda x, n: x[list(range(n))],
    "rows of a range": lambda x, n: x[range(n)],
    "columns": lambda x, n: x[:, list(range(1, n))],
    "pairs": lambda x, n: x[list(range(n)), list(range(n))],
    "backwards": lambda x, n: x[list(range(n - 1, -1, -1))],
    "turned": lambda x, n: x[list(range(n))[::-1]],
    "part": lambda x, n: x[list(range(n))[1:-1]],
    "part by a step": lambda x, n: x[list(range(n))[1:-1:2]] * len(list(range(n, 0, -1))[::3]),
    "joined": lambda x, n: x[([-3] + list(range(n))[1::4])[1:]] * len([1, 2] + list(range(3, n)) + [n]),
    "joined tuples": lambda x, n: x[list((0, 1) + tuple(range(2, n)))],
    "every other": lambda x, n: x[list(range(0, n, 2))],
    "stored": lambda x, n: x.clone().index_put_((torch.tensor(list(range(0, n, 2))),), torch.zeros(())),
    "tensor": lambda x, n: x + torch.tensor(list(range(n))),
    "tensor of a range": lambda x, n: x + torch.as_tensor(range(n), dtype=torch.int32),
    "tensor of floats": lambda x, n: x + torch.tensor(tuple(range(n)), dtype=torch.float32),
    "tensor by class": lambda x, n: x + torch.LongTensor(list(range(n))) + torch.FloatTensor(range(n)),
    "array": lambda x, n: x + torch.from_numpy(np.array(list(range(n)))),
    "length": lambda x, n: x * len(list(range(0, n, 3))),
    "sum": lambda x, n: x * sum(range(n)) + sum(list(range(n, -n, -2)), 5),
    "ends": lambda x, n: x * max(range(n)) - min(list(range(2, n + 2))) + max(sorted(range(n, 0, -1))),
    "items": lambda x, n: x * list(range(n))[1] + range(n)[-1] + tuple(range(n))[-2],
    "among": lambda x, n: x * (1 in list(range(n))) * (n in range(1, n)) * (n - 2 not in range(n, 2 * n)),
    "truth": lambda x, n: x * 2 if list(range(n)) else x,
    "class": lambda x, n: x * isinstance(list(range(n)), list) * (type(range(n)) is range) * (type(tuple(range(n))) is tuple),
    "repeated": lambda x, n: x + torch.tensor([n] * n) + torch.tensor(n * [0.5]) + torch.tensor([True] * n),
    "repeated length": lambda x, n: x * len([0] * n) + sum([3] * n) + max([n] * n),
    "starred": lambda x, n: x[[*range(n)]] * len((*range(n),)),
    "in a list": lambda x, n: x[[list(range(n)), 0][0]],
    "through a function": lambda x, n: (lambda numbers, *rest: x[numbers])(list(range(n)), 1),
    "loop of few turns": lambda x, n: x * sum([min(n, start + 10) for start in range(0, n, 10)]),
    "loop by a size": lambda x, n: x * sum([x[i : i + n].numel() + i for i in range(0, n, n)]),
    "loop down by a size": lambda x, n: x * sum([i * i for i in range(2 * n, 1, -n)]),
    "loop between numbers by a size": lambda x, n: x * sum([i for i in range(0, 3, n)]),
    "no turn by a size": lambda x, n: x + len([i for i in range(0, n, -n)]),
    "loop that begins at a size": lambda x, n: x * sum([i * i for i in range(n, n + 3)]),
    "loop over a stored range": lambda x, n: (lambda r: x * sum([i + j for i in r for j in r]))(range(n, n - 4, -2)),
    "numbered": lambda x, n: x * sum([i * j for i, j in enumerate(range(n - 3, n))]),
    "pairs of numbers": lambda x, n: x * sum(i * j for i, j in zip((1, 2), range(n - 3, n))),
    "mapped": lambda x, n: x * sum(map(lambda i: i + 1, range(n, n + 2))),
    "unpacked numbers": lambda x, n: (lambda first, *rest: x * first + len(rest))(*range(n, n + 3)),
    "empty loop": lambda x, n: x + sum([i for i in range(20, n)]),
    "returned": lambda x, n: (x + 1, list(range(n)), range(n), tuple(range(1, n)), [n] * n),
}


def appended(x, n):
    numbers = list(range(n))
    other = numbers
    other.append(0)
    return x[numbers[:n]] * len(numbers)


def changed(x, n):
    numbers = [1] * n
    numbers[0] = 5
    return x * torch.tensor(numbers)


def changed_in_a_container(x, n):
    held = {"numbers": list(range(n))}
    numbers = held["numbers"]
    numbers.reverse()
    return x[held["numbers"]]


def changed_behind_an_answer(x, n):
    numbers = list(range(n))
    before = len(numbers)
    numbers += [0]
    return x * before + len(numbers)


def changed_elsewhere(x, n):
    holder = Holder()
    holder.numbers = list(range(n))
    other = holder.numbers
    holder.numbers.pop()
    return x[other] * len(holder.numbers)


def looped(x, n):
    numbers = list(range(n))
    total = 0
    for number in numbers:
        total = total + number
    return x * total


def matched(x, n):
    match list(range(n)):
        case [first, second, *rest]:
            return x * first + second * len(rest)
    return x


# As eager, whatever is captured.
PLAIN = {
    **{
        one.__name__: one
        for one in (appended, changed, changed_in_a_container, changed_behind_an_answer, changed_elsewhere, looped, matched)
    },
    "joined with others": lambda x, n: x[[0] + list(range(n)) + list(range(n))[::-1] + [True] + [n - 1]],
    "joined with nothing": lambda x, n: x[list(range(n)) + []] * len([0] + [0] * n),
    "compared": lambda x, n: x * (list(range(n)) == list(range(5))) * (range(n) == range(n)),
    "same": lambda x, n: (lambda r, s: x * (r is r) * (r is not s))(list(range(n)), list(range(n))),
    "hashed": lambda x, n: x * {range(n): 2}[range(n)],
    "unpacked": lambda x, n: x * (lambda first, *rest: first + len(rest))(*range(n)),
    "starred with more": lambda x, n: x[[0, *range(n), *range(n)]],
    "text": lambda x, n: (x, f"{list(range(n))} {range(n)}", str([0] * n)),
    "copied": lambda x, n: x * len(copy.deepcopy({"a": list(range(n))})["a"]) + len(copy.copy([2] * n)),
    "index": lambda x, n: x[tuple(range(n))[:2]],
    "mask": lambda x, n: x[[True] * n],
    "nested": lambda x, n: x + torch.tensor([list(range(n)), [1] * n]).sum(0),
    "small type": lambda x, n: x + torch.tensor(range(n), dtype=torch.uint8),
    "sum of floats": lambda x, n: x * sum([0.1] * n),
    "zipped": lambda x, n: x * sum(a * b for a, b in zip(range(n), [2] * n)),
    "part by a step that varies": lambda x, n: x[list(range(n))[:: n - 4]] * len(list(range(n))[3:0:-2]),
    "items by truth": lambda x, n: x * list(range(n))[True],
    "empty": lambda x, n: x * len(list(range(n, 0))) + torch.tensor(list(range(n, 0))).sum(),
    "beyond": lambda x, n: x * (list(range(n))[6] if n > 6 else 1),
    "split": lambda x, n: torch.stack(torch.split(x, [1] * n)).sum(0),
    "methods": lambda x, n: x * list(range(n)).index(2) * range(n).count(1) * (range(n).stop - range(n).start),
}
SIZES = (5, 7, 6, 9, 8)


def run(program, backend="eager"):
    pliant.reset()

    def on_size(x):
        return program(x, x.shape[0])

    compiled = pliant.compile(on_size, backend=backend)
    captures = []
    for size in SIZES:
        x, before = torch.randn(size, size), pliant.stats()["graphs"]
        with events.collect("fallback", "skip") as failures:
            found, expected = compiled(x), on_size(x)
        assert not failures
        torch.testing.assert_close(found, expected) if isinstance(found, torch.Tensor) else check_parts(found, expected)
        captures.append(pliant.stats()["graphs"] - before)
    return captures


def check_parts(found, expected):
    torch.testing.assert_close(found[0], expected[0])
    assert found[1:] == expected[1:]
    assert list(map(type, found)) == list(map(type, expected))


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph_for_all_sizes(name):
    assert run(WHOLE[name]) == [1, 1, 0, 0, 0]
    assert pliant.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("name", PLAIN)
def test_whatever_else_is_asked_is_as_eager(name):
    run(PLAIN[name])


@pytest.mark.parametrize("name", ["rows", "stored", "tensor by class", "sum", "repeated"])
def test_compiled(name):
    assert run(WHOLE[name], backend="pliant") == [1, 1, 0, 0, 0]


def test_errors_of_items_that_are_not_there():
    def program(x):
        numbers = list(range(x.shape[0]))
        try:
            return x * numbers[6]
        except IndexError as error:
            return x, str(error)

    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for size in (5, 7, 6, 9):
        x = torch.randn(size)
        assert str(compiled(x)) == str(program(x))


def test_lists_times_numbers_that_count_nothing():
    def program(x, n):
        try:
            return x + n, [1] * (n * 1.5)
        except TypeError as error:
            return x - n, str(error)

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for n in (3, 4, 5):
        found, wanted = compiled(torch.ones(2), n), program(torch.ones(2), n)
        assert torch.equal(found[0], wanted[0]) and found[1] == wanted[1]


def test_a_list_behind_a_break_is_the_programs_own():
    def program(x):
        numbers = list(range(x.shape[0]))
        other = numbers
        pliant.graph_break()
        other.append(0)
        return x[numbers], numbers is other

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for size in SIZES:
        x = torch.randn(size)
        found, expected = compiled(x), program(x)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1] == expected[1]
    assert pliant.stats()["fallbacks"] == 0


def test_a_loop_from_a_size_on_goes_on_behind_a_break():
    def program(x):
        for number, turn in enumerate(range(x.shape[0], x.shape[0] + 3)):
            x = x * turn + number
            pliant.graph_break()
        return x, type(turn)

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for size in SIZES:
        x = torch.randn(size)
        check_parts(compiled(x), program(x))
    assert pliant.stats()["fallbacks"] == 0


def test_a_list_of_an_object_outside():
    def program(x, holder):
        holder.numbers = list(range(x.shape[0]))
        return x[holder.numbers]

    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for size in SIZES:
        x, mine, theirs = torch.randn(size), Holder(), Holder()
        torch.testing.assert_close(compiled(x, mine), program(x, theirs))
        assert mine.numbers == theirs.numbers
        assert type(mine.numbers) is list
    assert pliant.stats()["graphs"] == 2


def test_ranges_with_their_ends_break_the_graph():
    def program(x, step):
        return torch.range(1, x.shape[0]) * x, torch.range(0, 1, step)

    compiled = pliant.compile(program, backend="eager")
    for size, step in ((2, 0.1), (3, 0.25), (5, 0.3)):
        x = torch.ones(size)
        with pytest.warns(UserWarning, match="torch.range is deprecated") as given:
            expected, found = program(x, step), compiled(x, step)
        assert len(given) == 4
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert pliant.stats()["fallbacks"] == 0
