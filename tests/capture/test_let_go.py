"""Stores that let go of objects whose end the program notices, behind a break."""

import contextlib
import gc

import pytest
import torch
from tests.capture.constructs.harness import observe

import pliant

brk = pliant.disable(lambda: None)


def noisy():
    try:
        yield 1
    finally:
        print("closed")


class Dies:
    def __del__(self):
        print("dead")


class Holder:
    pass


held = Holder()
in_global = None


def attribute(make):
    held.it = make()
    brk()
    held.it = None
    print("after")


def item(make, table={}):
    table["a"] = make()
    brk()
    table["a"] = None
    print("after")


def deleted_item(make, table={}):
    table["a"] = make()
    brk()
    del table["a"]
    print("after")


def popped(make):
    values = [make()]
    brk()
    values.pop()
    print("after")


def cleared(make):
    values = {"a": make()}
    brk()
    values.clear()
    print("after")


def global_name(make):
    global in_global
    in_global = make()
    brk()
    in_global = None
    print("after")


def cell(make):
    it = make()

    def read():
        return it  # noqa: F821

    brk()
    it = None
    print("after", read())


def deleted_cell(make):
    it = make()

    def read():
        return it  # noqa: F821

    brk()
    del it
    print("after", read is None)


def nonlocal_name(make):
    it = make()

    def clear():
        nonlocal it
        it = None

    brk()
    clear()
    print("after")


def local_that_holds_it(make):
    holder = Holder()
    holder.parts = [make()]
    brk()
    holder = None
    print("after", holder)


def started():
    it = noisy()
    next(it)
    return it


@pytest.mark.parametrize("make", [started, Dies])
@pytest.mark.parametrize(
    "store",
    [
        attribute,
        item,
        deleted_item,
        popped,
        cleared,
        global_name,
        cell,
        deleted_cell,
        nonlocal_name,
        local_that_holds_it,
    ],
)
def test_it_ends_where_it_is_let_go(store, make):
    def program(x):
        store(make)
        return x + 1

    x = torch.ones(2)
    compiled = pliant.compile(program, backend="eager")
    want = observe(program, (x,))
    for _ in range(2):
        got = observe(compiled, (x,))
        assert got[1:] == want[1:] and got[0][1].equal(want[0][1]), (got, want)


class Told(Exception):
    def __init__(self):
        brk()


@pytest.mark.parametrize("make", [started, Dies])
def test_what_the_frames_of_an_exception_hold_ends_with_it(make, capsys):
    """A capture behind a break was given the exception; its garbage does not keep it."""

    def fails(x):
        x.add_(1)
        raise Told()  # noqa: RSE102

    def program(x):
        it = make()
        brk()
        fails(x)
        return it

    gc.disable()
    try:
        with contextlib.suppress(Told):
            pliant.compile(program, backend="eager")(torch.ones(2))
        assert capsys.readouterr().out == {started: "closed\n", Dies: "dead\n"}[make]
    finally:
        gc.enable()
