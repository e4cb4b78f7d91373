"""Enums and dataclasses made or asked inside a compiled function: what they ask of the program's code, they ask as in Python."""

import dataclasses
import enum

import pytest
import torch

import pliant


class Hashed:
    hashed = 0

    def __hash__(self):
        Hashed.hashed += 1
        return 1


HASHED = Hashed()


def members_asked_for_with_objects(x, log):
    class Made(enum.Enum):
        A = 1

    before = Hashed.hashed
    try:
        Made(HASHED)
    except ValueError:
        log.append(Hashed.hashed - before)


def test_members_asked_for_with_objects():
    compiled = pliant.compile(members_asked_for_with_objects, backend="eager")
    for size in (2, 2, 3):
        wanted, found = [], []
        members_asked_for_with_objects(torch.ones(size), wanted)
        compiled(torch.ones(size), found)
        assert found == wanted == [1]


def test_the_class_of_a_member_gives_the_member_itself():
    class Task(enum.Enum):
        A = "a"

        def __hash__(self):
            Hashed.hashed += 1
            return hash(self.value)

    compiled, before = pliant.compile(lambda x: x * 2 if Task(Task.A) is Task.A else x, fullgraph=True), Hashed.hashed
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert Hashed.hashed == before


def keeping():
    """Flags that write down which members they were asked for, and a function that asks."""
    asked = []

    class Keeping(enum.IntFlag):
        A = 1

        @classmethod
        def _missing_(cls, value):
            asked.append(value)
            return super()._missing_(value)

    return asked, lambda x: [Keeping(x.shape[0] * 16), Keeping.A | 8, list(asked)]


@pytest.mark.fallbacks_expected
def test_members_that_flags_make_are_asked_for_once():
    (wanted, function), (asked, other) = keeping(), keeping()
    compiled = pliant.compile(other, backend="eager")
    for size in (2, 2, 3, 2, 4):
        want, got = function(torch.ones(size)), compiled(torch.ones(size))
        assert (str(got), asked) == (str(want), wanted)


def members_of_varying_values(x):
    class Made(enum.Enum):
        A = x.shape[0] & 7
        B = (x.shape[0], [x.shape[0] + 1])

    return list(Made)


def test_members_of_varying_values_hold_numbers():
    compiled = pliant.compile(members_of_varying_values, backend="eager")
    for size in (2, 2, 3, 4):
        first, second = compiled(torch.ones(size))
        assert type(first.value) is type(second.value[0]) is int
        assert (first.value, second.value) == (size, (size, [size + 1]))


class Answer:
    def __init__(self):
        self.asked = 0

    def __bool__(self):
        self.asked += 1
        return False


def flagged(flag):
    def run(x):
        @dataclasses.dataclass(frozen=flag)
        class Made:
            size: int

        return Made(x.shape[0]).size, flag.asked

    return run


@pytest.mark.fallbacks_expected  # what writes a dataclass's methods is Python
def test_flags_of_dataclasses_are_asked_as_often_as_in_python():
    run, other = flagged(Answer()), flagged(Answer())
    with pliant.config.patch(recompile_limit=64):
        compiled = pliant.compile(other, backend="eager")
        for size in (2, 2, 3):
            assert compiled(torch.ones(size)) == run(torch.ones(size))


@pytest.mark.parametrize("other", ["a", None, b"a", len, torch.relu, dict, torch.float32, slice(0, 2), ...], ids=lambda one: type(one).__name__)
def test_what_is_no_number_leaves_sizes_beside_it_varying(other):
    pliant.reset()
    program = lambda x: x * 2 if (x.shape[0], other) == (x.shape[0] + 1, other) else x  # noqa: E731
    compiled = pliant.compile(program)
    for n in (5, 6, 7, 9):
        assert compiled(torch.ones(n)).equal(torch.ones(n))
    assert pliant.stats()["recompiles"] == 1


class OfLists(enum.Enum):
    A = [1]
    B = (1, [2])


class WithDefault(enum.Enum):
    A = [1]
    B = 2

    @classmethod
    def _missing_(cls, value):
        return cls.B if value is None else None


@pytest.mark.parametrize("cls", [OfLists, WithDefault])
def test_members_asked_for_by_values_without_a_hash(cls):
    """What the list holds decides about the member."""

    def program(x, value):
        try:
            return x + 1, cls(value)
        except ValueError as error:
            return x, str(error)

    compiled = pliant.compile(program, backend="eager")
    for value in ([1], [2], (1, [2]), (1, [3]), [1], None, 2):
        assert str(compiled(torch.ones(2), value)) == str(program(torch.ones(2), value))
    assert not pliant.stats()["fallbacks"] and not pliant.stats()["graph_breaks"]
