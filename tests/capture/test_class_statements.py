"""Class statements, what they run and complain of, and what classes from outside have while they are changed."""

import collections.abc
import dataclasses
import functools

import pytest
import torch

import pliant

LOG = []


def caught(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__, str(error), getattr(error, "__notes__", None), type(error.__cause__).__name__


def metaclasses_in_conflict(n):
    class M(type):
        pass

    class N(type):
        pass

    class A(metaclass=M):
        pass

    class B(metaclass=N):
        pass

    def statement():
        class C(A, B):
            pass

    return caught(statement)


def namespace_of_its_own(n):
    class Space(dict):
        def __missing__(self, key):
            if key.startswith("__"):
                raise KeyError(key)
            LOG.append(key)
            self[key] = len(self)
            return self[key]

    class M(type):
        @classmethod
        def __prepare__(cls, name, bases):
            return Space()

    class A(metaclass=M):
        red  # noqa: B018, F821
        green  # noqa: B018, F821

    return A.red, A.green


def namespace_that_is_none(n):
    class M(type):
        @classmethod
        def __prepare__(cls, name, bases):
            return n

    def statement():
        class A(metaclass=M):
            pass

    return caught(statement)


def keywords_that_nobody_takes(n):
    class Base:
        def __init_subclass__(cls, tag=None, **rest):
            super().__init_subclass__(**rest)
            LOG.append(cls.__name__)

    def statement():
        class A(Base, bogus=n):
            pass

    return caught(statement)


def names_that_are_refused(n):
    class D:
        def __set_name__(self, owner, name):
            raise ValueError("no", name)

    def statement():
        class A:
            a = D()

    return caught(statement)


def members_in_order(n):
    class D:
        def __set_name__(self, owner, name):
            LOG.append(name)

    class A:
        a = D()
        b = 1
        c = D()

    return [name for name in vars(A) if len(name) == 1]


class Entry:
    def __mro_entries__(self, bases):
        LOG.append(len(bases))
        return (dict,)


ENTRY = Entry()


def bases_that_say_what_stands_for_them(n):
    class A(ENTRY):
        pass

    return A.__bases__, A.__orig_bases__[0] is ENTRY, A(a=n)


def bases_that_are_no_classes(n):
    return caught(lambda: type("A", (1,), {})), caught(lambda: type("A", (ENTRY,), {}))


def numbers_in_members(n):
    class A:
        def f(self, a, *, b=0):
            return a, b

        g = functools.partialmethod(f, 1, b=n)

    return A().g()


def numbers_in_new(n):
    class A:
        def __new__(cls, *given):
            return n if given else super().__new__(cls)

    pliant.graph_break()
    return A(1)


class Base:
    v = 1

    def f(self):
        return "old"


class Sub(Base):
    v = 2

    def f(self):
        return "sub", super().f()


class Named:
    def __get__(self, obj, cls):
        return cls.__name__, obj is None, self.name


def functions_stored_behind_super(n):
    old, Base.f = Base.f, lambda self: n
    try:
        return Sub().f()
    finally:
        Base.f = old


def deleted_before_a_base(n):
    del Sub.v
    found = Sub.v, Sub().v
    Sub.v = 2
    return found, caught(lambda: delattr(Sub, "q"))


def descriptors_stored_in_classes(n):
    Base.d = made = Named()
    unnamed = caught(lambda: Base.d)
    made.name = n
    found = Base.d, Sub.d, Sub().d
    del Base.d
    return unnamed, found, hasattr(Sub, "d")


def names_and_bases_of_classes(n):
    class Other:
        v = n

    Sub.__qualname__ = "Q"
    text, Sub.__qualname__ = repr(Sub), "Sub"
    old, Base.__name__ = Base.__name__, "N"
    name, Base.__name__ = Base.__name__, old
    return text, name


class Answers(type):
    def __instancecheck__(cls, obj):
        LOG.append("asked")
        return True


class MadeByNew(metaclass=Answers):
    def __new__(cls, value):
        return value

    def __init__(self, *given):
        LOG.append("init")


def new_that_gives_another(n):
    return MadeByNew(n)


class TakesCell(type):
    def __new__(meta, name, bases, namespace):
        namespace.pop("__classcell__", None)
        return super().__new__(meta, name, bases, namespace)


class MakesTwo(type):
    def __new__(meta, name, bases, namespace):
        made = super().__new__(meta, name, bases, namespace)
        type("Other", (), namespace)
        return made


def classes_that_lose_their_cell(n):
    def stated(meta):
        class Stated(metaclass=meta):
            def own(self):
                return __class__

        return Stated().own() is Stated

    return [caught(lambda meta=meta: stated(meta)) for meta in (TakesCell, MakesTwo, type)]


def modules_of_classes(n):
    made = [
        collections.namedtuple("A", "a"),
        collections.namedtuple("B", "a", module="elsewhere"),
        collections.namedtuple("C", "a", module=None),
        dataclasses.make_dataclass("D", ["a"]),
    ]
    return [(one.__module__, one.__qualname__) for one in made]


def dispatch_in_doubt(n):
    class Both:
        def __iter__(self):
            return iter(())

        def __contains__(self, value):
            return False

    return caught(lambda: in_doubt(Both()))


@functools.singledispatch
def in_doubt(value):
    return "any"


in_doubt.register(collections.abc.Iterable, lambda value: "iterable")
in_doubt.register(collections.abc.Container, lambda value: "container")


PROGRAMS = (
    metaclasses_in_conflict, namespace_of_its_own, namespace_that_is_none, keywords_that_nobody_takes, names_that_are_refused,
    members_in_order, bases_that_say_what_stands_for_them, bases_that_are_no_classes, numbers_in_members, numbers_in_new,
    functions_stored_behind_super, deleted_before_a_base, descriptors_stored_in_classes, names_and_bases_of_classes,
    new_that_gives_another, classes_that_lose_their_cell, modules_of_classes, dispatch_in_doubt,
)  # fmt: skip


def outcome(function, n):
    LOG.clear()
    result = function(n)
    return result, type(result), [*LOG]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_in_python(program):
    compiled = pliant.compile(lambda x, n: (x + 1, program(n))[1], backend="eager")
    with pliant.config.patch(strict=True):
        for n in (2, 3, 5):
            assert outcome(lambda n: compiled(torch.ones(2), n), n) == outcome(program, n)
