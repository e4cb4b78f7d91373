"""Further programs with constraints: ranges that windows narrow, sizes in tests and sums, numbers and None among arguments.

Rows as those of `programs.py`.
"""

import torch
from tests.exporting.more_programs import KERNEL, TEXT, signal, text
from tests.exporting.programs import SIDE, WEIGHT, Row, batch, both, flat, m, n, seq, square, two
from torch.nn import functional as F

from pliant import AUTO, Dim


def asserted(x, y):
    assert x.shape[0] == y.shape[0], "as many of both"
    return x * 2, y.sum()


def stated(x):
    torch._check(x.shape[0] % 4 == 0)
    return x * 2


def not_too_long(x):
    if x.shape[0] > 32:
        raise ValueError("too long")
    return x + 1


def counted_by_data(x, sizes):
    rows, columns = sizes.tolist()
    return x[:rows], x.new_zeros(columns, rows)


def narrowed(x):
    return F.max_pool2d(F.conv2d(F.conv2d(x, WEIGHT)[:, :3], WEIGHT), 2)


def down_and_up(x):
    return torch.cat([F.interpolate(F.max_pool2d(x, 2), scale_factor=2.0), x], 1)


def where_known(d):
    return d["x"]["a"] + d["y"]["a"] if d["z"] is None else d["x"]["a"]


def in_order(x):
    return torch.stack([x[:, ::2], x[:, 1::2]], -1).flatten(1)


def first_and_others(x, *others):
    return x + others[0] + others[1]


def rotated(x, table):
    half = x.shape[-1] // 2
    return x * table[: x.shape[1]] + torch.cat([-x[..., half:], x[..., :half]], -1)


WIDE = Dim("n", min=1)
EDGES = [
    # what the program itself says of sizes
    Row("an assertion", asserted, two(flat, flat), ({0: n}, {0: m}), "n == m is needed", ((4,), (1,), (9,))),
    Row("a stated multiple", stated, lambda s: (flat(4 * s),), ({0: n},), "n % 4 == 0 is needed", ((4,), (1,))),
    Row("an exception of long ones", not_too_long, lambda s: (flat(s),), ({0: n},), sizes=((4,), (1,), (32,)), wrong=(33,)),
    Row("an exception within what is said", not_too_long, lambda s: (flat(s),), ({0: Dim("n", max=64)},), "n <= 32 is needed", ((4,), (32,))),
    Row("shapes that are compared", lambda x, y: x * 2 if x.shape == y.shape else x, lambda a, b: both(a, b) * 2, ({0: n, 1: m}, {0: batch, 1: seq}),
        "m == seq is needed", ((4, 5), (1, 3))),
    Row("one of several sizes", lambda x: x * {4: 2.0, 8: 3.0}[x.shape[0]], lambda s: (flat(s),), ({0: n},), "n == 4 is needed", ((4,),)),
    Row("a size in a name", lambda x: {f"of {x.shape[0]}": x * 2}, lambda s: (flat(s),), ({0: n},), "n == 4 is needed", ((4,),)),
    Row("how many elements", lambda x: x * 2 if x.numel() == 12 else x, lambda a: both(a, 3), ({0: n},), "n == 4 is needed", ((4,),)),
    Row("the larger side", lambda x: x / max(x.shape), both, ({0: n, 1: m},), sizes=((4, 9), (2, 3), (5, 2))),
    Row("rows of two at once", lambda x, y: [a + b for a, b in zip(x, y)], lambda a: both(a, 3) * 2, ({0: n}, {0: m}), "m == 4 is needed", ((4,),)),
    # windows make ranges narrower
    Row("as wide as a kernel", lambda x: F.conv1d(x, KERNEL), signal, ({0: batch, 2: n},), sizes=((2, 8), (1, 5)), wrong=(2, 4)),
    Row("as wide as a kernel, said", lambda x: F.conv1d(x, KERNEL), signal, ({0: batch, 2: WIDE},), "n >= 5 is needed", ((2, 8), (1, 5))),
    Row("as wide as a kernel with gaps", lambda x: F.conv1d(x, KERNEL, dilation=3), signal, ({2: Dim("n", min=2, max=64)},),
        "n >= 13 is needed", ((2, 20), (2, 13), (2, 64))),
    Row("two kernels and a pool", narrowed, square, ({0: batch, 2: Dim("h", min=3), 3: Dim("w", min=3)},), "w >= 6 is needed", ((2, 12), (1, 6))),
    Row("a pool of three", lambda x: F.max_pool2d(x, 3, 2), square, ({2: Dim("h", min=2), 3: Dim("h", min=2)},), "h >= 3 is needed", ((2, 12), (2, 3))),
    Row("a pool that ends beyond", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), square, ({2: SIDE, 3: SIDE},), sizes=((2, 12), (2, 3), (2, 9))),
    Row("borders that mirror", lambda x: F.pad(x, (4, 4), mode="reflect"), signal, ({2: WIDE},), "n >= 5 is needed", ((2, 8), (2, 5))),
    Row("borders that go round", lambda x: F.pad(x, (4, 4), mode="circular"), signal, ({2: WIDE},), "n >= 4 is needed", ((2, 8), (2, 4))),
    Row("pools of a size", lambda x: F.adaptive_avg_pool2d(x, 2), square, ({2: n, 3: m},), sizes=((2, 8), (2, 2), (2, 11))),
    Row("down and up", down_and_up, lambda a, b: square(a, 2 * b), ({2: n, 3: m},), "m % 2 == 0 is needed", ((2, 4), (2, 1))),
    Row("as large as the other", lambda x, y: F.interpolate(x, size=y.shape[2:]) + y, lambda a, b: square(a, b) + square(a, 2 * b),
        ({2: n, 3: n}, {2: m, 3: seq}), sizes=((2, 8), (2, 3))),
    # two sizes are one
    Row("ranges that meet", lambda x, y: x + y, two(flat, flat), ({0: Dim("a", min=2, max=10)}, {0: Dim("c", max=6)}), "a == c is needed",
        ((4,), (2,), (6,))),
    Row("ranges of one and its double", lambda x, y: torch.cat([x, x]) + y, two(flat, lambda s: flat(2 * s)), ({0: Dim("a", max=10)}, {0: Dim("c", min=4)}),
        "2*a == c is needed", ((4,), (2,), (10,))),
    Row("a table of angles", rotated, lambda a, b: (torch.ones(2, a, 2 * b), torch.ones(64, 2 * b)), ({1: seq, 2: n}, {1: m}), "n == m is needed",
        ((4, 4), (6, 1))),
    Row("targets of rows", lambda x, y: F.cross_entropy(x, y), lambda s: (*both(s, 3), torch.arange(s) % 3), ({0: n}, {0: m}), "n == m is needed",
        ((4,), (1,))),
    Row("distances", lambda x, y: (x[:, None] - y).square().sum(-1), lambda a, b: both(a, b) * 2, ({0: n, 1: seq}, {0: m, 1: batch}),
        "seq == batch is needed", ((4, 5), (1, 2))),
    Row("a mask of squares", lambda x: x + torch.ones(x.shape[1], x.shape[1]).tril(), lambda a: (torch.ones(2, a, a),), ({1: m, 2: seq},),
        "m == seq is needed", ((4,), (1,))),
    Row("even and odd in order", in_order, lambda a, b: both(a, 2 * b), ({0: n, 1: m},), "m % 2 == 0 is needed", ((4, 3), (1, 1))),
    Row("pieces of four", lambda x: [one.sum() for one in x.split(4)], lambda s: (flat(s),), ({0: n},), sizes=((8,), (5,)), wrong=(9,)),
    # the example has another number of dimensions
    Row("one row less a dimension", lambda x: x.squeeze(0) * 2, lambda a: both(a, 3), ({0: n},), "n >= 2 is needed (x.size(0)), and the example has 1",
        ((1,),), wrong=(2,)),
    Row("several rows keep theirs", lambda x: x.squeeze(0) * 2, lambda a: both(a, 3), ({0: n},), sizes=((4,), (2,)), wrong=(1,)),
    Row("a branch on one row", lambda x, y: x * 2 if x.shape[0] == 1 else x + y, lambda s: (flat(s), flat(s)), ({0: n}, {0: n}),
        "and the example has 1", ((1,),), wrong=(2,)),
    Row("one row or others", lambda x, y: x[1:] if x.shape[0] > y.shape[0] else y, lambda a, b: (flat(a), flat(b)), ({0: n}, {0: m}), sizes=((1, 4), (2, 3))),
    # arguments that are no tensors, in trees, by name
    Row("a whole number", lambda x, k: x.view(k, -1), lambda s: (flat(3 * s), 3), ({0: n}, None), "n % 3 == 0 is needed", ((4,), (1,))),
    Row("a number, a text, a truth", lambda x, by, how, really: x * by if how == "times" and really else x, lambda s: (flat(s), 0.5, "times", True), ({0: n},)),
    Row("None", lambda x, y=None: x * 2 if y is None else x + y, lambda s: (flat(s), None), ({0: n}, None), sizes=((4,), (1,))),
    Row("None in dictionaries", where_known, lambda s: ({"x": {"a": flat(s)}, "y": {"a": flat(s)}, "z": None},),
        ({"x": {"a": {0: n}}, "y": {"a": {0: m}}},), "n == m is needed", ((4,), (1,))),
    Row("any number of tensors", first_and_others, lambda s: (flat(s), flat(s), flat(s)), {"x": {0: n}, "others": ({0: m}, {0: seq})},
        "n == seq is needed", ((4,), (1,))),
    # sizes that data tells
    Row("counted by data", counted_by_data, lambda s: (flat(4 * s), torch.tensor([2, s])), ({0: n}, None), sizes=((4,), (1,))),
    Row("as many rows as data says", lambda x, k: x.view(k.item(), -1).sum(1), lambda s: (flat(4 * s), torch.tensor(2)), ({0: n}, None), sizes=((4,), (1,))),
    Row("pairs of what data counts", lambda k: torch.arange(k.item()).view(-1, 2).sum(1), lambda s: (torch.tensor(2 * s),), None, sizes=((4,), (1,))),
    Row("rows of what is found", lambda x: x[x > -5].view(-1, 4).sum(1), text, (TEXT,), sizes=((2, 5), (1, 1))),
    Row("a square by its root", lambda x: x.view(x.shape[0], int(x.shape[1] ** 0.5), -1), lambda a, b: both(a, b * b), ({0: batch, 1: AUTO},),
        sizes=((2, 4), (3, 3))),
]  # fmt: skip
