"""Measure one model with one compiler in this process; prints one line of JSON.

    python -m benchmarks.one --compiler pliant --model bert --training --sizes 3

The drivers (`speed`, `compile_time`) start it in a process of its own, with the cache folder of their choice.
"""

import argparse
import copy
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.models import MODELS

Call = Callable[[], object]


def compiled_by(compiler: str, model: nn.Module) -> Callable[..., object]:
    if compiler == "pliant":
        import pliant

        return pliant.compile(model)
    return torch.compile(model) if compiler == "peer" else model


def tensors(value: object) -> list[Tensor]:
    """The tensors of an output, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def call(function: Callable[..., object], inputs: dict[str, Tensor], training: bool) -> list[Tensor]:
    """Outputs of one inference call, or of forward and backward of a fixed weighted sum."""
    if not training:
        with torch.no_grad():
            return tensors(function(**inputs))
    outputs = tensors(function(**inputs))
    roots = [t for t in outputs if t.requires_grad]
    torch.autograd.backward(roots, [torch.cos(torch.arange(t.numel())).view(t.shape).to(t.dtype) for t in roots])
    return [t.detach() for t in outputs]


def relative_error(got: list[Tensor], wanted: list[Tensor]) -> float:
    """Largest difference relative to the tensor's largest value (1/1000 of the largest tensor's at least)."""
    scale = 1e-3 * max((float(w.abs().max()) for w in wanted), default=1.0)
    errors = [float((g - w).abs().max()) / max(float(w.abs().max()), scale) for g, w in zip(got, wanted, strict=True)]
    return max(errors, default=0.0)


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def drop_gradients(*models: nn.Module) -> None:
    for model in models:
        for p in model.parameters():
            p.grad = None


def seconds(action: Call) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def in_turn(a: Call, b: Call, budget: float) -> list[tuple[float, float]]:
    """Times of both, called alternately until the budget (seconds) is used; three rounds at least."""
    a(), b()
    times: list[tuple[float, float]] = []
    end = time.perf_counter() + budget
    while len(times) < 3 or time.perf_counter() < end:
        times.append((seconds(a), seconds(b)))
    return times


def measure(name: str, compiler: str, training: bool, sizes: int, budget: float) -> dict[str, object]:
    spec = MODELS[name]
    torch.manual_seed(0)
    eager = spec.build().train(training)
    ours = copy.deepcopy(eager)
    call(eager, spec.inputs(*spec.sizes[0]), training)  # warms up torch itself
    drop_gradients(eager)
    start = time.perf_counter()
    function = compiled_by(compiler, ours)
    wrap = time.perf_counter() - start
    found: dict[str, list[float]] = {"compile_s": [], "ratio": [], "eager_ms": [], "compiled_ms": [], "error": []}
    for size in spec.sizes[:sizes]:
        inputs = spec.inputs(*size)
        base, fast = (functools.partial(call, f, inputs, training) for f in (eager, function))
        first = seconds(fast) + (wrap if not found["ratio"] else 0.0)
        drop_gradients(eager, ours)
        found["error"].append(relative_error([*fast(), *gradients(ours)], [*base(), *gradients(eager)]))
        times = in_turn(base, fast, budget)
        drop_gradients(eager, ours)
        e, c = (statistics.median(column) for column in zip(*times, strict=True))
        found["compile_s"].append(max(0.0, first - c))
        found["ratio"].append(statistics.median(x / y for x, y in times))
        found["eager_ms"].append(1e3 * e)
        found["compiled_ms"].append(1e3 * c)
    return {"model": name, "compiler": compiler, "training": training, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure one model with one compiler.")
    parser.add_argument("--compiler", choices=["eager", "pliant", "peer"], default="pliant")
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--sizes", type=int, default=1)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of timing for each size")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    result = measure(options.model, options.compiler, options.training, options.sizes, options.budget)
    print(json.dumps(result))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
