"""Objects from outside that the program changes between calls, in ways that are seldom used, against eager."""

import abc
import decimal
import functools
import threading
import types
import weakref

import pytest
import torch

import pliant


class World(types.SimpleNamespace):
    """What a program is given, and changes."""


class Plain:
    def __init__(self, value):
        self.value = value


def own_class():
    class Number:
        def __init__(self, value):
            self.value = value

        def __add__(self, other):
            return "added"

        def __len__(self):
            return self.value

        def __iter__(self):
            return iter(range(self.value))

        def __index__(self):
            return self.value

        def __float__(self):
            return self.value / 2

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def __getitem__(self, place):
            return place

        def __lt__(self, other):
            return "less"

    return Number


def added_in_place(w):
    one = w.one
    one += 1
    return one


def entered(w):
    with w.one:
        return 1


class Called:
    """A special method that is an object."""

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, *given):
        return self.answer


# Uses of the object, the special method that decides, and another answer of it.
SPECIAL = {
    "true": (lambda w: "yes" if w.one else "no", "__bool__", False),
    "contains": (lambda w: 1 in w.one, "__contains__", True),
    "float": (lambda w: float(w.one), "__float__", 9.5),
    "added": (lambda w: w.one + 1, "__add__", "other"),
    "added in place": (added_in_place, "__iadd__", "other"),
    "entered": (entered, "__enter__", None),
    "length": (lambda w: len(w.one), "__len__", 7),
    "item": (lambda w: w.one[2], "__getitem__", 7),
    "index": (lambda w: [5, 6, 7, 8][w.one], "__index__", 0),
    "less": (lambda w: w.one < 3, "__lt__", 7),
}
FORMS = {
    "function": lambda answer: lambda *given: answer,
    "none": lambda answer: None,
    "static": lambda answer: staticmethod(lambda *given: answer),
    "of the class": lambda answer: classmethod(lambda *given: answer),
    "property": lambda answer: property(lambda self: lambda *given: answer),
    "object": Called,
    "partial": lambda answer: functools.partial(lambda *given: answer),
}


def outcome(use, w):
    try:
        return "did", repr(use(w))
    except Exception as error:
        return type(error).__name__, str(error)


def differences(use, make, change):
    """Of two worlds, each called, changed and called again: where compiled code tells something else."""

    def program(x, w):
        return outcome(use, w), x + 1

    def told(function):
        found = []
        for number in (1, 2):
            w = make(number)
            found.append(function(torch.ones(2), w)[0])
            change(w)
            found.append(function(torch.ones(2), w)[0])
        return found

    pliant.reset()
    with pliant.config.patch(strict=True):
        ours = told(pliant.compile(program, backend="eager"))
    return [pair for pair in zip(ours, told(program), strict=True) if pair[0] != pair[1]]


@pytest.mark.spread(2, "form", "use")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", SPECIAL)
def test_special_methods_of_every_kind(use, form):
    ask, name, answer = SPECIAL[use]

    def make(number):
        cls = own_class()
        return World(one=cls(number), cls=cls)

    assert differences(ask, make, lambda w: setattr(w.cls, name, FORMS[form](answer))) == []


def thread_local(number):
    w = World(one=threading.local())
    w.one.value = number
    return w


def referring(number):
    one = Plain(number)
    return World(one=one, reference=weakref.ref(one))


def registered(number):
    class Base(abc.ABC):  # noqa: B024
        pass

    return World(base=Base, one=Plain(number))


def decimals(number):
    decimal.getcontext().prec = 28
    return World(one=decimal.Decimal(number))


CHANGED = {
    "another thread local": (lambda w: w.one.value, thread_local, lambda w: None),
    "absent in a thread local": (lambda w: hasattr(w.one, "value"), thread_local, lambda w: delattr(w.one, "value")),
    "which reference": (lambda w: weakref.ref(w.one) is w.reference, referring, lambda w: setattr(w, "one", Plain(3))),
    "no longer that reference": (
        lambda w: weakref.ref(w.other) is w.reference,
        lambda n: World(**vars(referring(n)), other=Plain(n)),
        lambda w: setattr(w, "other", w.one),
    ),
    "equal references": (lambda w: weakref.ref(w.one) == w.reference, referring, lambda w: setattr(w, "one", Plain(3))),
    "registered": (lambda w: isinstance(w.one, w.base | int), registered, lambda w: w.base.register(Plain)),
    "quotient of decimals": (lambda w: w.one / 7, decimals, lambda w: setattr(decimal.getcontext(), "prec", 9)),
    "made decimals": (
        lambda w: decimal.Decimal(1) / 7, decimals, lambda w: setattr(decimal.getcontext(), "rounding", decimal.ROUND_UP),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_changes_of_objects_are_seen(name):
    with decimal.localcontext():
        assert differences(*CHANGED[name]) == []


class Asked(dict):
    """A dict that tells of what is asked."""

    asked: list[str] = []

    def __iter__(self):
        self.asked.append("iter")
        return iter(["a"])

    def __contains__(self, key):
        self.asked.append("in")
        return True

    def __len__(self):
        self.asked.append("len")
        return 7


OF_DICTS = {
    "copied": dict,
    "spread": lambda d: {**d},
    "absent": lambda d: d.get("z", 5),
    "keys": lambda d: list(d.keys()),
    "items": lambda d: list(d.items()),
    "contains": lambda d: dict.__contains__(d, "q"),
    "copy": lambda d: d.copy(),
    "its own": lambda d: ("z" in d, next(iter(d)), len(d)),
}


@pytest.mark.parametrize("name", OF_DICTS)
def test_checks_do_not_ask_a_dicts_own_methods(name):
    use = OF_DICTS[name]

    def program(x, d):
        return use(d), x + 1

    compiled = pliant.compile(program, backend="eager")
    for more in ({}, {}, {"q": 3}, {"q": 4}, {"b": 1}):
        given = Asked(a=1, **more)
        found = []
        for function in (program, compiled):
            Asked.asked.clear()
            found.append((function(torch.ones(1), given)[0], list(Asked.asked)))
        assert found[0] == found[1]


def test_checks_do_not_ask_the_programs_getattribute():
    asked = []

    class Own:
        def __init__(self):
            object.__setattr__(self, "value", 1)

        def __getattribute__(self, name):
            asked.append(name)
            return "hidden" if name == "__dict__" else object.__getattribute__(self, name)

    def program(x, one):
        one.value = one.value + 1
        return one.value, hasattr(one, "other"), x + 1

    compiled, one, x = pliant.compile(program, backend="eager"), Own(), torch.ones(2)
    compiled(x, one)
    asked.clear()
    assert compiled(x, one)[0] == 3
    compiled(x, one)
    asked.clear()
    assert compiled(x, one)[0] == 5
    assert asked == ["value", "value", "other"]
