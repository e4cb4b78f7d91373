"""Operands that eager refuses are refused while a program is captured, in eager's words."""

import pytest
import torch

import pliant

REFUSED = {
    "argmax of bool": lambda flags, x: flags.argmax(1),
    "argmin of bool": lambda flags, x: torch.argmin(flags),
    "argmax of complex": lambda flags, x: torch.complex(x, x).argmax(),
    "rsub of bool": lambda flags, x: torch.rsub(x, flags),
    "rsub from bool": lambda flags, x: torch.rsub(flags, x),
    "rsub of a number from bool": lambda flags, x: torch.rsub(flags, 1),
    "hardtanh of bool": lambda flags, x: torch.nn.functional.hardtanh(flags),
    "hardtanh of unsigned": lambda flags, x: torch.nn.functional.hardtanh(flags.to(torch.uint8)),
    "fill by a matrix": lambda flags, x: torch.fill(x, x),
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED.keys())
def test_refused_operands(program):
    flags, x = torch.ones(2, 3) > 0, torch.ones(2, 3)
    with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
        program(flags, x)
    with pytest.raises(theirs.type) as mine:
        pliant.compile(program)(flags, x)
    assert str(mine.value) == str(theirs.value)


def test_unsigned_limits_of_hardtanh():
    x = torch.arange(5, dtype=torch.uint8)
    compiled = pliant.compile(lambda x: torch.nn.functional.hardtanh(x, 1, 3))
    assert compiled(x).equal(torch.tensor([1, 1, 2, 3, 3], dtype=torch.uint8))
