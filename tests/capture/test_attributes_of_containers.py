"""Attributes that containers have beside their items, and stores into an object's table."""

import collections
import copy

import pytest

import pliant


def stored(g, o):
    g.value = 5
    return g.value, getattr(g, "value", "none"), hasattr(o, "value"), vars(o)


def read(g, o):
    return getattr(g, "value", "none"), hasattr(o, "value"), vars(g)


def through_the_table(g, o):
    vars(g)["value"] = 4
    return getattr(o, "value", "none"), vars(o)


def behind_the_table(g, o):
    before = sorted(vars(g))
    g.value = 3
    return before, getattr(o, "value", "none")


def with_items(g, o):
    g["a"] = 1
    before = getattr(g, "value", "none")
    g.value = before
    return before, o.value, list(g)


class Plain:
    pass


MADE = [collections.OrderedDict, collections.Counter, Plain, lambda: KeyError(1)]


@pytest.mark.parametrize("program", [stored, read, through_the_table, behind_the_table])
@pytest.mark.parametrize("make", MADE, ids=["OrderedDict", "Counter", "object", "exception"])
def test_attributes_of_one_object_or_two(make, program):
    compiled = pliant.compile(lambda x, g, o: program(g, o), backend="eager")
    for one, value in [(False, 0), (True, 0), (False, 1), (True, 2), (False, 0), (True, 3)]:
        found = []
        for function in (program, lambda g, o: compiled(0, g, o)):
            first, second = make(), make()
            if value:
                first.value = value
            found.append((function(first, first if one else second), vars(first), vars(second)))
        assert found[0] == found[1]


@pytest.mark.parametrize("make", MADE[:2], ids=["OrderedDict", "Counter"])
def test_attributes_beside_items(make):
    compiled = pliant.compile(lambda x, g: with_items(g, g), backend="eager")
    for value in (0, 1, 2, 0):
        mine, theirs = make(b=2), make(b=2)
        mine.value = theirs.value = value
        assert compiled(0, mine) == with_items(theirs, theirs)
        assert (mine, vars(mine)) == (theirs, vars(theirs))


def whole_first(g):
    g.move_to_end(next(iter(g)))  # all items are read
    before = getattr(g, "value", "none")
    g.value = 7
    vars(g)["other"] = before
    return before, g.value, g.other, sorted(vars(g))


def copied(g):
    g.mine = [g]
    shallow, deep = copy.copy(g), copy.deepcopy(g)
    facts = [getattr(one, "value", "none") for one in (shallow, deep, g.copy(), g)]
    return *facts, shallow.mine is g.mine, deep.mine[0] is deep, vars(shallow), sorted(vars(deep))


@pytest.mark.parametrize("program", [whole_first, copied])
def test_attributes_of_what_is_used_as_a_whole(program):
    compiled = pliant.compile(lambda x, g: program(g), backend="eager")
    for value in (0, 1, 2, 0):
        mine, theirs = (collections.OrderedDict(a=1, b=2) for _ in range(2))
        if value:
            mine.value = theirs.value = value
        assert str(compiled(0, mine)) == str(program(theirs))
        assert str((mine, vars(mine))) == str((theirs, vars(theirs)))
