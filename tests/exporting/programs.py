"""Programs with constraints on their sizes: what exporting each says, and calls of what it then makes.

A row: name, program, example arguments, what is said of sizes, a part of the message (none: it is exported as it is
said), sizes to call it at. `at(n, m)` makes arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from pliant import AUTO, Dim

batch, seq, n, m, SIDE = Dim("batch"), Dim("seq"), Dim("n"), Dim("m"), Dim("side")
WEIGHT = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0))


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Row:
    name: str
    program: Callable[..., Any]
    at: Callable[..., tuple[Any, ...]]
    said: Any
    message: str = ""
    sizes: tuple[tuple[int, ...], ...] = ((4,), (2,), (8,), (12,))
    beyond: str = "check"
    wrong: tuple[int, ...] | None = None  # a size that is an error


def rows_of(width: int, count: int = 1) -> Callable[..., tuple[Any, ...]]:
    return lambda size: tuple(torch.arange(size * width, dtype=torch.float32).view(size, width) for _ in range(count))


def two(a: Callable[[int], Any], b: Callable[[int], Any]) -> Callable[..., tuple[Any, ...]]:
    return lambda size: (a(size), b(size))


def flat(size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32)


def both(a: int, b: int) -> tuple[Any, ...]:
    return (torch.arange(a * b, dtype=torch.float32).view(a, b),)


def pair(a: int, b: int) -> tuple[Any, ...]:
    return flat(a), flat(b)


def square(count: int, side: int) -> tuple[Any, ...]:
    return (torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0)),)


def back(x):
    half = F.conv2d(x, WEIGHT, stride=2, padding=1)
    return F.conv_transpose2d(half, WEIGHT, stride=2, padding=1, output_padding=1) + x


def checked(x, count):
    rows = count.item()
    torch._check(0 <= rows)
    torch._check(rows <= x.shape[0])
    return x[:rows] * 2


def first_branch(x):
    return x * 2 if x.shape[0] <= 16 else x


def unrolled(x):
    total = x[0]
    for i in range(1, x.shape[0]):
        total = total + x[i]
    return total


@dataclass
class Box:
    """A registered class of the program's."""

    x: Any
    y: Any


class NamelessBox(Box):
    """Registered without names of what it holds."""


pytree.register_dataclass(Box)
pytree.register_pytree_node(NamelessBox, lambda box: ([box.x, box.y], None), lambda children, _: NamelessBox(*children))


def boxed(size: int) -> tuple[Any, ...]:
    return (Box(flat(size), flat(size)),)


def added(box):
    return Box(box.x + box.y, box.x * 2)


def halved(x):
    while x.shape[0] > 4:
        x = x[::2]
    return x


def between(x):
    return x[: min(x.shape[0], 8)] * max(x.shape[0], 2)


def nested(d):
    return d["a"]["b"][0] + d["a"]["c"]


def in_dicts(size: int) -> tuple[Any, ...]:
    return ({"a": {"b": [flat(size)], "c": flat(size)}},)


def in_parts(x, count):
    rows = count.item()
    torch._check(rows > 0)
    torch._check(x.shape[0] % rows == 0)
    return x.view(rows, -1).sum(1)


def in_a_dict(d, flag=True):
    return {"sum": d["a"].sum(0) if flag else d["a"], "b": d["b"][0] * 2}


ROWS = [
    # as said
    Row("pointwise", lambda x: torch.sin(x), rows_of(3), ({0: batch},), sizes=((4,), (1,), (7,))),
    Row("same size by name", lambda x, y: x + y, rows_of(3, 2), ({0: batch}, {0: batch}), sizes=((4,), (1,), (7,))),
    Row("one more", lambda x, y: x[1:] + y, two(lambda s: flat(s + 1), flat), ({0: batch + 1}, {0: batch})),
    Row("one less", lambda x, y: x[1:] + y, two(flat, lambda s: flat(s - 1)), ({0: batch}, {0: batch - 1})),
    Row("twice", lambda x, y: torch.cat([x, x]) + y, two(flat, lambda s: flat(2 * s)), ({0: batch}, {0: 2 * batch})),
    Row("twice and one", lambda x, y: torch.cat([x, x, x[:1]]) + y, two(flat, lambda s: flat(2 * s + 1)),
        ({0: batch}, {0: 2 * batch + 1})),
    Row("only derived", lambda x: x.view(-1, 2).sum(1), lambda s: (flat(2 * s),), ({0: 2 * batch},)),
    Row("two derived of one", lambda x, y: x.view(-1, 2).sum(1) + y.view(-1, 3).sum(1),
        lambda s: (flat(2 * s), flat(3 * s)), ({0: 2 * batch}, {0: 3 * batch})),
    Row("two sizes", lambda x: x.transpose(0, 1).reshape(-1), both, ({0: batch, 1: seq},), sizes=((4, 5), (2, 9))),
    Row("in a range", first_branch, rows_of(3), ({0: Dim("b", min=2, max=16)},), sizes=((4,), (2,), (16,)), wrong=(17,)),
    Row("auto", lambda x, y: torch.cat([x, x]) + y, two(flat, lambda s: flat(2 * s)), ({0: AUTO}, {0: AUTO})),
    Row("auto that is fixed", lambda x: x.view(4, 3) * 2, rows_of(3), ({0: AUTO, 1: AUTO},), sizes=((4,),), wrong=(5,)),
    Row("auto with a multiple", lambda x: x.view(-1, 6), rows_of(3), ({0: AUTO},), wrong=(5,)),
    Row("in containers", in_a_dict, lambda s: ({"a": flat(s), "b": [rows_of(2)(s)[0], 1]},),
        ({"a": {0: batch}, "b": [{0: batch}, None]},)),
    Row("matmul", lambda x, y: x @ y, lambda s: (torch.ones(2, s), torch.ones(s, 3)), ({1: n}, {0: n})),
    Row("attention", lambda q: torch.softmax(q @ q.transpose(-1, -2), -1) @ q, lambda a, b: (torch.randn(a, b, 4),),
        ({0: batch, 1: seq},), sizes=((2, 5), (3, 7), (1, 2))),
    Row("expand", lambda x, y: x.expand(y.shape[0], -1), lambda s: (torch.ones(1, 3), flat(s)), (None, {0: batch})),
    Row("size returned", lambda x: (x.shape[0] * 2, x.new_zeros(x.shape[0] + 1)), rows_of(2), ({0: batch},)),
    Row("argument returned", lambda x: (x, x.t()), rows_of(2), ({0: batch},)),
    Row("arange", lambda x: x + torch.arange(x.shape[0]), lambda s: (flat(s),), ({0: batch},)),
    Row("unused argument", lambda x, y: x * 2, rows_of(2, 2), ({0: batch}, {0: batch})),
    Row("image", lambda x: torch.nn.functional.max_pool2d(x, 2), lambda a, b: (torch.randn(a, 3, b, b),),
        ({0: batch, 2: Dim("side"), 3: Dim("side")},), sizes=((2, 8), (1, 9), (3, 12))),
    # unbacked sizes
    Row("nonzero", lambda x: x[x > 3].sum(), rows_of(3), ({0: batch},)),
    Row("nonzero with a check", lambda x: (x > 3).nonzero().to(torch.float32).mul(2), rows_of(3), ({0: batch},)),
    Row("item as a size", lambda x, k: x.new_zeros(int(k)) + 1, lambda s: (flat(s), torch.tensor(3)), ({0: batch}, None)),
    Row("masked select", lambda x: torch.masked_select(x, x > 2) + 1, rows_of(3), ({0: batch},)),
    # violated
    Row("two multiples", lambda x: (x.view(-1, 2).sum(1), x.view(3, -1).sum(1)), lambda s: (flat(6 * s),), ({0: batch},),
        "batch % 2 == 0 is needed", ((4,), (1,), (7,))),
    Row("a multiple of a multiple", lambda x: (x.view(-1, 4).sum(), x.view(-1, 6).sum()), lambda s: (flat(12 * s),),
        ({0: 4 * batch},), "batch % 3 == 0 is needed", ((4,), (1,), (7,))),
    Row("a rest", lambda x: x[2:].view(-1, 3), lambda s: (flat(3 * s + 2),), ({0: batch},), "batch % 3 == 2 is needed", ((4,), (1,))),
    Row("halves", lambda x: x.chunk(2)[0] * x.chunk(2)[1], lambda s: (flat(2 * s),), ({0: batch},), "batch % 2 == 0 is needed"),
    Row("a branch on evenness", lambda x: x * 2 if x.shape[0] % 2 == 0 else x, lambda s: (flat(2 * s),), ({0: batch},),
        "batch % 2 == 0 is needed"),
    Row("named tuples", lambda p: Pair(p.x + p.y, p.x.sum()), lambda s: (Pair(flat(s), flat(s)),), (Pair({0: batch}, {0: n}),),
        "batch == n is needed"),
    Row("deep in trees", lambda t: {"a": [t["p"][0] + t["p"][1], (t["q"] * 2,)], "b": t["q"].shape[0]},
        lambda s: ({"p": (flat(s), flat(s)), "q": flat(s + 1)},), ({"p": ({0: batch}, {0: seq}), "q": {0: n}},), "batch == seq"),
    Row("equal across four", lambda x, y: torch.bmm(x, y), lambda s: (torch.ones(s, 2, s + 1), torch.ones(s, s + 1, 3)),
        ({0: batch, 2: n}, {0: seq, 1: m}), "n == m is needed"),
    Row("a sum by both sides", lambda x, y, z: x[:, None] * y + z, lambda s: (flat(s), flat(s + 2), torch.ones(s, s + 2)),
        ({0: batch}, {0: seq}, {0: n, 1: m}), "seq == m is needed"),
    Row("repeated by elements", lambda x, times: x.repeat_interleave(times, 0) + 1, lambda s: (rows_of(2)(s)[0], torch.arange(s)),
        ({0: batch}, {0: n}), "batch == n is needed"),
    Row("a bound that halves", lambda x: x[x.shape[0] // 2] * 2, lambda s: (flat(s),), ({0: batch},), beyond="refuse",
        sizes=((4,), (1,), (7,))),
    Row("fixed by view", lambda x: x.view(4, 3), rows_of(3), ({0: batch},), "batch == 4 is needed", ((4,),)),
    Row("fixed by a constant", lambda x: x + torch.ones(4), lambda s: (flat(s),), ({0: batch},), "batch == 4", ((4,),)),
    Row("fixed by a loop", unrolled, rows_of(3), ({0: batch},), "batch == 4 is needed", ((4,),)),
    Row("fixed though example is one", lambda x: x.reshape(1, 3), rows_of(3), ({0: batch},), "batch == 1", ((1,),)),
    Row("equal sizes", lambda x, y: x + y, rows_of(3, 2), ({0: batch}, {0: seq}), "batch == seq is needed"),
    Row("one apart", lambda x, y: x[1:] + y, two(lambda s: flat(s + 1), flat), ({0: batch}, {0: seq}), "batch == seq + 1"),
    Row("twice the other", lambda x, y: torch.cat([x, x]) + y, two(flat, lambda s: flat(2 * s)), ({0: batch}, {0: seq}),
        "2*batch == seq is needed"),
    Row("a multiple", lambda x: x.view(-1, 6), rows_of(3), ({0: batch},), "batch % 2 == 0 is needed"),
    Row("a multiple by chunks", lambda x: x.view(4, -1, 3), rows_of(3), ({0: batch},), "batch % 4 == 0", ((4,), (8,), (12,))),
    Row("a range that is said", first_branch, rows_of(3), ({0: Dim("b", max=32)},), "b <= 16 is needed", ((4,), (16,))),
    Row("two at once", lambda x, y: (x.view(-1, 6), y.view(4, 3)), rows_of(3, 2), ({0: batch}, {0: seq}),
        "seq == 4 is needed", ((4,),)),
    Row("a multiple of the other", lambda x, y: x.view(-1, 2).sum(1) + y, two(lambda s: flat(2 * s), flat),
        ({0: batch}, {0: seq}), "seq == batch // 2 is needed"),
    Row("three equal", lambda x, y, z: x + y + z, rows_of(3, 3), ({0: batch}, {0: seq}, {0: n}), "batch == seq"),
    Row("a derived one that is wrong", lambda x, y: x + y[: x.shape[0]], two(flat, lambda s: flat(2 * s)),
        ({0: batch}, {0: 2 * batch})),
    Row("a matrix and its square", lambda x: x @ x, lambda s: (torch.ones(s, s),), ({0: batch, 1: seq},), "batch == seq"),
    # beyond what Dims say
    Row("product in common", lambda x, y: x.reshape(-1) + y, lambda s: (torch.ones(s, 6), flat(6 * s)), ({0: batch}, {0: 6 * batch})),
    Row("checked in the graph", lambda x, y: x.reshape(y.shape[0], -1), lambda s: (torch.ones(s, 6), flat(s)),
        ({0: batch}, {0: n})),
    Row("refused beyond", lambda x, y: x.reshape(y.shape[0], -1), lambda s: (torch.ones(s, 6), flat(s)),
        ({0: batch}, {0: n}), "6*batch % n == 0 is needed", ((4,),), beyond="refuse"),
    Row("not equal to a number", lambda x: x * 2 if x.shape[0] != 5 else x, rows_of(2), ({0: batch},), wrong=(5,)),
    # as said: sizes of images, broadcasts, slices
    Row("conv", lambda x: F.conv2d(x, WEIGHT, stride=2), square, ({0: batch, 2: SIDE, 3: SIDE},), sizes=((2, 8), (1, 9), (3, 12))),
    Row("blocks of images", lambda x: F.unfold(x, 2, stride=2), square, ({0: batch, 2: n, 3: m},), sizes=((2, 8), (1, 9))),
    Row("broadcast", lambda x, y: x * y, lambda a, b: (torch.ones(a, 1), torch.ones(1, b)), ({0: n}, {1: m}), sizes=((4, 3), (2, 2))),
    Row("slices to the end", lambda x, y: x[1:-2] + y, lambda s: (flat(s + 3), flat(s)), ({0: batch + 3}, {0: batch})),
    Row("a sum of two", lambda x, y, z: torch.cat([x, y]) + z, lambda a, b: (flat(a), flat(b), flat(a + b)),
        ({0: n}, {0: m}, {0: seq}), sizes=((3, 4), (2, 5))),
    Row("a product of two", lambda x, y: x.reshape(-1) + y, lambda a, b: (torch.ones(a, b), flat(a * b)),
        ({0: n, 1: m}, {0: seq}), sizes=((4, 5), (3, 2))),
    Row("which is larger", lambda x, y: x.sum() if x.shape[0] < y.shape[0] else y.sum(), lambda s: (flat(s), flat(s + 3)), ({0: n}, {0: m})),
    Row("a least size", lambda x: x[3] + x, lambda s: (flat(s),), ({0: Dim("n", max=64)},), sizes=((4,), (12,)), wrong=(3,)),
    Row("a largest size", lambda x: x + torch.arange(12.0)[: x.shape[0]], lambda s: (flat(s),), ({0: n},), wrong=(13,)),
    Row("auto of a Dim", lambda x, y: x + y, lambda s: (flat(s), flat(s)), ({0: n}, {0: AUTO})),
    # unbacked sizes
    Row("a checked size of a slice", checked, lambda s: (flat(s), torch.tensor(2)), ({0: n}, None)),
    Row("repeated", lambda x: x[x > 1].repeat(2), lambda s: (flat(s),), ({0: n},)),
    Row("joined", lambda x: torch.cat([x[x > 1], x]), lambda s: (flat(s),), ({0: n},)),
    Row("joined and a violation", lambda x, y: (x[x > 1].sum(), x + y), two(flat, flat), ({0: n}, {0: m}), "n == m is needed"),
    # violated: arithmetic of convolutions, pools, windows
    Row("conv and back", back, square, ({0: batch, 2: SIDE, 3: SIDE},), "side % 2 == 0 is needed", ((2, 8), (1, 10), (3, 12))),
    Row("pool and back", lambda x: F.interpolate(F.max_pool2d(x, 4), scale_factor=4) + x, square,
        ({0: batch, 2: n, 3: m},), "n % 4 == 0 is needed", ((2, 8), (1, 12))),
    Row("two pools and back", lambda x: torch.cat([F.interpolate(F.avg_pool1d(F.avg_pool1d(x, 2), 2), scale_factor=4), x], 1),
        lambda a, b: (torch.randn(a, 3, 4 * b),), ({0: batch, 2: n},), "n % 4 == 0 is needed", ((2, 8), (1, 12))),
    Row("pixels as channels", lambda x: F.pixel_unshuffle(x, 2), square, ({0: batch, 2: n, 3: m},), "n % 2 == 0", ((2, 8), (1, 12))),
    Row("windows", lambda x: x.unflatten(1, (-1, 8)).sum(2), lambda a, b: (torch.randn(a, 8 * b),), ({0: batch, 1: n},),
        "n % 8 == 0 is needed", ((2, 3), (1, 1), (4, 4))),
    Row("windows of two", lambda x: x.view(x.shape[0] // 2, 2, x.shape[1] // 4, 4).permute(0, 2, 1, 3).sum(3),
        lambda a, b: (torch.randn(2 * a, 4 * b),), ({0: n, 1: m},), "m % 4 == 0 is needed", ((2, 3), (1, 1), (4, 4))),
    Row("heads", lambda x: x.view(x.shape[0], x.shape[1], 4, -1).transpose(1, 2), lambda a, b: (torch.ones(2, a, 4 * b),),
        ({1: n, 2: m},), "m % 4 == 0 is needed", ((4, 5), (3, 2))),
    Row("odd sizes", lambda x: x * 2 if x.shape[0] % 2 else x, lambda s: (flat(s),), ({0: n},), "n % 2 == 1 is needed", ((5,), (7,))),
    Row("derived that is a multiple", lambda x: x.view(-1, 4), lambda s: (flat(4 * s),), ({0: 2 * n},), "n % 2 == 0 is needed", ((4,), (7,))),
    # violated: ranges, slices, containers
    Row("a least size that is said", lambda x: x[3] + x, lambda s: (flat(s),), ({0: Dim("n", min=1)},), "n >= 4", ((4,), (12,))),
    Row("the largest three", lambda x: x.topk(3).values, lambda s: (flat(s),), ({0: Dim("n", min=1)},), "n >= 3", ((4,), (12,))),
    Row("derived in a range", lambda x: x + torch.arange(20.0)[: x.shape[0]], lambda s: (flat(2 * s),),
        ({0: 2 * Dim("n", max=30)},), "is needed", ((4,), (10,))),
    Row("slices of two", lambda x, y: x[:-3] + y, lambda s: (flat(s + 3), flat(s)), ({0: n}, {0: m}), "n == m + 3 is needed"),
    Row("parts of known sizes", lambda x: torch.split(x, [3, 5])[1] * 2, lambda s: (flat(8),), ({0: n},), "n == 8 is needed", ((8,),)),
    Row("a weight's size", lambda x: x @ torch.ones(6, 2), both, ({0: n, 1: m},), "m == 6 is needed", ((4, 6), (2, 6))),
    Row("batches of matrices", lambda x, y: torch.einsum("bij,bjk->bik", x, y), lambda a, b: (torch.ones(a, 2, b), torch.ones(a, b, 3)),
        ({0: batch, 2: n}, {0: seq, 1: m}), "is needed", ((4, 5), (3, 2))),
    Row("a size of its own and one that is fixed", lambda x, y: x + y, two(flat, flat), ({0: n}, None), "n == 4 is needed", ((4,),)),
    Row("in a list and a dictionary", lambda d: d["a"][0] + d["b"]["c"], lambda s: ({"a": [flat(s), 3], "b": {"c": flat(s)}},),
        ({"a": [{0: n}, None], "b": {"c": {0: m}}},), "n == m is needed"),
    Row("written in place", lambda x, y: x.add_(y), two(flat, flat), ({0: n}, {0: m}), "n == m is needed"),
    Row("four at once", lambda a, b, c, d: (a + b, c.view(-1, 3), d[:2] + a[:2], d + torch.ones(6)), lambda s: tuple(flat(6) for _ in range(4)),
        ({0: n}, {0: m}, {0: seq}, {0: batch}), "seq % 3 == 0 is needed", ((6,),)),
    # beyond what Dims say
    Row("a sum that is refused", lambda x, y, z: torch.cat([x, y]) + z, lambda a, b: (flat(a), flat(b), flat(a + b)),
        ({0: n}, {0: m}, {0: seq}), "is needed, which no Dim says", ((3, 4),), beyond="refuse"),
    Row("larger, refused", lambda x, y: x.sum() if x.shape[0] < y.shape[0] else y.sum(), lambda s: (flat(s), flat(s + 3)),
        ({0: n}, {0: m}), "n < m is needed", ((4,),), beyond="refuse"),
    # derived sizes: of one another, in trees, in ranges
    Row("three times less two", lambda x, y: torch.cat([x, x, x])[2:] + y, two(flat, lambda s: flat(3 * s - 2)),
        ({0: n}, {0: 3 * n - 2}), sizes=((4,), (1,), (9,))),
    Row("derived in its Dim's range", lambda x, y: torch.cat([x, x]) + y, two(flat, lambda s: flat(2 * s)),
        ({0: Dim("n", max=16)}, {0: 2 * Dim("n", max=16)}), sizes=((4,), (16,)), wrong=(17,)),
    Row("a derived one's own range", lambda x: x + torch.ones(10)[: x.shape[0]], lambda s: (flat(2 * s + 1),),
        ({0: 2 * Dim("n", max=30) + 1},), "n <= 4 is needed", ((4,), (1,))),
    Row("three times the other", lambda x, y: torch.cat([x, x, x])[1:] + y, two(flat, lambda s: flat(3 * s - 1)),
        ({0: n}, {0: m}), "3*n == m + 1 is needed", ((4,), (1,), (9,))),
    Row("positions of both sides", lambda x, p: p[x.shape[0] - 1 :] + x, two(flat, lambda s: flat(2 * s - 1)),
        ({0: n}, {0: m}), "2*n == m + 1 is needed", ((4,), (2,))),
    Row("multiples of one", lambda x, y: x.view(-1, 4).sum(1) + y.view(-1, 6).sum(1), two(lambda s: flat(4 * s), lambda s: flat(6 * s)),
        ({0: n}, {0: m}), "m // 6 == n // 4 is needed"),
    Row("three multiples of one", lambda x, y, z: x.view(-1, 4).sum(1) + y.view(-1, 6).sum(1) + z,
        lambda s: (flat(4 * s), flat(6 * s), flat(s)), ({0: n}, {0: m}, {0: batch}), "is needed"),
    Row("derived, and more of it", lambda x: x.view(-1, 9).sum(1), lambda s: (flat(18 * s),), ({0: 6 * n},), "n % 3 == 0 is needed", ((4,), (1,))),
    # divisions, ranges that only divisions tell, ranges on both sides
    Row("halved until small", halved, lambda s: (flat(s),), ({0: Dim("n", min=2, max=40)},), "n <= 16 is needed", ((16,), (9,))),
    Row("halved, left open", halved, lambda s: (flat(s),), ({0: n},), sizes=((16,), (14,)), wrong=(17,)),
    Row("a row from a stack", lambda x: x.view(x.shape[0] // 2, 2).flip(0).reshape(-1), lambda s: (flat(2 * s),), ({0: n},),
        "n % 2 == 0 is needed"),
    Row("a least size and a multiple", lambda x: x[4:].view(-1, 2), lambda s: (flat(2 * s),), ({0: Dim("n", min=2, max=20)},),
        "n >= 4 is needed", ((4,), (3,))),
    Row("the smaller and the larger", between, lambda s: (flat(s),), ({0: AUTO},), sizes=((9,), (20,))),
    Row("auto that a Dim gives", lambda x, y: torch.stack([x, y], 1).view(-1), two(flat, flat), ({0: n}, {0: AUTO}),
        sizes=((4,), (1,), (9,))),
    Row("to the next multiple", lambda x: F.pad(x, (0, 8 - x.shape[0] % 8)), lambda s: (flat(s),), ({0: n},), sizes=((4,), (8,), (9,))),
    # trees: by names, of registered classes
    Row("deep by name", nested, in_dicts, {"d": {"a": {"b": [{0: n}], "c": {0: m}}}}, "n == m is needed"),
    Row("a registered class by attributes", added, boxed, {"box": {"x": {0: n}, "y": {0: m}}}, "{'x': {0: n}, 'y': {0: n}}"),
    Row("a registered class by itself", added, boxed, (Box({0: n}, [m]),), "n == m is needed"),
    Row("a registered class without names", added, lambda s: (NamelessBox(flat(s), flat(s)),), (NamelessBox({0: n}, {0: m}),),
        "{'box': [{0: n}, {0: n}]}"),
    Row("one size for each dimension", lambda x, y: x @ y, lambda s: (torch.ones(s, 3), torch.ones(3, s)),
        {"x": (n, None), "y": [AUTO, n]}),
    # unbacked sizes
    Row("parts that data counts", in_parts, lambda s: (flat(4 * s), torch.tensor(2)), ({0: n}, None)),
    Row("pieces that data sizes", lambda x, sizes: [one.sum() for one in torch.split(x, sizes.tolist())],
        lambda s: (flat(2 * s), torch.tensor([s, s])), ({0: n}, None)),
    Row("found, as a column", lambda x: (x > 1).nonzero().squeeze(1).view(-1, 1).expand(-1, 2) * 2, lambda s: (flat(s),), ({0: n},)),
    Row("found in two", lambda x, y: torch.cat([x[x > 0], y[y > 0]]) * 2, two(flat, lambda s: flat(s + 2)), ({0: n}, {0: m})),
]  # fmt: skip
