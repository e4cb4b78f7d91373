"""What errors and iterators from outside show is read at each call: C code does not look into them while capturing."""

import itertools

import pytest
import torch

import pliant


def raised(function, *args):
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("no error")


def group(n):
    raise ExceptionGroup(f"m{n}", [ValueError(n)])


ERRORS = {
    "import": lambda n: raised(__import__, f"missing{n}"),
    "file": lambda n: raised(open, f"/missing{n}"),
    "key": lambda n: raised({}.__getitem__, f"k{n}"),
    "value": lambda n: raised(int, f"x{n}"),
    "unicode": lambda n: raised(bytes([200 + n]).decode),
    "syntax": lambda n: raised(compile, "a" * n + " b", "f", "eval"),
    "attribute": lambda n: raised(getattr, n, f"a{n}"),
    "group": lambda n: raised(group, n),
}
TEXTS = {"str": str, "repr": repr, "format": lambda e: f"{e}!", "percent": lambda e: "%s" % e, "arguments": lambda e: str(e.args)}


@pytest.mark.parametrize("way", TEXTS)
@pytest.mark.parametrize("kind", ERRORS)
def test_errors_from_outside(kind, way):
    show = TEXTS[way]
    compiled = pliant.compile(lambda x, error: (x + 1, show(error)), backend="eager")
    for n in (3, 4, 5):
        error = ERRORS[kind](n)
        assert compiled(torch.ones(2), error)[1] == show(error)


@pytest.mark.parametrize("do", [lambda n: __import__(f"missing{n}"), lambda n: open(f"/missing{n}")], ids=["import", "file"])
def test_errors_of_a_call_that_breaks_the_graph(do):
    def program(x, n):
        try:
            do(n)
        except (ImportError, OSError) as error:
            return x + 1, str(error)

    compiled = pliant.compile(program, backend="eager")
    for n in (3, 4, 5):
        assert compiled(torch.ones(2), n)[1] == program(torch.ones(2), n)[1]


ITERATORS = {
    "map": lambda n: map(abs, range(n)),
    "generator": lambda n: (i for i in range(n)),
    "set": lambda n: iter({n}),
    "dict": lambda n: iter({n: 1}),
    "list": lambda n: iter([n, 1]),
    "reversed": lambda n: reversed([n, 1]),
    "slice": lambda n: itertools.islice(range(9), n),
}


@pytest.mark.parametrize("cls", [bytes, bytearray])
@pytest.mark.parametrize("kind", ITERATORS)
def test_bytes_of_iterators_from_outside(kind, cls):
    compiled = pliant.compile(lambda x, items: (x + 1, cls(items), list(items)), backend="eager")
    for n in (3, 4, 5):
        assert compiled(torch.ones(2), ITERATORS[kind](n))[1:] == (cls(ITERATORS[kind](n)), [])
