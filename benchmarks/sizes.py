"""Whether models stay right, compiled and fast as their sizes change: `python -m benchmarks.sizes [--models bert]`.

In:     models with the sizes they meet. `--registry`: a Python file whose `MODELS` maps names to objects with `sizes`,
        `modes` and `build()`, which gives a case with `fn`, `inputs(size) -> (args, kwargs)`, `set_mode(training)`,
        `params()` and `state()`. `--no-time` leaves out the steady times.
Out:    a row for each model and mode, by default (`auto`) and with `dynamic=True` (`true`): the largest error over its
        sizes and at sizes 1 and 0; at how many sizes something was compiled again; at how many of two calls with a
        size 1, and a size 0; breaks; then seconds of the first call at the first size, static and symbolic, and
        symbolic / static of that and of a later call. Geometric means last.
Holds:  a row is bad where an error is over `ALLOWED`, something fell back to eager, where eager refuses a size and
        compiled code does not (with the same type of error), more than one size was compiled again by default or any
        with `dynamic=True` (sizes 1 and 0 aside), or a size of 1 or 0 took more than one compile.

Each half of a row is a process of its own with a cache folder of its own. Dimensions that vary among a model's sizes
are those which also become 1 and 0. Steady times are medians of calls in turn.
"""

import argparse
import copy
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.children import fresh_cache, geometric_mean
from benchmarks.one import gradients, in_turn, tensors

ALLOWED = {"output": 1e-3, "gradient": 1e-2}
WIDTHS = (23, 7, 9, 10, 15, 6, 6, 8, 10, 9, 6, 8, 4)
BUDGET = 1.5  # seconds of steady timing


class OwnCase:
    """A model of `benchmarks.models` as a case."""

    def __init__(self, model: models.Model) -> None:
        torch.manual_seed(0)
        self.fn, self._inputs = model.build(), model.inputs

    def inputs(self, size: tuple[int, ...]) -> tuple[tuple[()], dict[str, Tensor]]:
        torch.manual_seed(1)
        return (), self._inputs(size[0], size[1])

    def set_mode(self, training: bool) -> None:
        self.fn.train(training)

    def state(self) -> dict[str, Tensor]:
        return dict(self.fn.named_buffers())


def registry(path: str | None) -> dict[str, tuple[Any, Any, tuple[str, ...]]]:
    """name -> (how to build a case, its sizes, its modes)."""
    if path is None:
        both = ("infer", "train")
        return {name: ((lambda m=m: OwnCase(m)), m.sizes, both) for name, m in models.MODELS.items()}
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location("registry", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["registry"] = module
    spec.loader.exec_module(module)
    return {name: (s.build, s.sizes, s.modes) for name, s in module.MODELS.items()}


# ---- one row, in this process


def step(case: Any, function: Any, size: tuple[int, ...], training: bool) -> dict[str, list[Tensor]]:
    """Outputs, gradients and state after a call."""
    args, kwargs = copy.deepcopy(case.inputs(size))
    with torch.set_grad_enabled(training):
        outputs = tensors(function(*args, **kwargs))
    if training:
        roots = [t for t in outputs if t.requires_grad]
        torch.autograd.backward(roots, [torch.cos(torch.arange(t.numel())).view(t.shape).to(t.dtype) for t in roots])
    model = case.fn if isinstance(case.fn, nn.Module) else None
    found = {
        "output": [t.detach() for t in outputs] + [t.detach().clone() for t in case.state().values()],
        "gradient": [g.clone() for g in gradients(model)] if model is not None else [],
    }
    if model is not None:
        model.zero_grad()
    return found


def check(build: Any, sizes: Any, training: bool, dynamic: bool | None, timed: bool) -> dict[str, Any]:
    import pliant
    from pliant.debug import events

    eager, ours = build(), build()
    for case in (eager, ours):
        case.set_mode(training)
    step(eager, eager.fn, sizes[0], training)  # warms up torch itself
    function = pliant.compile(ours.fn, dynamic=dynamic)
    start = time.perf_counter()
    step(ours, function, sizes[0], training)
    row: dict[str, Any] = {
        "cold": time.perf_counter() - start,
        "small": len({1, 0} & {n for s in sizes[1:] for n in s}),
    }
    for key, met in {"": [list(sizes)], **{f"_{n}": small_sizes(sizes, n) for n in (1, 0)}}.items():
        errors, again, why = [], [0], []
        for group in met:
            again.append(0)
            for size in group:
                with events.collect("recompile") as found:
                    errors.append(error_at(eager, ours, function, size, training))
                again[-1] += bool(found) and "refused" not in errors[-1]  # nothing is kept of a call that raises
                why += [f"{size}: {e.fields['name']}: {e.fields['why']}" for e in found]
        row |= {"error" + key: errors, "again" + key: max(again), "why" + key: why}
    stats = pliant.stats()
    row |= {"breaks": stats["graph_breaks"], "fallbacks": stats["fallback_reasons"]}
    return row | ({"steady": steady(build, sizes[0], training)} if timed and dynamic else {})


def small_sizes(sizes: Any, n: int) -> list[list[tuple[int, ...]]]:
    """The first size with each dimension that varies set to `n`, met twice."""
    first = sizes[0]
    varying = [d for d in range(len(first)) if len({size[d] for size in sizes}) > 1]
    return [[(*first[:d], n, *first[d + 1 :])] * 2 for d in varying] if len(first) > 1 else []


def steady(build: Any, size: tuple[int, ...], training: bool) -> float:
    """Time of a call with symbolic sizes over that of one with static ones."""
    import pliant

    cases = [build() for _ in range(2)]
    for case in cases:
        case.set_mode(training)
    functions = [pliant.compile(case.fn, dynamic=dynamic) for case, dynamic in zip(cases, (True, False), strict=True)]
    inputs = cases[0].inputs(size)
    calls = [lambda c=c, f=f: run_once(c, f, inputs, training) for c, f in zip(cases, functions, strict=True)]
    times = in_turn(calls[0], calls[1], BUDGET)
    return statistics.median(x / y for x, y in times)


def run_once(case: Any, function: Any, inputs: Any, training: bool) -> None:
    with torch.set_grad_enabled(training):
        outputs = tensors(function(*inputs[0], **inputs[1]))
    if training:
        roots = [t for t in outputs if t.requires_grad]
        torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
        if isinstance(case.fn, nn.Module):
            case.fn.zero_grad()


def error_at(eager: Any, ours: Any, function: Any, size: Any, training: bool) -> dict[str, float]:
    """The errors; infinite where one raises and the other does not, or another type of error."""
    wanted, refused = attempt(eager, eager.fn, size, training)
    got, error = attempt(ours, function, size, training)
    if type(error) is not type(refused):  # a model may take another way where it is compiled
        with mock.patch("torch.compiler.is_compiling", lambda: True):
            wanted, refused = attempt(eager, eager.fn, size, training)
    if type(error) is not type(refused):
        return {"output": float("inf"), "gradient": 0.0, f"{type(error).__name__}, eager {type(refused).__name__}": 0.0}
    if error is not None:
        return {"output": 0.0, "gradient": 0.0, "refused": 0.0}
    return {part: relative_error(got[part], wanted[part]) for part in wanted}


def attempt(case: Any, function: Any, size: Any, training: bool) -> tuple[dict[str, list[Tensor]], Exception | None]:
    try:
        return step(case, function, size, training), None
    except Exception as error:
        return {}, error


def relative_error(got: list[Tensor], wanted: list[Tensor]) -> float:
    """Largest difference relative to the tensor's largest value; infinite where shapes or the places of NaN differ."""
    finite = [w.nan_to_num().abs().max().item() for w in wanted if w.numel()]
    floor = 1e-3 * max(finite, default=1.0) or 1.0
    worst = 0.0 if len(got) == len(wanted) else float("inf")
    for g, w in zip(got, wanted, strict=False):
        if g.shape != w.shape or g.dtype != w.dtype or not torch.equal(g.isnan(), w.isnan()):
            return float("inf")
        if w.numel():
            difference = (g.nan_to_num().double() - w.nan_to_num().double()).abs().max().item()
            worst = max(worst, difference / max(w.nan_to_num().abs().max().item(), floor))
    return worst


# ---- all rows, two processes each


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy, compiles and times as sizes change.")
    parser.add_argument("--registry", help="a Python file with MODELS; by default the models of benchmarks.models")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--modes", nargs="*", default=["infer", "train"])
    parser.add_argument("--no-time", action="store_true", help="no steady times")
    parser.add_argument("--child", choices=["auto", "true"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = registry(options.registry)
    if options.child:
        (name,), (mode,) = options.models, options.modes
        build, sizes, _ = rows[name]
        dynamic = True if options.child == "true" else None
        print(json.dumps(check(build, sizes, mode == "train", dynamic, not options.no_time)))
        return
    titles = ["model", "mode", "output", "gradient", "compiled again", "at 1", "at 0"]
    print_row([*titles, "breaks", "static s", "dynamic", "cold", "steady", ""])
    results = [
        print_result(name, mode, *(run(options, name, mode, dynamic) for dynamic in ("auto", "true")))
        for name in options.models or rows
        for mode in (m for m in options.modes if m in rows[name][2])
    ]
    print_means(results)
    bad = sum(r["bad"] for r in results)
    raise SystemExit(f"{bad} bad rows" if bad else 0)


def run(options: argparse.Namespace, name: str, mode: str, dynamic: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.sizes", "--child", dynamic, "--models", name, "--modes", mode]
    command += ["--no-time"] * options.no_time + (["--registry", options.registry] if options.registry else [])
    with fresh_cache() as cache:
        env = {**os.environ, "PLIANT_CACHE_DIR": str(cache)}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def print_result(name: str, mode: str, auto: dict[str, Any], true: dict[str, Any]) -> dict[str, Any]:
    failed = [row["failed"] for row in (auto, true) if "failed" in row]
    if failed:
        print_row([name, mode, *failed])
        return {"bad": True}
    worst = {part: max(worst_error(row, part) for row in (auto, true)) for part in ALLOWED}
    bad = any(not worst[part] <= ALLOWED[part] for part in ALLOWED)
    bad = bad or auto["again"] > 1 + auto["small"] or true["again"] > true["small"]
    for row in (auto, true):
        bad = bad or bool(row["fallbacks"]) or max(row["again_1"], row["again_0"]) > 1
    cells: list[Any] = [name, mode, *(f"{worst[p]:.1e}" for p in ALLOWED)]
    cells += [f"{auto[key]} {true[key]}" for key in ("again", "again_1", "again_0", "breaks")]
    times = {"cold": true["cold"] / auto["cold"], "steady": true.get("steady", float("nan"))}
    cells += [f"{t:.2f}" for t in (auto["cold"], true["cold"], *times.values())]
    print_row([*cells, "bad" if bad else ""])
    for row in (auto, true) if bad else ():
        print("   ", str(row)[:800])
    return {"bad": bad, **times}


def worst_error(row: dict[str, Any], part: str) -> float:
    errors = [e for key in ("error", "error_1", "error_0") for e in row[key]]
    return max((float(e[part]) for e in errors), default=0.0)


def print_means(results: list[dict[str, Any]]) -> None:
    for key in ("cold", "steady"):
        ratios = [r[key] for r in results if key in r and r[key] == r[key]]
        worst = max(ratios, default=float("nan"))
        print(f"{key}: symbolic / static, geometric mean {geometric_mean(ratios):.3f}, largest {worst:.3f}")


def print_row(cells: list[Any]) -> None:
    print("".join(str(c).ljust(w) for c, w in zip(cells, WIDTHS, strict=False)), flush=True)


if __name__ == "__main__":
    main()
