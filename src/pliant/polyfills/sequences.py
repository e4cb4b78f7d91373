"""Packed sequences, of lengths that are known, or by masks that say what belongs to a sequence."""

from __future__ import annotations

from typing import Any

import torch


def packed_by_mask(padded: Any, lengths: Any, batch_first: bool) -> Any:
    steps = padded.transpose(0, 1) if batch_first else padded
    fits = (lengths[1:] <= lengths[:-1]).all() & (lengths[-1] > 0) & (lengths[0] <= steps.size(0))
    is_there = torch.arange(steps.size(0))[:, None] < lengths
    return fits.item(), steps[is_there.to(padded.device)], is_there.sum(1)[: lengths[0].item()]


def packed(padded: Any, lengths: list[int], batch_first: bool) -> Any:
    steps = padded.transpose(0, 1) if batch_first else padded
    sizes = [sum([n > step for n in lengths]) for step in range(lengths[0])]
    return torch.cat([steps[step, :size] for step, size in enumerate(sizes)]), torch.tensor(sizes)


def padded_by_mask(data: Any, sizes: Any, batch_first: bool, value: float, total: int) -> Any:
    many = sizes[0].item()
    lengths = (torch.arange(many) < sizes[:, None]).sum(0)
    is_there = torch.arange(total)[:, None] < lengths
    made = data.new_full((total, many, *data.shape[1:]), value)
    made[is_there.to(data.device)] = data
    return made.transpose(0, 1) if batch_first else made, lengths


def padded(data: Any, sizes: list[int], batch_first: bool, value: float, total: int) -> Any:
    rest = [0, 0] * (data.dim() - 1)
    steps = [
        torch.nn.functional.pad(step, [*rest, 0, sizes[0] - size], value=value)
        for step, size in zip(data.split(sizes), sizes)
    ]
    steps += [torch.full_like(steps[0], value)] * (total - len(steps))
    made = torch.stack(steps)
    lengths = torch.tensor([sum([size > i for size in sizes]) for i in range(sizes[0])])
    return made.transpose(0, 1) if batch_first else made, lengths
