"""What a call costs beside its kernels: `python -m benchmarks.overhead [--peer]`.

One-element tensors, so that all time is overhead: a function of 1, 10 and 50 tensors, and a chain of tiny modules as depth
grows, called without gradients and (training) with them and backward. Microseconds a call of eager, pliant and, asked for,
torch.compile, in turns in one run; `/peer` is pliant's share of torch.compile's. `bare` is the compiled graph without
dispatch and guards. Then a dict and a list of 100,000 entries that a program looks into.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import torch

from benchmarks.children import print_row
from benchmarks.models import Chain

COUNTS = (1, 10, 50)
DEPTHS = (1, 10, 100, 1000)
WIDTHS = (12, 8, 12, 12, 12, 12, 10)
ROUNDS = 60


def microseconds(*calls: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """The fastest of many short batches of each, taken in turns, so that a busy machine slows all alike."""
    counts = [max(1, int(0.002 / max(timed(call, 1), 1e-7))) for call in calls for _ in (timed(call, 3),)]
    pairs = list(zip(calls, counts, strict=True))
    rounds = [[timed(call, count, clock) / count for call, count in pairs] for _ in range(ROUNDS)]
    return [min(column) * 1e6 for column in zip(*rounds, strict=True)]


def timed(call: Callable[[], object], count: int, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    for _ in range(count):
        call()
    return clock() - start


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


def bare(compiled: Callable[..., object], args: tuple[torch.Tensor, ...]) -> Callable[[], object]:
    """A call of the compiled graph alone, without dispatch and guards."""
    from pliant.dispatch.compiled_function import dispatcher_of

    dispatcher = dispatcher_of(compiled)
    assert dispatcher is not None
    graph = dispatcher.hot.__globals__["graph"]  # type: ignore[attr-defined]
    model = getattr(compiled, "_orig_mod", None)
    inputs = [*args, *(model.parameters() if model is not None else ())]
    return lambda: graph(list(inputs))


def row(what: str, size: int, function: Callable[..., torch.Tensor], count: int, compilers: Sequence[str]) -> None:
    args = tuple(torch.ones(1) for _ in range(count))
    compiled = {c: compiled_by(c, function) for c in compilers}

    def calling(f: Callable[..., torch.Tensor]) -> Callable[[], object]:
        return (lambda: f(*args).backward()) if torch.is_grad_enabled() else (lambda: f(*args))

    calls = {c: calling(f) for c, f in compiled.items()}
    for _ in range(3):
        [call() for call in calls.values()]
    if not torch.is_grad_enabled():
        calls["bare"] = bare(compiled["pliant"], args)
    found = dict(zip(calls, microseconds(*calls.values()), strict=True))
    share = f"{found['pliant'] / found['peer']:.3f}" if "peer" in found else ""
    columns = [*compilers, "bare"]
    print_row([what, size, *(f"{found[c]:.1f}" if c in found else "" for c in columns), share], WIDTHS)


def large_containers(compilers: Sequence[str]) -> None:
    """Seconds of the first call, and microseconds of later ones, beside a small container."""
    for kind, make in (("dict", lambda n: {str(i): i for i in range(n)}), ("list", lambda n: list(range(n)))):
        for size in (10, 100_000):
            content = make(size)
            key = "5" if kind == "dict" else 5
            holder = torch.nn.Module()
            holder.content = content  # type: ignore[assignment]
            scope = {"content": content, "holder": holder, "key": key}
            exec("def look(x):\n    return x * content[key] + holder.content[key] + len(content)\n", scope)
            x = torch.ones(1)
            cells = []
            for compiler in compilers:
                compiled = compiled_by(compiler, scope["look"])  # type: ignore[arg-type]
                first = timed(lambda: compiled(x), 1)
                cells.append(f"{first * 1e3:.0f}ms {microseconds(lambda: compiled(x))[0]:.1f}")
            print_row([kind, size, *cells], WIDTHS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Overhead of a call.")
    parser.add_argument("--peer", action="store_true", help="measure torch.compile too")
    parser.add_argument("--depths", type=int, nargs="*", default=DEPTHS)
    parser.add_argument("--counts", type=int, nargs="*", default=COUNTS)
    options = parser.parse_args()
    compilers = ["eager", "pliant", *(["peer"] if options.peer else [])]
    print_row(["program", "size", *(f"{c} us" for c in (*compilers, "bare")), "/peer" if options.peer else ""], WIDTHS)
    with torch.no_grad():
        for n in options.counts:
            row("tensors", n, adder(n), n, compilers)
        for n in options.depths:
            row("layers", n, Chain(n), 1, compilers)
        large_containers(compilers)
    for n in options.depths:
        row("training", n, Chain(n), 1, compilers)


if __name__ == "__main__":
    main()
