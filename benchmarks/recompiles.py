"""How often a function is compiled as its arguments vary: `python -m benchmarks.recompiles [--only batch]`.

In:     programs with a series of calls; what may be compiled at most.
Out:    a row for each: captures of the function (its first included), graphs built, breaks, fallbacks, and the limit.
Holds:  a row is bad where a result differs from eager, where captures exceed the limit, or where a call ran eagerly
        without an event that says so. Nothing here is timed.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import pliant
from benchmarks.children import print_row
from pliant.debug import events

WIDTHS = (26, 8, 10, 8, 8, 8, 10, 6)


@dataclass
class Series:
    """`build()` gives a program; `calls()` the arguments of its calls."""

    build: Callable[[], Callable[..., Any]]
    calls: Callable[[], Iterator[tuple[Any, ...]]]
    limit: int
    options: dict[str, Any] = field(default_factory=dict)


class Heads(nn.Module):
    """Reads integers and floats of its own, which its user changes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 24)
        self.heads, self.scale = 2, 0.5

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).view(x.shape[0], self.heads, -1).softmax(-1) * self.scale


class WithAttribute:
    """A module whose attribute takes the values of the series before each call."""

    def __init__(self, name: str) -> None:
        self.module, self.name = Heads(), name
        self.compiled: Callable[..., Any] = self.module

    def __call__(self, value: Any, x: Tensor) -> Tensor:
        setattr(self.module, self.name, value)
        return self.compiled(x)


def grow(x: Tensor, cache: Tensor) -> Tensor:
    cache = torch.cat([cache, x], 1)
    return torch.softmax(x @ cache.transpose(1, 2), -1) @ cache


def total(items: list[Tensor]) -> Tensor:
    result = torch.zeros_like(items[0])
    for item in items:
        result = result + item.sin()
    return result / len(items)


LAST: dict[str, str] = {}


def named(x: Tensor) -> Tensor:
    y = x * 2
    LAST["name"] = f"{x.shape[0]} of {x.numel()}"
    return y


def turns(x: Tensor, n: int) -> Tensor:
    for i in range(n):
        x = x * 0.5 + i
    return x.relu()


def lists() -> Iterator[tuple[Any, ...]]:
    for n in range(1, 7):
        yield ([torch.randn(4, 5) for _ in range(n)],)


def dtypes() -> Iterator[tuple[Any, ...]]:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        yield (torch.randn(4, 5).to(dtype),)


def layouts() -> Iterator[tuple[Any, ...]]:
    x = torch.randn(2, 3, 4, 5)
    yield (x,)
    yield (x.to(memory_format=torch.channels_last),)
    yield (x.transpose(0, 1).contiguous().transpose(0, 1),)
    yield (x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),)


MODULE = nn.Sequential(nn.Linear(24, 24), nn.GELU(), nn.LayerNorm(24))
SERIES: dict[str, Series] = {
    "batch 2 to 9": Series(lambda: MODULE, lambda: ((torch.randn(n, 24),) for n in range(2, 10)), 2),
    "batch 9 to 1": Series(lambda: MODULE, lambda: ((torch.randn(n, 24),) for n in range(9, 0, -1)), 3),
    "batch and length": Series(
        lambda: MODULE, lambda: ((torch.randn(n, 2 * n + 1, 24),) for n in range(2, 10)), 2
    ),
    "batch, then length": Series(
        lambda: MODULE, lambda: ((torch.randn(min(n, 5), max(n, 5), 24),) for n in range(2, 10)), 3
    ),
    "int argument": Series(lambda: lambda x, n: x * n + n, lambda: ((torch.randn(4), n) for n in range(3, 9)), 2),
    "int argument from 0": Series(lambda: lambda x, n: x * n + n, lambda: ((torch.randn(4), n) for n in range(6)), 2),
    "int as a size": Series(
        lambda: lambda x, n: x[:, :n].sum(1) + torch.zeros(n).sum(),
        lambda: ((torch.randn(4, 20), n) for n in range(3, 9)), 2,
    ),
    "float argument": Series(
        lambda: lambda x, p: (x * p).sin() + p, lambda: ((torch.randn(4), 0.5 + n / 7) for n in range(6)), 2
    ),
    "float to an operator": Series(
        lambda: lambda x, p: torch.nn.functional.layer_norm(x, (24,), eps=p),
        lambda: ((torch.randn(4, 24), 0.5 + n / 7) for n in range(6)), 6,
    ),
    "float from 0.0": Series(
        lambda: lambda x, p: x.clamp(-p, p) * p, lambda: ((torch.randn(4), n / 4) for n in range(6)), 2
    ),
    "cache growing": Series(
        lambda: grow, lambda: ((torch.randn(2, 1, 8), torch.randn(2, n, 8)) for n in range(3, 14)), 2
    ),
    "cache growing from 1": Series(
        lambda: grow, lambda: ((torch.randn(2, 1, 8), torch.randn(2, n, 8)) for n in range(1, 12)), 2
    ),
    "cache growing from 0": Series(
        lambda: grow, lambda: ((torch.randn(2, 1, 8), torch.randn(2, n, 8)) for n in range(11)), 3
    ),
    "list of 1 to 6": Series(lambda: total, lists, 3),
    "list to cat": Series(lambda: lambda items: torch.cat(items).sin().sum(0), lists, 3),
    "list, its length only": Series(lambda: lambda items: items[0] * len(items), lists, 3),
    "text of a size": Series(lambda: named, lambda: ((torch.randn(n, 4),) for n in range(2, 10)), 2),
    "turns of a loop": Series(lambda: turns, lambda: ((torch.randn(4), n) for n in range(2, 10)), 5),
    "ranks 1 to 4": Series(
        lambda: lambda x: x.sin().sum(-1), lambda: ((torch.randn((3,) * n),) for n in range(1, 5)), 4
    ),
    "layouts": Series(lambda: lambda x: (x * 2).relu(), layouts, 4),
    "dtypes": Series(lambda: lambda x: x * 2 + 1, dtypes, 4),
    "int of a module": Series(
        lambda: WithAttribute("heads"), lambda: ((n, torch.randn(4, 24)) for n in (2, 3, 4, 6, 8, 12)), 2
    ),
    "float of a module": Series(
        lambda: WithAttribute("scale"), lambda: ((0.5 + n / 7, torch.randn(4, 24)) for n in range(6)), 2
    ),
}  # fmt: skip


def measure(series: Series) -> dict[str, Any]:
    """What the calls of a series cost, and whether they were right."""
    pliant.reset()
    torch.manual_seed(0)
    program = series.build()
    if isinstance(program, WithAttribute):
        eager: Callable[..., Any] = WithAttribute(program.name)
        eager.module.load_state_dict(program.module.state_dict())  # type: ignore[attr-defined]
        program.compiled = pliant.compile(program.module, **series.options)
        compiled: Callable[..., Any] = program
    else:
        eager, compiled = program, pliant.compile(program, **series.options)
    wrong = 0
    with torch.no_grad(), events.collect("capture", "recompile", "fallback", "skip", "recompile_limit") as found:
        for args in series.calls():
            mine, expected = compiled(*args), eager(*args)
            try:
                torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)
            except AssertionError:
                wrong += 1
    captures = Counter(e.fields["name"] for e in found if e.kind == "capture")
    others = Counter(e.kind for e in found if e.kind in ("fallback", "skip", "recompile_limit"))
    stats = pliant.stats()
    return {
        "captures": max(captures.values(), default=0), "functions": len(captures), "graphs": stats["graphs"],
        "breaks": stats["graph_breaks"], "eager": sum(others.values()), "wrong": wrong,
        "why": [str(e.fields.get("why")) for e in found if e.kind != "capture"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="part of the names of the rows to run")
    parser.add_argument("--why", action="store_true", help="print why each was compiled again")
    options = parser.parse_args()
    print_row(["what varies", "limit", "captures", "graphs", "breaks", "eager", "wrong", ""], WIDTHS)
    bad = 0
    for name, series in SERIES.items():
        if options.only not in name:
            continue
        row = measure(series)
        is_bad = row["captures"] > series.limit or row["eager"] or row["wrong"]
        bad += bool(is_bad)
        cells = [row[key] for key in ("captures", "graphs", "breaks", "eager", "wrong")]
        print_row([name, series.limit, *cells, "bad" if is_bad else ""], WIDTHS)
        for why in row["why"] if options.why else ():
            print("   ", why[:150])
    raise SystemExit(f"{bad} bad rows" if bad else 0)


if __name__ == "__main__":
    main()
