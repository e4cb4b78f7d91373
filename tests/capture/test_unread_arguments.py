"""What a program is given and does not read decides about no entry: a request's name, an option of another implementation."""

import enum
import functools
import sys

import pytest
import torch

import pliant


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3
    BLACK = 4


TEXTS = [f"request {n}" for n in range(4)]
VALUES = {
    "texts": TEXTS,
    "ints": [3, 17, 5, 99],
    "floats": [0.5, 1.5, 2.25, 9.5],
    "tuples": [("a", n) for n in range(4)],
    "enums": list(Colour),
    "bytes": [b"a", b"b", b"c", b"d"],
    "classes": [int, str, dict, Colour],
    "functions": [len, max, torch.relu, lambda: 1],
    "mixed": [None, "a", Colour.RED, True],
}
HOLDERS = {
    "argument": lambda f, x, v: f(x, v),
    "keyword": lambda f, x, v: f(x, tag=v),
    "in-a-list": lambda f, x, v: f(x, [v]),
    "in-a-dict": lambda f, x, v: f(x, {"tag": v}),
}


def _recompiles():
    return pliant.stats()["recompiles"]


class Module(torch.nn.Module):
    def forward(self, x, tag=None):
        return x * 2


def plain(x, tag=None):
    return x * 2


def several(x, *rest, **options):
    return x * 2


@pytest.mark.spread(2, "make", "holder", "kind")
@pytest.mark.parametrize("make", [lambda: plain, lambda: several, Module, lambda: Module().forward])
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("kind", VALUES)
def test_no_argument_that_is_not_read_is_guarded(kind, holder, make):
    pliant.reset()
    compiled, x = pliant.compile(make()), torch.ones(3)
    for value in VALUES[kind]:
        assert torch.equal(HOLDERS[holder](compiled, x, value), x * 2)
    # A number is a constant until it changes, one of another type too; a class says what a value in a container is.
    assert _recompiles() <= {"ints": 1, "floats": 1, "tuples": 1, "mixed": 2}.get(kind, 0)


def returned(x, tag):
    return x * 2, tag


def inlined(x, tag):
    def inner(x, tag):
        return x * 2, [tag][0]

    return inner(x, tag=tag)


def behind(x, tag):
    y = x * 2
    pliant.graph_break()
    return y, tag


def stored(x, tag):
    kept = {"tag": tag}
    return x * 2, kept["tag"]


@pytest.mark.parametrize("f", [returned, inlined, behind, stored])
def test_a_text_that_is_handed_on_is_one_entry_for_all(f):
    pliant.reset()
    compiled, x = pliant.compile(f), torch.ones(3)
    for text in TEXTS * 2:
        assert compiled(x, text)[1] == text
    assert _recompiles() <= 2  # one, in each of the functions that a break makes


def test_a_text_that_is_read_is_guarded():
    def f(x, mode):
        return x * 2 if mode.startswith("d") else x + 1

    pliant.reset()
    compiled, x = pliant.compile(f), torch.ones(3)
    for mode in ("double", "add", "dou", "ad", "double", "add"):
        assert torch.equal(compiled(x, mode), f(x, mode))
    assert _recompiles() == 3


def test_arguments_that_other_code_reads_are_guarded():
    """Functions that are not interpreted, hooks, and code that looks at all of its variables."""

    @functools.singledispatch
    def dispatched(x, tag=None):
        return x * 2

    @dispatched.register(str)
    def _(x, tag=None):
        raise AssertionError

    def looks(x, tag):
        return x * len(locals()["tag"])

    def closes(x, tag):
        def inner():
            return x * len(tag)

        return inner()

    hooked = Module()
    hooked.register_forward_pre_hook(lambda module, given: (given[0] * len(given[1]), given[1]))
    x = torch.ones(3)
    for f in (dispatched, looks, closes, hooked, torch.nn.functional.gelu):
        compiled = pliant.compile(f)
        for tag in ("none", "tanh") if f is torch.nn.functional.gelu else ("a", "bb", "ccc"):
            given = {"approximate": tag} if f is torch.nn.functional.gelu else {"tag": tag}
            args = (x, tag) if f is hooked else (x,)
            torch.testing.assert_close(compiled(*args, **({} if f is hooked else given)), f(*args, **({} if f is hooked else given)))


NAMELESS = [locals, vars]


def test_arguments_are_guarded_where_code_looks_at_locals_by_another_name():
    """A callee at its caller's frame, and `locals` and `vars` that the code does not name."""

    def outside():
        return sys._getframe(1).f_locals["tag"]

    def by_a_callee(x, tag):
        return x * 2, outside()

    def by_locals(x, tag):
        return x * 2, NAMELESS[0]()["tag"]

    def by_vars(x, tag):
        return x * 2, NAMELESS[1]()["tag"]

    for f in (by_a_callee, by_locals, by_vars):
        compiled = pliant.compile(f)
        for tag in ("a", "b", "c"):
            assert compiled(torch.ones(3), tag)[1] == tag


def test_vars_has_what_inner_functions_share():
    def f(x, tag):
        return x * 2, sorted(vars()), lambda: tag

    x = torch.ones(3)
    assert pliant.compile(f)(x, "a")[1] == f(x, "a")[1]
