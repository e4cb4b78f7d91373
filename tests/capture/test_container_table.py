"""Containers of a program's classes from outside, read and changed in one graph: as in eager."""


import pytest
import torch
from tests.capture import container_table as table

import pliant

BREAKS = {f"{kind}, {name}" for kind in ("ordered", "factory") for name in ("copy", "join")}  # make one of the class
PROGRAMS = list(table.programs())


def check(kind, place, chosen):
    for name, make, operation in PROGRAMS:
        if name.startswith(f"{kind}, ") and name.endswith("twice") in chosen:
            wrong, breaks, fallbacks = table.differences(make, operation, place)
            assert not wrong and not fallbacks, (name, wrong)
            assert bool(breaks) == (name.removesuffix(" twice") in BREAKS), (name, breaks)


@pytest.mark.parametrize("kind", table.KINDS)
def test_given(kind):
    check(kind, "argument", (False, True))


@pytest.mark.parametrize("place", [place for place in table.PLACES if place != "argument"])
@pytest.mark.parametrize("kind", ["list", "dict with methods", "set", "deque"])
def test_found(kind, place):
    check(kind, place, (False,))


# ---- loops, breaks, tensors, guards
def grows(b):
    for v in b:
        if v < 8:
            b.append(v + 3)
    return list(b)


def grows_behind_breaks(b):
    seen = 0
    for v in b:
        seen += v
        pliant.graph_break()
        if v < 8:
            b.append(v + 3)
    return seen, list(b)


def changes_behind(b):
    b.append(9)
    pliant.graph_break()
    b.append(10)
    return list(b), len(b)


def adds_in_loop(b):
    for v in b:
        b.add(v + 10)


def appends_in_loop(b):
    for v in b:
        b.append(v)


def deletes_in_loop(b):
    for k in b:
        b[k + "x"] = 1


def backwards(b):
    b.append(8)
    return [v for v in reversed(b)]


def by_two_names(b):
    other = b
    other.append(1)
    return b[-1], b.pop(), len(other)


def of_its_items(b):
    b.append(2)
    first, *rest = b
    return first, rest, sum(b), max(b), tuple(b), sorted(b)


def unwound(b):
    try:
        b.remove(99)
    except ValueError:
        b.append(5)
    return list(b)


LOOPS = {
    "grows": (grows, table.Items),
    "grows, own methods": (grows, table.OwnItems),
    "grows behind breaks": (grows_behind_breaks, table.Items),
    "changes behind": (changes_behind, table.Items),
    "changes behind, deque": (changes_behind, table.Queue),
    "set changed": (adds_in_loop, table.Unique),
    "deque changed": (appends_in_loop, table.Queue),
    "dict changed": (deletes_in_loop, lambda items: table.Table(a=1, b=2)),
    "backwards": (backwards, table.Items),
    "two names": (by_two_names, table.Items),
    "items": (of_its_items, table.Items),
    "items of a deque": (of_its_items, table.Queue),
    "error": (unwound, table.Items),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name):
    function, cls = LOOPS[name]

    def program(x, b):
        return function(b), x + 1

    compiled = pliant.compile(program, backend="eager")
    for items in ([3, 4, 5], [3, 4, 5], [1, 2], [7, 7, 7, 2]):
        expected = table.run(program, lambda items=items: cls(items), lambda b: b)
        assert table.run(compiled, lambda items=items: cls(items), lambda b: b) == expected


class Log(list):
    pass


def test_a_log_of_tensors_grows_without_being_read():
    pliant.reset()
    log = Log()
    compiled = pliant.compile(lambda x: (log.append(x * 2), x + 1)[1], fullgraph=True)
    for n in range(6):
        compiled(torch.full((2,), float(n)))
    assert [v.tolist() for v in log] == [[2.0 * n] * 2 for n in range(6)]
    assert pliant.stats()["recompiles"] <= 1


def test_tensors_are_told_apart():
    def program(b):
        b.insert(0, b[0] + b[1])
        b[1] *= 2
        return b.pop()

    def run(function):
        b = Log([torch.ones(2), torch.arange(2.0)])
        last = b[1]
        return function(b) is last, [v.tolist() for v in b], type(b)

    compiled = pliant.compile(program, fullgraph=True)
    assert run(compiled) == run(compiled) == run(program)


def test_attributes_of_the_container_stay():
    def program(b, x):
        b.total = len(b)
        b.extend([x])
        return b.total + len(b), vars(b)

    def run(function):
        b = Log([1, 2])
        return function(b, 3), vars(b), list(b)

    assert run(pliant.compile(program, backend="eager", fullgraph=True)) == run(program)




def test_a_key_that_is_deleted_and_stored_again_is_last():
    class Holder:
        pass

    def program(h):
        del h.a
        h.a = 5
        return list(vars(h))

    def run(function):
        h = Holder()
        h.a, h.b = 1, 2
        return function(h), vars(h), list(vars(h))

    assert run(pliant.compile(program, backend="eager")) == run(program)
