"""What optimizers, averages of models and scalers of gradients do, without asking a tensor for its value."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import get_swa_avg_fn, get_swa_multi_avg_fn

from pliant.torch_adapter import devices_of_foreach


def updated(self: Any, model: Any) -> None:
    """Interpreted in place of the method, where the averages are PyTorch's own: others are called where eager calls them."""
    several = [
        list(itertools.chain(one.parameters(), one.buffers()) if self.use_buffers else one.parameters())
        for one in (self.module if self.use_buffers else self, model)
    ]
    pairs = [(own.detach(), given.detach().to(own.device)) for own, given in zip(*several)]
    is_first = self.n_averaged == 0
    kinds: dict[Any, list[Any]] = {}
    for own, given in pairs:
        kinds.setdefault((own.device, own.dtype), []).append((own, given))
    for (device, _), some in kinds.items():
        _average(self, [own for own, _ in some], [given for _, given in some], self.n_averaged.to(device))
    for own, given in pairs:
        own.copy_(torch.where(is_first, given, own))
    if not self.use_buffers:
        for own, given in zip(self.module.buffers(), model.buffers(), strict=True):
            own.detach().copy_(given.detach().to(own.device))
    self.n_averaged += 1


def _average(self: Any, own: list[Any], given: list[Any], count: Any) -> None:
    if self.multi_avg_fn:
        self.multi_avg_fn(own, given, count)
    elif self.avg_fn is None and own[0].device.type in devices_of_foreach():
        get_swa_multi_avg_fn()(own, given, count)  # type: ignore[no-untyped-call]
    else:
        average = self.avg_fn or get_swa_avg_fn()  # type: ignore[no-untyped-call]
        for one, other in zip(own, given):
            one.copy_(average(one, other, count))


def unscale(gradients: list[Tensor], scale: Tensor, skipped: Tensor | None) -> None:
    """What fused kernels do with gradients that are scaled."""
    for one in gradients:
        value = one / scale
        one.copy_(value if skipped is None else torch.where(skipped, one, value))


def check_and_unscaled(gradients: list[Tensor], found: Tensor, inverse: Tensor) -> None:
    """Operators on single gradients, which fuse with what follows."""
    for one in gradients:
        found.copy_(torch.where(torch.isfinite(one).all(), found, 1.0))
        one.mul_(inverse)
