"""Strides of elementwise results whose sizes are one or none, where eager's choice is visible only there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pliant.graph.fake_tensor import FakeMode

TENSORS = {
    "none": lambda: torch.rand(0, 4).t(),
    "one": lambda: torch.rand(1, 4).t(),
    "gaps": lambda: torch.rand(40).as_strided((4, 1), (1, 7)),
    "three": lambda: torch.rand(3, 2, 1).permute(1, 2, 0),
    "permuted": lambda: torch.rand(2, 3).t(),
}
OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "times number": lambda t: t * 3,
    "number minus": lambda t: 3 - t,
    "comparison": lambda t: t == 1,
    "times scalar": lambda t: t * torch.tensor(2.0),
    "with itself": lambda t: t + t,
    "one operand": torch.sin,
    "power": lambda t: t**2,
    "power of number": lambda t: 2**t,
    "copy": torch.clone,
    "masked": lambda t: t.masked_fill(t > 0, 1.0),
    "hardtanh": torch.nn.functional.hardtanh,
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("tensor", TENSORS)
def test_strides_are_those_of_eager(tensor: str, operator: str) -> None:
    real, mode = TENSORS[tensor](), FakeMode()
    fake = mode.from_real(real)
    with mode:
        found = OPERATORS[operator](fake)
    assert found.stride() == OPERATORS[operator](real).stride()
