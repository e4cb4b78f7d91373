"""Programs with constraints on their sizes: what exporting each says, and calls of what it then makes.

A row: name, program, example arguments, what is said of sizes, a part of the message (none: it is exported as it is
said), sizes to call it at. `at(n, m)` makes arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pliant import AUTO, Dim

batch, seq, n = Dim("batch"), Dim("seq"), Dim("n")
small = Dim("small", max=64)


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


def halves(x):
    a, b = x.chunk(2)
    return a + b


def first_branch(x):
    return x * 2 if x.shape[0] <= 16 else x


def unrolled(x):
    total = x[0]
    for i in range(1, x.shape[0]):
        total = total + x[i]
    return total


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
]  # fmt: skip
