"""Programs over tensors of changing sizes: `PROGRAMS[name]` is `(function, inputs(n, m))`.

In:     two sizes. Tensors of floats require gradients where the program is trained.
Out:    `check(name, train, dynamic, sizes)`: what is wrong, as lines: other results or errors than eager's, breaks,
        fallbacks, more compiles than `allowed`. By hand, over all sizes, modes and small sizes:
        `python -m tests.end_to_end.dynamic_programs [names]`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

import pliant

PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int, int], tuple[Any, ...]]]] = {}


def randn(*sizes: int) -> Tensor:
    return torch.randn(sizes)


def matrix(n: int, m: int) -> tuple[Tensor]:
    return (randn(n, m),)


def batch(n: int, m: int) -> tuple[Tensor]:
    return (randn(n, m, 8),)


def image(n: int, m: int) -> tuple[Tensor]:
    return (randn(2, 3, n + 4, m + 4),)


def two(n: int, m: int) -> tuple[Tensor, Tensor]:
    return randn(n, m), randn(n, m)


def tokens(n: int, m: int) -> tuple[Tensor, Tensor]:
    return torch.randint(0, 11, (n, m)), randn(11, 8)


def program(inputs: Callable[[int, int], tuple[Any, ...]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = function, inputs
        return function

    return add


# -- other sizes of the same elements ----------------------------------------------------------------------------------


@program(batch)
def heads(x):
    n, m, d = x.shape
    return x.view(n, m, 2, d // 2).transpose(1, 2).reshape(n * 2, m, -1) * 2


@program(batch)
def merged_and_split(x):
    flat = x.flatten(0, 1)
    return flat.view(*x.shape[:2], -1).sin() + flat.unflatten(0, x.shape[:2])


@program(matrix)
def chunks(x):
    a, b = torch.cat([x, x], -1).chunk(2, -1)
    return a * b.sigmoid()


@program(matrix)
def split_in_sizes(x):
    n = x.size(0)
    first, rest = x.split([n // 2, n - n // 2])
    return first.sum() + rest.cos().sum(0)


@program(two)
def stacked(x, y):
    return torch.stack([x, y, x * y], 1).flatten(1)


@program(two)
def joined_with_padding(x, y):
    both = torch.cat([x, F.pad(y, (0, 0, 1, 2))])
    return both.roll(1, 0) * both.flip(0)


@program(matrix)
def rolled(x):
    return x.roll(x.size(0) // 2, 0) - x.roll((1, -1), (0, 1))


@program(image)
def windows(x):
    return x.unfold(2, 3, 1).unfold(3, 2, 2).mean((-1, -2))


@program(image)
def columns(x):
    return F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1)


@program(image)
def upsampled(x):
    return F.interpolate(x, scale_factor=2.0, mode="nearest") + 1


@program(image)
def resized(x):
    return F.interpolate(x, size=(x.size(2) * 2 - 1, x.size(3) + 3), mode="bilinear", align_corners=False)


@program(image)
def patches(x):
    b, c, h, w = x.shape
    h, w = h // 2 * 2, w // 2 * 2
    x = x[:, :, :h, :w].reshape(b, c, h // 2, 2, w // 2, 2)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * 4).mean(1)


@program(image)
def reflected(x):
    return F.pad(x, (1, 2, 3, 1), mode="reflect") + F.pad(x, (1, 2, 3, 1), mode="replicate")


@program(image)
def pooled(x):
    return F.adaptive_avg_pool2d(x, 2) + F.max_pool2d(x, 3, 2, 1).amax((-1, -2), keepdim=True)


@program(image)
def convolved(x):
    w = torch.ones(4, 3, 3, 3)
    return F.conv2d(x, w, stride=2, padding=1).relu().flatten(1).sum(1)


# -- products ----------------------------------------------------------------------------------------------------------


@program(batch)
def attention_scores(x):
    return torch.einsum("bid,bjd->bij", x, x).softmax(-1) @ x


@program(batch)
def causal_attention(x):
    m = x.size(1)
    mask = torch.ones(m, m, dtype=torch.bool).tril()
    scores = (x @ x.mT / math.sqrt(x.size(-1))).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ x


@program(batch)
def fused_attention(x):
    q = x.unflatten(-1, (2, 4)).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(-2)


@program(batch)
def relative_positions(x):
    m = x.size(1)
    distance = torch.arange(m)[None] - torch.arange(m)[:, None]
    bias = distance.clamp(-4, 4).float() / 4
    return (x @ x.mT + bias).softmax(-1).sum(1)


@program(batch)
def padding_mask(x):
    lengths = torch.arange(x.size(0)) % x.size(1) + 1
    mask = torch.arange(x.size(1))[None] < lengths[:, None]
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


@program(two)
def outer(x, y):
    return torch.einsum("ni,nj->nij", x, y).mean((1, 2)) + (x[:, :, None] * y[:, None]).amax((1, 2))


@program(two)
def gram(x, y):
    return (x @ y.T).tanh() @ y


@program(batch)
def bilinear(x):
    w = torch.ones(8, 8)
    return torch.einsum("bid,de,bje->bij", x, w, x).logsumexp(-1)


# -- along a dimension -------------------------------------------------------------------------------------------------


@program(matrix)
def sums_so_far(x):
    return x.cumsum(0) / torch.arange(1, x.size(0) + 1)[:, None]


@program(matrix)
def highest_first(x):
    values, places = x.sort(1, descending=True)
    return values * torch.arange(x.size(1)), places


@program(matrix)
def best(x):
    k = max(x.size(1) // 2, 1)
    values, places = x.topk(k, 1)
    return x.gather(1, places) + values


@program(matrix)
def ranks(x):
    return x.argsort(1).argsort(1).float() / x.size(1) + x


@program(matrix)
def normalized(x):
    return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-3).sqrt()


@program(batch)
def layer_normed(x):
    return F.layer_norm(x, x.shape[1:]).mean(0)


@program(matrix)
def diagonals(x):
    n = min(x.size(0), x.size(1))
    return x.diagonal().sum() + torch.diag_embed(x[:n, :n]).sum(-1)


@program(matrix)
def triangles(x):
    return x.tril() + x.triu(1) * 2 + torch.eye(x.size(0), x.size(1))


@program(matrix)
def differences(x):
    return x.diff(dim=1, prepend=x[:, :1]).abs().sum(1)


# -- indices -----------------------------------------------------------------------------------------------------------


@program(tokens)
def embedded(ids, table):
    positions = torch.arange(ids.size(1)).expand_as(ids)
    return F.embedding(ids, table) + positions[..., None]


@program(tokens)
def bags(ids, table):
    return F.embedding_bag(ids, table, mode="mean")


@program(tokens)
def bags_with_offsets(ids, table):
    offsets = torch.arange(0, ids.numel(), ids.size(1))
    return F.embedding_bag(ids.flatten(), table, offsets, mode="sum")


@program(tokens)
def one_hots(ids, table):
    return F.one_hot(ids, table.size(0)).float() @ table


@program(tokens)
def shifted_labels(ids, table):
    logits = F.embedding(ids, table) @ table.T
    return F.cross_entropy(logits.flatten(0, 1), ids.roll(-1, 1).flatten(), reduction="sum")


@program(tokens)
def position_ids(ids, table):
    mask = ids.ne(0).int()
    return F.embedding((mask.cumsum(1) * mask).clamp(max=10).long(), table)


@program(matrix)
def repeated(x):
    return x.repeat_interleave(2, 0) + x.repeat(2, 1)


@program(matrix)
def tiled(x):
    return x.tile((2, 3))[::2] + x[:, :1].expand(-1, x.size(1) * 3)


@program(matrix)
def scattered(x):
    where = torch.arange(x.size(0)) % 3
    return torch.zeros(3, x.size(1)).index_add(0, where, x) + x.new_zeros(3, x.size(1)).scatter_add(
        0, where[:, None].expand(-1, x.size(1)), x
    )


@program(matrix)
def every_other(x):
    return x[::2].sum(0) + x[1::3].sum(0) + x[:, ::2].sum()


@program(matrix)
def negative_slices(x):
    return x[-3:].sum(0) + x[:-1].cos().sum(0) + x[..., -1].sum()


@program(matrix)
def indexed(x):
    i = torch.arange(x.size(0) - 1, -1, -1)
    return x[i] + x[i, :] * x[:, torch.arange(x.size(1)).flip(0)]


@program(matrix)
def written_in_place(x):
    out = torch.zeros(x.size(0) + 1, x.size(1))
    out[1:] = x
    out[0] += x.sum(0)
    return out


@program(matrix)
def meshed(x):
    a, b = torch.meshgrid(torch.arange(x.size(0)), torch.arange(x.size(1)), indexing="ij")
    return x * (a - b)


@program(image)
def coordinates(x):
    h, w = x.shape[-2:]
    rows, columns = torch.linspace(0, h - 1, h, dtype=torch.float64), torch.linspace(-1, 1, w)
    sizes = torch.tensor([h, w])
    return x * (rows[:, None] * columns).float() / sizes.prod(), torch.tensor(w) // 2


@program(lambda n, m: (*tokens(n, m), n + 3))
def ignored_class(ids, table, which):
    return F.cross_entropy(table[ids.flatten()], ids.flatten() % 8, ignore_index=which % 8)


@program(matrix)
def bucketed(x):
    edges = torch.linspace(-1, 1, 5)
    return torch.bucketize(x, edges).float() + x


# -- numbers that data decides -----------------------------------------------------------------------------------------


@program(matrix)
def positive_ones(x):
    return x[x > 0].exp().sum() + (x > 0).sum()


@program(matrix)
def rows_kept(x):
    return x[x.sum(1) > 0] * 2


@program(matrix)
def places_of_zeros(x):
    rows = (x.round() == 0).nonzero()
    return rows.float().sum(0) + x.sum()


@program(lambda n, m: (randn(n, m), torch.randint(0, 4, (n,))))
def ragged(x, counts):
    return x.repeat_interleave(counts, 0).sum(0)


@program(lambda n, m: (randn(n, m), torch.randint(0, 4, (n,))))
def packed(x, lengths):
    mask = torch.arange(x.size(1))[None] < lengths[:, None]
    flat = x.masked_select(mask)
    return torch.zeros_like(x).masked_scatter(mask, flat * 2)


# -- nests, numbers, caches --------------------------------------------------------------------------------------------


@program(lambda n, m: ({"a": randn(n, m), "rest": [randn(m), (randn(n, 1), n)]},))
def nested(tree):
    b, (c, k) = tree["rest"]
    return {"sum": tree["a"] + b * c, "list": [tree["a"].sum(0) / (k + 1), (c, k * 2)]}


@program(lambda n, m: (randn(2, n, 8), randn(2, m, 8)))
def cache(past, new):
    keys = torch.cat([past, new], 1)
    mask = torch.arange(keys.size(1))[None] <= torch.arange(past.size(1), keys.size(1))[:, None]
    return (new @ keys.mT).masked_fill(~mask, -torch.inf).softmax(-1) @ keys, keys


@program(lambda n, m: (randn(n, m), n, m / 2))
def with_numbers(x, n, f):
    return x * f + n // 2 - x.size(0) / max(n, 1)


@program(batch)
def rotary(x):
    m, d = x.shape[1:]
    angles = torch.outer(torch.arange(m).float(), 10.0 ** -torch.arange(0, d, 2).div(d))
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


@program(batch)
def two_branches(x):
    return x.mean(1) if x.size(1) > x.size(2) else x.sum(1)


@program(matrix)
def padded_to_multiple(x):
    missing = -x.size(1) % 4
    y = F.pad(x, (0, missing))
    return y.view(x.size(0), -1, 4).sum(-1)


@program(matrix)
def blocks(x):
    m = x.size(1)
    return torch.cat([part * i for i, part in enumerate(x.tensor_split(3, 1))], 1) + m


@program(two)
def compared(x, y):
    return torch.where(x > y, x, y).sum(), torch.maximum(x, y).mean(1), (x - y).abs().amax(1)


@program(matrix)
def distances(x):
    return (x[:, None] - x[None]).square().sum(-1).add(1e-3).sqrt()


@program(batch)
def recurrence(x):
    state = x.new_zeros(x.size(0), x.size(2))
    for step in (x[:, 0], x[:, -1], x.mean(1)):
        state = torch.tanh(state + step)
    return state


@program(image)
def channels_last(x):
    y = x.to(memory_format=torch.channels_last)
    return F.conv2d(y, torch.ones(2, 3, 1, 1)).permute(0, 2, 3, 1).reshape(-1, 2)


@program(matrix)
def as_strided_windows(x):
    x = x.contiguous()
    return x.flatten().as_strided((x.size(0), x.size(1)), (x.size(1), 1)) * 2


@program(matrix)
def movable(x):
    return x.movedim(0, 1).unsqueeze(1).expand(-1, 3, -1).squeeze().contiguous().sum(0)


@program(matrix)
def running_maximum(x):
    values, places = x.cummax(1)
    return values + places


@program(matrix)
def medians(x):
    return x.median(1).values + x.kthvalue((x.size(1) + 1) // 2, 1).values


@program(matrix)
def histogram(x):
    return torch.bincount(x.flatten().abs().long().clamp(max=3), minlength=4) + x.sum()


# -- checking ----------------------------------------------------------------------------------------------------------

SIZES = ((5, 6), (6, 7), (8, 6), (7, 9))
SMALL = ((1, 6), (5, 1), (0, 6))
# Programs that decide something by sizes: whether a slice is all of a tensor, which side of a branch.
MORE = {"patches": 2, "two_branches": 1}


def outcome(function: Callable[..., Any], args: tuple[Any, ...], train: bool) -> tuple[list[Any], list[Any]]:
    """Results, and gradients of the arguments."""

    def leaf(t: Tensor) -> Tensor:
        return t.clone().requires_grad_() if train and t.is_floating_point() else t.clone()

    args = tree_map_only(Tensor, leaf, args)
    results = tree_leaves(function(*args))
    roots = [t for t in results if isinstance(t, Tensor) and t.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.arange(t.numel()).view(t.shape).cos() for t in roots])
    gradients = [t.grad for t in tree_leaves(args) if isinstance(t, Tensor)]
    return [t.detach() if isinstance(t, Tensor) else t for t in results], gradients


def attempt(function: Callable[..., Any], args: tuple[Any, ...], train: bool) -> Any:
    try:
        return outcome(function, args, train)
    except Exception as error:
        return error


def check(name: str, train: bool, dynamic: bool | None, sizes: Any) -> list[str]:
    function, inputs = PROGRAMS[name]
    pliant.reset()
    compiled, wrong = pliant.compile(function, dynamic=dynamic), []
    for n, m in sizes:
        torch.manual_seed(0)
        args = inputs(n, m)
        wanted, found = attempt(function, args, train), attempt(compiled, args, train)
        if isinstance(wanted, Exception) or isinstance(found, Exception):
            if type(wanted) is not type(found):
                wrong.append(f"{(n, m)}: {found!r} instead of {wanted!r}")
            continue
        try:
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)
        except AssertionError as error:
            wrong.append(f"{(n, m)}: {error}")
    stats = pliant.stats()
    allowed = (1 if dynamic else 2) + MORE.get(name, 0) + sum(0 in s or 1 in s for s in sizes)
    if stats["graphs"] > allowed:
        wrong.append(f"{stats['graphs']} graphs, {allowed} are allowed")
    return wrong + [f"{key}: {stats[key]}" for key in ("graph_breaks", "fallback_reasons") if stats[key]]


if __name__ == "__main__":
    for one in sys.argv[1:] or PROGRAMS:
        for mode in [(train, dynamic) for train in (False, True) for dynamic in (None, True)]:
            for line in check(one, *mode, (*SIZES, *SMALL)):
                print(one, mode, line)
