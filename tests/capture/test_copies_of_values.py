"""What `copy` makes of values that do not change: themselves, equal ones, or an error; and which method says that they are equal."""

import collections
import contextvars
import copy
import datetime
import decimal
import enum
import fractions
import functools
import re
import struct
import types
import uuid
import weakref

import pytest
import torch

import pliant


class Color(enum.Enum):
    RED = 1


class Kept:
    def method(self):
        return 1


KEPT = Kept()
VALUES = {
    "date": datetime.date(2020, 1, 2), "time": datetime.time(3), "timedelta": datetime.timedelta(4), "zone": datetime.timezone.utc,
    "decimal": decimal.Decimal("1.5"), "fraction": fractions.Fraction(1, 3), "pattern": re.compile("a"), "match": re.match("a", "a"),
    "struct": struct.Struct("i"), "variable": contextvars.ContextVar("variable"), "reference": weakref.ref(KEPT),
    "reference to a method": weakref.WeakMethod(KEPT.method), "member": Color.RED, "class": Color,
    "function": len, "descriptor": str.upper, "bound": "a".upper, "property": property(len), "classmethod": classmethod(len),
    "cached": functools.lru_cache(len), "partial": functools.partial(int, base=2), "proxy": types.MappingProxyType({1: 2}),
    "uuid": uuid.UUID(int=3), "cached property": functools.cached_property(len), "complex": 1j, "slice": slice(1), "module": copy,
}  # fmt: skip


def told(call):
    try:
        return call()
    except TypeError as error:
        return str(error)


def asked(x, value):
    one, deep = told(lambda: copy.copy(value)), told(lambda: copy.deepcopy(value))
    equal = () if isinstance(value, type) else (value.__eq__(3), value.__ne__(3))
    return x + 1, [(type(made), made is value) for made in (one, deep)], [made for made in (one, deep) if type(made) is str], equal


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    compiled = pliant.compile(asked, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(1), VALUES[name])[1:] == asked(torch.ones(1), VALUES[name])[1:]


TEXTS = {
    "proxy": lambda n: types.MappingProxyType({"a": n}),
    "proxy of an ordered dict": lambda n: types.MappingProxyType(collections.OrderedDict(a=n)),
    "proxy of a counter": lambda n: types.MappingProxyType(collections.Counter(a=n)),
    "proxy in a list": lambda n: [types.MappingProxyType({"a": [n]})],
}


@pytest.mark.parametrize("shown", [str, repr, "{}".format])
@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_proxies_show_numbers_that_vary(name, shown):
    compiled = pliant.compile(lambda x, value: (x + 1, shown(value)), backend="eager")
    for n in (2, 3, 5):
        assert compiled(torch.ones(1), TEXTS[name](n))[1] == shown(TEXTS[name](n))


class Found(enum.Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value):
        return cls.ONE if value == 9 else None


@pytest.mark.parametrize("args", [(), (1,), (9,), (5,)])
def test_members_of_an_enum_that_finds_its_own(args):
    def found(x):
        try:
            return x + 1, Found(*args)
        except (TypeError, ValueError) as error:
            return x + 1, str(error)

    assert pliant.compile(found, backend="eager")(torch.ones(1))[1] == found(torch.ones(1))[1]


def test_what_has_no_hash_is_called():
    def called(x, value):
        return x + 1, told(lambda: value())

    for value in (memoryview(bytearray(b"ab")), bytearray(b"ab"), [], {}):
        assert pliant.compile(called, backend="eager")(torch.ones(1), value)[1] == called(torch.ones(1), value)[1]


@pytest.mark.parametrize("asks", [lambda m: m.group(0), str, lambda m: m["k"], lambda m: copy.copy(m).span()])
def test_matches_are_told_apart(asks):
    compiled = pliant.compile(lambda x, match: (x + 1, asks(match)), backend="eager")
    for text in ("a", "ab", "a", "ab"):
        match = re.match("(a)(?P<k>b)?", text)
        assert compiled(torch.ones(1), match)[1] == asks(match)
