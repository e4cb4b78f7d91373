"""Operands that eager refuses are refused while a program is captured, in eager's words."""

import pytest
import torch
import torch.nn.functional as F

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


WITHOUT_KERNEL = {
    "range of bool": lambda x: torch.arange(5, dtype=torch.bool, device=x.device),
    "range of numbers as bool": lambda x: torch.arange(0.0, 1.0, 0.3, dtype=torch.bool),
    "nearest of integers": lambda x: F.interpolate(x, scale_factor=2.0),
    "nearest of bool": lambda x: F.interpolate(x[..., None] > 0, scale_factor=2.0, mode="nearest-exact"),
    "pool of integers": lambda x: F.max_pool1d(x, 2),
    "pool of bytes": lambda x: torch.max_pool1d(x.to(torch.uint8), 2),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", WITHOUT_KERNEL.values(), ids=WITHOUT_KERNEL.keys())
def test_dtypes_that_eager_has_no_kernel_for(program, dynamic):
    x = torch.ones(1, 3, 4, dtype=torch.int64)
    for call in (program, pliant.compile(program, dynamic=dynamic)):
        with pytest.raises(NotImplementedError):
            call(x)


def test_dtypes_that_eager_has_kernels_for():
    def program(x):
        bytes_ = x.to(torch.uint8)
        return F.interpolate(bytes_, scale_factor=2.0), F.max_pool1d(x, 2, return_indices=True), F.max_pool2d(x, (1, 2))

    x = torch.arange(12).reshape(1, 3, 4)
    torch.testing.assert_close(pliant.compile(program)(x), program(x))


def test_unsigned_limits_of_hardtanh():
    x = torch.arange(5, dtype=torch.uint8)
    compiled = pliant.compile(lambda x: torch.nn.functional.hardtanh(x, 1, 3))
    assert compiled(x).equal(torch.tensor([1, 1, 2, 3, 3], dtype=torch.uint8))
