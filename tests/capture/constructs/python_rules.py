"""Python's own constructs: calls that do not fit, caches, identities, classes made inside, keys with their own hash."""

import abc
import collections
import dataclasses
import enum
import functools
import itertools
import operator
import os
import random
import sys
import time
import typing

import torch
from tests.capture.constructs.harness import program

AREA = "python"


class Key:
    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, Key) and self.name == other.name


class Counted:
    asked = 0

    def __hash__(self):
        Counted.asked += 1
        return 1

    def __eq__(self, other):
        return True


class Registered(type):
    def __new__(cls, name, bases, space, **keywords):
        made = super().__new__(cls, name, bases, space)
        made.keywords = keywords
        return made

    def __init__(cls, name, bases, space, **keywords):
        super().__init__(name, bases, space)
        cls.ready = True


class Prepared(type):
    @classmethod
    def __prepare__(cls, name, bases):
        return {"given": 5}


class Single(type):
    made = {}

    def __call__(cls, *args):
        if cls not in cls.made:
            cls.made[cls] = super().__call__(*args)
        return cls.made[cls]


class Only(metaclass=Single):
    factor = 3


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Plain:
    pass


KEY = Key("global")
PLAIN = Plain()
GENERATOR = random.Random(3)


@functools.lru_cache
def doubled(number):
    return number * 2


@program(AREA)
def missing_argument(x, y):
    def inner(a, b):
        return a

    try:
        inner(x)
    except TypeError as error:
        return x, str(error)


@program(AREA)
def too_many_arguments(x, y):
    try:
        (lambda a: a)(x, y)
    except TypeError as error:
        return x, str(error)


@program(AREA)
def unexpected_keyword(x, y):
    def inner(a, *, b=1):
        return a

    try:
        inner(x, c=2)
    except TypeError as error:
        return x, str(error)


@program(AREA)
def missing_keyword_only(x, y):
    def inner(*, b):
        return b

    try:
        inner()
    except TypeError as error:
        return x, str(error)


@program(AREA)
def keyword_given_twice(x, y):
    def inner(**keywords):
        return keywords

    try:
        first, second = {"a": 1}, {"a": 2}
        inner(**first, **second)
    except TypeError as error:
        return x, "multiple values for keyword argument 'a'" in str(error)


@program(AREA, whole=False)
def uncaught_missing_argument(x, y):
    return (lambda a, b: a)(x)


@program(AREA)
def cache_made_inside(x, y):
    calls = []

    @functools.lru_cache
    def inner(n):
        calls.append(n)
        return n * 2

    return x * inner(2) + inner(2), calls


@program(AREA)
def cache_from_outside(x, y):
    return x * doubled(3) + doubled(3)


@program(AREA)
def cache_of_a_tensor(x, y):
    return functools.cache(lambda a: a + 1)(x)


@program(AREA)
def cache_statistics(x, y):
    inner = functools.lru_cache(lambda n: n)
    inner(1), inner(1)
    return x, inner.cache_info().hits


@program(AREA)
def identities_compared(x, y):
    return x, id(x) == id(x), id(x) == id(y)


@program(AREA)
def identities_as_keys(x, y):
    names = {id(x): "x", id(y): "y"}
    return x, names[id(y)], len(names)


@program(AREA)
def identities_seen(x, y):
    seen = set()
    return x, [id(v) in seen or seen.add(id(v)) for v in (x, y, x)]


@program(AREA)
def identity_of_a_new_object(x, y):
    a, b = Plain(), Plain()
    return x, id(a) != id(b), id(a) == id(a)


@program(AREA)
def identity_of_a_global(x, y):
    return x, id(PLAIN)


@program(AREA, whole=False)
def identity_as_a_number(x, y):
    return x, id(x) % 1


@program(AREA)
def hash_of_a_tensor(x, y):
    return x, hash(x) == hash(x)


@program(AREA)
def hash_of_constants(x, y):
    return x, hash(x.dtype) == hash(torch.float32), hash(frozenset([1])), hash(range(3))


@program(AREA)
def keys_with_their_own_hash(x, y):
    return {Key("a"): x, Key("b"): y}[Key("b")]


@program(AREA)
def set_of_keys(x, y):
    return x, len({Key("a"), Key("a"), Key("b")}), Key("c") in {Key("c")}


@program(AREA)
def global_key(x, y):
    return {KEY: x}[Key("global")]


@program(AREA)
def list_searches_with_own_equality(x, y):
    items = [Key("a"), Key("b")]
    return x, items.index(Key("b")), items.count(Key("a"))


@program(AREA, whole=False)
def keys_whose_hash_has_effects(x, y):
    return {Counted(): x}[Counted()]


@program(AREA)
def objects_compared_by_identity(x, y):
    return x, PLAIN == PLAIN, Plain() != PLAIN


@program(AREA)
def metaclass_makes_the_class(x, y):
    class Inner(metaclass=Registered, flag=2):
        factor = 3

    return x * Inner.factor * Inner.keywords["flag"], Inner.ready


@program(AREA)
def metaclass_prepares(x, y):
    class Inner(metaclass=Prepared):
        pass

    return x * Inner.given


@program(AREA)
def metaclass_makes_instances(x, y):
    return x * Only().factor, Only() is Only()


@program(AREA)
def metaclass_made_inside(x, y):
    class Meta(type):
        def __getattr__(cls, name):
            return len(name)

    class Inner(metaclass=Meta):
        pass

    return x * Inner.three


@program(AREA)
def class_of_three_arguments(x, y):
    return x * type("Made", (Plain,), {"factor": 3, "times": lambda self, n: n * self.factor})().times(2)


@program(AREA)
def total_ordering_inside(x, y):
    @functools.total_ordering
    class Version:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    return x, Version(1) <= Version(2), Version(3) >= Version(4)


@program(AREA)
def abstract_class_instantiated(x, y):
    try:
        Shape()
    except TypeError as error:
        return x, str(error)


@program(AREA)
def property_without_setter(x, y):
    class Inner:
        @property
        def value(self):
            return 1

    try:
        Inner().value = 2
    except AttributeError as error:
        return x, "has no setter" in str(error)


@program(AREA)
def returned_dict_views(x, y):
    table = {"a": x, "b": y}
    return table.keys(), list(table.values()), table.keys().isdisjoint({"c"})


@program(AREA)
def returned_bytearray(x, y):
    data = bytearray(b"ab")
    data.append(99)
    return x, data


@program(AREA)
def random_number(x, y):
    random.seed(3)
    return x * random.random()


@program(AREA)
def random_integers(x, y):
    random.seed(4)
    return x * random.randint(1, 6) + random.randrange(10), random.random()


@program(AREA)
def random_in_a_loop(x, y):
    random.seed(5)
    for _ in range(3):
        x = x + random.uniform(-1, 1)
    return x


@program(AREA)
def random_object_from_outside(x, y):
    GENERATOR.seed(1)
    return x * GENERATOR.gauss(0, 1)


@program(AREA)
def random_choice_of_numbers(x, y):
    random.seed(6)
    return x * random.choice([1, 2, 3])


@program(AREA, whole=False)
def branch_on_a_random_number(x, y):
    random.seed(7)
    return x if random.random() > 0.5 else y


@program(AREA, whole=False)
def random_shuffle(x, y):
    random.seed(8)
    order = [0, 1, 2]
    random.shuffle(order)
    return x[order]


@program(AREA)
def dataclass_order(x, y):
    @dataclasses.dataclass(order=True)
    class Rank:
        n: int

    return x * (Rank(1) < Rank(2)), max(Rank(1), Rank(3)).n


@program(AREA)
def enum_with_methods(x, y):
    class Mode(enum.Enum):
        A = 1
        B = 2

        def twice(self):
            return self.value * 2

    return x * Mode.B.twice(), [mode.name for mode in Mode]


@program(AREA)
def generic_class_inside(x, y):
    kind = typing.TypeVar("kind")

    class Box(typing.Generic[kind]):
        def __init__(self, value):
            self.value = value

    return Box[int](x).value + 1


@program(AREA)
def descriptors_learn_their_name(x, y):
    class Named:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, obj, owner=None):
            return self.name

    class Inner:
        field = Named()

    return x, Inner().field


@program(AREA)
def subclasses_announce_themselves(x, y):
    seen = []

    class Base:
        def __init_subclass__(cls, **keywords):
            seen.append((cls.__name__, keywords))

    class Inner(Base, level=2):
        pass

    return x, seen


@program(AREA)
def counter_arithmetic(x, y):
    count = collections.Counter("abca")
    return x, count.most_common(1), count - collections.Counter(a=1), count.total()


@program(AREA)
def chained_maps(x, y):
    chain = collections.ChainMap({"a": x}, {"a": y, "b": y})
    return chain["a"] + chain["b"], len(chain)


@program(AREA)
def tensors_accumulated(x, y):
    return list(itertools.accumulate([x, y, x], operator.mul))


@program(AREA)
def exception_group_by_kind(x, y):
    seen = []
    try:
        raise ExceptionGroup("several", [ValueError(1), KeyError(2)])
    except* ValueError as group:
        seen.append(len(group.exceptions))
    except* KeyError as group:
        seen.append(str(group.exceptions[0]))
    return x, seen


@program(AREA)
def printed_to_standard_output(x, y):
    print("one", x.shape[1], file=sys.stdout)
    sys.stdout.write("two\n")
    return x


@program(AREA)
def questions_to_the_process(x, y):
    return x, os.getpid() > 0, os.getcwd() != "", sys.getrecursionlimit() > 0


@program(AREA, whole=False)
def time_is_asked(x, y):
    start = time.time()
    return x * 2, time.time() >= start


@program(AREA)
def aliases_of_generic_classes_called(x, y):
    return list[int]([1, 2]), dict[str, int](a=x)
