"""What a call costs beside its kernels: `python -m benchmarks.overhead [--peer]`.

One-element tensors, so that all time is overhead: a function of 1, 10 and 50 tensors, and a chain of tiny modules as depth
grows. Microseconds a call of eager, pliant and, asked for, torch.compile in one run; overhead is time beyond the same
kernels called directly (`pliant` without its guards is not measurable, so the bare compiled graph stands for them).
"""

import argparse
import time
from collections.abc import Callable

import torch

from benchmarks.children import print_row
from benchmarks.models import Chain

COUNTS = (1, 10, 50)
DEPTHS = (1, 10, 100, 1000)
WIDTHS = (12, 8, 12, 12, 12, 12)


def microseconds(function: Callable[..., object], *args: torch.Tensor) -> float:
    """The fastest of several batches of calls."""
    calls = 1
    while timed(function, args, calls) < 0.02:
        calls *= 2
    return min(timed(function, args, calls) for _ in range(7)) / calls * 1e6


def timed(function: Callable[..., object], args: tuple[torch.Tensor, ...], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function(*args)
    return time.perf_counter() - start


def compiled_by(compiler: str, function: Callable[..., object]) -> Callable[..., object]:
    if compiler == "eager":
        return function
    if compiler == "pliant":
        import pliant

        return pliant.compile(function)
    torch._dynamo.reset()
    return torch.compile(function)


def adder(count: int) -> Callable[..., torch.Tensor]:
    """A new function of so many tensors, which adds 1 to the first."""
    names = ", ".join(f"x{i}" for i in range(count))
    used = " + ".join(f"x{i}" for i in range(count))
    scope: dict[str, Callable[..., torch.Tensor]] = {}
    exec(f"def add({names}):\n    return {used} + 1\n", scope)
    return scope["add"]


def bare(compiled: Callable[..., object], args: tuple[torch.Tensor, ...]) -> float:
    """The compiled graph alone, without dispatch and guards."""
    from pliant.capture.compiled_function import dispatcher_of

    dispatcher = dispatcher_of(compiled)
    assert dispatcher is not None
    graph = dispatcher.hot.__globals__["graph"]  # type: ignore[attr-defined]
    model = getattr(compiled, "_orig_mod", None)
    inputs = [*args, *(model.parameters() if model is not None else ())]
    return microseconds(lambda *_: graph(list(inputs)), *args)


def main() -> None:
    parser = argparse.ArgumentParser(description="Overhead of a call.")
    parser.add_argument("--peer", action="store_true", help="measure torch.compile too")
    parser.add_argument("--depths", type=int, nargs="*", default=DEPTHS)
    parser.add_argument("--counts", type=int, nargs="*", default=COUNTS)
    options = parser.parse_args()
    compilers = ["eager", "pliant", *(["peer"] if options.peer else [])]
    print_row(["program", "size", *(f"{c} us" for c in (*compilers, "bare"))], WIDTHS)
    cases = [("tensors", n, adder(n), n) for n in options.counts] + [("layers", n, Chain(n), 1) for n in options.depths]
    with torch.no_grad():
        for what, size, function, count in cases:
            args = tuple(torch.ones(1) for _ in range(count))
            compiled = {c: compiled_by(c, function) for c in compilers}
            cells = [microseconds(f, *args) for f in compiled.values()]
            print_row([what, size, *(f"{c:.1f}" for c in (*cells, bare(compiled["pliant"], args)))], WIDTHS)


if __name__ == "__main__":
    main()
