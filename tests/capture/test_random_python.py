"""Random Python programs (`fuzz_python`) behave compiled as they do in Python; so do small programs that once did not."""

import abc
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import operator
import types
import weakref

import pytest
import torch
from tests.capture import fuzz_python
from tests.capture.constructs.harness import observe, same

import pliant


@pytest.mark.parametrize("first", range(0, 20, 10))
@pytest.mark.fallbacks_expected  # whatever random programs need
def test_random_python_programs(first):
    with pliant.config.patch(strict=True):
        for seed in range(first, first + 10):
            assert fuzz_python.disagreement(seed) == ""


PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


class Answering(type):
    """Knows any attribute of its classes, and writes down which it was asked for."""

    asked: list[str] = []

    def __getattr__(cls, name):
        Answering.asked.append(name)
        return len(name)


class Answered(metaclass=Answering):
    def __init__(self, value):
        self.value = value


class Noting:
    """Writes down which attributes it is asked for, and has them all."""

    asked: list[str] = []

    def __init__(self, value):
        self.value = value

    def __getattribute__(self, name):
        if name != "__class__":  # which `isinstance` asks of it, while the program is captured
            Noting.asked.append(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        return len(name)

    def __call__(self, value):
        return value


@program
def object_with_attributes(x, log):
    Noting.asked.clear()
    one = Noting(3)
    one.other = x.shape[0]
    pliant.graph_break()
    log += [one, one(2), sorted([3, 1], key=one), list(Noting.asked)]
    return one.value, one.some, one.other


class Abstract(abc.ABC):
    @abc.abstractmethod
    def f(self): ...


@program
def metaclass_with_attributes(x, log):
    Answering.asked.clear()
    one = Answered(x)
    pliant.graph_break()
    log += [one, Answered(2).value, [*map(str, [one.value])], bool(one), Answered.other, list(Answering.asked)]
    return isinstance(one, Answered), {1: one}, type(one)(3)


@program
def abstract_class(x, log):
    try:
        Abstract()
    except TypeError as error:
        log.append(str(error))
    return type("Concrete", (Abstract,), {"f": lambda self: 1})().f()


class Place:
    def __init__(self, log, at):
        self.log, self.at = log, at

    def __index__(self):
        self.log.append(("place", self.at))
        return self.at

    def __iter__(self):
        self.log.append("items")
        return iter("ab")


@program
def slices_of_lists(x, log):
    for key in (slice(0, 1), slice(None, None, 2), slice(Place(log, 0), Place(log, 1))):
        for items in (..., 3, Place(log, 3), "ab", iter([1])):
            target = [0, 1, 2, 3]
            try:
                target[key] = items
            except (TypeError, ValueError) as error:
                log.append(str(error))
            log.append(target)
    return x + 1


class OwnNumber(int):
    shown = 0

    def __str__(self):
        OwnNumber.shown += 1
        return f"<{OwnNumber.shown}>"


class OwnReal(float): ...


class OwnText(str):
    def __str__(self):
        OwnNumber.shown += 1
        return f"<{OwnNumber.shown}>"


class NoText(str):
    __str__ = lambda self: setattr(OwnNumber, "shown", OwnNumber.shown + 1)


NUMBER, TEXT, NO_TEXT = OwnNumber(2), OwnText("a"), NoText("b")


@program
def formatted_numbers_and_texts(x, log):
    OwnNumber.shown = x.shape[0]
    log += [f"{NUMBER}{TEXT}", "{} {}".format(NUMBER, TEXT), f"{NUMBER:3}{TEXT:>3}", format(NUMBER), "%s" % TEXT]
    try:
        log.append(f"{NO_TEXT}")
    except TypeError as error:
        log.append(str(error))
    log.append(OwnNumber.shown)


@program
def property_by_its_getter(x, log):
    log.append(OwnNumber.shown)
    return property(lambda self: self.shape[0]).__get__(x)


class Shown(int):
    def __repr__(self):
        OwnNumber.shown += 1
        return "shown"


class Counted(str):
    def __len__(self):
        OwnNumber.shown += 1
        return 1


SHOWN = [Shown(3), Shown(4)]


@program
def numbers_and_texts_that_guards_and_loops_see(x, log):
    before = OwnNumber.shown
    number = SHOWN[x.shape[0] % 2]
    pliant.graph_break()
    for one in Counted("ab"):
        pliant.graph_break()
        log.append(one)
    log += [number, (lambda items: [one for one in items])(Counted("cd")), OwnNumber.shown - before]


@program
def literals_of_own_classes(x, log):
    OwnNumber.shown = x.shape[0]
    log += [Counted(TEXT), OwnText(NUMBER), str.__new__(OwnText, TEXT), OwnReal(NUMBER), OwnNumber(NUMBER)]
    log.append(OwnNumber.shown)


class Taking(set):
    def __ror__(self, other):
        return "taken"


class TakingTable(dict):
    def __ror__(self, other):
        return "taken"


@program
def in_place_before_the_other_operand(x, log):
    for left, right in ({}, TakingTable(a=x)), ({}, collections.ChainMap({}, {"b": 1})), ({1}, Taking([2])), ([], Taking()):
        before = left
        try:
            left |= right
        except TypeError as error:
            log.append(str(error))
        log += [left is before, before, left]


def joined(x, table):
    table |= collections.ChainMap({}, table)
    table.popitem()
    return types.SimpleNamespace(of=table, size=x.shape[0]), table


def test_a_table_from_outside_is_changed_and_kept():
    compiled = pliant.compile(joined, backend="eager")
    for size in (2, 2, 3, 4):
        table = {"a": size, "b": 1}
        space, result = compiled(torch.ones(size), table)
        assert space.of is table and result is table and table == {"a": size} and space.size == size


@program
def errors_that_name_tuples_of_numbers(x, log):
    number = x.shape[0] + len(log)
    for fails in (lambda: [].index((number, "t")), lambda: {}[number, (number,)], lambda: int("z", number)):
        try:
            fails()
        except (ValueError, LookupError) as error:
            log.append(str(error))


class Flags(enum.Flag):
    A = 1


@program
def no_operator_of_the_metaclass(x, log):
    for left, right in ((Referred(), Flags.A), (Flags.A, Referred()), (Referred(), Referred())):
        try:
            left | right
        except TypeError as error:
            log.append(str(error))


@program
def comprehensions_whose_variable_is_shared(x, log):
    log += [one() for one in [lambda q=i: (q, i) for i in range(3)]]
    i = x.shape[0]
    later = lambda: i
    log += [i + later() for i in range(2)]
    for _ in range(2):
        log += [one() for one in [lambda: (i, j) for i in range(2) for j in [i]]]
    return i, later()


@program
def caches_made_inside(x, log):
    @functools.lru_cache
    def kept(size, more=1):
        log.append(size)

    kept(x.shape[0]), kept(3), kept((x.shape[0], 1)), kept(2 * x.shape[0] - 3)
    return kept.cache_info()


class Joining:
    """Gives no answer to an operator, so that the error names the other class."""

    def __radd__(self, other):
        return NotImplemented

    __lt__ = __rdivmod__ = __radd__

    def __iter__(self):
        return datetime.date(1, 1, 1)


@program
def errors_that_name_classes_in_c(x, log):
    for one in (datetime.timedelta(1), collections.deque(), itertools.count(), Joining, x, x.shape[0]):
        for fails in (lambda: one + Joining(), lambda: Joining() < one, lambda: divmod(one, Joining()), lambda: [*Joining()]):
            try:
                fails()
            except TypeError as error:
                log.append(str(error))


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    size: int


@program
def attributes_that_frozen_slots_do_not_have(x, log):
    try:
        Frozen(x.shape[0]).other = 3  # whose `super` names the class before it had slots
    except (TypeError, AttributeError) as error:
        log.append(str(error))


COUNTED, FILLED = collections.Counter("aab"), {"a": 1}


@program
def signs_of_counters_from_outside(x, log):
    counted = collections.Counter([0, 1, 2])
    pliant.graph_break()
    counted["a"] += x.shape[0]
    counted[1] -= 3
    COUNTED["a"] -= 1
    log += [+counted, -counted, +COUNTED, -COUNTED]
    COUNTED["a"] += 1


@program
def keys_that_the_standard_library_hashes(x, log):
    size = x.shape[0] + len(log)
    log += [FILLED.get(fractions.Fraction(size, 2)), fractions.Fraction(size) in FILLED, {fractions.Fraction(size): 1}.get(size)]


@program
def members_that_the_program_makes(x, log):
    class Made(enum.Enum):
        A = (x.shape[0], 2)

        def __init__(self, first, second):
            log.append(first)

    log.append(Made.A.value)


def keywords(x, *rest, **named): ...


@program
def stars_before_keywords(x, log):
    for call in (keywords, x.add, print, dict):
        try:
            call(*3, **{1: 2})
        except TypeError as error:
            log.append(str(error).replace(__name__, ""))
    for call in (lambda: keywords(**{1: 2}), lambda: torch.add(**{1: 2})):
        try:
            call()
        except TypeError as error:
            log.append(str(error))


@types.coroutine
def waiting():
    yield 1


async def awaiting(task):
    await task


async def waited():
    await waiting()


@program
def coroutines_that_are_dead_but_stay(x, log):
    shared = waited()
    first, second = awaiting(shared), awaiting(shared)
    first.send(None)
    try:
        second.send(None)
    except RuntimeError as error:
        log.append(str(error))


class Level(enum.IntEnum):
    A = 3


EQUAL = {Level.A: 1, 2 + 0j: 2, decimal.Decimal(4): 3}


@program
def numbers_of_other_classes_beside_sizes(x, log):
    size = x.shape[0]
    others = (Level.A, Small(3), 3 + 0j, decimal.Decimal(3), fractions.Fraction(3))
    log += [(size == one, one != size, size in [one], (one, 1) == (size, 1), {one: 1}.get(size)) for one in others]
    log += [(size in {one}, [one, size].count(size), (size, one).index(one), size in (one,)) for one in others]
    log += [EQUAL.get(size), size in EQUAL, size + 1 in EQUAL]


class Small(int): ...


@program
def lists_that_are_concatenated_in_place(x, log):
    items, table = [1], {"a": x.shape[0]}
    same = operator.iconcat(items, table.values())
    operator.iconcat(items, (x.shape[0],))
    log += [same is items, items, operator.concat(items, items), operator.indexOf(items, x.shape[0])]
    try:
        operator.iconcat(1, 2)
    except TypeError as error:
        log.append(str(error))


STORED = {"a": 1}
SEEN = types.MappingProxyType(STORED).get


@program
def views_of_a_dict_that_was_changed(x, log):
    STORED["a"] = x.shape[0]
    log.append(SEEN("a"))
    STORED["a"] = 1


@program
def memory_that_is_viewed(x, log):
    memory = bytearray(b"ab")
    view = memoryview(memory)
    view[0] = 65 + x.shape[0]
    pliant.graph_break()
    try:
        memory.extend(b"c")
    except BufferError as error:
        log.append(str(error))
    log.append(memory)


class Referred: ...


@program
def dead_reference_in_a_set(x, log):
    objects = [Referred() for _ in range(3)]
    references = {weakref.ref(one) for one in objects}
    del objects[0]
    pliant.graph_break()
    log.append(sum(one() is None for one in references))


@pytest.mark.fallbacks_expected  # a reference that is dead
@pytest.mark.parametrize("function", PROGRAMS, ids=[function.__name__ for function in PROGRAMS])
def test_as_in_python(function):
    compiled = pliant.compile(function, backend="eager")
    for size in (2, 2, 3, 4):
        with pliant.config.patch(strict=True):
            want, got = (observe(f, (torch.ones(size), [])) for f in (function, compiled))
        assert same(got, want), (got, want)


def test_a_metaclass_is_asked_once():
    compiled = pliant.compile(lambda x: (hasattr(Answered, "__abstractmethods__"), x + 1), backend="eager")
    for size in (2, 2, 3):
        Answering.asked.clear()
        assert compiled(torch.ones(size))[0] and Answering.asked == ["__abstractmethods__"]
