"""Calls that CPython refuses: the program catches CPython's own error, and nothing of the compiler fails."""

import collections
import copy
import datetime
import functools
import os
import re
import sys

import numpy
import pytest
import torch

import pliant

NUMBERS = [1, 2, 3]


class Unset:
    def __index__(self):
        return self.place


class Last:
    def __index__(self):
        return -1


class OfClasses:
    @classmethod
    @property
    def name(cls):
        return cls.__name__


def failing():
    yield 1
    raise ValueError("x")


class NoIterator:
    def __iter__(self):
        return 3


CALLS = {
    "dict.get": lambda x: {}.get(),
    "__getitem__": lambda x: {}.__getitem__(),
    "fromkeys": lambda x: dict.fromkeys(),
    "set of no iterator": lambda x: set(NoIterator()),
    "loop over no iterator": lambda x: [v for v in NoIterator()],
    "set of a generator that fails": lambda x: set(failing()),
    "union with a generator that fails": lambda x: {1}.union(failing()),
    "dict of a generator that fails": lambda x: dict((v, 1) for v in failing()),
    "getattr": lambda x: getattr(x),
    "hasattr": lambda x: hasattr(x),
    "type": lambda x: type("a", (1,)),
    "reversed": lambda x: reversed(),
    "next": lambda x: next(),
    "sorted": lambda x: sorted([1], 3),
    "isinstance": lambda x: isinstance(1, 2),
    "join": lambda x: "".join(1, 2),
    "append": lambda x: [].append(),
    "max": lambda x: max(key=3),
    "print": lambda x: print("a", sep=1),
    "delattr": lambda x: delattr(3),
    "list of a class": lambda x: list(int),
    "a key that is no text": lambda x: str(1, **{1: 2}),
    "a key twice": lambda x: dict(a=1, **{"a": 2}),  # noqa: PIE804, PLE1132
    "an index that fails": lambda x: NUMBERS[Unset()],
    "an index of the wrong type": lambda x: NUMBERS["a"],
}


@pytest.mark.parametrize("name", CALLS)
def test_error_is_eagers(name):
    pliant.reset()

    def program(x):
        try:
            return CALLS[name](x)
        except (TypeError, AttributeError, ValueError) as error:
            return type(error), str(error)

    compiled = pliant.compile(program, backend="eager")
    with pliant.config.patch(strict=True):
        for _ in range(2):
            assert compiled(torch.ones(1)) == program(torch.ones(1))
    assert not pliant.stats()["fallbacks"]


class Slotted:
    __slots__ = ("place",)


VALUES = {
    "numpy integer": numpy.int64(3),
    "numpy float": numpy.float32(3),
    "deque": collections.deque((1,)),
    "ordered dict": collections.OrderedDict(a=1),
    "default dict": collections.defaultdict(int),
    "partial": functools.partial(max, 1),
    "pattern": re.compile("a"),
    "date": datetime.date(2020, 1, 1),
    "dtype": torch.float32,
    "tensor": torch.ones(()),
    "object of Python": Last(),
    "object with slots": Slotted(),
    "list": [1],
    "number": 3,
}
WRONG_USES = {
    "attribute": lambda v: v.missing,
    "store": lambda v: setattr(v, "missing", 1) if type(v) is not Last else v.gone,
    "deletion": lambda v: delattr(v, "missing"),
    "call": lambda v: v(),
    "block": lambda v: v.__enter__() if type(v) is torch.Tensor else exec_block(v),
    "difference": lambda v: v - "a",
    "call with items": lambda v: max(*3, v),
}


def exec_block(manager):
    with manager:
        pass


@pytest.mark.parametrize("value", VALUES)
def test_errors_name_classes_as_eager_does(value):
    pliant.reset()

    def program(x, v):
        found = []
        for use in WRONG_USES.values():
            try:
                found.append(type(use(v)))
            except Exception as error:
                found.append((type(error), str(error)))
        return found

    compiled = pliant.compile(program, backend="eager")
    expected = program(torch.ones(1), copy.copy(VALUES[value]))
    assert compiled(torch.ones(1), copy.copy(VALUES[value])) == expected


@pytest.mark.parametrize(
    "program",
    (
        lambda x: (NUMBERS[Last()], (1, 2)[Last()]),
        lambda x: (os.stat(__file__).st_mode, os.stat(__file__)[0]),
        lambda x: x.shape[0] + 2**70,
        lambda x: (round(number=2.567, ndigits=1), round(x.shape[0], 0), round(x.shape[0] / 3, 2)),
    ),
)
def test_unusual_values(program):
    compiled = pliant.compile(program, backend="eager")
    for size in (1, 2, 3):
        assert compiled(torch.ones(size)) == program(torch.ones(size))


def test_numbers_beyond_64_bits():
    pliant.reset()
    compiled = pliant.compile(lambda x, n: (x + 1, n + 1), backend="eager")
    with pliant.config.patch(strict=True):
        for n in (3, 2**62, -(2**65), 5, 2**70):
            assert compiled(torch.ones(1), n)[1] == n + 1
    assert not pliant.stats()["fallbacks"]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a classmethod no longer binds what it wraps")
def test_classmethod_of_a_property():
    compiled = pliant.compile(lambda x: (x + 1, OfClasses.name, OfClasses().name), backend="eager")
    assert compiled(torch.ones(1))[1:] == ("OfClasses", "OfClasses")


@pytest.mark.parametrize(
    "program",
    (
        lambda x: x.transpose(0, 1).reshape(2, 0, -1),
        lambda x: torch.Tensor.transpose(x, 0, 1).sum((0, 3)),
        lambda x: torch.Tensor.view(x, 5),
    ),
    ids=["reshape", "sum", "a method of the class"],
)
def test_methods_of_tensors_fail_as_in_eager(program):
    """A method named by its class has no module, and is PyTorch's nevertheless."""
    pliant.reset()
    compiled, x = pliant.compile(program, backend="eager"), torch.ones(0, 2, 3)
    with pytest.raises((RuntimeError, IndexError)) as wanted:
        program(x)
    with pytest.raises(wanted.type) as found:
        compiled(x)
    assert str(found.value) == str(wanted.value)
    assert not pliant.stats()["graph_breaks"]


@pytest.mark.parametrize("shape", [(0,), (1,), (2,), (2, 1), ()], ids=str)
@pytest.mark.parametrize("convert", [float, int, complex, lambda t: t.item()], ids=["float", "int", "complex", "item"])
def test_numbers_of_tensors_and_arrays_that_have_not_one_element(convert, shape):
    def function(x):
        found = []
        for one in (x * 2, (x > 0), x.numpy() * 2):
            try:
                found.append(convert(one))
            except Exception as error:
                found.append((type(error), str(error)))
        return found

    pliant.reset()
    x = torch.ones(shape)
    assert pliant.compile(function, backend="eager")(x) == function(x)


def complaints_of_stores(x, n):
    """Numbers and texts that vary have no place for attributes, as all of their classes."""
    said = []
    for value in (n, n * 1.5, n > 2, f"{n} rows", x.shape[0]):
        try:
            value.missing = 1
        except AttributeError as error:
            said.append(str(error))
        try:
            del value.missing
        except AttributeError as error:
            said.append(str(error))
        try:
            value.real = 1
        except AttributeError as error:
            said.append(str(error))
    return x + n, said


def test_attributes_of_numbers_that_vary():
    pliant.reset()
    compiled = pliant.compile(complaints_of_stores, fullgraph=True)
    for n in (3, 4, 5, 6):
        x = torch.ones(n)
        found, wanted = compiled(x, n), complaints_of_stores(x, n)
        assert torch.equal(found[0], wanted[0]) and found[1] == wanted[1] and len(found[1]) == 15
    assert pliant.stats()["graphs"] == 2


def test_a_base_for_a_number_that_varies():
    def program(x, n):
        try:
            return x + int(n, 10)
        except TypeError as error:
            return x + n, str(error)

    compiled = pliant.compile(program, fullgraph=True)
    for n in (3, 4, 5):
        assert compiled(torch.ones(2), n)[1] == program(torch.ones(2), n)[1]
