"""Kernels beside eager and beside memory's own speed: `python -m benchmarks.patterns [--set operators] [--peer] [--device cuda]`.

A row is a pattern at a size: milliseconds of eager and of pliant, eager's time over pliant's (above 1: pliant is faster),
pliant's over that of a copy of as many bytes, pliant's error against float64 over eager's; asked for, torch.compile's
time over pliant's. All are called in turn in one process; times are the least of a thread's processor time, so on
more than one thread `--wall` counts by the clock, as on a GPU.
"""

import argparse
import math
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from benchmarks import operator_programs, pattern_programs
from benchmarks.children import geometric_mean, print_row
from benchmarks.pattern_programs import SIZES, Pattern, gradients, inputs, leaves

WIDTHS = (32, 8, 10, 10, 10, 8, 8, 8, 8)


def finished(clock: Callable[[], float]) -> Callable[[], float]:
    """The clock, once the GPU has done what it was given."""

    def read() -> float:
        torch.cuda.synchronize()
        return clock()

    return read


def least(calls: dict[str, Callable[[], object]], seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """The least time of one call of each, in milliseconds; they take turns."""
    found = dict.fromkeys(calls, math.inf)
    for call in calls.values():
        call()
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            start = clock()
            call()
            once = clock() - start
            turns = max(1, min(50, int(0.002 / max(once, 1e-6))))
            start = clock()
            for _ in range(turns):
                call()
            found[name] = min(found[name], (clock() - start) / turns)
    return {name: 1e3 * seconds for name, seconds in found.items()}


def error(got: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The largest error of a result's elements, by its largest element."""
    pairs = [(g.double(), e.double()) for g, e in zip(got, exact, strict=True)]
    apart = [(g - e).abs().max() / (e.abs().max() + 1e-30) for g, e in pairs]
    return max(float(a) for a in apart)


def caller(f: Callable[..., Any], args: list[torch.Tensor], grads: list[torch.Tensor] | None) -> Callable[[], Any]:
    def infer() -> Any:
        with torch.no_grad():
            return leaves(f(*args))

    return infer if grads is None else lambda: gradients(f, args, grads)


def fresh(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same function without what was compiled for it."""
    assert isinstance(f, FunctionType)
    return FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)


def measure(
    pattern: Pattern, training: bool, size: str, dtype: torch.dtype, options: argparse.Namespace
) -> dict[str, float]:
    import pliant

    torch.manual_seed(0)
    args = inputs(pattern, size, dtype, training, options.device)
    results = leaves(pattern.function(*args)) if training else []
    grads = [torch.randn_like(t) for t in results if t.requires_grad] if training else None
    calls = {"eager": caller(pattern.function, args, grads)}
    calls["pliant"] = caller(pliant.compile(fresh(pattern.function), dynamic=False), args, grads)
    if options.peer:
        torch._dynamo.reset()
        calls["peer"] = caller(torch.compile(fresh(pattern.function), dynamic=False), args, grads)
    wide = [t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t for t in args]
    exact = caller(pattern.function, wide, [g.double() for g in grads] if grads is not None else None)()
    errors = {name: error(calls[name](), exact) for name in ("eager", "pliant")}
    moved = sum(t.nbytes for t in args) + sum(t.nbytes for t in calls["eager"]())
    moved += sum(t.nbytes for t in args + grads) if grads is not None else 0  # backward reads inputs again
    source = torch.empty(max(1, moved // 8), device=options.device)
    target = torch.empty_like(source)
    calls["floor"] = lambda: target.copy_(source)
    clock = time.perf_counter if options.wall else time.thread_time
    clock = finished(time.perf_counter) if options.device == "cuda" else clock
    found = least(calls, options.budget, clock)
    return found | {"error": errors["pliant"] / max(errors["eager"], 1e-30) if errors["pliant"] else 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--set", default="patterns", choices=["patterns", "operators"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of timing for each row")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--wall", action="store_true", help="time by the clock, which other programs disturb")
    parser.add_argument("--peer", action="store_true", help="torch.compile beside it")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    programs = {"patterns": pattern_programs, "operators": operator_programs}[options.set]
    rows = [(p, False) for p in programs.INFERENCE] + [(p, True) for p in programs.TRAINING]
    heads = ["pattern", "size", "dtype", "eager ms", "ms", "eager/", "/copy", "error/", *["peer/"] * options.peer]
    print_row(heads, WIDTHS)
    ratios, slower = [], []
    for dtype in options.dtypes:
        for size in options.sizes:
            for pattern, training in rows:
                if training and not getattr(torch, dtype).is_floating_point:
                    continue
                name = pattern.name + (" (training)" if training else "")
                if options.only and pattern.name not in options.only:
                    continue
                try:
                    seen = measure(pattern, training, size, getattr(torch, dtype), options)
                except NotImplementedError:  # eager has none of this dtype
                    print_row([name, size, dtype, "-"], WIDTHS)
                    continue
                ratios.append(seen["eager"] / seen["pliant"])
                if ratios[-1] < 1:
                    slower.append(f"{name} {size} {dtype}")
                numbers = [ratios[-1], seen["pliant"] / seen["floor"], seen["error"]]
                numbers += [seen["peer"] / seen["pliant"]] if options.peer else []
                times = [f"{seen['eager']:.3f}", f"{seen['pliant']:.3f}"]
                print_row([name, size, dtype, *times, *(f"{n:.2f}" for n in numbers)], WIDTHS)
    print_row(["all", "", "", "", "", f"{geometric_mean(ratios):.2f}"], WIDTHS)
    print(f"slower than eager: {len(slower)} of {len(ratios)}", *slower, sep="\n  ")


if __name__ == "__main__":
    main()
