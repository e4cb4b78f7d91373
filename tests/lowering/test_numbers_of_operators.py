"""Operators' plain numbers that change from call to call: one kernel for all, in both directions."""

import pytest
import torch
import torch.nn.functional as F

import pliant

OPERATORS = {
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "logit": lambda x, v: torch.logit(x.sigmoid(), eps=v / 10),
}


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", OPERATORS)
def test_numbers_that_change(name, train):
    pliant.reset()
    compiled = pliant.compile(OPERATORS[name])
    for v in (0.7, 1.3, 0.4, 1.9):
        x = torch.randn(5, 9, generator=torch.Generator().manual_seed(0)) * 2
        mine, theirs = (x.clone().requires_grad_(train) for _ in range(2))
        found, expected = compiled(mine, v), OPERATORS[name](theirs, v)
        torch.testing.assert_close(found, expected)
        if train:
            found.sum().backward()
            expected.sum().backward()
            torch.testing.assert_close(mine.grad, theirs.grad)
    stats = pliant.stats()
    assert not stats["fallbacks"] and stats["recompiles"] == 1


DIVISIONS = {
    "floor": lambda x, v: x // v,
    "remainder": lambda x, v: x % v,
    "truncated": lambda x, v: torch.div(x, v, rounding_mode="trunc"),
    "unused": lambda x, v: (x // v, x)[1],
}


@pytest.mark.parametrize("by", [0, 256, 3])
@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_are_not_divided_by_what_their_type_wraps_to_zero(name, by):
    pliant.reset()
    x = torch.tensor([6, 100], dtype=torch.uint8)
    program = DIVISIONS[name]
    compiled = pliant.compile(lambda x: program(x, by), fullgraph=True)
    if by == 3:
        assert torch.equal(compiled(x), program(x, by))
        return
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x)


COMPARISONS = {
    "comparisons": lambda x, v: (x == v, x != v, x < v, x <= v, x > v, x >= v, v < x),
    "remainders": lambda x, v: (x % v, torch.fmod(x, v)),
    "floors": lambda x, v: (v // x, x // v, torch.tensor(v, dtype=torch.float64) // x),
    "truncated quotients": lambda x, v: (
        torch.div(torch.tensor(v, dtype=torch.float64), x, rounding_mode="trunc"), torch.div(x, v, rounding_mode="trunc"),
        torch.div(x, x[5], rounding_mode="trunc"), torch.div(x, x.roll(3), rounding_mode="trunc"),
    ),
    "clamp": lambda x, v: x.clamp(-v, v),
    "hardshrink": F.hardshrink,
    "a number in a tensor": lambda x, v: x <= torch.tensor(v, dtype=torch.float64),
    "large integers": lambda x, v: x * 0 + 256 == 257,
}


@pytest.mark.spread(2, "varies", "dtype", "name")
@pytest.mark.parametrize("varies", [False, True], ids=["constant", "varies"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", COMPARISONS)
def test_halves_are_compared_with_what_their_dtype_makes_of_a_number(name, dtype, varies):
    pliant.reset()
    program = COMPARISONS[name]
    compiled = pliant.compile(program, dynamic=varies)
    for v in (1.1, 0.3):
        x = torch.cat([torch.linspace(-3, 3, 61), torch.full((40,), v), v / torch.arange(1, 41)]).to(dtype)
        mine, theirs = (x.clone().requires_grad_() for _ in range(2))
        found, expected = compiled(mine, v), program(theirs, v)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        if name in ("clamp", "hardshrink"):
            found.sum().backward()
            expected.sum().backward()
            assert torch.equal(mine.grad, theirs.grad)
    assert not pliant.stats()["fallbacks"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_neighbours_of_halves_are_those_of_the_dtype(dtype):
    x = torch.linspace(-3, 3, 61).to(dtype)
    compiled = pliant.compile(lambda x, y: torch.nextafter(x, y) * 1)
    assert torch.equal(compiled(x, torch.zeros_like(x)), torch.nextafter(x, torch.zeros_like(x)))
