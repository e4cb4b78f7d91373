"""What Python says of a value that cannot do what the program asks: its errors, with its names of classes."""

import copy
import enum
import functools
import operator
import re
import types
import weakref

import numpy as np
import pytest
import torch

import pliant


class Stack(list):
    pass


class Mapping(dict):
    pass


class Color(enum.Enum):
    RED = 1


def unpacked(g):
    p, q = g
    return p, q


def entered(g):
    with g:
        return 1


def caused(g):
    raise KeyError(1) from g


def stored(g):
    g.late = 1


VALUES = {
    "list subclass": lambda: Stack([1]),
    "dict subclass": lambda: Mapping(a=1),
    "float32": lambda: np.float32(2),
    "int64": lambda: np.int64(2),
    "array": lambda: np.ones(3),
    "proxy": lambda: types.MappingProxyType({1: 2}),
    "number": lambda: 3,
    "member": lambda: Color.RED,
    "match": lambda: re.match("a", "a"),
    "reference": lambda: weakref.ref(Color),
    "getter": lambda: operator.itemgetter(0),
    "exception class": lambda: KeyError,
    "function in C": lambda: len,
}
ASKED = {
    "called": lambda g: g(),
    "called with a number": lambda g: g(2),
    "called with a name": lambda g: g(late=2),
    "unpacked": unpacked,
    "spread": lambda g: [*g],
    "contains": lambda g: "a" in g,
    "contains a number": lambda g: 2 in g,
    "or": lambda g: g | 1,
    "less": lambda g: g < "a",
    "entered": entered,
    "next": lambda g: next(g),
    "vars": lambda g: len(vars(g)),
    "reduced": lambda g: functools.reduce(lambda p, q: q, g, 0),
    "copied": lambda g: type(copy.copy(g)).__name__,
    "filled": lambda g: torch.full((2,), 1.0 * g),
    "stored": stored,
    "iterable": lambda g: hasattr(g, "__iter__"),
    "equal": lambda g: g == g,
    "cause": caused,
    "rounded": lambda g: round(g),
}


def differs(name, made) -> str:
    """Where the compiled program says something else of one of these values."""
    function = ASKED[name]

    def program(g):
        try:
            return "did", str(function(g))
        except Exception as error:
            return type(error).__name__, str(error)

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    with pliant.config.patch(strict=True):
        found = [(compiled(make()), program(make())) for make in made]
    return "".join(f"{name}: {got} for {want}" for got, want in found if got != want)


@pytest.mark.parametrize("value", VALUES)
def test_what_a_value_cannot_do(value):
    assert [differs(name, [VALUES[value]] * 2) for name in ASKED] == [""] * len(ASKED)


def test_what_a_number_of_numpy_that_varies_cannot_do():
    made = [functools.partial(np.float32, number) for number in (2, 3, 4)]
    assert [differs(name, made) for name in ASKED] == [""] * len(ASKED)


def passed(*args, **names):
    return args, names


OF_VARYING = {
    "attribute of a symbol": lambda n: hasattr(n, "node"),
    "names": lambda n: dir(n),
    "text of object": lambda n: object.__str__(n),
    "spread": lambda n: passed(*n),
    "spread as names": lambda n: passed(**n),
    "in a dict": lambda n: {**n},
    "method of float": lambda n: float.__add__(n, 1.0),
    "method of int": lambda n: int.__add__(n, 1),
    "decoded": lambda n: str(n, "utf8"),
    "joined": lambda n: ",".join(n),
    "made a class": lambda n: type("A", n, {}),
    "name of a class": lambda n: type(n, (), {}).__module__,
    "product": lambda n: n @ 2,
    "indices": lambda n: slice(n).indices(5),
    "identity": lambda n: id(n) == id(n),
}
VARYING = {
    "int": (3, 4, 9), "float": (1.5, 2.5, 7.25), "bool": (True, False, True), "str": ("ab", "cd", "b"),
    "list": ([1, 2], [3], []),
}  # fmt: skip


@pytest.mark.parametrize("kind", VARYING)
def test_what_values_that_vary_cannot_do(kind, monkeypatch):
    for name, function in OF_VARYING.items():
        monkeypatch.setitem(ASKED, name, function)
        assert differs(name, [functools.partial(copy.copy, value) for value in VARYING[kind]]) == ""


def test_limits_of_types_are_not_copied():
    for copied in (copy.copy, copy.deepcopy):
        for made in (torch.finfo, torch.iinfo):
            with pytest.raises(TypeError, match="cannot pickle"):
                pliant.compile(copied, backend="eager")(made(torch.float32 if made is torch.finfo else torch.int8))


@pytest.mark.parametrize("make", [lambda: [1].append, lambda: Stack().append, lambda: {1: 2}.get, lambda: [1].__len__])
def test_methods_of_one_object_are_equal(make):
    def program(x, g, o):
        return g == o, g != o, g in [o]

    compiled = pliant.compile(program, backend="eager")
    for one in (False, True, False):
        first = make()
        second = first if one else make()
        assert compiled(torch.ones(1), first, second) == program(torch.ones(1), first, second)
