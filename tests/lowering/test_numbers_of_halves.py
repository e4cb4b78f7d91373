"""Comparisons and remainders of half precision: eager converts both operands to one dtype first."""

import pytest
import torch

import pliant

BINARY = ("eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder")
DTYPES = (torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("given", [float, torch.tensor], ids=["number", "tensor of no dimension"])
def test_operands_are_rounded_first(given, dtype):
    def program(x, value):
        return [getattr(torch, name)(x, value) for name in BINARY]

    compiled = pliant.compile(program)
    for value in (0.3, 0.1, -0.7, 2.5):
        x = torch.cat([torch.linspace(-3, 3, 61), torch.tensor([value])]).to(dtype)
        for found, expected in zip(compiled(x, given(value)), program(x, given(value))):
            assert found.dtype == expected.dtype and torch.equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_are_those_of_the_dtype(dtype):
    x = torch.linspace(-3, 3, 61).to(dtype)
    compiled = pliant.compile(lambda x, y: torch.nextafter(x, y) * 1)
    assert torch.equal(compiled(x, torch.zeros_like(x)), torch.nextafter(x, torch.zeros_like(x)))
