"""A break inside a loop leaves the loop's iterator usable: one graph a turn, shared by the turns, nothing breaks twice."""

import collections
import itertools

import pytest
import torch

import pliant


class Encoder(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(count))

    def forward(self, h):
        for i, layer in enumerate(self.layers):
            h = layer(h) * (i + 1)
            if h.sum() > 0:
                h = h + 1
        return h


def zipped(x):
    for a, b in zip(range(4), [1.0, 2.0, 3.0, 4.0], strict=True):
        x = x * b + a
        if x.sum() > 0:
            x = x - 1
    return x


def backwards(x):
    for a in reversed((1, 2, 3)):
        x = x + a
        if x.sum() > 0:
            x = x - 1
    return x


def mapped(x):
    for a in map(lambda v: v * 2, filter(lambda v: v % 2, range(6))):
        x = x + a
        if x.sum() > 0:
            x = x - 1
    return x


def changed_meanwhile(x):
    items = [1, 2]
    for a in items:
        x = x + a
        if x.sum() > 0 and len(items) < 5:
            items.append(len(items) * 2)
    return x, items


def items_of_a_dict(x):
    found = {"a": 1, "b": 2, "c": 3}
    for key, value in found.items():
        x = x + value
        if x.sum() > 0:
            found[key] = 5
    return x, found


def listed(x):
    return [x * a if (x + a).sum() > 0 else x - a for a in range(4)]


def collected(x):
    found = []
    for a in range(3):
        found.append(a if (x + a).sum() > 0 else -a)
    signs = {a if (x + a).sum() > 0 else -a for a in (1, 2)}
    return found, {a: (x + a).sum() > 0 or 1 for a in range(2)}, sorted(signs)


def shared(x):
    numbers = iter([1, 2, 3, 4])
    for a in numbers:
        if (x + a).sum() > 0:
            x = x + next(numbers, 0)
    return x, list(numbers)


def nested(x):
    for i, row in enumerate([[1, 2], [3]]):
        for a, b in zip(row, itertools.count()):
            x = x + a * b
            if x.sum() > 0:
                x = x - i
    return x


def generator(x):
    def steps():
        for i in range(3):
            yield x + i

    for y in steps():
        x = x + y
        if x.sum() > 0:
            x = x - 1
    return x


def generator_expression(x):
    for y in (x * v for v in [1, 2, 3] if v != 2):
        x = x + y
        if x.sum() > 0:
            x = x - 1
    return x


def delegating_generators(x):
    log = []

    def inner():
        for i in range(2):
            try:
                yield x + i
            finally:
                log.append(i)
        return 7

    def outer():
        yield (yield from inner())

    for i, y in enumerate(outer()):
        x = x + y
        if x.sum() > 0:
            x = x - i
    return x, log


def generator_in_a_variable(x):
    def counting():
        a = 0
        while a < 5:
            step = yield a
            a += 1 if step is None else step

    numbers = counting()
    x = x + next(numbers)
    if x.sum() > 0:
        x = x - 1
    x = x + numbers.send(2)
    rest = list(numbers)
    numbers.close()
    return x, rest, list(numbers)


def exhausted_generator(x):
    values = (v for v in range(2))
    first = list(values)
    if x.sum() > 0:
        x = x - 1
    return x, first, list(values)


LOOPS = (
    generator,
    generator_expression,
    delegating_generators,
    generator_in_a_variable,
    exhausted_generator,
    zipped,
    backwards,
    mapped,
    changed_meanwhile,
    items_of_a_dict,
    listed,
    collected,
    shared,
    nested,
)


@pytest.mark.parametrize("loop", LOOPS, ids=lambda f: f.__name__)
def test_goes_on_behind_a_break(loop):
    pliant.reset()
    compiled = pliant.compile(loop, backend="eager")
    for shift in (0.5, -5.0, 0.5):
        x = torch.linspace(-1, 1, 6) + shift
        torch.testing.assert_close(compiled(x), loop(x))
    assert pliant.stats()["fallbacks"] == 0


def ordered():
    return collections.OrderedDict(a=1, b=2, c=3)


SHARED_DICT = ordered()


def changed_while_broken(x):
    found = ordered()
    for key, value in found.items():
        pliant.graph_break()
        x = x + value
        found["b"] = 7
    return x


def grown_while_broken(x):
    found = ordered()
    try:
        for key in found:
            pliant.graph_break()
            found[key + "a"] = 1
    except RuntimeError as error:
        return x, str(error)


def moved_while_broken(x):
    items = iter(SHARED_DICT.items())
    next(items)
    pliant.graph_break()
    SHARED_DICT["b"] = x.shape[0]
    pliant.graph_break()
    return x, list(items)


def of_one_item(x):
    found = collections.OrderedDict(a=x)
    items = reversed(found.values())
    pliant.graph_break()
    found["a"] = x + 1
    return next(items)


WAYS = {
    "keys": iter,
    "values": lambda d: iter(d.values()),
    "items": lambda d: iter(d.items()),
    "keys backwards": reversed,
    "values backwards": lambda d: reversed(d.values()),
    "items backwards": lambda d: reversed(d.items()),
}


@pytest.mark.parametrize("taken", range(4))
@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", [ordered, lambda: SHARED_DICT, lambda: dict(ordered())], ids=["new", "shared", "dict"])
def test_iterators_over_dicts_stand_where_they_stood(kind, make, taken):
    def function(x):
        items = make(kind())
        before = [next(items) for _ in range(taken)]
        pliant.graph_break()
        return x + 1, before, next(items, None), list(items)

    pliant.reset()
    x = torch.ones(2)
    assert repr(pliant.compile(function, backend="eager")(x)) == repr(function(x))
    assert pliant.stats()["fallbacks"] == 0


CHANGING = [changed_while_broken, grown_while_broken, moved_while_broken, of_one_item]


@pytest.mark.parametrize("function", CHANGING, ids=lambda f: f.__name__)
def test_ordered_dicts_that_change_while_they_are_iterated_over(function):
    pliant.reset()
    compiled = pliant.compile(function, backend="eager")
    for size in (2, 3):
        x = torch.ones(size)
        assert repr(compiled(x)) == repr(function(x))
    assert pliant.stats()["fallbacks"] == 0


def test_one_break_a_turn():
    pliant.reset()
    model = Encoder(2)
    x = torch.randn(3, 4)
    torch.testing.assert_close(pliant.compile(model, backend="eager")(x), model(x))
    assert pliant.stats()["graph_breaks"] == 2


def test_turns_share_their_entries():
    pliant.reset()
    model = Encoder(12)
    x = torch.randn(3, 4)
    torch.testing.assert_close(pliant.compile(model, backend="eager")(x), model(x))
    assert pliant.stats()["graphs"] <= 8, "first, second, later and last turns, each with the branch taken and not"


def test_appending_to_an_outer_list_does_not_read_it():
    pliant.reset()
    history = []

    def step(x):
        history.append(x.shape)
        return x + 1

    compiled = pliant.compile(step, backend="eager", fullgraph=True)
    for _ in range(4):
        compiled(torch.ones(2))
    assert history == [torch.Size([2])] * 4
    assert pliant.stats()["recompiles"] == 0


def test_classes_of_the_program_do_not_keep_its_variables():
    def program(x):
        log = []

        class Noted:
            def note(self):
                log.append(x.dim())

        Noted().note()
        return x + 1, log

    compiled = pliant.compile(program, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[1] == [1]


def test_a_generator_that_a_loop_drops_is_closed_then():
    def program(x):
        log = []

        def steps():
            try:
                for i in range(5):
                    yield i
            finally:
                log.append("closed")

        for i in steps():
            log.append(i)
            x = x + i
            if x.sum() > 3:
                break
        log.append("after")
        for i in steps():
            if x.sum() > 0:
                x = x - 1
            if i == 1:
                break
        log.append("end")
        return x, log

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for value in (0.1, 5.0, -9.0, 0.1):
        x = torch.full((2,), value)
        torch.testing.assert_close(compiled(x)[0], program(x)[0])
        assert compiled(x)[1] == program(x)[1]
