"""Results lie as eager's, which ask for channels last by strides, those of sizes 1 too, and which make some results in rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from tests.graph.eager_check import EagerCheck
from torch.nn import functional as F

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
    "indexed": lambda t: t[:, torch.zeros(2, dtype=torch.long)],
    "indexed by a row": lambda t: t[:, torch.zeros(1, 2, dtype=torch.long)],
    "normalized": lambda t: F.batch_norm(t, torch.zeros(t.shape[1]), torch.ones(t.shape[1])),
    "normalized with a reserve": lambda t: torch.ops.aten._batch_norm_with_update(
        t, None, None, torch.zeros(t.shape[1]), torch.ones(t.shape[1]), 0.1, 1e-5
    ),
    "members": lambda t: torch.isin(t, torch.zeros(3)),
    "members of a number": lambda t: torch.isin(t, 0.0),
    "subtracted": lambda t: torch.rsub(t, t.contiguous()),
    "slopes of distances": lambda t: torch.ops.aten.mse_loss_backward(torch.ones(()), t, t.contiguous(), 1),
    "slopes of bounded distances": lambda t: torch.ops.aten.huber_loss_backward(torch.ones(()), t, t + 1, 1, 1.0),
    "entropy": lambda t: F.binary_cross_entropy(t.sigmoid(), t.contiguous().sigmoid(), reduction="none"),
}
IMAGES: dict[str, Callable[[torch.Tensor], object]] = {
    "blocks": lambda t: F.unfold(t, 2, padding=1),
    "channels in another order": lambda t: F.channel_shuffle(t, 2),
    "pixels of channels": lambda t: F.pixel_shuffle(torch.cat([t, t], 1), 2),
    "channels of pixels": lambda t: F.pixel_unshuffle(torch.cat([torch.cat([t, t], 2)] * 2, 3), 2),
    "integer channels in another order": lambda t: F.channel_shuffle(t.long(), 2),
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


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("operator", IMAGES)
def test_what_images_are_made_to_lies_as_eagers(operator: str, symbolic: bool) -> None:
    check = EagerCheck(symbolic)
    with check:
        for order in itertools.permutations(range(4)):
            for size in ((2, 4, 3, 5), (3, 2, 1, 3), (1, 4, 2, 2)):
                IMAGES[operator](laid_out(size, order))
    assert not check.wrong and sum(check.right.values()) > 15


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolved_volumes_lie_in_rows_where_eagers_do(transposed: bool, dtype: torch.dtype, symbolic: bool) -> None:
    """Which kernel is called depends on the batch, the kernel's size, steps between its elements, and groups."""
    check = EagerCheck(symbolic)
    aten = torch.ops.aten
    kernels = [(1, 1, 1), (3, 1, 1), (2, 3, 3), (1, 4, 4)]
    with check:
        for batch, kernel, step, groups, extra in itertools.product((1, 2, 16), kernels, (1, 2), (1, 2, 4), (0, 1)):
            if extra and not (transposed and step == 2):
                continue
            x = laid_out((batch, 4, 5, 5, 5), (0, 2, 3, 4, 1)).to(dtype)
            weight = torch.randn(4, 4 // groups, *kernel, dtype=dtype)
            numbers = [step] * 3, [0] * 3, [1] * 3, transposed, [extra] * 3, groups
            out = aten.convolution(x, weight, None, *numbers)
            aten.convolution_backward(out, x, weight, None, *numbers, [True, True, False])
    assert not check.wrong and sum(check.right.values()) > 40


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_convolved_images_lie_as_eagers(dtype: torch.dtype, symbolic: bool) -> None:
    check = EagerCheck(symbolic)
    aten = torch.ops.aten
    with check:
        for transposed, groups, kernel, *last in itertools.product((False, True), (1, 4), (1, 3), (False, True), (False, True)):
            given = torch.randn(2, 4, 5, 5, dtype=dtype), torch.randn(4, 4 // groups, kernel, kernel, dtype=dtype)
            formats = [torch.channels_last if one else torch.contiguous_format for one in last]
            x, weight = (t.to(memory_format=f) for t, f in zip(given, formats))
            numbers = [1] * 2, [1] * 2, [1] * 2, transposed, [0] * 2, groups
            out = aten.convolution(x, weight, None, *numbers)
            aten.convolution_backward(out, x, weight, None, *numbers, [True, True, False])
    assert not check.wrong and sum(check.right.values()) > 60


PROMOTED: dict[str, Callable[..., object]] = {
    "mul": torch.mul,
    "lt": torch.lt,
    "pow": torch.pow,
    "where": lambda one, other: torch.where(one > 2, one, other),
    "addcmul": lambda one, other: torch.addcmul(one, other, other),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("operator", PROMOTED)
def test_operands_of_another_dtype_are_copied_before_they_are_asked_how_they_lie(operator: str, symbolic: bool) -> None:
    check = EagerCheck(symbolic)
    repeated = torch.ones(3, dtype=torch.int64)
    with check:
        for other in (torch.ones(3, 3).t(), torch.ones(3, 4)[:, :3].t(), torch.ones(3, 3, dtype=torch.int64).t()):
            for one in (repeated.expand(3, 3), repeated.expand(3, 3).t(), repeated[:1].expand(3, 3)):
                PROMOTED[operator](one, other)
    assert not check.wrong and sum(check.right.values()) >= 9
