"""Further programs with constraints, as users write them: packed sequences, grids, patches, windows, strides, masks.

Rows as those of `programs.py`.
"""

import torch
from tests.exporting.programs import SIDE, Row, batch, both, flat, m, n, rows_of, seq, square, two
from torch.nn import functional as F

from pliant import AUTO, Dim

KERNEL = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
PATCHES = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
BIAS = torch.linspace(0, 1, 31)


def text(rows, length):
    return (torch.linspace(-1, 1, rows * length * 4).view(rows, length, 4).sin(),)


def signal(rows, length):
    return (torch.linspace(-1, 1, rows * 3 * length).view(rows, 3, length).sin(),)


def packed(x, lengths):
    """The last output of each sequence, by a mask of lengths."""
    inside = torch.arange(x.shape[1]) < lengths[:, None]
    last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, x.shape[2])
    return (x * inside[:, :, None]).gather(1, last).squeeze(1)


def unpadded(x, mask):
    """Tokens without padding, and back."""
    places = mask.reshape(-1).nonzero().squeeze(1)
    tokens = x.reshape(-1, x.shape[-1])[places] * 2
    return torch.zeros(x.shape[0] * x.shape[1], x.shape[2]).index_copy(0, places, tokens).view_as(x)


def grid(x, y):
    rows, columns = torch.meshgrid(torch.arange(x.shape[0]), torch.arange(y.shape[0]), indexing="ij")
    return torch.stack([rows, columns], -1).reshape(-1, 2) + 0 * x.sum().long()


def patches(x):
    return F.conv2d(x, PATCHES, stride=4).flatten(2).transpose(1, 2)


def patches_by_view(x):
    b, c, h, w = x.shape
    return x.reshape(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, 48)


def shifted_windows(x):
    """Windows of 4 by 4, moved by 2, and back."""
    b, h, w, c = x.shape
    moved = x.roll((-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
    back = (moved * 2).view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
    return back.roll((2, 2), (1, 2)) + x


def windows(a, b):
    return (torch.linspace(-1, 1, a * 16 * b * 3).view(a, 4, 4 * b, 3).sin(),)


def causal(x):
    scores = x @ x.mT + torch.full((x.shape[1], x.shape[1]), -1e9).triu(1)
    return scores.softmax(-1) @ x


def padded_attention(x, mask):
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], mask[:, None, None, :])


def relative(x):
    places = torch.arange(x.shape[1])
    return x @ x.mT + BIAS[places[:, None] - places + 15]


def conv_and_rest(x, y):
    return F.conv1d(x, KERNEL, stride=2) + y[:, None]


def strided(x, y):
    return x[::2] + y[1::2]


def framed(x):
    """Overlapping frames as speech models make them, each of 8, every 4."""
    return x.unfold(1, 8, 4).mean(-1)


def pooled(x):
    """Groups of tokens, the rest left out."""
    whole = x.shape[1] // 3
    return x[:, : whole * 3].view(x.shape[0], whole, 3, 4).mean(2)


def split_heads_of_two(q, k):
    q, k = (one.view(one.shape[0], -1, 2, 2).transpose(1, 2) for one in (q, k))
    return (q @ k.mT).softmax(-1).mean(1)


TEXT = {0: batch, 1: seq}
MORE = [
    Row("sequences by lengths", packed, lambda a, b: (*text(a, b), torch.full((a,), b - 1)), (TEXT, {0: batch}), sizes=((2, 5), (1, 3), (4, 9))),
    Row("sequences by other lengths", packed, lambda a, b: (*text(a, b), torch.full((a,), b - 1)), (TEXT, {0: n}), "batch == n is needed",
        ((2, 5), (1, 3))),
    Row("without padding and back", unpadded, lambda a, b: (*text(a, b), (torch.arange(a * b) % 3 > 0).view(a, b)), (TEXT, TEXT),
        sizes=((2, 5), (1, 3))),
    Row("a mask of its own size", unpadded, lambda a, b: (*text(a, b), (torch.arange(a * b) % 3 > 0).view(b, a)), (TEXT, {0: n, 1: m}),
        sizes=((2, 5), (1, 3))),
    Row("a grid of places", grid, lambda a, b: (flat(a), flat(b)), ({0: n}, {0: m}), sizes=((4, 5), (1, 3))),
    Row("patches by a convolution", patches, square, ({0: batch, 2: n, 3: m},), sizes=((2, 8), (1, 13))),
    Row("patches by a view", patches_by_view, square, ({0: batch, 2: n, 3: m},), "m % 4 == 0 is needed", ((2, 8), (1, 12))),
    Row("patches of squares", patches_by_view, square, ({0: batch, 2: 4 * SIDE, 3: 4 * SIDE},), sizes=((2, 8), (1, 12))),
    Row("pixels to channels", lambda x: F.pixel_unshuffle(x, 2), square, ({0: batch, 2: n, 3: n},), "n % 2 == 0 is needed", ((2, 8), (1, 2), (3, 6))),
    Row("half the size", lambda x: F.interpolate(x, scale_factor=0.5), square, ({0: batch, 2: n, 3: m},), sizes=((2, 8), (1, 3), (3, 7))),
    Row("shifted windows", shifted_windows, windows, ({0: batch, 2: n},), "n % 4 == 0 is needed", ((2, 2), (1, 1), (3, 3))),
    Row("shifted windows that are said", shifted_windows, windows, ({0: batch, 2: 4 * n},), sizes=((2, 2), (1, 1), (3, 3))),
    Row("causal", causal, text, (TEXT,), sizes=((2, 5), (1, 1), (3, 8))),
    Row("attention with padding", padded_attention, lambda a, b: (*text(a, b), torch.ones(a, b, dtype=torch.bool)), (TEXT, {0: n, 1: m}),
        "is needed", ((2, 5), (1, 3))),
    Row("a table of distances", relative, text, (TEXT,), sizes=((2, 5), (1, 16))),
    Row("a convolution and the rest", conv_and_rest, lambda a, b: (*signal(a, 2 * b + 3), flat(a * b).view(a, b)), ({0: batch, 2: n}, {0: batch, 1: m}),
        sizes=((2, 4), (1, 3))),
    Row("every second", strided, two(lambda s: flat(2 * s), lambda s: flat(2 * s)), ({0: n}, {0: m})),
    Row("overlapping frames", framed, both, ({0: batch, 1: Dim("n", min=8)},), sizes=((2, 16), (1, 8), (3, 21)), wrong=(2, 7)),
    Row("groups without the rest", pooled, text, (TEXT,), sizes=((2, 5), (1, 3), (3, 9))),
    Row("groups without the rest, left open", lambda x, y: pooled(x + y), lambda a, b: text(a, b) * 2, ({0: AUTO, 1: AUTO}, {0: AUTO, 1: AUTO}),
        sizes=((2, 5), (3, 8), (2, 9))),
    Row("groups of a derived size", lambda x: pooled(x.view(-1, x.shape[1], 4)), text, ({0: batch, 1: 2 * seq + 1},), sizes=((2, 5), (1, 3), (3, 9))),
    Row("heads of queries and keys", split_heads_of_two, lambda a, b: (*text(a, b), *text(a, b + 2)), (TEXT, {0: n, 1: m}), "batch == n is needed",
        ((2, 5), (1, 3))),
    Row("chunks that are even", lambda x: [one.sum() for one in x.chunk(3)], lambda s: (flat(3 * s),), ({0: 3 * n},), sizes=((4,), (2,), (7,))),
    Row("a view of pairs and more", lambda x, y: torch.cat([x.view(-1, 2), y.view(-1, 2)]).view(-1, 4), two(lambda s: flat(4 * s), lambda s: flat(4 * s)),
        ({0: n}, {0: m}), "is needed", ((4,), (2,))),
    Row("columns that are joined", lambda x, y: torch.cat([x, y], 1) @ torch.ones(6, 2), lambda s: (*rows_of(2)(s), *rows_of(4)(s)), ({0: n, 1: AUTO}, {0: m}),
        "n == m is needed", ((4,), (2,))),
]  # fmt: skip
