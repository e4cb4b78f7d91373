"""Whether models learn as in eager: `python -m benchmarks.training [--models bert] [--registry FILE] [--steps 20]`.

In:     models with the sizes they meet; `--registry` as for `benchmarks.sizes`.
Out:    a row for each model, sizes fixed and changing: the largest difference of the two loss curves relative to the
        largest loss, the losses at the ends, and the peak of tensor memory during one step of each, at the size where
        ours is the largest part of eager's.
Holds:  both start from the same weights and take the same Adam steps on the same inputs. A row is bad where the curves
        differ by more than `ALLOWED`, something fell back to eager, or a step needs over `MEMORY` times eager's memory.

Nothing here is timed; each row is a process of its own.
"""

import argparse
import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.one import tensors
from benchmarks.sizes import registry

ALLOWED, MEMORY = 1e-2, 1.0001  # the engine holds the gradients of a function's results while it runs
LEARNING_RATE = 1e-3
WIDTHS = (24, 10, 12, 12, 12, 12, 12, 6)

# ---- one row, in this process


def loss_of(outputs: Any) -> Tensor:
    """The model's own loss, or the mean square of its outputs' distance to fixed values."""
    own = outputs.get("loss") if isinstance(outputs, dict) else None
    if own is not None:
        return own
    roots = [t for t in tensors(outputs) if t.requires_grad]
    return torch.stack([((t - torch.cos(torch.arange(t.numel())).view(t.shape)) ** 2).mean() for t in roots]).sum()


class Learner:
    """A model with its optimizer."""

    def __init__(self, case: Any, wrap: Callable[[Any], Any]) -> None:
        self.case = case
        case.set_mode(True)
        self.function = wrap(case.fn)
        self.optimizer = torch.optim.Adam(case.fn.parameters(), lr=LEARNING_RATE)

    def step(self, size: tuple[int, ...]) -> float:
        args, kwargs = copy.deepcopy(self.case.inputs(size))
        loss = loss_of(self.function(*args, **kwargs))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())

    def peak_memory(self, size: tuple[int, ...]) -> float:
        """Megabytes of tensors that one step allocates at most."""
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            self.step(size)
        now = peak = 0
        for event in sorted(found.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
            if event.name() == "[memory]":
                now += event.nbytes()
                peak = max(peak, now)
        return peak / 2**20


def check(build: Any, sizes: Any, steps: int) -> dict[str, Any]:
    import pliant

    eager, ours = Learner(build(), lambda fn: fn), Learner(build(), pliant.compile)
    met = [sizes[number % len(sizes)] for number in range(steps)]
    curves = [[learner.step(size) for size in met] for learner in (eager, ours)]
    top = max(map(abs, curves[0]))
    difference = max(abs(a - b) for a, b in zip(*curves, strict=True)) / top
    peaks = [[learner.peak_memory(size) for learner in (eager, ours)] for size in sizes]
    memory = max(peaks, key=lambda pair: pair[1] / pair[0])
    ends = [curves[1][0], curves[1][-1]]
    return {"difference": difference, "ends": ends, "memory": memory, "fallbacks": pliant.stats()["fallback_reasons"]}


# ---- all rows, a process each


def main() -> None:
    parser = argparse.ArgumentParser(description="Loss curves and memory of training beside eager.")
    parser.add_argument("--registry", help="a Python file with MODELS; by default the models of benchmarks.models")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sizes", nargs="*", default=["fixed", "changing"], choices=["fixed", "changing"])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = registry(options.registry)
    if options.child:
        (name,), (which,) = options.models, options.sizes
        build, sizes, _ = rows[name]
        print(json.dumps(check(build, sizes[:1] if which == "fixed" else sizes, options.steps)))
        return
    print_row(["model", "sizes", "difference", "first loss", "last loss", "eager MB", "ours MB", ""])
    bad = 0
    for name in options.models or [name for name, (_, _, modes) in rows.items() if "train" in modes]:
        for which in options.sizes:
            bad += print_result(name, which, run(options, name, which))
    raise SystemExit(f"{bad} bad rows" if bad else 0)


def run(options: argparse.Namespace, name: str, which: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.training", "--child", "--models", name, "--sizes", which]
    command += ["--steps", str(options.steps)] + (["--registry", options.registry] if options.registry else [])
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def print_result(name: str, which: str, row: dict[str, Any]) -> bool:
    if "failed" in row:
        print_row([name, which, row["failed"]])
        return True
    eager, ours = row["memory"]
    bad = not row["difference"] <= ALLOWED or ours > MEMORY * eager or bool(row["fallbacks"])
    cells = [f"{row['difference']:.1e}", *(f"{x:.4f}" for x in row["ends"]), f"{eager:.3f}", f"{ours:.3f}"]
    print_row([name, which, *cells, "bad" if bad else ""])
    if row["fallbacks"]:
        print("   ", str(row["fallbacks"])[:300])
    return bad


def print_row(cells: list[Any]) -> None:
    print("".join(str(c).ljust(w) for c, w in zip(cells, WIDTHS, strict=False)), flush=True)


if __name__ == "__main__":
    main()
