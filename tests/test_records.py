"""Classes of `pliant.records` are what the standard decorator makes of the same text."""

import copy
import dataclasses
import inspect
import pickle
import threading
import weakref
from dataclasses import InitVar, field
from typing import ClassVar

import pytest

from pliant import records


def classes(dataclass):
    """A class of each kind, made by this decorator."""

    @dataclass(frozen=True, slots=True)
    class Frozen:
        a: int
        b: str = "b"
        shown: ClassVar[int] = 7
        unseen: int = field(init=False, compare=False, repr=False, default=3)

    @dataclass(frozen=True, slots=True)
    class Derived(Frozen):
        c: list[int] = field(default_factory=list, hash=False)

        def __post_init__(self):
            self.c.append(self.a)

    @dataclass(slots=True)
    class Plain:
        a: int
        b: dict[int, int] = field(init=False, default_factory=dict)

    @dataclass(slots=True, eq=False, weakref_slot=True)
    class Apart:
        a: object = None

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        a: int
        b: int = 2

    @dataclass(frozen=True, eq=False)
    class Open:
        a: int = 1
        unset: int = field(init=False, default=3)

    @dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __eq__(self, other):
            return isinstance(other, Own)

        def __repr__(self):
            return "own"

    @dataclass(frozen=True, slots=True)
    class Hashed:
        a: int

        def __hash__(self):
            return 5

    @dataclass(slots=True)
    class Empty:
        pass

    return {cls.__name__: cls for cls in (Frozen, Derived, Plain, Apart, Named, Open, Own, Hashed, Empty)}


STANDARD, OURS = classes(dataclasses.dataclass), classes(records.dataclass)

CALLS = [
    ("Frozen", (1,), {}), ("Frozen", (1, "c"), {}), ("Frozen", (), {"a": 2}), ("Frozen", (), {}), ("Frozen", (1, 2, 3), {}),
    ("Derived", (1,), {}), ("Derived", (1, "b", [2]), {}), ("Plain", (1,), {}), ("Plain", ([],), {}), ("Apart", (), {}),
    ("Apart", (4,), {}), ("Named", (), {"a": 1}), ("Named", (1,), {}), ("Open", (), {}), ("Own", (1,), {}), ("Hashed", (1,), {}),
    ("Empty", (), {}),
]  # fmt: skip


def told(work):
    try:
        return str(work()).replace("classes.<locals>.", "")
    except (TypeError, AttributeError, dataclasses.FrozenInstanceError) as error:
        return f"{type(error).__name__}: {error}".partition(" at 0x")[0].replace("classes.<locals>.", "")


def facts(cls, args, kwargs):
    """What can be seen of an object that is made so."""
    yield told(lambda: str(inspect.signature(cls.__init__)))
    yield cls.__match_args__, [(f.name, f.init, f.kw_only, f.type) for f in dataclasses.fields(cls)]
    yield getattr(cls, "__slots__", None), cls.__qualname__, cls.__hash__ is None
    try:
        one, other = cls(*args, **kwargs), cls(*args, **kwargs)
    except TypeError as error:
        yield str(error)
        return
    yield one == other, one != other, one == 1, dataclasses.is_dataclass(one)
    yield told(lambda: one if cls.__name__ != "Apart" else one.a)
    yield told(lambda: hash(one) == hash(other))
    yield told(lambda: dataclasses.astuple(one)), told(lambda: dataclasses.astuple(dataclasses.replace(one, a=9)))
    yield told(lambda: dataclasses.astuple(copy.copy(one))), told(lambda: dataclasses.astuple(copy.deepcopy(one)))
    yield told(lambda: setattr(one, "a", 5)), told(lambda: one.a)
    yield told(lambda: setattr(one, "new", 5)) == "None"  # the standard class may fail with an error of its own
    yield told(lambda: delattr(one, "a")), told(lambda: weakref.ref(one)() is one)


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_objects_are_those_of_the_standard_decorator(name, args, kwargs):
    expected = list(facts(STANDARD[name], *copy.deepcopy((args, kwargs))))
    assert list(facts(OURS[name], *copy.deepcopy((args, kwargs)))) == expected


@pytest.mark.parametrize("first", ["objects", "text"])
@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [*CALLS, ("Frozen", (1,), {"a": 2}), ("Frozen", (1,), {"d": 2}), ("Frozen", (1,), {"unseen": 2})],
)
def test_the_first_objects_are_made_as_by_the_text(name, args, kwargs, first):
    def made(cls):
        one = cls(*copy.deepcopy(args), **kwargs)
        return [(f.name, getattr(one, f.name)) for f in dataclasses.fields(cls)], getattr(one, "__dict__", None)

    cls = classes(records.dataclass)[name]
    if first == "text":
        assert inspect.isfunction(cls.__init__)
    assert told(lambda: made(cls)) == told(lambda: made(STANDARD[name]))


@records.dataclass(frozen=True, slots=True)
class Kept:
    a: int
    b: int = 4


def test_they_are_pickled_and_matched():
    assert pickle.loads(pickle.dumps(Kept(1))) == Kept(1, 4)
    match Kept(1, 2):
        case Kept(a, b):
            assert (a, b) == (1, 2)


def test_text_is_made_once_and_not_for_the_first_objects():
    @records.dataclass(slots=True)
    class One:
        a: int

    for _ in range(8):
        assert not inspect.isfunction(One.__dict__["__init__"])
        assert One(1).a == 1
    One(1)
    made = One.__dict__["__init__"]
    One(2)
    assert One.__dict__["__init__"] is made
    assert inspect.isfunction(made)


def test_a_class_of_ours_as_a_default_gets_no_hash_for_it():
    @records.dataclass(frozen=True, slots=True)
    class Inner:
        a: int = 1

    records.dataclass(frozen=True)(type("Outer", (), {"__annotations__": {"a": Inner}, "a": Inner()}))
    assert not inspect.isfunction(Inner.__dict__["__hash__"])


def test_threads_that_make_the_first_objects_at_once():
    for _ in range(20):
        (made,) = [cls for name, cls in classes(records.dataclass).items() if name == "Derived"]
        results = []
        start = threading.Barrier(4)

        def work(made=made, start=start, results=results):
            start.wait()
            results.append(made(1))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.c for one in results] == [[1]] * 4


def test_what_would_be_another_class_is_refused():
    with pytest.raises(ValueError, match="default_factory"):
        records.dataclass(type("Shared", (), {"__annotations__": {"a": list}, "a": []}))
    with pytest.raises(TypeError, match="standard decorator"):
        records.dataclass(type("Passing", (), {"__annotations__": {"a": "InitVar[int]"}}))
    with pytest.raises(TypeError, match="standard decorator"):
        records.dataclass(type("Passing", (), {"__annotations__": {"a": InitVar[int]}}))
