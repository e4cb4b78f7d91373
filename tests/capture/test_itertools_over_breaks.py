"""Loops over each iterator of `itertools`, however it comes to the loop, with a graph break in each turn."""

import copy
import itertools
import operator
import warnings

import pytest
import torch

import pliant

KINDS = {
    "chain": lambda a: itertools.chain(a, a[:1]),
    "from_iterable": lambda a: itertools.chain.from_iterable([a, a[:1]]),
    "islice": lambda a: itertools.islice(a, 2),
    "islice with steps": lambda a: itertools.islice(a, 1, None, 2),
    "zip_longest": lambda a: itertools.zip_longest(a, a[:1], fillvalue=7),
    "accumulate": lambda a: itertools.accumulate(a),
    "accumulate from": lambda a: itertools.accumulate(a, operator.mul, initial=a[0]),
    "starmap": lambda a: itertools.starmap(torch.add, zip(a, a)),
    "takewhile": lambda a: itertools.takewhile(lambda v: len(v) < 4, a),
    "dropwhile": lambda a: itertools.dropwhile(lambda v: len(v) < 3, a),
    "filterfalse": lambda a: itertools.filterfalse(lambda v: len(v) == 3, a),
    "compress": lambda a: itertools.compress(a, [1, 0, 1]),
    "pairwise": lambda a: itertools.pairwise(a),
    "product": lambda a: itertools.product(a[:2], (1, 2)),
    "repeat": lambda a: itertools.repeat(a[0], 3),
    "cycle": lambda a: itertools.cycle(a),
    "count": lambda a: itertools.count(3, 2),
    "combinations": lambda a: itertools.combinations(a, 2),
    "with replacement": lambda a: itertools.combinations_with_replacement(a[:2], 2),
    "permutations": lambda a: itertools.permutations(a[:2], 2),
    "zip": lambda a: zip(a, a),
    "map": lambda a: map(torch.neg, a),
}
BY_C_CODE = ("combinations", "with replacement", "permutations")  # which a break in the loop does not carry over
MOST = 5  # turns: some never end


def at_once(make, a):
    seen = []
    for v in make(a):
        pliant.graph_break()
        seen.append(v)
        if len(seen) == MOST:
            break
    return seen


def with_numbers(make, a):
    seen = []
    for v in enumerate(make(a)):
        pliant.graph_break()
        seen.append(v)
        if len(seen) == MOST:
            break
    return seen


def by_a_variable(make, a):
    it = make(a)
    seen = []
    for v in it:
        pliant.graph_break()
        seen.append(v)
        if len(seen) == MOST:
            break
    return seen


def used_behind(make, a):
    it = make(a)
    seen = []
    for v in it:
        pliant.graph_break()
        seen.append(v)
        if len(seen) == 2:
            break
    return seen, type(it), next(it, None), list(itertools.islice(it, 2))


def from_outside(it, a):
    seen = []
    for v in it:
        pliant.graph_break()
        seen.append(v)
        if len(seen) == 2:
            break
    return seen


def tensors():
    return [torch.ones(2), torch.arange(3.0), torch.ones(4) * 2]


def items_of(kind):
    return tensors() if "accumulate" not in kind and kind != "starmap" else [torch.ones(2) * i for i in range(3)]


def ran(function, kind, given=lambda kind, a: KINDS[kind]):
    """The result compiled, of two calls; eager's; what was recorded."""
    pliant.reset()
    compiled = pliant.compile(function, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        found = [repr(compiled(given(kind, a := items_of(kind)), a)) for _ in range(2)]
    assert found == [repr(function(given(kind, a := items_of(kind)), a))] * 2
    return pliant.stats()


@pytest.mark.parametrize("function", [at_once, with_numbers, by_a_variable], ids=lambda one: one.__name__)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in BY_C_CODE])
def test_the_loop_alone_sees_it(kind, function):
    stats = ran(function, kind)
    assert not stats["fallbacks"] and stats["break_reasons"].keys() == {"user-request"}


@pytest.mark.parametrize("function", [at_once, used_behind], ids=lambda one: one.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_others_see_it_too(kind, function):
    """It is what C code makes; where the program can tell, code behind the break may not advance it."""
    assert not ran(function, kind)["fallbacks"]


@pytest.mark.parametrize("kind", ["chain", "pairwise", "product", "zip"])
def test_it_is_from_outside(kind):
    ran(from_outside, kind, lambda kind, a: KINDS[kind](a))


def ends_quietly(make, a):
    def stops(*values):
        raise StopIteration

    seen = []
    for v in itertools.chain(itertools.takewhile(stops, a), itertools.accumulate(a, stops), [1]):
        pliant.graph_break()
        seen.append(v)
    for v in itertools.starmap(stops, [a]):
        pliant.graph_break()
        seen.append(v)
    return seen


def refused(make, a):
    told = []
    for make in (lambda: itertools.islice(a, -1), lambda: itertools.repeat(1, 1.5), lambda: itertools.chain(a, 5), lambda: itertools.count("")):
        try:
            for v in make():
                pliant.graph_break()
                told.append(v)
        except (TypeError, ValueError) as error:
            told.append(repr(error))
    return told


def told_apart(make, a):
    it = itertools.chain(a, a)
    for v in it:
        pliant.graph_break()
        break
    return type(it).__name__, len(list(copy.copy(a)))


def items_one_by_one(a, seen):
    try:
        for v in a:
            yield v
    finally:
        seen.append("end")


def generators_in_step(make, a):
    seen = []
    held = items_one_by_one(a, seen)
    for i, (v, w) in enumerate(zip(held, items_one_by_one(a[1:], seen))):
        pliant.graph_break()
        seen.append((i, v, w))
        if i == 1:
            break
    return seen, next(held, None), list(held)


def generators_to_their_ends(make, a):
    seen = []
    for v in map(len, filter(lambda v: len(v) != 3, items_one_by_one(a, seen))):
        pliant.graph_break()
        seen.append(v)
    for i, v in enumerate(items_one_by_one(a, seen), 5):
        pliant.graph_break()
        seen.append(v + i)
    return seen


@pytest.mark.parametrize("function", [generators_in_step, generators_to_their_ends], ids=lambda one: one.__name__)
def test_items_come_from_generators_of_the_program(function):
    stats = ran(function, "zip")
    assert not stats["fallbacks"] and stats["break_reasons"].keys() == {"user-request"}


@pytest.mark.parametrize("function", [ends_quietly, refused, told_apart], ids=lambda one: one.__name__)
def test_what_differs_from_a_generator(function):
    ran(function, "zip")


def test_reading_their_state_puts_no_filters_back(monkeypatch):
    """A block in one thread puts back what another thread has set meanwhile."""
    from pliant.capture.iterators.standing_iterators import reduced

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(warnings, "catch_warnings", None)
        assert [reduced(itertools.count(1)) for _ in range(2)] == [(itertools.count, (1,))] * 2
        warnings.simplefilter("error")
        assert reduced(itertools.count(2)) == (itertools.count, (2,))
        monkeypatch.undo()
