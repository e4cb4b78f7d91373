"""Results of joining and padding lie as eager's, which ask for channels last by strides, those of sizes 1 too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.graph.eager_check import EagerCheck

OPERATORS: dict[str, Callable[[torch.Tensor], object]] = {
    "pad": lambda t: torch.ops.aten.constant_pad_nd(t, [1, 2, 0, 1]),
    "cat of channels": lambda t: torch.cat([t, t], 1),
    "cat of two layouts": lambda t: torch.cat([t, t.contiguous()]),
    "stack before": lambda t: torch.stack([t, t]),
    "stack inside": lambda t: torch.stack([t, t], 1),
    "stack behind": lambda t: torch.stack([t, t, t], -1),
    "roll": lambda t: t.roll(1, -1),
    "roll by nothing": lambda t: t.roll(0, 1),
    "roll of two": lambda t: t.roll((1, -1), (2, 1)),
    "roll of all": lambda t: t.roll(2),
}


def laid_out(size: tuple[int, ...], order: tuple[int, ...]) -> torch.Tensor:
    """Dense, the dimensions from the outermost inwards in this order."""
    inverse = [order.index(d) for d in range(len(size))]
    return torch.randn([size[d] for d in order]).permute(inverse)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("operator", OPERATORS)
def test_results_lie_as_eagers(operator: str, symbolic: bool) -> None:
    orders = {3: [(0, 2, 1)], 4: [(0, 2, 3, 1), (2, 0, 3, 1), (0, 3, 2, 1)], 5: [(0, 2, 3, 4, 1), (2, 0, 3, 4, 1)]}
    sizes = [(3, 2, 2), (2, 3, 2, 2), (2, 3, 1, 2), (1, 3, 2, 1), (2, 1, 2, 2), (2, 3, 1, 2, 2), (1, 2, 2, 3, 2)]
    check = EagerCheck(symbolic)
    with check, torch.no_grad():
        for size in sizes:
            for order in orders[len(size)]:
                OPERATORS[operator](laid_out(size, order))
    assert not check.wrong and sum(check.right.values()) > 15
