"""Containers, texts and numbers of a program's classes: C code that is given one runs the program's methods, in its order.

None of them runs while the function is captured, and none twice.
"""

import pytest
import torch

import pliant

LOG = []


def noting(base, **members):
    """A class whose special methods note that they were called."""

    def noted(name):
        own = getattr(base, name)
        return lambda self, *given: (LOG.append(name), own(self, *given))[1]

    names = [n for n in "__len__ __eq__ __lt__ __repr__ __str__ __format__ __add__ __contains__".split() if hasattr(base, n)]
    return type(f"Noting{base.__name__}", (base,), {**{name: noted(name) for name in names}, "__hash__": base.__hash__, **members})


class Items:
    """An iterator that says how many items are left."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        LOG.append("iter")
        return self

    def __next__(self):
        LOG.append("next")
        return next(self.items)

    def __length_hint__(self):
        LOG.append("hint")
        return 1


def itself(base):
    def __iter__(self):
        LOG.append("__iter__")
        return Items(base.__iter__(self))

    return __iter__


CLASSES = {base: noting(base, __iter__=itself(base), __bytes__=lambda self: b"own") for base in (list, tuple, dict, set)}
TEXT, NUMBER = noting(str), noting(int)
PLAIN = {name: noting(base) for name, base in {"list": list, "tuple": tuple}.items()}  # which C code iterates over


def extended(v):
    items = [1]
    items.extend(v)
    items += v
    return items


def unpacked(v):
    first, *others = v
    return first, others


PROGRAMS = {
    "list": list, "tuple": tuple, "sorted": sorted, "set": lambda v: len(set(v)), "star": lambda v: [1, *v, 2],
    "call": lambda v: (lambda *given: given)(*v), "iter": lambda v: list(iter(v)), "next": lambda v: next(iter(v)),
    "extend": extended, "unpack": unpacked, "bytes": bytes, "bytearray": bytearray, "zip": lambda v: list(zip(v, v)),
    "repr": repr, "format": lambda v: f"{v}{v!r}", "equal": lambda v: (v == [3, 4], [v] == [v], v == v), "in": lambda v: 3 in v,  # noqa: PLR0124
}  # fmt: skip


def run(program, value):
    LOG.clear()
    return repr(program(value)), [*LOG]


def check(program, make):
    pliant.reset()
    expected = run(program, make())

    def called(x, v):
        return repr(program(v)), x + 1

    compiled = pliant.compile(called, backend="eager")
    for _ in range(2):
        value, x = make(), torch.ones(2)
        LOG.clear()
        text, _ = compiled(x, value)
        assert (text, [*LOG]) == expected


@pytest.mark.spread(2, "base", "name")
@pytest.mark.parametrize("base", CLASSES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_containers_with_an_iter_of_their_own(base, name):
    check(PROGRAMS[name], lambda: CLASSES[base]({3: 1, 4: 2} if base is dict else [3, 4]))


@pytest.mark.parametrize("cls", PLAIN)
@pytest.mark.parametrize("name", ["list", "sorted", "star", "extend", "unpack", "next", "repr"])
def test_containers_that_say_how_long_they_are(cls, name):
    check(PROGRAMS[name], lambda: PLAIN[cls]([3, 4]))


@pytest.mark.parametrize("name", ["repr", "format"])
@pytest.mark.parametrize("make", [lambda: TEXT("ab"), lambda: NUMBER(3)])
def test_texts_and_numbers(make, name):
    check(PROGRAMS[name], make)


def failing(v):
    try:
        return list(v)
    except ValueError as error:
        return str(error)


def test_a_length_that_fails():
    def fails(self):
        raise ValueError("no length")

    check(failing, lambda: noting(list, __len__=fails)([3]))


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("given", [lambda self: 3, lambda self: len(3)])
def test_what_cannot_take_the_place_of_a_slice(given, step):
    """A list has words of its own for it."""
    bad = type("Bad", (), {"__iter__": given})

    def program(v):
        items = [1, 2]
        try:
            items[::step] = bad()
        except TypeError as error:
            return str(error), items
        return items

    check(program, list)


def test_a_set_of_texts_with_an_iter_of_its_own():
    made = noting(set, __iter__=itself(set))

    def program(v):
        texts = made(["b"])
        texts.update(["a"])
        return sorted(texts)

    check(program, list)
