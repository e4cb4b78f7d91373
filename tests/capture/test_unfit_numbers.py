"""Numbers that a dtype cannot hold are refused where eager refuses them, and wrapped or rounded where it does that."""

import pytest
import torch
import torch.nn.functional as F

import pliant

PLACE = torch.tensor([0])

PROGRAMS = {
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype),
    "full_like": lambda x, n: torch.full_like(x, n),
    "new_full": lambda x, n: x.new_full((2,), n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "clamp": lambda x, n: x.clamp(min=n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "index_fill": lambda x, n: x.index_fill(0, PLACE, n),
    "scatter": lambda x, n: x.scatter(0, PLACE, n),
    "add": lambda x, n: x + n,
    "factor": lambda x, n: torch.add(x, x, alpha=n),
    "equal": lambda x, n: x == n,
    "at a place": lambda x, n: x.index_put((PLACE,), torch.tensor(n)),
}


def outcome(f, *args):
    try:
        return f(*args).tolist()
    except (RuntimeError, OverflowError) as error:
        return type(error), str(error)


@pytest.mark.spread(2, "name", "dtype", "dynamic")
@pytest.mark.parametrize("dynamic", [False, None])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_integers(name, dtype, dynamic):
    pliant.reset()
    program, x = PROGRAMS[name], torch.tensor([1, 0, 3], dtype=dtype)
    compiled = pliant.compile(program, dynamic=dynamic)
    wider = [2**40] if name != "pad" else []  # its number goes through C++, which asks for no symbol's range
    for n in (5, 7, 300, -300, *wider, 9):
        assert outcome(compiled, x, n) == outcome(program, x, n)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float32, torch.float16])
@pytest.mark.parametrize("number", [3.7, 1e40, -1e20, float("inf"), float("nan")])
def test_floats(number, dtype):
    pliant.reset()
    x = torch.tensor([1, 0, 3], dtype=dtype)

    def program(x):
        return torch.full_like(x, number)

    assert str(outcome(pliant.compile(program), x)) == str(outcome(program, x))  # NaN is not equal to itself


def test_numbers_that_fit_are_one_graph():
    pliant.reset()
    compiled = pliant.compile(lambda x, n: x.masked_fill(x > 0, n))
    for n in range(2, 60, 7):
        compiled(torch.ones(3, dtype=torch.int8), n)
    assert pliant.stats()["graphs"] == 2


def test_numbers_from_data():
    pliant.reset()

    def program(x, y):
        return torch.full((2,), y.exp().long().sum().item(), dtype=x.dtype)

    compiled = pliant.compile(program)
    for of, breaks in ((torch.int64, 0), (torch.int8, 1)):
        for n in (1.0, 9.0):
            x, y = torch.ones(2, dtype=of), torch.tensor([n])
            assert outcome(compiled, x, y) == outcome(program, x, y)
        assert pliant.stats()["graph_breaks"] == breaks
