"""What a call costs that no entry serves and for which none may be compiled: `python -m benchmarks.past_the_limit`.

Each program is compiled once a kind of call until the limit; then calls of further kinds run eagerly, behind the guards
of all entries. Microseconds a call of eager and of pliant, in turns in one run; `over` is what pliant's takes above
1.2 times eager's, which should be at most 20 us. `hit` is a call that an entry serves, among such calls.
"""

import argparse
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
WIDTHS = (30, 10, 10, 10, 10)
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


def measure(make: Callable[[], tuple[Callable[..., Any], Kind]]) -> tuple[float, float, float]:
    function, kind = make()
    compiled = pliant.compile(function, dynamic=False)
    for number in range(LIMIT + 20):
        compiled(*kind(number))
    args = kind(LIMIT + 21)
    eager, past = microseconds(lambda: function(*args), lambda: compiled(*args))
    first = kind(0)
    (hit,) = microseconds(lambda: compiled(*first))
    return eager, past, hit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    print_row(("program", "eager", "pliant", "over", "hit"), WIDTHS)
    with warnings.catch_warnings(), pliant.config.patch(recompile_limit=LIMIT):
        warnings.simplefilter("ignore")
        for name, make in PROGRAMS.items():
            eager, past, hit = measure(make)
            print_row((name, f"{eager:.1f}", f"{past:.1f}", f"{past - 1.2 * eager:.1f}", f"{hit:.1f}"), WIDTHS)


if __name__ == "__main__":
    main()
