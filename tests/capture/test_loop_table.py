"""A sample of the table of loops, and loops over iterators that others hold, too."""

import pytest
import torch
from tests.capture.loop_table import difference, rows

import pliant
from pliant.debug import events

SAMPLE = list(rows())[5::2003]


@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: row.name)
@pytest.mark.filterwarnings("ignore::pliant.errors.PliantWarning")
@pytest.mark.fallbacks_expected  # more numbers than entries
def test_a_loop_does_as_in_python(row):
    assert difference(row) is None


def appended_outside(x, items):
    items.append(10)
    items.append(20)
    seen = []
    for n in items:
        pliant.graph_break()
        seen.append(n)
    return seen, x + 1


def extended_outside(x, items):
    items += [10, 20]
    for i, n in enumerate(items):
        x = max(x, x * 0 + n + i)
    return x


def appended_under_another_name(x, items, other):
    seen = []
    for n in items:
        pliant.graph_break()
        seen.append(n)
        if len(other) < 4:
            other.append(n + 10)
    return seen, x + 1


def by_hand(x, items):
    it = iter(items)
    first = next(it)
    pliant.graph_break()
    return x * next(it) + first, list(it)


def by_hand_from_outside(x, it):
    return x * next(it), next(it, "end")


def in_pairs(x, items):
    it = iter(items)
    pairs = zip(it, it)
    pliant.graph_break()
    return [a * 10 + b for a, b in pairs], x + next(it, 5)


def values_changed_meanwhile(x, table):
    seen = []
    for key, value in table.items():
        pliant.graph_break()
        seen.append((key, value))
        for k in table:
            table[k] = value + 1
    return seen, x


def grown_meanwhile(x, table):
    for key in table:
        pliant.graph_break()
        table[str(key) * 2] = x
    return table


def outcome(fn, make):
    args = make()
    try:
        return repr((fn(torch.ones(2), *args), [a if isinstance(a, (list, dict)) else list(a) for a in args]))
    except RuntimeError as error:
        return str(error)


def same_list():
    items = [1, 2]
    return items, items


CALLS = {
    appended_outside: [lambda: ([],), lambda: ([],), lambda: ([7],)],
    extended_outside: [lambda: ([],), lambda: ([7],)],
    appended_under_another_name: [lambda: ([1, 2], []), same_list, lambda: ([1, 2], [3])],
    by_hand: [lambda: ([1, 2, 3],), lambda: ([4, 5],), lambda: ((6, 7, 8),)],
    by_hand_from_outside: [lambda: (iter([1, 2, 3]),), lambda: (iter([1]),), lambda: (iter({4: 1, 5: 1}),)],
    in_pairs: [lambda: ([1, 2, 3, 4],), lambda: ([1, 2, 3],), lambda: ((1, 2),)],
    values_changed_meanwhile: [lambda: ({"a": 1, "b": 2},), lambda: ({"a": 1, "b": 2, "c": 3},)],
    grown_meanwhile: [lambda: ({"a": 1, "b": 2},), lambda: ({},)],
}


@pytest.mark.parametrize("fn", CALLS, ids=lambda fn: fn.__name__)
def test_iterators_stand_where_python_has_them(fn):
    compiled = pliant.compile(fn, backend="eager")
    with events.collect("fallback", "skip") as failures:
        for make in CALLS[fn]:
            assert outcome(compiled, make) == outcome(fn, make)
    assert all("[exception]" in one.fields["why"] for one in failures)


def test_the_same_iterator_twice():
    def f(x, a, b):
        return x * next(a), next(b)

    compiled = pliant.compile(f, backend="eager")
    for fn in (f, compiled):
        apart = fn(torch.ones(1), iter([1, 2]), iter([3, 4]))
        it = iter([1, 2])
        assert (apart[1], fn(torch.ones(1), it, it)[1]) == (3, 2)


def test_taking_the_next_item_behind_a_break_is_compiled():
    pliant.reset()
    outcome(pliant.compile(by_hand, backend="eager"), CALLS[by_hand][0])
    stats = pliant.stats()
    assert stats["graph_breaks"] == 1 and stats["graphs"] == 1 and not stats["fallbacks"]
