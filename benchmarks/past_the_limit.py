"""What a call costs that no entry serves and for which none may be compiled: `python -m benchmarks.past_the_limit`.

Each program is compiled once a kind of call until the limit; then calls of further kinds run eagerly, behind the guards
of all entries. Microseconds of CPU time a call of eager and of pliant, in turns in one run; `over` is what pliant's
takes above 1.2 times eager's, which should be at most 20 us. `miss` is what it takes to see that no entry serves the
call, which should be at most 50 us. `hit` is a call that an entry serves, among such calls; `turns` is what it takes
more where two kinds of calls that entries serve take turns, so that the entry tried first is the other one.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import pliant
from benchmarks.children import print_row
from benchmarks.overhead import microseconds

LIMIT = 8
LENGTH = 5_000
LAYERS = 20
WIDTHS = (24, 9, 9, 9, 9, 9, 9)
Kind = Callable[[int], tuple[Any, ...]]  # the arguments of a call of this kind


class Layered(nn.Module):
    """Many small layers; `kind` is a text that it reads at its end, behind the guards of all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(LAYERS)])
        self.kind = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x + len(self.kind)


def layered() -> tuple[Callable[..., Any], Kind]:
    module, x = Layered().eval().requires_grad_(False), torch.ones(1, 4)

    def kind(number: int) -> tuple[Any, ...]:
        module.kind = f"kind {number}"
        return (x,)

    return module, kind


def listed() -> tuple[Callable[..., Any], Kind]:
    def total(x: torch.Tensor, items: list[int]) -> torch.Tensor:
        return x + sum(items)

    x = torch.ones(4)
    return total, lambda number: (x, [*range(LENGTH), number])


def named() -> tuple[Callable[..., Any], Kind]:
    def joined(x: torch.Tensor, items: list[str]) -> torch.Tensor:
        return x + len("".join(items))

    x, words = torch.ones(4), [str(i) for i in range(LENGTH)]
    return joined, lambda number: (x, [*words, f"kind {number}"])


def one_line() -> tuple[Callable[..., Any], Kind]:
    def add(x: torch.Tensor, name: str) -> torch.Tensor:
        return x + len(name)

    x = torch.ones(4)
    return add, lambda number: (x, f"kind {number}")


def keyword() -> tuple[Callable[..., Any], Kind]:
    def add(x: torch.Tensor, **names: int) -> torch.Tensor:
        return x + len(names)

    x = torch.ones(4)
    return lambda x, number: add(x, **{f"k{number}": 1}), lambda number: (x, f"k{number}")


PROGRAMS = {
    f"module of {LAYERS} layers": layered,
    f"list of {LENGTH} ints": listed,
    f"list of {LENGTH} texts": named,
    "one line": one_line,
    "a dict of one line": keyword,
}


def measure(make: Callable[[], tuple[Callable[..., Any], Kind]]) -> tuple[float, ...]:
    """Of eager, past the limit, of a hit, of hits in turns more."""
    function, kind = make()
    compiled = pliant.compile(function, dynamic=False)
    for number in range(LIMIT + 20):
        compiled(*kind(number))
    args = kind(LIMIT + 21)
    eager, past = microseconds(lambda: function(*args), lambda: compiled(*args), clock=time.thread_time)

    def served(*numbers: int) -> Callable[[], object]:
        return lambda: [compiled(*kind(number)) for number in numbers]

    making, alone = microseconds(lambda: kind(0), served(0), clock=time.thread_time)
    (both,) = microseconds(served(0, 1), clock=time.thread_time)
    return eager, past, alone - making, both / 2 - alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    print_row(("program", "eager", "pliant", "over", "miss", "hit", "turns"), WIDTHS)
    with warnings.catch_warnings(), pliant.config.patch(recompile_limit=LIMIT):
        warnings.simplefilter("ignore")
        for name, make in PROGRAMS.items():
            eager, past, hit, turns = measure(make)
            found = (eager, past, past - 1.2 * eager, past - eager, hit, turns)
            print_row((name, *[f"{one:.1f}" for one in found]), WIDTHS)


if __name__ == "__main__":
    main()
