"""Views of dicts from outside (`types.MappingProxyType`) show what is stored in them meanwhile."""

import types

import pytest
import torch

import pliant

TABLE: dict[str, int] = {}
VIEW = types.MappingProxyType(TABLE)


def store_between(x, n):
    a = VIEW["a"]
    TABLE["a"] = n
    return x * a + VIEW["a"], len(VIEW)


def store_of_a_new_key(x, n):
    before = list(VIEW.items())
    TABLE["c"] = n
    return x, list(VIEW.items()), before


def update(x, n):
    before = list(VIEW.values())
    TABLE.update(c=n)
    return x, list(VIEW.items()), before


def read_as_a_whole_before(x, n):
    total, before = sum(TABLE.values()), dict(VIEW)
    TABLE["d"] = n
    return x, dict(VIEW), before, total


def deletion(x, n):
    before = "b" in VIEW
    del TABLE["b"]
    return x * n, "b" in VIEW, before, dict(TABLE)


@pytest.mark.parametrize("program", [store_between, store_of_a_new_key, update, read_as_a_whole_before, deletion])
def test_stores_are_seen(program):
    found = []
    for call in (program, pliant.compile(program)):
        TABLE.clear()
        found.append([])
        for n in (5, 7, 9):
            TABLE.update(a=1, b=2)
            found[-1].append((call(torch.ones(1), n), dict(TABLE)))
    assert found[0] == found[1] and pliant.stats()["fallbacks"] == 0


def test_views_that_are_only_read_do_not_break():
    TABLE.clear()
    TABLE.update(a=1, b=2)
    compiled = pliant.compile(lambda x: x * VIEW["a"] + len(VIEW), fullgraph=True)
    for a in (1, 4, 6):
        TABLE["a"] = a
        assert compiled(torch.ones(1)) == a + 2
