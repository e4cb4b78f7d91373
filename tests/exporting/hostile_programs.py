"""Programs with constraints that are hard to say: sums and products of sizes, sizes rounded up, sizes that elements tell.

Rows as those of `programs.py`.
"""

import torch
from tests.exporting.programs import Row, both, flat, m, n, two
from torch.nn import functional as F

from pliant import AUTO, STATIC, Dim

K = Dim("k")


def three(a, b, c):
    """Arguments of one dimension, each as large as its function says."""
    return lambda s, t=0: (flat(a(s, t)), flat(b(s, t)), flat(c(s, t)))


def joined(x, y, z):
    return torch.cat([x, y]) + z


def outer(x, y, z):
    return (x[:, None] * y).reshape(-1) + z


def rounded_up(x, y):
    """Groups of four, the last filled up."""
    return F.pad(x, (0, -x.shape[0] % 4)).view(-1, 4).sum(1) + y


def halves(x):
    return x[: x.shape[0] // 2] + x[-(x.shape[0] // 2) :]


def shorter(x, y):
    common = min(x.shape[0], y.shape[0])
    return x[:common] + y[:common]


def turned_about(x, y):
    return torch.cat([x, y]) + torch.cat([y, x])


def as_many(x, count):
    return x[: int(count)] * 2


def as_many_as_another(x, count):
    return torch.zeros(int(count)) + x


def at_least_eight(x):
    return F.pad(x, (0, max(0, 8 - x.shape[0]))).mean()


def longer(x, y):
    assert x.shape[0] > y.shape[0]
    return x[: y.shape[0]] - y


def even_or_odd(x):
    return x.view(-1, 2).sum(1) if x.shape[0] % 2 == 0 else x


def in_parts_of(x, y):
    return x.view(y.shape[0], -1).sum(1) + y


def every_third(x, y):
    return x[::3] + y


def each_as_often(x):
    return x.repeat_interleave(x.shape[0]) + x.repeat(x.shape[0])


def of_trees(given):
    return {"sum": given["parts"][0][0] + given["parts"][0][1], "rest": [one * 2 for one in given["more"]]}


def trees(s):
    return ({"parts": [(flat(s), flat(s))], "more": (flat(2 * s), flat(3))},)


def without_some(x, y=None, z=None):
    return x if y is None else x + y if z is None else x + y + z


def squares(x, y):
    return x.view(y.shape[0], y.shape[0]) @ y


def middle(x, y):
    return x[(x.shape[0] - y.shape[0]) // 2 :][: y.shape[0]] * y


def diagonals(x):
    return x.diagonal() + x[: min(x.shape), 0]


def factors(x):
    return torch.linalg.svd(x, full_matrices=False)[1:], torch.geqrf(x)


def of_a_table(x):
    return BIAS[: x.shape[0]] + x


BIAS = torch.linspace(0, 1, 6)
BOTH = ({0: n}, {0: m})
HOSTILE = [
    Row("a sum of sizes", joined, three(lambda s, t: s, lambda s, t: t, lambda s, t: s + t), ({0: n}, {0: m}, {0: K}), sizes=((4, 5), (2, 3), (1, 1))),
    Row("a sum of sizes that is refused", joined, three(lambda s, t: s, lambda s, t: 5, lambda s, t: s + 5), ({0: n}, {0: m}, {0: K}),
        "n + m == k is needed, which no Dim says", ((4, 5),), beyond="refuse"),
    Row("a size and 4", joined, three(lambda s, t: s, lambda s, t: 4, lambda s, t: s + 4), ({0: n}, None, {0: K}), "n + 4 == k is needed", ((4,), (1,))),
    Row("a size and 4 that is said", joined, three(lambda s, t: s, lambda s, t: 4, lambda s, t: s + 4), ({0: n}, None, {0: n + 4}), sizes=((4,), (1,))),
    Row("a product of sizes", outer, three(lambda s, t: s, lambda s, t: t, lambda s, t: s * t), ({0: n}, {0: m}, {0: K}), sizes=((4, 5), (2, 3), (1, 1))),
    Row("groups that are filled up", rounded_up, lambda s, t: (flat(s), flat(t)), BOTH, sizes=((9, 3), (4, 1), (1, 1)), wrong=(9, 2)),
    Row("halves without the middle", halves, lambda s: (flat(2 * s + 1),), ({0: 2 * n + 1},), sizes=((4,), (1,))),
    Row("the shorter of both", shorter, lambda s, t: (flat(s), flat(t)), BOTH, sizes=((4, 7), (5, 3), (1, 1))),
    Row("joined in both orders", turned_about, lambda s, t: (flat(s), flat(t)), BOTH, sizes=((4, 7), (5, 3), (1, 1))),
    Row("as many as an element says", as_many, lambda s, t: (flat(s), torch.tensor(t)), ({0: n}, None), sizes=((6, 4), (5, 5), (3, 0)), wrong=(5, 9)),
    Row("an element that is a size", as_many_as_another, lambda s, t: (flat(s), torch.tensor(t)), ({0: n}, None), sizes=((6, 6), (2, 2)), wrong=(6, 5)),
    Row("left open beside a Dim", torch.add, two(flat, flat), ({0: n}, {0: AUTO}), sizes=((6,), (2,), (1,))),
    Row("fixed beside a Dim", lambda x, y: x + y, two(flat, flat), ({0: n}, {0: STATIC}), "n == 6 is needed", ((6,),), wrong=(5,)),
    Row("at least eight", at_least_eight, lambda s: (flat(s),), ({0: n},), sizes=((6,), (12,), (8,), (1,))),
    Row("a longer one", longer, lambda s, t: (flat(s), flat(t)), BOTH, sizes=((6, 4), (5, 3)), wrong=(3, 4)),
    Row("a branch on what is even", even_or_odd, lambda s: (flat(s),), ({0: n},), "n % 2 == 0 is needed", ((6,), (4,)), wrong=(5,)),
    Row("parts whose number is a size", in_parts_of, lambda s, t: (flat(s), flat(t)), BOTH, sizes=((24, 4), (15, 3)), wrong=(7, 2)),
    Row("every third", every_third, lambda s, t: (flat(s), flat(t)), BOTH, sizes=((18, 6), (4, 2), (1, 1)), wrong=(18, 5)),
    Row("each as often as there are", each_as_often, lambda s: (flat(s),), ({0: n},), sizes=((6,), (1,))),
    Row("trees of arguments", of_trees, trees, ({"parts": [({0: n}, {0: m})], "more": ({0: K}, None)},), "n == m is needed", ((6,), (1,))),
    Row("squares by a view", squares, lambda s, t: (flat(s), flat(t)), BOTH, sizes=((36, 6), (25, 5), (1, 1)), wrong=(24, 5)),
    Row("the middle", middle, lambda s, t: (flat(s), flat(t)), BOTH, sizes=((9, 4), (5, 3), (2, 2)), wrong=(3, 9)),
    Row("a diagonal and a column", diagonals, both, ({0: n, 1: m},), sizes=((4, 6), (5, 3), (1, 1))),
    Row("factors of a tall or a wide matrix", factors, both, ({0: n, 1: m},), sizes=((5, 3), (2, 3), (3, 3), (1, 1))),
    Row("a table that is shorter", of_a_table, lambda s: (flat(s),), ({0: Dim("n", max=9)},), "n <= 6 is needed", ((4,), (6,)), wrong=(7,)),
    Row("none of an argument", without_some, two(flat, lambda s: None), ({0: n}, None), sizes=((4,), (1,))),
    Row("none of the last", without_some, lambda s: (flat(s), flat(s), None), ({0: n}, {0: m}, None), "n == m is needed", ((4,), (1,))),
]  # fmt: skip
