"""A break in a call that was inlined: every frame on the stack goes on behind it, wherever the call stands."""

import contextlib
import functools

import pytest
import torch

import pliant


def brk(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def nested(x):
    def a(v):
        return brk(v * 2) * 3

    def b(v):
        return a(v + 1) - 1

    return b(x) * 5


def kw(x):
    def a(v, *, k):
        return brk(v * k)

    return a(x * 2, k=3) * 2


def star(x):
    def a(*v, **k):
        return brk(v[0] * k["k"])

    keywords = {"k": 3}
    return a(*(x * 2,), **keywords) * 2


def in_with(x):
    @contextlib.contextmanager
    def cm():
        yield 3

    with cm() as k:
        y = brk(x * k) * 2
    return y + x


def in_try(x):
    try:
        x = brk(x * 2)
        raise ValueError("a")
    except ValueError as e:
        x = brk(x * 2)
    finally:
        x = x + 1
    return x


def exc_through(x):
    def a(v):
        v = brk(v)
        raise KeyError("q")

    try:
        a(x * 2)
    except KeyError as e:
        return x * 3, len(str(e))


def prop(x):
    class C:
        @property
        def p(self):
            return brk(x * 2) * 3

        def __getitem__(self, i):
            return brk(x * i)

        def __add__(self, o):
            return brk(x + o)

        def __call__(self, v):
            return brk(v * 4)

    c = C()
    y = x * 2
    return c.p * 2 + y


def getit(x):
    class C:
        def __getitem__(self, i):
            return brk(x * i) * 2

    c = C()
    y = x * 2
    return c[3] + y


def add(x):
    class C:
        def __add__(self, i):
            return brk(x * i) * 2

    c = C()
    y = x * 2
    return (c + 3) + y


class Ini:
    def __init__(self, x):
        y = x * 2
        self.v = brk(y) * 3


def init(x):
    y = x * 3
    c = Ini(y)
    return c.v + y


class CM:
    def __init__(self, l):
        self.l = l

    def __enter__(self):
        self.l.append(brk(self.l[0] * 2))
        return self.l[-1] * 2

    def __exit__(self, *a):
        self.l.append(brk(self.l[0] * 3) * 2)


def enter(x):
    l = [x * 2]
    with CM(l) as z:
        w = z * 3
    return w, l


def partial(x):
    f = functools.partial(lambda a, b: brk(a * b) * 2, 3)
    return f(x * 2) * 2


def sort(x):
    y = x * 2
    l = sorted([3, 1, 2], key=lambda v: float(brk(y * v).sum() > 0))
    return y * l[0], l


def deco(x):
    def d(f):
        @functools.wraps(f)
        def w(*a, **k):
            return f(*a, **k) * 2

        return w

    @d
    def g(v):
        return brk(v * 3) * 2

    return g(x * 2) + 1


def rec(x, n=3):
    if n == 0:
        return brk(x)
    return rec(x * 2, n - 1) + 1


def clos(x):
    tot = [0]

    def a(v):
        nonlocal x
        x = x + 1
        r = brk(v * x)
        tot[0] += 1
        return r * x

    y = a(x * 2)
    return y + x, tot


def meth(x):
    class B:
        def f(self, v):
            return brk(v * 2) * 3

    class C(B):
        def f(self, v):
            return super().f(v + 1) * 2

    return C().f(x * 5) - 1


PROGRAMS = (
    nested,
    kw,
    star,
    in_with,
    in_try,
    exc_through,
    prop,
    getit,
    add,
    init,
    enter,
    partial,
    sort,
    deco,
    rec,
    clos,
    meth,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_break_in_an_inlined_call(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    with pliant.config.patch(strict=True):
        for value in (3.0, -30.0, 3.0):
            x = torch.full((2, 3), value)
            torch.testing.assert_close(compiled(x), program(x))
    assert pliant.stats()["graphs"] > 0


def test_what_comes_before_stays_in_the_graph():
    """The outer parts before and behind, the inner part before: one break, and a graph for each part."""
    pliant.reset()
    compiled = pliant.compile(nested, backend="eager")
    compiled(torch.ones(2, 3))
    stats = pliant.stats()
    assert stats["graph_breaks"] == 1 and stats["graphs"] == 5
