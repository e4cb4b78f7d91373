"""Programs whose numbers and sizes depend on tensors' elements, with inputs by seed.

`PROGRAMS` maps a name to (program, make inputs, graph breaks that are allowed). Floating inputs require gradients where
the program is differentiable (`gradients`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

PROGRAMS: dict[str, Case] = {}


@dataclass(frozen=True)
class Case:
    program: Callable[..., Any]
    inputs: Callable[[torch.Generator], tuple[Any, ...]]
    breaks: int
    gradients: bool


def case(inputs: Callable[[torch.Generator], tuple[Any, ...]], *, breaks: int = 0, gradients: bool = False):
    def add(program: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[program.__name__] = Case(program, inputs, breaks, gradients)
        return program

    return add


def floats(g: torch.Generator, *size: int) -> torch.Tensor:
    return torch.randn(*size, generator=g)


def ints(g: torch.Generator, low: int, high: int, *size: int) -> torch.Tensor:
    return torch.randint(low, high, size, generator=g)


@case(lambda g: (floats(g, 6, 4),), gradients=True)
def masked_rows(x):
    kept = x[x.sum(-1) > 0]
    return kept * 2, (kept**2).sum()


@case(lambda g: (floats(g, 5, 7),), gradients=True)
def masked_elements(x):
    return torch.masked_select(x, x > 0.1).exp().sum() + x.mean()


@case(lambda g: (floats(g, 5, 3), ints(g, 0, 3, 5)), gradients=True)
def rows_written_at_positions(x, classes):
    """A place counts the rows that are chosen, the mask chooses as many of the classes."""
    mask = x.sum(-1) > 0
    rows = mask.nonzero().squeeze(-1)
    values = torch.log_softmax(x.index_select(0, rows), 1).gather(1, classes[mask].unsqueeze(1))
    return x.new_zeros(5).index_copy(0, rows, values.squeeze(1)) + x.new_ones(5).index_add(0, rows, values.sin()[:, 0])


@case(lambda g: (floats(g, 9, 3, 5), ints(g, 1, 5, 3, 4), ints(g, 6, 10, 3), ints(g, 1, 4, 3)), gradients=True)
def aligned_sequences(x, targets, lengths, target_lengths):
    return F.ctc_loss(x.log_softmax(-1), targets, lengths, target_lengths, zero_infinity=True) * 2


@case(lambda g: (floats(g, 8),))
def positions(x):
    return (x > 0).nonzero(), torch.where(x > 0)[0] + 1


@case(lambda g: (floats(g, 8),), gradients=True)
def filtered_sum(x):
    where = (x > 0).nonzero().squeeze(-1)
    return x[where].cumsum(0)


@case(lambda g: (floats(g, 10, 3), ints(g, 1, 10, 4)), gradients=True)
def longest_prefix(x, lengths):
    n = lengths.max().item()
    torch._check(n >= 0)
    torch._check(n <= x.size(0))
    return x[:n].sum(0)


@case(lambda g: (floats(g, 10, 3), ints(g, 1, 10, 4)), gradients=True)
def prefix_of_a_size(x, lengths):
    n = lengths.max().item()
    torch._check_is_size(n, max=10)
    torch.sym_constrain_range(n, min=0, max=10)
    return x.new_ones(n, 3).cumsum(0) + x.sum(0)


@case(lambda g: (floats(g, 3, 6, 4), ints(g, 1, 7, 3)), gradients=True)
def pack_ragged(x, lengths):
    """[batch, time, features] -> [sum of lengths, features]"""
    mask = torch.arange(x.size(1))[None, :] < lengths[:, None]
    packed = x[mask]
    return torch.tanh(packed @ packed.new_ones(4, 5))


@case(lambda g: (floats(g, 3, 6, 4), ints(g, 1, 7, 3)), gradients=True)
def pack_and_pad_again(x, lengths):
    mask = torch.arange(x.size(1))[None, :] < lengths[:, None]
    packed = x[mask] * 2
    out = torch.zeros_like(x)
    out[mask] = packed
    return out


def _ragged(g):
    lengths = ints(g, 1, 5, 4)
    return floats(g, int(lengths.sum()), 3), lengths


@case(_ragged, gradients=True)
def split_by_lengths(x, lengths):
    return [part.mean(0) for part in torch.split(x, lengths.tolist())]


@case(_ragged, gradients=True)
def segment_means(x, lengths):
    owner = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
    sums = torch.zeros(lengths.numel(), x.size(1)).index_add(0, owner, x)
    return sums / lengths[:, None]


@case(lambda g: (floats(g, 4, 3), ints(g, 0, 4, 4)), gradients=True)
def repeat_rows(x, counts):
    return torch.repeat_interleave(x, counts, dim=0).sin()


@case(lambda g: (ints(g, 0, 5, 12),))
def unique_counts(x):
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return values * 2, inverse, counts.float() / counts.sum()


@case(lambda g: (ints(g, 0, 9, 12),))
def histogram(x):
    return torch.bincount(x, minlength=3).float().softmax(0)


@case(lambda g: (ints(g, 1, 9, 3),))
def range_of_data(x):
    n = x.max().item()
    return torch.arange(n) * 2, torch.ones(n, 3), torch.zeros(int(x.sum()))


@case(lambda g: (floats(g, 2, 5), floats(g, 2, 5)), gradients=True)
def scale_by_number(x, y):
    return x * y.abs().max().item() + y.sum().item()


@case(lambda g: (floats(g, 3, 8),))
def greedy_tokens(logits):
    """What a sampling loop reads in each step."""
    picked = []
    for row in logits:
        picked.append(row.argmax().item())
    return picked


@case(lambda g: (floats(g, 9), floats(g, 9, 4)), gradients=True)
def take_best(scores, boxes):
    best = scores.argmax().item()
    return boxes[best] * scores[best]


@case(lambda g: (floats(g, 6, 2).abs(), floats(g, 6)))
def suppress(boxes, scores):
    """Non-maximum suppression of intervals: keeps those that no better one overlaps."""
    order = scores.argsort(descending=True)
    low, high = boxes[order].min(-1).values, boxes[order].max(-1).values
    overlaps = (torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low)).clamp(min=0)
    worse = (overlaps > 0.3).triu(1).any(0)
    return order[~worse], boxes[order[~worse]]


@case(lambda g: (floats(g, 3, 11), floats(g, 3)))
def beam_step(logits, scores):
    """Of all continuations of three beams the best three, less those that ended."""
    total = scores[:, None] + logits.log_softmax(-1)
    best, flat = total.view(-1).topk(3)
    beam, token = flat // logits.size(-1), flat % logits.size(-1)
    alive = token != 0
    return best[alive], beam[alive], token[alive]


@case(lambda g: (floats(g, 7, 4), floats(g, 4, 4)), gradients=True)
def experts(x, w):
    """Each row goes to the expert that wants it most."""
    choice = (x @ w).argmax(-1)
    out = torch.zeros_like(x)
    for expert in range(4):
        rows = (choice == expert).nonzero().squeeze(1)
        out = out.index_add(0, rows, x[rows] * w[expert])
    return out


@case(lambda g: (floats(g, 6, 5), ints(g, 0, 5, 6)), gradients=True)
def loss_of_valid_targets(logits, target):
    valid = target != 0
    return F.cross_entropy(logits[valid], target[valid], reduction="sum")


@case(lambda g: (floats(g, 8),), gradients=True)
def clipped_by_norm(x):
    norm = x.norm().item()
    return x * min(1.0, 0.5 / (norm + 1e-6)), norm


@case(lambda g: (floats(g, 5),), breaks=1)
def branch_on_number(x):
    if x.sum().item() > 0:
        return x + 1
    return x - 1


@case(lambda g: (floats(g, 5).abs() + 0.1,), breaks=8)
def loop_until(x):
    steps = 0
    while x.sum().item() < 20:
        x = x * 3
        steps += 1
    return x, steps


@case(lambda g: (floats(g, 5),))
def raises_on_bad_data(x):
    if not torch.isfinite(x).all():
        raise ValueError("not finite")
    assert (x < 100).all(), "too large"
    return x.sqrt().nan_to_num()


@case(lambda g: (floats(g, 6, 3),), gradients=True)
def one_mask_for_two(x):
    keep = x[:, 0] > 0
    a, b = x[keep], (x * 2)[keep]
    return a + b


@case(lambda g: (floats(g, 6, 3), ints(g, 0, 6, 2)), gradients=True)
def number_as_index(x, at):
    i, j = at.tolist()
    return x[i] - x[j]


@case(lambda g: (floats(g, 2, 12), ints(g, 1, 5, 1)), gradients=True)
def crop(x, start):
    k = start.item()
    torch._check(k >= 0)
    torch._check(k + 4 <= x.size(1))
    return x.narrow(1, k, 4).exp()


@case(lambda g: (floats(g, 10),))
def cut_at_the_end_marker(x):
    end = (x > 1).int().argmax().item()
    return x[:end], x[end:].flip(0)


@case(lambda g: (floats(g, 4, 6), floats(g, 6, 6)), gradients=True)
def layers_on_kept_rows(x, w):
    kept = x[x[:, 0] > -0.5]
    hidden = F.layer_norm(F.gelu(kept @ w), (6,))
    return hidden.mean(), hidden.size(0)


@case(lambda g: (floats(g, 6),))
def in_place_at_mask(x):
    y = x.clone()
    y[y < 0] = 0
    y[y > 1] += 1
    return y


@case(lambda g: (ints(g, 0, 3, 9), ints(g, 0, 2, 6, 2)))
def runs_and_rows(x, rows):
    values, counts = torch.unique_consecutive(x, return_counts=True)
    return values.repeat_interleave(counts), torch.unique(rows, dim=0, return_inverse=True)


@case(lambda g: (ints(g, 0, 5, 6), floats(g, 6, 2)))
def classes_of_data(x, y):
    hot = F.one_hot(x)
    return hot, hot.T.float() @ y, torch.zeros(x.max().item() + 1, 2).index_add(0, x, y)


@case(lambda g: (floats(g, 6, 4), floats(g, 6)), gradients=True)
def element_as_index(x, scores):
    best = scores.argmax()
    y = x * 2
    y[best] = y[best] + 1
    return y, x[best, 1:], x[1, scores[:4].argmin()]


@case(lambda g: (floats(g, 6),))
def questions(x):
    same, close = torch.equal(x, x.clone()), torch.allclose(x, x + 1)
    positive = bool((x > 0).any())
    return same and not close if False else (same, close, positive, x * positive)


@case(lambda g: (floats(g, 6).abs() + 1,))
def mathematics(x):
    s = x.sum().item()
    return (
        math.sqrt(s),
        math.log(s) * x,
        math.floor(s),
        round(s),
        s // 2,
        s % 2,
        int(s) + 1,
        x.new_full((2,), math.exp(-s)),
    )


@case(lambda g: (floats(g, 8, 4),), gradients=True)
def normalize_kept_rows(x):
    kept = x[x[:, 0] > -1]
    return F.batch_norm(kept, torch.zeros(4), torch.ones(4), training=True), kept.std(0), kept.T @ kept


@case(lambda g: (floats(g, 9), ints(g, 1, 4, 2)), gradients=True)
def cut_and_store(x, cuts):
    a, b = cuts.tolist()
    y = x.clone()
    y[a : a + b] = 1
    y[b:].mul_(2)
    return y, x[:-a], x[a : a + b].expand(2, -1), x.roll(a), x[:a].repeat(b)
