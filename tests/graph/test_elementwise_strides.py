"""Strides of elementwise results whose sizes are one or none, where eager's choice is visible only there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pliant.graph.fake_mode import FakeMode

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
    "angle": torch.angle,
    "angle of complex": lambda t: torch.angle(t * 1j),
    "log of sigmoid": torch.nn.functional.logsigmoid,
    "hardtanh": torch.nn.functional.hardtanh,
    "numbers for others": torch.nan_to_num,
    "radians": torch.deg2rad,
    "degrees": torch.rad2deg,
    "mantissa": lambda t: torch.frexp(t)[0],
    "exponent": lambda t: torch.frexp(t)[1],
    "infinite": torch.isinf,
    "infinite integers": lambda t: torch.isinf(t.long()),
    "shift by a number": lambda t: t.long() << 2,
    "polynomial of a number": lambda t: torch.special.hermite_polynomial_h(2.0, t),
    "polynomial of a degree": lambda t: torch.special.hermite_polynomial_h(t, 2),
    "number for the second": lambda t: torch.special.zeta(t, 2.0),
    "logarithm of a number": lambda t: torch.xlogy(t, 2.0),
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("tensor", TENSORS)
def test_strides_are_those_of_eager(tensor: str, operator: str) -> None:
    real, mode = TENSORS[tensor](), FakeMode()
    fake = mode.from_real(real)
    with mode:
        found = OPERATORS[operator](fake)
    assert found.stride() == OPERATORS[operator](real).stride()


@pytest.mark.parametrize("compared", TENSORS)
@pytest.mark.parametrize("given", ["as it lies", "row-major"])
def test_gradients_of_thresholds(compared: str, given: str) -> None:
    real, mode = TENSORS[compared](), FakeMode()
    pairs = [(real.contiguous(), real), (real, real.contiguous())]
    backward = torch.ops.aten.threshold_backward
    for grad, x in pairs if given == "row-major" else [(real, real)]:
        with mode:
            found = backward(mode.from_real(grad), mode.from_real(x), 0)
        assert found.stride() == backward(grad, x, 0).stride()


OUTER = {
    "transposed": lambda: torch.rand(8, 3).t(),
    "row-major": lambda: torch.rand(3, 8),
    "gaps": lambda: torch.rand(6, 8)[::2],
    "transposed gaps": lambda: torch.rand(16, 3).t()[:, ::2],
    "one row": lambda: torch.rand(8),
    "expanded": lambda: torch.rand(8).expand(3, 8),
    "none": lambda: torch.rand(8, 0).t(),
}


@pytest.mark.parametrize("bias", OUTER)
@pytest.mark.parametrize("step", [1, 2])
def test_sums_with_outer_products(bias: str, step: int) -> None:
    real, mode = OUTER[bias](), FakeMode()
    rows = real.shape[0] if real.dim() == 2 else 3
    given = (real, torch.rand(rows * step)[::step], torch.rand(8 * step)[::step])
    with mode:
        found = torch.addr(*map(mode.from_real, given))
    assert found.stride() == torch.addr(*given).stride()
