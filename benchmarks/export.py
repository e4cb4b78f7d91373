"""What exporting and packaging cost, and how fast packages are: `python -m benchmarks.export [--peer] [--registry FILE]`.

In:     models with the sizes they meet; `--registry` as for `benchmarks.sizes`, `--zoo` models of `benchmarks.zoo_models`.
Out:    a row for each model: seconds of the processor (those of compilers that it started, too) to export it and to package
        it, `/peer` as shares of torch.export's and AOTInductor's; the largest relative error of the package, loaded in a
        new process, at all sizes; `calls/peer`: how many times as fast as AOTInductor's package its calls are, the
        geometric mean over sizes. Geometric means last. `--wall`: seconds of the clock in place of the processor's.
Holds:  every size that differs among the model's sizes varies. Both are inference, in processes of their own, with cache
        folders of their own, after a trivial model that loads what compilers need. Calls are the fastest of those of two
        processes, in which both packages are called in turn. Rows share nothing: several may be measured at once, each by
        `--only NAME`, on cores of its own.
"""

import argparse
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from benchmarks import zoo_models
from benchmarks.children import geometric_mean, print_row
from benchmarks.sizes import registry
from pliant.errors import FallbackWarning

BUDGET = 0.5  # seconds of calls at a size
Call = tuple[tuple[Any, ...], dict[str, Any]]


def rows_of(options: argparse.Namespace) -> dict[str, tuple[Any, Any]]:
    """name -> (how to build a case, its sizes)."""
    if not options.zoo:
        return {name: (build, sizes) for name, (build, sizes, _) in registry(options.registry).items()}
    zoo_models.import_libraries({name.partition("/")[0] for name in options.zoo})
    return {name: (lambda name=name: ZooCase(zoo_models.find_case(name)), zoo_models.SIZES) for name in options.zoo}


class ZooCase:
    """A model of the zoo as a case."""

    def __init__(self, case: Any) -> None:
        torch.manual_seed(0)
        self.fn, self.case = case.build(), case

    def set_mode(self, training: bool) -> None:
        self.fn.train(training)

    def inputs(self, size: Any) -> Call:
        return (), self.case.inputs(self.fn, size)


def varying(one: Any, other: Any, auto: object) -> Any:
    """What to say of the sizes of one call's arguments: those that another call has otherwise vary."""
    if isinstance(one, Tensor):
        return {dim: auto for dim, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if a != b} or None
    if isinstance(one, dict):
        return {key: varying(one[key], other[key], auto) for key in one}
    if isinstance(one, (list, tuple)):
        return type(one)(varying(a, b, auto) for a, b in zip(one, other, strict=True))
    return None


def said_of(calls: list[Call], auto: object) -> Any:
    """`dynamic_shapes`, of calls that pass all by position or all by name."""
    (args, kwargs), (others, named) = calls[0], calls[1] if len(calls) > 1 else calls[0]
    said = varying(kwargs, named, auto) if kwargs else varying(tuple(args), tuple(others), auto)
    return said if any(one is not None for one in pytree.tree_leaves(said)) else None


# ---- each compiler: (export of a model and calls, package of what that gave at a path, what loads a package)
def pliant_compiler() -> tuple[Callable[..., Any], Callable[[Any, str], Any], Callable[[str], Callable[..., Any]]]:
    import pliant

    def export(fn: Any, calls: list[Call]) -> Any:
        return pliant.export(fn, *calls[0], dynamic_shapes=said_of(calls, pliant.AUTO))

    return export, pliant.aot_compile, lambda path: pliant.load(path, kernels=True, libraries=("transformers",))


def peer_compiler() -> tuple[Callable[..., Any], Callable[[Any, str], Any], Callable[[str], Callable[..., Any]]]:
    from torch._inductor import aoti_compile_and_package, aoti_load_package
    from torch.export import Dim, export

    def exported(fn: Any, calls: list[Call]) -> Any:
        module = fn if isinstance(fn, nn.Module) else AsModule(fn)
        return export(module, *calls[0], dynamic_shapes=said_of(calls, Dim.AUTO))

    return exported, lambda made, path: aoti_compile_and_package(made, package_path=path), aoti_load_package


class AsModule(nn.Module):
    """A function, for compilers that take modules alone."""

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.forward = fn


COMPILERS = {"pliant": pliant_compiler, "peer": peer_compiler}


# ---- one measurement, in this process
class Clock:
    """Seconds since it was made: of the clock, of the processor with the processes that ended."""

    def __init__(self) -> None:
        self.start = self._now()

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

    def passed(self) -> tuple[float, float]:
        now = self._now()
        return now[0] - self.start[0], now[1] - self.start[1]


def make(compiler: str, build: Any, sizes: Any, folder: Path, only_export: bool) -> dict[str, Any]:
    """Export and package; eager's results are left in the folder."""
    export, package, _ = COMPILERS[compiler]()
    suffix = ".pt2" if compiler == "peer" else ".pliant"
    with torch.no_grad():
        trivial = export(nn.Linear(4, 4).eval(), [((torch.ones(2, 4),), {}), ((torch.ones(3, 4),), {})])
        if not only_export:
            package(trivial, str(folder / f"trivial{suffix}"))
        case = build()
        case.set_mode(False)
        calls = [case.inputs(size) for size in sizes]
        export_clock = Clock()
        made = export(case.fn, calls)
        found: dict[str, Any] = {"export": export_clock.passed()}
        fresh = [case.inputs(size) for size in sizes]
        torch.save(fresh, folder / "calls")
        if not only_export:
            package_clock = Clock()
            package(made, str(folder / f"package{suffix}"))
            found["package"] = package_clock.passed()
        results = [case.fn(*args, **kwargs) for args, kwargs in fresh]
        torch.save(list(map(pytree.tree_leaves, results)), folder / f"wanted_{compiler}")
    own = type(case.fn).__module__  # which registers the operators of its library
    found["modules"] = sorted(modules_of(results[0]) | ({own} if own.startswith("transformers.") else set()))
    return found


def modules_of(value: Any) -> set[str]:
    """Modules that register the classes of a result."""
    found = {type(value).__module__} - {"builtins", "torch"}
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return found.union(*map(modules_of, children))


def use(compilers: list[str], folder: Path, modules: list[str]) -> dict[str, dict[str, Any]]:
    """Load the packages; by compiler how far results are from eager's, and seconds of a call at each size, called in turn."""
    zoo_models.import_libraries(())  # what models' modules import
    for one in modules:
        importlib.import_module(one)
    calls = torch.load(folder / "calls", weights_only=False)
    warnings.simplefilter("error", FallbackWarning)  # a package that runs by operators is not what is measured
    programs, found = {}, {}
    with torch.no_grad():
        for compiler in compilers:
            wanted = torch.load(folder / f"wanted_{compiler}", weights_only=False)
            load = COMPILERS[compiler]()[2]
            program = load(str(folder / ("package" + (".pt2" if compiler == "peer" else ".pliant"))))
            results = [pytree.tree_leaves(program(*args, **kwargs)) for args, kwargs in calls]
            programs[compiler] = program
            found[compiler] = {"error": max(map(error_of, results, wanted)), "seconds": []}
        for args, kwargs in calls:
            each = {name: (lambda a=args, k=kwargs, p=one: p(*a, **k)) for name, one in programs.items()}
            for compiler, seconds in fastest(each).items():
                found[compiler]["seconds"].append(seconds)
    return found


def error_of(found: list[Any], wanted: list[Any]) -> float:
    """The largest difference, relative to the largest element of each result."""
    worst = 0.0
    for a, b in zip(
        (t for t in found if isinstance(t, Tensor)), (t for t in wanted if isinstance(t, Tensor)), strict=True
    ):
        a, b = a.double(), b.double()
        if a.numel():
            worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)))
    return worst


def fastest(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of the processor, which other programs' work lengthens less: of one thread, with OMP_NUM_THREADS=1. What else
    the machine does meets all of them alike: they are called in turn."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    end, turns = time.perf_counter() + BUDGET * len(calls), 0
    while time.perf_counter() < end or turns < 5:
        turns += 1
        for name, call in calls.items():
            start = time.process_time()
            call()
            found[name].append(time.process_time() - start)
    return {name: min(times) for name, times in found.items()}


# ---- processes and the table
def child(
    options: argparse.Namespace, compilers: str, name: str, task: str, folder: str, modules: list[str] | None = None
) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.export", "--compilers", *compilers.split(), "--task", task, "--folder", folder]
    command += ["--modules", *modules] if modules else []
    command += ["--zoo", name] if options.zoo else ["--models", name]
    command += ["--registry", options.registry] if options.registry else []
    caches = {"PLIANT_CACHE_DIR": f"{folder}/cache", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/peer_cache"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **caches})
    if done.returncode:
        return {"failed": f"{task} by {compilers}: {why_ended(done.returncode, done.stderr)[:150]}"}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def why_ended(code: int, text: str) -> str:
    """Why a process failed: the signal that ended it, or the last line of its errors that says one."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    lines = text.strip().splitlines()
    return next((one for one in reversed(lines) if "Error" in one), lines[-1] if lines else f"exit status {code}")


def measure(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """What both do with one model."""
    compilers = ["pliant", "peer"] if options.peer else ["pliant"]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="pliant-export-") as folder:
        task, runs = ("export", options.runs) if options.only_export else ("make", 1)
        for compiler in compilers * runs:  # in turn
            one = child(options, compiler, name, task, folder)
            if "export" in one and "export" in found.get(compiler, {}):
                one["export"] = list(map(min, one["export"], found[compiler]["export"]))
            found[compiler] = one
        made = [] if options.only_export else [one for one in compilers if "failed" not in found[one]]
        for _ in range(2 if made else 0):
            modules = sorted({module for one in made for module in found[one]["modules"]})
            used = child(options, " ".join(made), name, "use", folder, modules)
            for compiler, one in used.items() if "failed" not in used else ((made[0], used),):
                if "seconds" in found[compiler] and "seconds" in one:
                    one["seconds"] = list(map(min, one["seconds"], found[compiler]["seconds"]))
                found[compiler].update(one)
    return found


def figures(found: dict[str, Any], wall: bool) -> dict[str, float]:
    """The cells of a row, by column."""
    at, own, peer = 0 if wall else 1, found["pliant"], found.get("peer", {"failed": ""})
    cells = {}
    for stage in ("export", "package"):
        if stage in own:
            cells[stage] = own[stage][at]
            if stage in peer:
                cells[f"{stage}/peer"] = own[stage][at] / peer[stage][at]
    if "error" in own:
        cells["error"] = own["error"]
    if "error" in peer:
        cells["its error"] = peer["error"]
    if "seconds" in own and "seconds" in peer:
        cells["calls/peer"] = geometric_mean([b / a for a, b in zip(own["seconds"], peer["seconds"], strict=True)])
    return cells


COLUMNS = ("export", "export/peer", "package", "package/peer", "error", "its error", "calls/peer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", "--only", nargs="*", help="some of the registry's; all by default")
    parser.add_argument("--registry", help="a Python file with MODELS; by default the models of benchmarks.models")
    parser.add_argument("--zoo", nargs="*", help="models of the zoo in place of a registry's: hf/bert timm/resnet")
    parser.add_argument("--peer", action="store_true", help="measure torch.export and AOTInductor too")
    parser.add_argument("--only-export", action="store_true", help="make no packages")
    parser.add_argument("--runs", type=int, default=1, help="of exports alone: the fastest of so many processes")
    parser.add_argument("--wall", action="store_true", help="seconds of the clock")
    parser.add_argument("--compilers", nargs="*", choices=list(COMPILERS), help="one measurement in this process")
    parser.add_argument("--task", choices=["export", "make", "use"])
    parser.add_argument("--folder")
    parser.add_argument("--modules", nargs="*", default=[], help="to import before a package is loaded")
    options = parser.parse_args()
    rows = rows_of(options)
    names = options.models or list(rows)
    if options.compilers:
        folder = Path(options.folder)
        if options.task == "use":
            print(json.dumps(use(options.compilers, folder, options.modules)))
        else:
            print(json.dumps(make(options.compilers[0], *rows[names[0]], folder, options.task == "export")))
        return
    print_table(options, names)


def print_table(options: argparse.Namespace, names: list[str]) -> None:
    all_cells: list[dict[str, float]] = []
    widths = (24, *(14,) * len(COLUMNS))
    print_row(["model", *COLUMNS], widths)
    for name in names:
        found = measure(options, name)
        cells = figures(found, options.wall)
        texts = [_text(column, cells.get(column)) for column in COLUMNS]
        print_row([name, *texts, *(one["failed"] for one in found.values() if "failed" in one)], (*widths, 100, 100))
        all_cells.append(cells)
    means = [[one[c] for one in all_cells if c in one] for c in COLUMNS]
    print_row(
        ["geometric mean", *(f"{geometric_mean(m):.3f}" if "/" in c and m else "" for c, m in zip(COLUMNS, means))],
        widths,
    )


def _text(column: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.0e}" if "error" in column else f"{value:.3f}"


if __name__ == "__main__":
    main()
