"""Builtins asked in ways that their errors and special methods decide: numbers of own classes, arguments too many."""

import itertools
import math

import pytest

import pliant


class Index(int):
    def __index__(self):
        return 42


class Number(int):
    def __int__(self):
        return 42


class Spec:
    def __format__(self, spec):
        return 1.0


def thrown(*given):
    def generator():
        yield 1

    started = generator()
    next(started)
    return started.throw(*given)


CASES = {
    # An int is its own index, and its own float, whatever `__index__` says; `__int__` is asked.
    "int of an index": lambda: int(Index(7)),
    "int of a number": lambda: int(Number(7)),
    "float of an index": lambda: float(Index(7)),
    "item at an index": lambda: list(range(50))[Index(7)],
    "slice by an index": lambda: list(range(50))[Index(7) : Index(9)],
    "bin": lambda: bin(Index(7)),
    "gcd": lambda: math.gcd(Index(7), 14),
    "bytes in a bytearray": lambda: (b"b" in bytearray(b"abc"), 98 in bytearray(b"abc"), b"" in bytearray(b"abc")),
    "bytearray in bytes": lambda: (bytearray(b"bc") in b"abc", bytearray(b"x") in bytearray(b"abc")),
    "too large in a bytearray": lambda: 256 in bytearray(b"abc"),
    "format by a number": lambda: format(3, 4),
    "format by nothing": lambda: format("a", None),
    "format gives a number": lambda: format(Spec(), ""),
    "throw with what is no traceback": lambda: thrown(ValueError, 1, 3),
    "throw a number": lambda: thrown(3),
    "throw a class": lambda: thrown(list),
    "throw an exception and a value": lambda: thrown(ValueError("a"), 4),
    "throw a class and a value": lambda: thrown(ValueError, "a"),
    "bool of two": lambda: bool(42, 42),
    "bool by name": lambda: bool(x=10),
    "complex of three": lambda: complex(1, 2, 3),
    "reversed of two": lambda: reversed([1], [2]),
    "dir of two": lambda: dir(42, 42),
    "accumulate of four": lambda: list(itertools.accumulate([1], None, 6, 7)),
    "accumulate of none": lambda: itertools.accumulate(),
}


class Documented(property):
    """A property of the program."""


class Named(staticmethod):
    pass


def described():
    class Owner:
        @Documented
        def size(self):
            return 5

        @size.setter
        def size(self, value):
            self.stored = value

        named = Named(len)

    owner = Owner()
    owner.size = 3
    return owner.size, owner.stored, Owner.named("ab"), type(Owner.__dict__["size"]).__name__


CASES["own descriptors"] = described


class Odd:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    __len__ = __hash__ = __index__


CASES |= {f"hash of {value}": lambda value=value: hash(Odd(value)) for value in (1.0, True, -1, 1 << 70, 7)}
CASES |= {f"length {value}": lambda value=value: len(Odd(value)) for value in (1.0, True, -1, 1 << 70, 7)}
CASES |= {f"truth of a length {value}": lambda value=value: bool(Odd(value)) for value in (0, -1, 1 << 70, 7)}
CASES |= {f"text as an index of {made!r}": lambda made=made: made[Odd("a")] for made in ([1], (1,), "a", range(2))}
CASES["text as an end"] = lambda: [1, 2][: Odd("a")]
CASES["a width that is given"] = lambda: "%*d|%-5s" % (6, 2, [1])


def outcome(f):
    try:
        return repr(f())
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", CASES)
def test_as_in_python(name):
    def f():
        return outcome(CASES[name])

    assert pliant.compile(f)() == f()
