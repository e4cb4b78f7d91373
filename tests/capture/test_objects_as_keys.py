"""Objects that are equal to themselves alone, looked up in dicts and sets: guarded by identity, or as different ones."""

import collections
import dataclasses
import fractions
import functools
import sys
import types
import weakref
from typing import NamedTuple

import pytest
import torch

import pliant


class Plain:
    pass


@dataclasses.dataclass(frozen=True)
class Point:
    a: int


A, B = Plain(), Plain()
TABLE = {A: 1, B: 2, Point(1): 5, Point(2): 6, (A, 1): 11, (B, 1): 12}
SET, LIST = {A}, [A]
COUNTS = collections.defaultdict(lambda: 3, {A: 1, B: 2})
ORDERED = collections.OrderedDict(TABLE)

OUTSIDE = {
    "item": lambda x, o: x * TABLE[o],
    "get": lambda x, o: x * TABLE.get(o, 7) + (o in TABLE),
    "set": lambda x, o: x + (o in SET),
    "defaultdict": lambda x, o: x * COUNTS.get(o, 0),
    "ordered": lambda x, o: x * ORDERED.get(o, 4),
    "copy": lambda x, o: x * dict(TABLE).get(o, 9),
    "iterated": lambda x, o: x * sum(v for k, v in TABLE.items() if k == o),
    "in a tuple": lambda x, o: x * TABLE.get((o, 1), 8),
    "list": lambda x, o: x + (o in LIST) + LIST.count(o),
    "made here": lambda x, o: x * {A: 1, B: 2}.get(o, 3),
}
PAIRS = {
    "dict": lambda x, o, p: x + {o: 1}.get(p, 5),
    "set": lambda x, o, p: x + len({o, p}),
    "fromkeys": lambda x, o, p: x + len(dict.fromkeys([o, p])),
    "equal": lambda x, o, p: x + (o == p),
    "index": lambda x, o, p: x + [p, o].index(o),
}


def check(program, calls):
    pliant.reset()
    compiled, x = pliant.compile(program, backend="eager"), torch.ones(2)
    for arguments in calls:
        assert torch.equal(compiled(x, *arguments), program(x, *arguments))


@pytest.mark.parametrize("name", OUTSIDE)
def test_looked_up_outside(name):
    absent = [] if name == "item" else [(Plain(),)]
    check(OUTSIDE[name], [(A,), (B,), (A,), *absent])
    if name in ("item", "get", "copy", "iterated"):
        check(OUTSIDE[name], [(Point(1),), (Point(2),), (Point(1),)])


@pytest.mark.parametrize("name", PAIRS)
def test_looked_up_among_each_other(name):
    check(PAIRS[name], [(A, B), (A, A), (A, B)])
    check(PAIRS[name], [(A, A), (A, B), (A, A)])
    check(PAIRS[name], [(Point(1), Point(2)), (Point(1), Point(1)), (Point(2), Point(1))])
    check(PAIRS[name], [(torch.ones(1), torch.ones(1)), (tensor := torch.ones(1), tensor)]) if name in (
        "dict",
        "set",
    ) else None


class Pair(NamedTuple):
    first: object
    second: object = 1


# Of a value that is told from others by which one it is: a key that is told from others by that value.
HOLDERS = {
    "tuple": lambda one: (one, 1),
    "own tuple": Pair,
    "in an own tuple": lambda one: Pair((one, 2)),
    "frozenset": lambda one: frozenset((one, 1)),
    "frozen dataclass": Point,
    "weak reference": weakref.ref,
    "method": lambda one: types.MethodType(print, one),
    "method of a class in C": lambda one: [one].append,
    "slot's method": lambda one: one.__ne__,
    "partial": lambda one: functools.partial(print, one),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("make", [lambda: torch.ones(2), Plain])
def test_keys_that_hold_what_is_told_by_which_it_is(make, holder):
    hold, one, other = HOLDERS[holder], make(), make()
    held = hold(one)
    calls = [(hold(one), hold(other)), (held, held), (hold(one), hold(other))]
    compares = holder == "frozen dataclass" and sys.version_info >= (3, 13)  # field by field: tensors have no one truth
    if "method of a class" not in holder and holder != "partial" and not compares:
        calls.append((hold(one), hold(one)))
    check(lambda x, o, p: x + len({o, p}) + {o: 1}.get(p, 5) + (hash(o) == hash(p)), calls[1:])
    check(PAIRS["set"], calls)


def test_new_objects_are_no_recompile():
    check(PAIRS["dict"], [(Plain(), Plain()) for _ in range(4)])
    assert pliant.stats()["recompiles"] == 0


@dataclasses.dataclass(frozen=True)
class Shape:
    rows: int
    rest: tuple = ()


class Named:
    def __init__(self, *parts):
        self.parts = parts

    def __hash__(self):
        return hash((self.parts, 1))

    def __eq__(self, other):
        return isinstance(other, Named) and self.parts == other.parts


@pytest.mark.parametrize("kind", [Shape, Named])
def test_objects_that_hold_sizes(kind):
    """Keys of numbers, too, are compiled for each number."""

    def program(x):
        table = {kind(x.shape[0]): 1.5, kind(4): 2.0, kind(1, (x.shape[0], "a")): 3.0}
        pliant.graph_break()
        found = table.get(kind(x.shape[0] - 1), 5.0), table[kind(1, (x.shape[0], "a"))], kind(5) in {kind(x.shape[0])}
        return x * found[0] + found[1] + found[2]

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for size in (4, 5, 6):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), program(x))
    assert not pliant.stats()["fallbacks"] and pliant.stats()["graph_breaks"] <= 3


class Numbered:
    """Compares itself with its like alone."""

    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return hash(self.n)

    def __eq__(self, other):
        return self.n == other.n


NUMBERED = {Numbered(1): 2, "a": 4, Numbered(3): 5}


def test_keys_are_compared_with_nothing_of_ours():
    pliant.reset()
    program = lambda x, k: x * NUMBERED[k] + NUMBERED["a"] + NUMBERED[Numbered(1)]
    compiled, x = pliant.compile(program, backend="eager", fullgraph=True), torch.ones(2)
    for n in (1, 3, 1):
        assert torch.equal(compiled(x, Numbered(n)), program(x, Numbered(n)))
    pliant.reset()


class Extent(tuple):
    pass


@pytest.mark.parametrize("make", [lambda x: x.shape, lambda x: Extent(x.shape), lambda x: (x.shape, 1)])
def test_tuples_with_numbers_that_vary_as_keys(make):
    def program(x):
        key = make(x)
        return {key: x + 1}[key], type(next(iter({key}))), hash(key) == hash(make(x)), {key: 2}.get((5, 4), 3)

    compiled = pliant.compile(program, fullgraph=True, backend="eager")
    for n in (3, 5, 7, 5):
        x = torch.ones(n, 4)
        (found, *others), (expected, *rest) = compiled(x), program(x)
        assert torch.equal(found, expected) and others == rest


class Held:
    pass


class Compared:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

    def __hash__(self):
        return hash(self.value)


FROZEN = [object, Held, lambda: Compared(3), lambda: fractions.Fraction(1, 3), lambda: (Held(), 1)]


@pytest.mark.parametrize("make", FROZEN, ids=["object", "held", "compared", "fraction", "tuple"])
def test_items_of_frozensets_from_outside_are_the_same_objects(make):
    pliant.reset()
    compiled = pliant.compile(lambda x, items: (x + 1, list(items)), backend="eager")
    for _ in range(3):
        items = frozenset([make()])
        (found,) = compiled(torch.ones(1), items)[1]
        (item,) = items
        assert found[0] is item[0] if isinstance(item, tuple) else found is item


def test_hashes_of_items_behind_a_break():
    def program(x, items):
        return x + 1, [hash(item) for item in items]

    items = frozenset([object(), object()])
    assert pliant.compile(program, backend="eager")(torch.ones(1), items)[1] == program(torch.ones(1), items)[1]
