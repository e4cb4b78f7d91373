"""Keys whose classes compare in a way of their own: each comparison of the program's own runs once, when eager runs it."""

import pytest

import pliant

ASKED: list[str] = []


class Text(str):
    def __hash__(self):
        return 3

    def __eq__(self, other):
        ASKED.append(type(other).__name__)
        return True


class Plain:
    def __hash__(self):
        return 3

    def __eq__(self, other):
        ASKED.append(type(other).__name__)
        return True


def _stored(k):
    d = {3: 1}
    d[k] = 2
    return len(d)


def _updated(k):
    d = {3: 1}
    d.update({k: 2})
    return len(d)


def _deleted(k):
    d = {3: 1}
    del d[k]
    return len(d)


def _added(k):
    d = {3}
    d.add(k)
    return len(d)


USES = {
    "get": lambda k: {3: 5}.get(k),
    "item": lambda k: {3: 5}[k],
    "in dict": lambda k: k in {3: 5},
    "in list": lambda k: k in [3, 4],
    "index": lambda k: [1, 3].index(k),
    "item by another": lambda k: {k: 1}[3],
    "get by another": lambda k: {k: 1}.get(3),
    "another in dict": lambda k: 3 in {k: 1},
    "another in set": lambda k: 3 in {k},
    "intersection": lambda k: len({3, 4} & {k}),
    "equal sets": lambda k: {3} == {k},
    "equal dicts": lambda k: {3: 1} == {k: 1},
    "pop": lambda k: {3: 1}.pop(k),
    "setdefault": lambda k: {3: 1}.setdefault(k, 4),
    "two keys": lambda k: {3: 1, k: 2}[3],
    "dict of pairs": lambda k: dict([(3, 1), (k, 2)])[k],
    "in tuple as key": lambda k: {(k, 1): 5}[3, 1],
    "stored": _stored,
    "updated": _updated,
    "deleted": _deleted,
    "added": _added,
}


@pytest.mark.parametrize("made", ["inside", "outside"])
@pytest.mark.parametrize("cls", [Text, Plain])
def test_comparisons_run_once(cls, made):
    different = []
    for name, use in USES.items():

        def inside(use=use):
            return use(cls())

        f, args = (inside, ()) if made == "inside" else (use, (cls(),))
        answers = []
        for one in (f, pliant.compile(f)):
            calls = []
            for _ in range(2):
                ASKED.clear()
                calls.append((one(*args), list(ASKED)))
            answers.append(calls)
        if answers[0] != answers[1]:
            different.append((name, *answers))
    assert different == []


class OwnText(str):
    pass


class OwnNumber(int):
    pass


class OwnFloat(float):
    pass


@pytest.mark.parametrize("cls", [OwnText, OwnNumber, OwnFloat])
def test_each_call_makes_its_own_string_or_number(cls):
    def f():
        made = cls(3)
        made.notes = []
        return made

    g = pliant.compile(f)
    first, second = g(), g()
    first.notes.append(1)
    assert type(second) is cls and second == cls(3) and second.notes == [] and first is not second


def test_methods_of_own_strings_share_variables_behind_a_break():
    def f():
        class Named(str):
            def read(self):
                return value

        named = Named("a")
        pliant.graph_break()
        value = [named]
        return named.read() is value

    g = pliant.compile(f)
    assert [g(), g()] == [f(), f()] == [True, True]


def test_hashes_of_what_holds_new_objects_are_their_own():
    def f():
        items = [object(), object()]
        whole = frozenset(items)
        return items, hash(whole), hash((items[0], 1)), hash((whole, "a"))

    g = pliant.compile(f)
    for _ in range(2):
        items, of_set, of_pair, of_both = g()
        assert of_set == hash(frozenset(items))
        assert of_pair == hash((items[0], 1))
        assert of_both == hash((frozenset(items), "a"))


class Holder:
    """What its comparison reads holds what has no hash."""

    def __init__(self):
        self.held = (1, [2])

    def __hash__(self):
        return 3

    def __eq__(self, other):
        return isinstance(other, Holder) and self.held == other.held


def test_what_a_comparison_reads_needs_no_hash():
    def program(keys):
        try:
            return Holder() in keys
        except TypeError as error:
            return str(error)

    compiled = pliant.compile(program)
    assert [compiled({3, 4}), compiled({Holder()})] == [False, True]
