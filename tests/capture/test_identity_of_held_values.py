"""Which object a constant is that a module, a class or a function holds, where the entry makes values again."""

import types

import pytest

import pliant

# Equal values that are made at run time are not these objects.
TEXT, NUMBER, BIG, RAW, COMPLEX = "==NOT GIVEN==", 1.5, 10**30, b"a b", 2j
CONSTANTS = {"text": TEXT, "float": NUMBER, "integer": BIG, "bytes": RAW, "complex": COMPLEX, "tuple": (NUMBER, TEXT)}
KEPT = types.SimpleNamespace(constant=None)


class Kept:
    constant = None


def of_module(name):
    return CONSTANTS[name]


def of_object(name):
    return KEPT.constant


def of_class(name):
    return Kept.constant


def of_default(name, constant=None):
    return constant


HELD = (of_module, of_object, of_class, of_default)


@pytest.fixture(params=CONSTANTS)
def name(request):
    constant = CONSTANTS[request.param]
    KEPT.constant = Kept.constant = constant
    of_default.__defaults__ = (constant,)
    return request.param


def in_variable(value):
    pliant.graph_break()
    return value


def in_list(value):
    made = [value]
    pliant.graph_break()
    return made[0]


def in_dict(value):
    made = {"key": value}
    pliant.graph_break()
    return made["key"]


def in_object(value):
    made = types.SimpleNamespace(value=value)
    pliant.graph_break()
    return made.value


def in_result(value):
    return value


@pytest.mark.spread(2, "way", "held")
@pytest.mark.parametrize("way", [in_variable, in_list, in_dict, in_object, in_result], ids=lambda f: f.__name__)
@pytest.mark.parametrize("held", HELD, ids=lambda f: f.__name__)
def test_the_object_itself_is_made_again(name, held, way):
    def program():
        value = way(held(name))
        return value is held(name), value

    compiled = pliant.compile(program, backend="eager")
    for _ in range(2):
        same, value = compiled()
        assert same and value is CONSTANTS[name]


def test_absence_is_told_by_the_object_behind_breaks():
    def program():
        options = [types.SimpleNamespace(name="help", default=TEXT), types.SimpleNamespace(name="foo", default=None)]
        pliant.graph_break()
        return [one.name for one in options if one.default is not TEXT]

    assert pliant.compile(program, backend="eager")() == ["foo"]
