"""What a program reads of classes and functions as a whole is guarded as what it reads by name."""

import dataclasses
import inspect
import types

import pytest
import torch

import pliant


class Held:
    k = 1.0


def program(text, space):
    exec(f"def f(x): return x * ({text})", space)
    return space["f"]


def space():
    def g(a=1.0, *, b=1.0):
        return a

    members = {"k": 1.0, "i": 1, "n": {"k": 1.0}, "t": (1.0,), "l": [1.0], "c": Held(), "m": lambda self: 1.0, "__doc__": None}
    base = type("Base", (), {"b": 1.0})
    made = type("A", (base,), members)
    made.c.k = 1.0
    return {"A": made, "Base": base, "g": g, "inspect": inspect, "types": types, "dataclasses": dataclasses}


# What is read, what then happens.
ROWS = {
    "a number": ("A.__dict__['k']", "A.k = 2.0"),
    "an integer": ("A.__dict__['i']", "A.i = 3"),
    "by get": ("A.__dict__.get('k')", "A.k = 2.0"),
    "by vars": ("vars(A)['k']", "A.k = 2.0"),
    "all values": ("sum(v for v in A.__dict__.values() if type(v) is float)", "A.k = 2.0"),
    "a copy": ("dict(A.__dict__)['k']", "A.k = 2.0"),
    "in a dict": ("A.__dict__['n']['k']", "A.n['k'] = 3.0"),
    "in a tuple": ("A.__dict__['t'][0]", "A.t = (3.0,)"),
    "in a list": ("A.__dict__['l'][0]", "A.l[0] = 3.0"),
    "of an object": ("A.__dict__['c'].k", "A.c.k = 3.0"),
    "a method": ("A.__dict__['m'](None)", "A.m = lambda self: 3.0"),
    "names": ("len(dir(A))", "A.q = 1"),
    "a base's names": ("len(dir(A))", "Base.q = 1"),
    "other bases": ("len(dir(A))", "A.__bases__ = (type('X', (), {}),)"),
    "names of an object": ("len(dir(A()))", "A.q = 1"),
    "a default": ("inspect.signature(g).parameters['a'].default", "g.__defaults__ = (2.0,)"),
    "a keyword's default": ("inspect.signature(g).parameters['b'].default", "g.__kwdefaults__['b'] = 2.0"),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_read_as_a_whole_is_guarded(name):
    read, change = ROWS[name]
    names, x = space(), torch.ones(2)
    f = program(read, names)
    compiled = pliant.compile(f, fullgraph=True)
    assert torch.equal(compiled(x), f(x))
    exec(change, names)
    assert torch.equal(compiled(x), f(x))


def test_a_store_into_a_class_shows_in_its_namespace():
    class A:
        k = 1.0

    def f(x):
        A.k = A.k + 1
        return x * A.__dict__["k"]

    compiled, x = pliant.compile(f), torch.ones(2)
    assert [compiled(x)[0].item() for _ in range(3)] == [2.0, 3.0, 4.0]


def test_the_program_lists_its_names():
    class A:
        def __dir__(self):
            return ["a", "b"]

    def f(x):
        return x * len(dir(A()))

    assert pliant.compile(f)(torch.ones(1)).item() == 2
