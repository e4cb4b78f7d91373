"""Whether models stay right and compiled as their sizes change: `python -m benchmarks.sizes [--models bert] [--registry FILE]`.

In:     models with the sizes they meet. `--registry`: a Python file whose `MODELS` maps names to objects with `sizes`,
        `modes` and `build()`, which gives a case with `fn`, `inputs(size) -> (args, kwargs)`, `set_mode(training)`,
        `params()` and `state()`.
Out:    a row for each model, mode and `dynamic=`: the largest error over its sizes, how often the function that was
        compiled most was compiled again, then the same at batch sizes 1 and 0; breaks and fallbacks.
Holds:  a row is bad where an error is over `ALLOWED`, something fell back to eager, a function was compiled again more
        often than once by default or at all with `dynamic=True`, or sizes 1 and 0 took more than one compile each.

Nothing here is timed; each row is a process of its own.
"""

import argparse
import copy
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.one import gradients, tensors

ALLOWED = {"output": 1e-3, "gradient": 1e-2}
WIDTHS = (24, 11, 9, 10, 10, 7, 7, 7, 8, 6)


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


def check(build: Any, sizes: Any, training: bool, dynamic: bool | None) -> dict[str, Any]:
    import pliant
    from pliant.debug import events

    eager, ours = build(), build()
    for case in (eager, ours):
        case.set_mode(training)
    function = pliant.compile(ours.fn, dynamic=dynamic)
    first = sizes[0]
    small = {f"_{n}": [(n, *first[1:])] * 2 for n in (1, 0) if len(first) > 1}
    row: dict[str, Any] = {}
    for key, met in {"": sizes, **small}.items():
        with events.collect("recompile") as found:
            row["error" + key] = error_at(eager, ours, function, met, training)
        row["again" + key] = max(Counter(e.fields["name"] for e in found).values(), default=0)
        row["why" + key] = [f"{e.fields['name']}: {e.fields['why']}" for e in found]
    stats = pliant.stats()
    return row | {"breaks": stats["graph_breaks"], "fallbacks": stats["fallback_reasons"]}


def error_at(eager: Any, ours: Any, function: Any, sizes: Any, training: bool) -> dict[str, float] | str:
    worst = {"output": 0.0, "gradient": 0.0}
    for size in sizes:
        try:
            wanted = step(eager, eager.fn, size, training)
        except (RuntimeError, ValueError, IndexError) as error:
            return f"eager: {str(error).splitlines()[0][:40]}"
        got = step(ours, function, size, training)
        for part in worst:
            worst[part] = max(worst[part], relative_error(got[part], wanted[part]))
    return worst


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


# ---- all rows, a process each


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy and compiles as sizes change.")
    parser.add_argument("--registry", help="a Python file with MODELS; by default the models of benchmarks.models")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--modes", nargs="*", default=["infer", "train"])
    parser.add_argument("--dynamic", nargs="*", default=["auto", "true"], choices=["auto", "true"])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = registry(options.registry)
    if options.child:
        (name,), (mode,), (dynamic,) = options.models, options.modes, options.dynamic
        build, sizes, _ = rows[name]
        print(json.dumps(check(build, sizes, mode == "train", True if dynamic == "true" else None)))
        return
    print_row(["model", "mode", "dynamic", "output", "gradient", "again", "at 1", "at 0", "breaks", ""])
    bad = 0
    for name in options.models or rows:
        for mode in (m for m in options.modes if m in rows[name][2]):
            for dynamic in options.dynamic:
                bad += print_result(name, mode, dynamic, run(options.registry, name, mode, dynamic))
    raise SystemExit(f"{bad} bad rows" if bad else 0)


def run(registry_path: str | None, name: str, mode: str, dynamic: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.sizes", "--child", "--models", name, "--modes", mode]
    command += ["--dynamic", dynamic] + (["--registry", registry_path] if registry_path else [])
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def print_result(name: str, mode: str, dynamic: str, row: dict[str, Any]) -> bool:
    if "failed" in row:
        print_row([name, mode, dynamic, row["failed"]])
        return True
    errors = [e for key in ("error", "error_1", "error_0") if isinstance(e := row.get(key), dict)]
    inaccurate = any(not e[part] <= ALLOWED[part] for e in errors for part in ALLOWED)
    many = row["again"] > (dynamic == "auto") or max(row.get("again_1", 0), row.get("again_0", 0)) > 1
    worst = {part: max((e[part] for e in errors), default=0.0) for part in ALLOWED}
    cells = [name, mode, dynamic, *(f"{worst[p]:.1e}" for p in ALLOWED), row["again"]]
    cells += [row.get("again_1", "-"), row.get("again_0", "-"), row["breaks"]]
    bad = inaccurate or many or bool(row["fallbacks"])
    print_row([*cells, "bad" if bad else ""])
    if bad:
        print("   ", str(row)[:600])
    return bad


def print_row(cells: list[Any]) -> None:
    print("".join(str(c).ljust(w) for c, w in zip(cells, WIDTHS, strict=False)), flush=True)


if __name__ == "__main__":
    main()
