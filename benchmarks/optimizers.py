"""Optimizer steps on many small parameters: `python -m benchmarks.optimizers [--peer]`.

Milliseconds a step of eager's loop over parameters, eager's foreach, pliant and, asked for, torch.compile, in one run,
for 50 and 500 parameters of 16 x 16; seconds that the two compilations take (the step that makes the state, the others).
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.children import print_row
from benchmarks.overhead import microseconds

COUNTS = (50, 500)
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {}),
    "SGD, momentum": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    "Adam": (torch.optim.Adam, {}),
    "AdamW": (torch.optim.AdamW, {}),
    "RMSprop": (torch.optim.RMSprop, {}),
}
WIDTHS = (16, 6, 10, 10, 10, 10, 10, 10)


def make(name: str, count: int, **options: Any) -> torch.optim.Optimizer:
    kind, given = OPTIMIZERS[name]
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(16, 16, generator=generator)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(16, 16, generator=generator)
    return kind(parameters, lr=1e-3, **given, **options)  # type: ignore[call-arg]


def first_steps(step: Callable[[], object]) -> float:
    """Seconds of the first two steps, which compile."""
    start = time.perf_counter()
    step()
    step()
    return time.perf_counter() - start


def row(name: str, count: int, peer: bool) -> list[str]:
    import pliant

    mine = pliant.compile(make(name, count).step)
    seconds = first_steps(mine)
    steps = [make(name, count, foreach=False).step, make(name, count, foreach=True).step, mine]
    if peer:
        torch._dynamo.reset()
        steps.append(torch.compile(make(name, count).step))
    for step in steps:
        first_steps(step)
    loop, foreach, ours, *theirs = [found / 1e3 for found in microseconds(*steps)]
    cells = [f"{loop:.3f}", f"{foreach:.3f}", f"{ours:.3f}", f"{loop / ours:.1f}x", f"{seconds:.1f} s"]
    return [name, str(count), *cells, *(f"{one:.3f}" for one in theirs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="torch.compile beside it")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    heads = ["optimizer", "params", "loop ms", "foreach", "pliant", "gain", "compile", *["peer"] * arguments.peer]
    print_row(heads, WIDTHS)
    for name in OPTIMIZERS:
        for count in COUNTS:
            print_row(row(name, count, arguments.peer), WIDTHS)


if __name__ == "__main__":
    main()
