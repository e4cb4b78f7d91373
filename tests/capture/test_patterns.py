# ruff: noqa: F502, F503, F504, F505, F506, F507, F509, UP031, RUF001
"""`pattern % value`: fields are shown by the program's own rules, with the errors of Python."""

import collections

import pytest
import torch

import pliant


class Named:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"<{self.name}>"

    def __repr__(self):
        return f"Named({self.name!r})"


class Number(Named):
    def __int__(self):
        return len(self.name)

    def __float__(self):
        return len(self.name) / 2

    def __index__(self):
        return len(self.name) + 1


class Real(Named):
    def __float__(self):
        return 2.5


class Fields(dict):
    def __getitem__(self, key):
        return f"{key}!"


class Pattern(str):
    def __mod__(self, value):
        return "own " + super().__mod__(value)


Pair = collections.namedtuple("Pair", "a b")
CASES = {
    "text": lambda n: "%s|%r|%a" % (Named("é"), Named("b"), Named("é")),
    "wide": lambda n: "%-6s|%8r|%.2s" % (Named("a"), n, "abc"),
    "numbers": lambda n: "%d %i %5.1f %x %e" % (Number("abc"), n, Number("abc"), Number("abc"), 2),
    "percent": lambda n: "100%% of %s" % Named("x"),
    "one of a tuple": lambda n: "%s and %s" % Pair(Named("a"), [n]),
    "a list": lambda n: "%s" % [n, Named("a")],
    "by name": lambda n: "%(a)s %(b)5d %(a)r" % {"a": Named("x"), "b": n, "c": 1},
    "by name of a class": lambda n: "%(a)s" % Fields(a=1),
    "a dict alone": lambda n: "%s" % {"a": n},
    "of a class": lambda n: Pattern("%s-%s") % (Named("a"), n),
    "in place": lambda n: operator_in_place("%s;", (Named("a"),)),
    "letter": lambda n: "%c%c" % (n + 65, "z"),
    "too few": lambda n: "%s %s" % (Named("a"),),
    "too many": lambda n: "%s" % (Named("a"), n),
    "none": lambda n: "nothing" % [n],
    "no mapping": lambda n: "%(a)s" % [n],
    "no number": lambda n: "%d" % Named("a"),
    "no such field": lambda n: "%(b)s" % {"a": Named("a")},
    "a float for an integer": lambda n: "%d" % Real("ab"),
    "by name of a text": lambda n: "%(a)s" % f"{n}",
    "width given": lambda n: "%*d" % (5, n),
    "errors": lambda n: f"{ValueError(n, Named('a'))} {KeyError(Named('a'))!r} {KeyError('a')} {ValueError()!r}{ValueError()}",
    "ascii of an error": lambda n: ascii(ValueError("é", n)),
    "error of a file": lambda n: str(OSError(2, "none", "name")),
}


def operator_in_place(text, value):
    text %= value
    return text


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", CASES)
def test_patterns_show_what_eager_shows(name):
    def program(x, n):
        return x + 1, outcome(CASES[name], n)

    pliant.reset()
    compiled, x = pliant.compile(program, backend="eager"), torch.ones(2)
    for n in (1, 2, 3, 4):
        assert compiled(x, n)[1] == program(x, n)[1]
    assert pliant.stats()["fallbacks"] == 0


def test_numbers_that_vary_are_no_reason_to_compile_anew():
    def program(x):
        return x * 2, "%5s %d %r of %s" % (x.size(0), x.size(0), [x.size(0)], Named("x"))

    pliant.reset()
    compiled = pliant.compile(program, dynamic=True, fullgraph=True)
    for n in (3, 4, 5):
        assert compiled(torch.ones(n))[1] == program(torch.ones(n))[1]
    assert pliant.stats()["recompiles"] == 0


def test_the_text_of_a_counter_shows_numbers_that_vary():
    def program(x):
        return x + 1, repr(collections.Counter(a=1, b=x.size(0))), str(collections.Counter())

    compiled = pliant.compile(program, dynamic=True)
    for n in (3, 4, 5):
        assert compiled(torch.ones(n))[1:] == program(torch.ones(n))[1:]
