"""Iterators without end: nothing takes more of them than Python does. Items that come late, of what is made of others."""

import collections
import functools
import heapq
import itertools
import operator

import pytest
import torch

import pliant

pytestmark = pytest.mark.timeout(100)


class Endless:
    def __iter__(self):
        return self

    def __next__(self):
        return 2


def generator():
    n = 0
    while True:
        yield n
        n += 1


SOURCES = {
    "count": itertools.count,
    "cycle": lambda: itertools.cycle([0, 2, 5]),
    "repeat": lambda: itertools.repeat(2),
    "generator": generator,
    "a class": Endless,
    "map": lambda: map(abs, itertools.count()),
    "chain": lambda: itertools.chain([1], itertools.count()),
    "from_iterable": lambda: itertools.chain.from_iterable(itertools.repeat(range(3))),
    "with a sentinel": lambda: iter(lambda: 2, 6),
}


def first(items, number=4):
    return [next(items) for _ in range(number)]


def of_a_loop(items):
    seen = []
    for item in items:
        seen.append(item)
        if len(seen) == 4:
            break
    return seen


def extended(made, name, *given):
    getattr(made, name)(*given)
    return made


def starred(items):
    (one,) = items


def every_use(x, s):
    chain, islice = itertools.chain, itertools.islice
    seen = [list(zip(s(), [1, 2])), list(zip([1, 2], s())), dict(zip([1, 2], s())), {**dict(zip("ab", s()))}, first(iter(s())), of_a_loop(s())]
    seen += [first(enumerate(s())), of_a_loop(enumerate(s())), first(map(lambda v: v + 1, s())), list(map(operator.add, s(), [1, 2]))]
    seen += [first(filter(lambda v: v > 1, s())), next(filter(None, s())), any(v > 1 for v in s()), any(s()), all(map(lambda v: v < 2, s()))]
    seen += [list(islice(s(), 3)), tuple(islice(s(), 1, 5, 2)), collections.deque(islice(s(), 6), maxlen=2), 2 in s()]
    seen += [list(itertools.takewhile(lambda v: v < 2, s())), first(itertools.dropwhile(lambda v: v < 1, s())), first(chain([1], s()))]
    seen += [first(chain.from_iterable([s()])), first(chain.from_iterable(map(lambda v: [v], s())))]
    seen += [of_a_loop(chain.from_iterable([v, v] for v in s())), first(chain.from_iterable(itertools.starmap(range, zip(s(), s()))), 0)]
    seen += [first(chain.from_iterable(chain.from_iterable([[[v]] for _ in range(2)] for v in s())))]
    seen += [first(itertools.zip_longest(s(), [1])), first(itertools.compress(s(), itertools.cycle([1, 0])))]
    seen += [list(itertools.compress([1, 2, 3], s())), first(itertools.accumulate(s())), first(itertools.starmap(max, zip(s(), s())))]
    seen += [first(itertools.pairwise(s())), first(itertools.tee(s())[1]), of_a_loop(heapq.merge(s(), [1, 2]))]
    seen += [functools.reduce(operator.add, islice(s(), 5)), list(zip(*[islice(s(), 4)] * 2)), first((lambda: (yield from s()))())]
    seen += [extended({}, "update", zip([3, 4], s())), extended([], "extend", islice(s(), 3)), list(itertools.product(islice(s(), 2), repeat=2))]
    seen += [operator.indexOf(s(), 2), extended(collections.deque(maxlen=2), "extend", islice(s(), 4)), {0, 1}.issuperset(s())]
    for refused in (lambda: list(zip([1], s(), strict=True)), lambda: starred(s())):
        try:
            refused()
        except ValueError as error:
            seen.append(str(error))
    return x + 1, seen


@pytest.mark.parametrize("source", SOURCES)
def test_no_more_is_taken_than_is_asked_for(source):
    pliant.reset()
    compiled = pliant.compile(every_use, backend="eager")
    expected = repr(every_use(torch.ones(2), SOURCES[source]))
    assert [repr(compiled(torch.ones(2), SOURCES[source])) for _ in range(2)] == [expected] * 2
    stats = pliant.stats()
    assert not stats["fallbacks"] and not stats["graph_breaks"]


# ---- the iterables of `chain.from_iterable`, each of which is asked for in its turn
class Counting:
    def __init__(self, left, log):
        self.left, self.log = left, log

    def __iter__(self):
        self.log.append("iter")
        return self

    def __next__(self):
        self.left -= 1
        self.log.append(self.left)
        if self.left < 0:
            raise StopIteration
        return self.left


class WithoutIter:
    left = 2

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left


class Holder:
    def __iter__(self):
        return WithoutIter()


def changed_meanwhile(x, log):
    rows = [[1]]
    made = itertools.chain.from_iterable(rows)
    rows.append([2, x])
    rows[0].append(3)
    return list(made)


def of_the_program(x, log):
    log.append(list(itertools.chain.from_iterable([Counting(2, log), Counting(1, log)])))
    return x + 1, list(itertools.chain.from_iterable(Holder() for _ in range(2)))


def seen_between(x, log):
    def rows():
        for i in range(3):
            log.append(i)
            yield [i, x * i]

    made = itertools.chain.from_iterable(rows())
    return next(made), [*log], list(made)


def fails_late(x, log):
    def rows():
        yield [1]
        raise ValueError("no more")

    for made in (itertools.chain.from_iterable(rows()), itertools.chain.from_iterable([[1], 3])):
        log.append(next(made))
        try:
            next(made)
        except (TypeError, ValueError) as error:
            log.append(repr(error))
    return x + 1


def returned(x, log):
    return x + 1, (made := itertools.chain.from_iterable([[x], (x, x), [x]])), next(made)


@pytest.mark.parametrize(
    "function", [changed_meanwhile, of_the_program, seen_between, fails_late, returned], ids=lambda one: one.__name__
)
def test_iterables_are_taken_in_turn(function):
    def run(called):
        result = called(torch.arange(3.0), log := [])
        return repr([list(one) if type(one) is itertools.chain else one for one in result]), log

    pliant.reset()
    compiled = pliant.compile(function, backend="eager")
    assert [run(compiled) for _ in range(2)] == [run(function)] * 2
    assert not pliant.stats()["fallbacks"] and not pliant.stats()["graph_breaks"]
