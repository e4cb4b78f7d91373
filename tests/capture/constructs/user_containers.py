"""Subclasses of containers, and what numbers that vary look like inside containers."""

import collections
import dataclasses
import enum
import functools
import itertools
import sys
import types
import typing

from tests.capture.constructs.harness import program


def area(function):
    return program("user containers")(function)


class Doubling(collections.deque):
    def append(self, value):
        super().append(value)
        super().append(value)


class Lists(collections.defaultdict):
    def __init__(self):
        super().__init__(list)


class Factory(collections.defaultdict):
    pass


class OwnMissing(collections.defaultdict):
    def __missing__(self, key):
        self[key] = key
        return key

    def __setitem__(self, key, value):
        super().__setitem__(key, (value, 1))


class Tally(collections.Counter):
    pass


class GivenDict(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class GivenList(list):
    def __init__(self, *args):
        super().__init__(*args)


class GivenSet(set):
    def __init__(self, *args):
        super().__init__(*args)


class Typed(typing.TypedDict):
    a: int


class Shows:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Shows{self.n}"


@dataclasses.dataclass
class Record:
    a: object


Pair = collections.namedtuple("Pair", "a b")
NUMBERS, LETTERS, ONES = [1, 2], {"a": 1}, {1, 2}
OUTSIDE = Lists()
OUTSIDE["q"].append(1)
ORDERED = collections.OrderedDict(a=1)
COUNTS = collections.defaultdict(int, a=2)
AT_LEAST = functools.partial(max, 1)


@area
def default_factory_of_a_subclass(x, y):
    made = Lists()
    made["a"].append(x)
    return made, made.default_factory is list, Factory(lambda: y * 2, z=x)["k"], len(made)


@area
def missing_item_of_a_subclass(x, y):
    try:
        Factory()["z"]
    except KeyError as error:
        return x + 1, error.args, OwnMissing(list)["a"], OwnMissing(list, b=3)


@area
def default_factory_of_an_outside_subclass(x, y):
    found = OUTSIDE["q"], list(OUTSIDE["w"]), len(OUTSIDE)
    del OUTSIDE["w"]
    return x, found, len(OUTSIDE)


@area
def deque_subclass(x, y):
    made = Doubling([x], maxlen=3)
    made.append(1)
    made.rotate(1)
    made.extendleft([y, 2])
    copied = Doubling(NUMBERS, 1)
    return made, made.maxlen, made[0], len(made), list(copied), repr(copied), x is made[1], Doubling()


@area
def counter_subclass(x, y):
    made = Tally("abca")
    made.update("a")
    made["z"] -= 1
    return x * made["a"], made.most_common(2), +made, made - collections.Counter("a"), made.total(), made["none"]


@area
def outside_contents_of_subclasses(x, y):
    made = (
        GivenDict(LETTERS),
        GivenList(NUMBERS),
        GivenSet(ONES),
        GivenDict(LETTERS, b=x),
        GivenList(v for v in NUMBERS),
    )
    return made, GivenList(x.shape), GivenDict([("a", x)]), GivenSet("ab"), GivenDict(), GivenList()


@area
def typed_dict(x, y):
    return x, Typed(a=1), type(Typed(a=x)).__name__


@area
def errors_of_conversion(x, y):
    found = []
    for convert in (
        lambda: dict([1]),
        lambda: hash([]),
        lambda: "%d" % Pair("a", 1).a,
        lambda: GivenDict([1]),
        lambda: GivenList(3),
        lambda: GivenSet(3),
    ):
        try:
            convert()
        except TypeError as error:
            found.append(str(error))
    return x + 1, found


@area
def text_of_slices(x, y):
    n = x.shape[0]
    return x, str(slice(n)), repr(slice(1, n)), f"{slice(None, n)}", "%s" % slice(n), repr(ValueError(slice(n)))


@area
def text_of_dicts_in_c(x, y):
    n = x.shape[0]
    ordered, counted = collections.OrderedDict(a=n), collections.defaultdict(int, a=n)
    return (
        x,
        repr(ordered),
        str(counted),
        "%s" % ordered,
        str(collections.OrderedDict()),
        repr(collections.Counter(a=n)),
    )


@area
def text_of_views(x, y):
    made = {"a": x.shape[0]}
    return x, str(made.keys()), str(made.values()), repr(made.items()), str(types.MappingProxyType(made))


@area
def text_of_partials_and_namespaces(x, y):
    n = x.shape[0]
    return x, repr(functools.partial(max, n, key=n)), repr(types.SimpleNamespace(a=n, b=[n]))


@area
def text_of_own_objects_in_containers(x, y):
    shown = Shows(x.shape[0])
    texts = repr(collections.OrderedDict(a=shown)), str(collections.deque([shown], 3)), repr({1: [shown]}.items())
    return x, texts, repr(types.SimpleNamespace(a=shown)), repr(Pair(shown, 1)), str(collections.ChainMap({1: shown}))


@area
def text_of_outside_containers(x, y):
    return x, repr(ORDERED), "%s" % COUNTS, "{}".format(AT_LEAST), f"{COUNTS.keys()}", "%(a)s" % COUNTS, repr(LETTERS)


@area
def text_of_iterators(x, y):
    n = x.shape[0]
    return x, repr(itertools.count(n)), repr(itertools.repeat(1, n)), str(range(n)), repr(Record([n]))


@area
def extremes_of_mixed_numbers(x, y):
    n = x.shape[0]
    half = n / 2
    return x, max(n, 1.5), min(n, 100.5), max(half, 1), max(1, half, 2), min(half, n), max(n > 2, 0), max(n, 3.0)


@area
def where_errors_come_from(x, y):
    found = []
    for name, obj in (("nope", x), ("gone", Shows(1)), ("missing", Shows)):
        try:
            getattr(obj, name)
        except AttributeError as error:
            found.append((error.name, error.obj is obj, str(error)))
    try:
        raise KeyError("k")
    except KeyError:
        kind, value, trace = sys.exc_info()
    return x, found, kind, value.args, trace is not None


class Levels(enum.Enum):
    LOW = 1

    @classmethod
    def _missing_(cls, value):
        ASKED.append(value)
        return cls.LOW


ASKED: list[int] = []


@area
def missing_enum_member(x, y):
    ASKED.clear()
    return x + 1, Levels(7), Levels(1), list(ASKED)
