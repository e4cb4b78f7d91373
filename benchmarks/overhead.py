"""What a call costs beside its kernels: `python -m benchmarks.overhead [--peer]`.

A chain of tiny modules on one-element tensors: microseconds a call, eager and compiled, as depth grows.
"""

import argparse
import time
from collections.abc import Callable

import torch

from benchmarks.children import print_row
from benchmarks.models import Chain
from benchmarks.one import compiled_by

DEPTHS = (1, 10, 100, 1000)
WIDTHS = (10, 10, 14, 14)


def microseconds(function: Callable[[torch.Tensor], object], x: torch.Tensor) -> float:
    """The fastest of several batches of calls."""
    calls = 1
    while timed(function, x, calls) < 0.02:
        calls *= 2
    return min(timed(function, x, calls) for _ in range(7)) / calls * 1e6


def timed(function: Callable[[torch.Tensor], object], x: torch.Tensor, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function(x)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Overhead of a call.")
    parser.add_argument("--peer", action="store_true", help="measure torch.compile too")
    parser.add_argument("--depths", type=int, nargs="*", default=DEPTHS)
    options = parser.parse_args()
    compilers = ["eager", "pliant", *(["peer"] if options.peer else [])]
    print_row(["depth", "params", *(f"{c} us" for c in compilers)], (*WIDTHS, 14))
    x = torch.ones(1)
    with torch.no_grad():
        for depth in options.depths:
            model = Chain(depth)
            cells = [microseconds(compiled_by(c, model), x) for c in compilers]
            print_row([depth, depth, *(f"{c:.1f}" for c in cells)], (*WIDTHS, 14))


if __name__ == "__main__":
    main()
