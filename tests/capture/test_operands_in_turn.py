"""Who is asked first, and with what, where operators and C functions meet objects with methods of their own."""

import functools
import textwrap

import numpy as np
import pytest
import torch

import pliant

SYMBOLS = "+ - * / // % ** & | ^ << >> @ < <= > >= == !=".split()


class Told:
    """Says which method was asked, with what type."""


for _name in "radd rsub rmul rtruediv rfloordiv rmod rpow rand ror rxor rlshift rrshift rmatmul lt le gt ge eq ne".split():
    setattr(Told, f"__{_name}__", lambda self, other, name=_name: (name, type(other).__name__))


class First(Told):
    __array_priority__ = 2000


class Alone(Told):
    __array_ufunc__ = None


TRIED = """
    try:
        found.append(a + b)
    except TypeError as error:
        found.append(str(error))
"""


def combined(symbols):
    """What each operator gives, in one program."""
    steps = [TRIED.replace("a + b", f"a {symbol} b") for symbol in symbols]
    space = {}
    exec("".join(["def tried(x, a, b):\n    found = []", *steps, "    return x + 1, found\n"]), space)
    return space["tried"]


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int64, np.bool_, np.complex64])
@pytest.mark.parametrize("symbols", [SYMBOLS[:7], SYMBOLS[7:]], ids=["arithmetic", "others"])
def test_numpy_scalars_beside_objects(symbols, kind):
    function = combined(symbols)
    compiled = pliant.compile(function, backend="eager")
    for other in (Told(), First(), Alone()):
        pliant.reset()
        for k in (1, 2, 3):
            for pair in ((kind(k), other), (other, kind(k))):
                assert compiled(torch.ones(2), *pair)[1] == function(torch.ones(2), *pair)[1]


class Refuses:
    def __eq__(self, other):
        return NotImplemented


def beside_none(x, none):
    found = []
    for ask in (lambda: Refuses() == none, lambda: none != Refuses(), lambda: none.__eq__(x), lambda: none.__eq__(none)):
        try:
            found.append(ask())
        except TypeError as error:
            found.append(str(error))
    return x + 1, found, none.__eq__


def test_none_has_methods():
    pliant.reset()
    compiled = pliant.compile(beside_none)
    for _ in range(2):
        found, wanted = compiled(torch.ones(2), None), beside_none(torch.ones(2), None)
        assert found[1] == wanted[1]
        assert found[2](None) is True


class Complains:
    def __init__(self, error):
        self.error = error

    def __iter__(self):
        raise self.error


def folded(x, items):
    try:
        return x + 1, functools.reduce(lambda a, b: a + b, items, 0)
    except Exception as error:
        return x + 1, type(error), str(error)


@pytest.mark.parametrize(
    "items", [5, None, len, torch.tensor(1.0), Complains(TypeError("its own")), Complains(ValueError("its own"))],
    ids=["number", "None", "function", "0-d tensor", "TypeError", "ValueError"],
)  # fmt: skip
def test_reduce_of_what_has_no_items(items):
    pliant.reset()
    found, wanted = pliant.compile(folded)(torch.ones(2), items), folded(torch.ones(2), items)
    assert found[1:] == wanted[1:]


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("store", ["shape = (4,)", "flat = 3.0", "real = 5", "dtype = np.int32", "T = 1", "late = 1"])
def test_stores_into_arrays(store):
    text = f"""
    def stored(x):
        a = (x * 2).numpy()
        try:
            a.{store}
        except AttributeError as error:
            return x + 1, str(error)
        return x + 1, a.tolist()
    """
    space = {"np": np}
    exec(textwrap.dedent(text), space)
    pliant.reset()
    assert pliant.compile(space["stored"])(torch.ones(2, 2))[1] == space["stored"](torch.ones(2, 2))[1]
