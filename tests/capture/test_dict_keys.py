"""Dictionaries of the program whose keys have no literal."""

import collections
import enum

import pytest
import torch
from tests.capture.against_eager import check

import pliant


class Mode(str, enum.Enum):
    GREEDY = "greedy"
    SAMPLE = "sample"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


TABLES = {
    "text enum": ({Mode.GREEDY: 2.0, Mode.SAMPLE: 3.0}, Mode.SAMPLE),
    "number enum": ({Level.LOW: 2.0, Level.HIGH: 3.0}, Level.HIGH),
    "tuple": ({(1, "a"): 2.0}, (1, "a")),
    "infinity": ({float("inf"): 2.0, -0.5: 1.0}, float("inf")),
    "type": ({int: 2.0}, int),
    "none": ({None: 2.0}, None),
    "dtype": ({torch.float32: 2.0}, torch.float32),
}


@pytest.mark.parametrize("name", TABLES)
def test_lookups_are_guarded(name):
    table, key = TABLES[name]

    def program(x):
        return x * table[key]

    check(program, torch.ones(3))
    before = table[key]
    table[key] = 7.0
    check(program, torch.ones(3))
    table[key] = before


def _compared_as_keys(x):
    compared = 0

    class Key:
        def __hash__(self):
            return hash("abc")

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return True

    table = {"abc": 1}
    found = [table[Key()], table.get(Key()), Key() in table]
    del table[Key()]
    return x + 1, found, compared, table


def _compared_as_parts_of_dicts(x):
    class Clears:
        def __eq__(self, other):
            left.clear()
            return True

        def __hash__(self):
            return 13

    left = {Clears(): 0}
    right = {Clears(): Clears()}
    return x + 1, left == right, len(left)


@pytest.mark.parametrize("program", [_compared_as_keys, _compared_as_parts_of_dicts])
def test_methods_of_keys_that_change_variables(program):
    compiled = pliant.compile(program)
    for _ in range(2):
        assert str(compiled(torch.ones(2))) == str(program(torch.ones(2)))


def test_missing_keys_of_tables_by_parameter() -> None:
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    tables = [collections.defaultdict(dict) for _ in range(2)]

    def count(table):
        for p in parameters:
            state = table[p]
            state["n"] = state.get("n", torch.zeros(())) + 1
        del table[parameters[1]]
        return state["n"], parameters[1] in table, table[parameters[0]]["n"]

    compiled = pliant.compile(count, fullgraph=True)
    for _ in range(3):
        assert compiled(tables[0]) == count(tables[1])
        assert [tables[0][p] for p in parameters] == [tables[1][p] for p in parameters]


MASKS: dict = {}


def cached_mask(x):
    y = x * 2
    if x.shape not in MASKS:
        MASKS[x.shape] = torch.ones(x.shape)
    return y + MASKS[x.shape]


def cached_by_number(x):
    mask = MASKS.get(x.shape[0])
    if mask is None:
        mask = MASKS.setdefault(x.shape[0], torch.ones(x.shape[0]))
    return x + mask[:, None]


def helper(n):
    if n not in MASKS:
        MASKS[n] = torch.arange(n)
    return MASKS[n]


def cached_below(x):
    return x * 2 + helper(x.shape[0])[:, None]


def cached_by_shape_and_name(x):
    key = (x.shape, "mask")
    if key not in MASKS:
        MASKS[key] = torch.ones(x.shape)
    return x * 2 + MASKS[key]


@pytest.mark.parametrize("program", [cached_mask, cached_by_number, cached_below, cached_by_shape_and_name])
def test_keys_of_many_sizes_are_asked_for_between_graphs(program):
    pliant.reset(), MASKS.clear()
    compiled = pliant.compile(program)
    for n in (4, 6, 5, 7, 8, 9, 10, 11, 12, 9, 5, 13, 14, 4):
        x = torch.rand(n, 3)
        found = compiled(x)
        kept = dict(MASKS)
        assert torch.equal(found, program(x))
        assert MASKS.keys() == kept.keys() and all(MASKS[k] is kept[k] for k in kept)
    assert pliant.stats()["fallbacks"] == 0


def test_keys_of_sizes_are_one_graph_each_where_nothing_may_break():
    pliant.reset(), MASKS.clear()
    compiled = pliant.compile(cached_mask, fullgraph=True)
    for n in (4, 6, 5, 7, 8, 9):
        x = torch.rand(n, 3)
        assert torch.equal(compiled(x), x * 2 + 1)


def test_a_counter_lets_go_of_a_key_that_it_has_not():
    def program(x, g):
        del g["a"], g["b"]
        return dict(g)

    compiled = pliant.compile(program, backend="eager")
    for text in ("a", "abc", "", "c"):
        assert compiled(0, collections.Counter(text)) == program(0, collections.Counter(text))


class Counting(dict):
    def __missing__(self, key):
        self["missed"] = self.get("missed", 0) + 1
        return 0


@pytest.mark.parametrize("make", [lambda: collections.defaultdict(int), Counting], ids=["defaultdict", "subclass"])
def test_guards_do_not_fill_what_is_missing(make):
    """Entries of other keys, and what is said of why they did not serve, only look at what is there."""

    def program(lengths, x, key):
        lengths[key] += x.shape[0]
        return x * lengths[key]

    pliant.reset()
    compiled = pliant.compile(program)
    mine, theirs = make(), make()
    for key in (5, 7, 9):
        for n in (3, 1):
            x = torch.ones(n)
            torch.testing.assert_close(compiled(mine, x, key), program(theirs, x, key))
            assert dict(mine) == dict(theirs)
        del mine[key], theirs[key]
    assert not pliant.stats()["fallbacks"]
