"""What C code calls or shows of the program's: at each call of the compiled function, as often as in eager, and not at capture."""

import contextlib
import copy
import enum
import functools
import itertools
import operator
import re
import struct
import types
from collections import deque

import pytest
import torch

import pliant


class Shown:
    def __init__(self, log):
        self.log = log

    def __repr__(self):
        self.log.append("shown")
        return "Shown()"


class Doubled(str):
    log: list = []

    def __new__(cls, match):
        cls.log.append("made")
        return str.__new__(cls, match.group() * 2)


class Called:
    def __call__(self, match):
        Doubled.log.append("called")
        return "c"


class Turn(enum.IntFlag):
    A = 1
    B = 2

    @classmethod
    def _missing_(cls, value):
        return super()._missing_(value)


class Meta(type):
    def __getattr__(cls, name):
        cls.log.append(name)
        raise AttributeError(name)


def joined(text, match):
    Doubled.log.append(text)
    return text


class Inexact(float):
    def __index__(self):
        Doubled.log.append("index")
        return 1


class Place:
    def __index__(self):
        Doubled.log.append("index")
        return 1


class Spelled(str):
    def __index__(self):
        Doubled.log.append("index")
        return 1

    def __float__(self):
        Doubled.log.append("float")
        return 2.5


class Row:
    """A sequence by its methods alone."""

    def __len__(self):
        Doubled.log.append("len")
        return 2

    def __getitem__(self, key):
        Doubled.log.append("item")
        return [1, 2][key]


class Counted(tuple):
    def __len__(self):
        Doubled.log.append("len")
        return 2


class Queue(deque):
    def __getitem__(self, key):
        Doubled.log.append(key)
        return key


class Walked:
    def __len__(self):
        Doubled.log.append("len")
        return 2

    def __iter__(self):
        Doubled.log.append("iter")
        return iter([1, 2])


class HashedSet(set):
    def __hash__(self):
        Doubled.log.append("hash")
        return 1


class OwnItems(list):
    def __getitem__(self, key):
        Doubled.log.append(key)
        return list.__getitem__(self, key)


class Key:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        Doubled.log.append("hash")
        return self.number

    def __eq__(self, other):
        Doubled.log.append("eq")
        return self.number == other.number


class AsksMore(type):
    def __getattr__(cls, name):
        Doubled.log.append(name)
        raise AttributeError(name)


def put(items, key, value):
    items[key] = value
    return items


CALLED, PARTIAL, PATTERN = Called(), functools.partial(joined, "p"), re.compile("a|b")


def complaint(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__, None if isinstance(error, KeyError) else str(error)


PROGRAMS = {
    "index of a list": lambda log: complaint(lambda: [1].index(Shown(log))),
    "index of a list, of a list": lambda log: complaint(lambda: [1].index([Shown(log)])),
    "index of a part": lambda log: (lambda one: ([1, one].index(one), complaint(lambda: [1, one].index(one, 0, 1))))(Shown(log)),
    "index of a deque": lambda log: complaint(lambda: deque([1]).index(Shown(log))),
    "remove": lambda log: complaint(lambda: [1].remove(Shown(log))),
    "a key that a set lacks": lambda log: complaint(lambda: {1}.remove(Shown(log))),
    "a key that a dict lacks": lambda log: complaint(lambda: {}.pop(Shown(log))),
    "a class replaces": lambda log: PATTERN.sub(Doubled, "ab"),
    "an object replaces": lambda log: PATTERN.subn(CALLED, "ab"),
    "a partial replaces": lambda log: re.sub("a", PARTIAL, "ab"),
    "by name": lambda log: PATTERN.sub(repl=PARTIAL, string="abb", count=2),
    "a class that fails": lambda log: complaint(lambda: PATTERN.sub(Turn, "ab")),
    "a place of a list": lambda log: (lambda items: (items.insert(Inexact(3.0), 5), items.pop(Spelled("x")), items))([1, 2]),
    "an object as a place": lambda log: (lambda items: (items.insert(Place(), 1), items.index(1, Place()), items.pop(Place())))([1, 2]),
    "an object as a byte": lambda log: (lambda data: (data.append(Place()), data.insert(Place(), Place()), data))(bytearray(b"ab")),
    "an object turns": lambda log: (lambda items: (items.rotate(Place()), items.insert(Place(), 3), items))(deque([1, 2])),
    "a byte": lambda log: (lambda data: (operator.setitem(data, 0, Inexact(3.0)), data.append(Spelled("x")), data))(bytearray(b"ab")),
    "a count of a text": lambda log: ("a" * Spelled("x"), "a".center(Inexact(3.0)), b"ab".count(Inexact(3.0)), hex(Spelled("x"))),
    "packed": lambda log: (struct.pack("<h", Inexact(3.0)), struct.pack("<f", Spelled("x"))),
    "what takes a slice's place": lambda log: (put([1, 2, 3], slice(0, 2), Row()), put([1, 2, 3], slice(0, 3, 2), Row())),
    "a tuple beside a tensor": lambda log: torch.ones(2) == Counted((1, 2)),
    "a class beside a tensor": lambda log: complaint(lambda: AsksMore("Made", (), {}) * torch.ones(2)),
    "shown by PyTorch's complaint": lambda log: complaint(lambda: torch.broadcast_shapes((1,), {"a": Shown(log)})),
    "keys of groups": lambda log: [len([*group]) for _, group in itertools.groupby([1, 1, 2], Key)],
    "items of a row": lambda log: (complaint(lambda: dict([Row()])), frozenset((1, 3)) & frozenset((1, 3)).intersection(Row())),
    "joined": lambda log: complaint(lambda: "a".join(Walked())),
    "a pair in turn": lambda log: complaint(lambda: dict([Walked()])),
    "a key that replaces": lambda log: complaint(lambda: re.sub("a", (HashedSet(),), "ab")),
    "a list with items of its own beside a tensor": lambda log: complaint(lambda: torch.ones(2) < OwnItems([1, 2])),
    "a class put into a tensor": lambda log: complaint(lambda: put(torch.ones(2), 0, AsksMore("Made", (), {}))),
    "a view of a queue": lambda log: types.MappingProxyType(Queue([1, 2]))["a"],
    "keys that are new at each call": lambda log: (frozenset((Key(1), Key(2))), dict.fromkeys((Key(3), Key(4)))) and None,
    "functions in a tuple": lambda log: ((joined, complaint).index(complaint), (joined,).count(joined)),
    "functions in a frozenset": lambda log: frozenset((joined, complaint)).__contains__(complaint),
}


@pytest.mark.fallbacks_expected  # flags keep members that they make
@pytest.mark.parametrize("name", PROGRAMS)
def test_c_code_calls_and_shows_as_in_eager(name):
    def program(x, log):
        return x + 1, PROGRAMS[name](log)

    pliant.reset()
    compiled, seen = pliant.compile(program, backend="eager"), []
    for run in (program, program, compiled, compiled):
        log = Doubled.log = []
        result, found = run(torch.ones(2), log)
        assert torch.equal(result, torch.ones(2) + 1)
        seen.append((found, log))
    assert seen[2:] == seen[:2]


def test_a_metaclass_is_asked_for_what_a_copied_class_lacks():
    def program(x, made, copied):
        return x + 1, copied(made).value

    compiled = pliant.compile(program, backend="eager")
    for run in (copy.copy, copy.deepcopy):
        seen = []
        for call in (program, compiled):
            log: list = []
            made = Meta("Made", (), {"log": log, "value": 1})()
            seen.append((call(torch.ones(2), made, run)[1], log))
        assert seen[0] == seen[1]
        assert seen[0][1]


def drained(it):
    return [len([*group]) for _, group in it]


def after_the_first_group(it):
    first = next(next(it)[1])
    pliant.graph_break()
    return first, [key for key, _ in it]


def within_the_first_group(it):
    _, group = next(it)
    first = next(group)
    pliant.graph_break()
    second, others = next(it)
    return first, second, [*others], [*group]


def broken(number):
    pliant.graph_break()
    return number


@pytest.mark.fallbacks_expected  # where a group was begun
@pytest.mark.parametrize("use", [drained, after_the_first_group, within_the_first_group])
@pytest.mark.parametrize("key", [None, abs, broken, Key])
def test_groups_across_breaks(use, key):
    def program(x):
        return x + 1, use(itertools.groupby([1, 1, 1, 2, 2, 3], key))

    Doubled.log = []
    compiled = pliant.compile(program, backend="eager")
    expected = repr(program(torch.ones(2)))
    assert [re.sub("0x[0-9a-f]+", "", repr(compiled(torch.ones(2)))) for _ in range(2)] == [re.sub("0x[0-9a-f]+", "", expected)] * 2


@pytest.mark.fallbacks_expected
def test_flags_of_tuples_with_numbers_that_vary_are_looked_for():
    def program(x, n):
        with contextlib.suppress(ValueError):
            return x + Turn(("a", n))
        return x - n

    compiled = pliant.compile(program, backend="eager")
    for n in (2, 3, 4):
        assert torch.equal(compiled(torch.ones(2), n), torch.ones(2) - n)
