"""Which object a value is, of values that guards tell by what they are: methods, proxies, numbers, ranges."""

import string
import types

import numpy as np
import pytest
import torch

import pliant


class Box:
    def grow(self):
        return self


MADE = {
    "method": lambda: Box().grow,
    "method in C": lambda: [1].append,
    "proxy": lambda: types.MappingProxyType({1: 2}),
    "NumPy's scalar": lambda: np.float32(2),
    "float": lambda: float("1.5"),
    "bytes": lambda: bytes([1, 2]),
    "range": lambda: range(3),
    "frozenset": lambda: frozenset({1}),
    "slice": lambda: slice(1, 2),
    "list": lambda: [1],
    "object": Box,
}
ASKED = {
    "is": lambda x, g, o: g is o,
    "id": lambda x, g, o: id(g) == id(o),
    "ids": lambda x, g, o: len({id(g), id(o)}),
    "among": lambda x, g, o: [v is g for v in (o, g)],
    "once more": lambda x, g, o: g is g and id(g) == id(g),
}


@pytest.mark.spread(2, "order", "asked", "made")
@pytest.mark.parametrize("order", [(False, True, False), (True, False, True)], ids=["two first", "one first"])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("made", MADE)
def test_arguments_that_are_one_object_or_two(made, asked, order):
    program = ASKED[asked]
    compiled = pliant.compile(program, backend="eager")
    for one in order:
        first = MADE[made]()
        second = first if one else MADE[made]()
        assert compiled(torch.ones(2), first, second) == program(torch.ones(2), first, second)


def _behind_a_break(x, g, o):
    y = x + (1 if type(g) is type(o) else 2)
    pliant.graph_break()
    return y, g is o


@pytest.mark.parametrize("order", [(False, True, False), (True, False, True)], ids=["two first", "one first"])
@pytest.mark.parametrize("made", MADE)
def test_arguments_behind_a_break_are_one_object_or_two(made, order):
    compiled = pliant.compile(_behind_a_break, backend="eager")
    for one in order:
        first = MADE[made]()
        second = first if one else MADE[made]()
        assert compiled(torch.ones(2), first, second)[1] == one


@pytest.mark.parametrize("made", MADE)
def test_arguments_that_are_given_back(made):
    compiled = pliant.compile(lambda x, g: (x + 1, g), backend="eager")
    for _ in range(3):
        value = MADE[made]()
        assert compiled(torch.ones(2), value)[1] is value


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("make", [lambda: torch.ones(2), Box, lambda: [1]], ids=["tensor", "object", "list"])
def test_addresses_as_keys_of_a_dict_from_outside(make, known):
    pliant.reset()
    values = [make(), make()]
    table = {id(values[0]): 3.0, **({id(values[1]): 4.0} if known else {})}

    def program(x, g):
        return x + table.get(id(g), 1.0), id(x * 2) in table

    compiled = pliant.compile(program, backend="eager")
    for value in (*values, values[0]):
        found, expected = compiled(torch.ones(2), value), program(torch.ones(2), value)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


def test_the_address_of_a_number_that_varies_breaks():
    compiled = pliant.compile(lambda x, n: (x * n, id(n) == id(n)), backend="eager", dynamic=True)
    for n in (3, 4, 5):
        assert compiled(torch.ones(2), n)[1]
    assert pliant.stats()["graph_breaks"]


def test_texts_with_an_address_are_of_one_object():
    def program(x):
        made = {"a": object(), "b": [object()]}
        return x + 1, "{a!r} {b}".format_map(made) == f"{made['a']!r} {made['b']}", "{k[0]:>{n}}".format_map({"k": "ab", "n": 3})

    assert pliant.compile(program, backend="eager")(torch.ones(2))[1:] == (True, "  a")


@pytest.mark.parametrize("pattern", ["{}", "{0}", "{a.b}", "{c}", "{a!x}"])
def test_patterns_that_are_refused(pattern):
    def program(x):
        try:
            return x, pattern.format_map({"a": 1})
        except (AttributeError, KeyError, ValueError) as error:
            return x, repr(error)

    assert pliant.compile(program, backend="eager")(torch.ones(2))[1] == program(torch.ones(2))[1]


class Holder:
    pass


SHARED = Holder()
COMPARED = {
    "template": lambda: string.Template("a"),
    "method": lambda: types.MethodType(lambda self: 2, 2),
    "other object": lambda: types.MethodType(type, Holder()),
    "other function": lambda: types.MethodType(lambda self: 2, SHARED),
}


@pytest.mark.parametrize("one_first", [True, False])
@pytest.mark.parametrize("make", COMPARED.values(), ids=COMPARED)
@pytest.mark.parametrize(
    "ask",
    [
        lambda a, b: (a.__eq__(b), a.__ne__(b)),
        lambda a, b: (a == b, a != b),
        lambda a, b: ({a: 1}.get(b), a in {b}),
        lambda a, b: (object.__eq__(a, b), object.__ne__(a, b)),
    ],
    ids=["methods", "operators", "keys", "object"],
)
def test_entries_tell_one_from_two(ask, make, one_first):
    """An entry for two equal or unequal objects does not serve for one that is given twice, nor the other way round."""
    pliant.reset()
    compiled = pliant.compile(lambda x, a, b: (x + 1, ask(a, b))[1], backend="eager")
    for is_one in (one_first, not one_first):
        first = make()
        second = first if is_one else make()
        assert compiled(torch.ones(2), first, second) == ask(first, second)


def test_methods_are_called_by_name():
    method = types.MethodType(lambda self, value: (self, value), 3)
    assert pliant.compile(lambda x, m: m.__call__(4), backend="eager")(torch.ones(2), method) == (3, 4)
