"""Every model that the installed libraries can build, small, in eager and compiled: `python -m benchmarks.zoo`.

In:     `--only NAME ...` (a name, or a part of one), `--library hf timm`, `--mode inference|training`, `--shard i/n`,
        `--device cuda`, `--timeout` seconds of the processor a model and mode, `--for` seconds in all: what is left is run
        by the same command again.
        `--out FILE` takes a JSON line for each model and mode as it is known;
        rows that it holds are not run again (`--again` lists what to repeat: `failed`, `broken`, `slow`, `wrong`).
        `--show FILE ...` prints the summary of such files and runs nothing; `--list` prints the names.
Out:    for each row whether outputs, gradients and state equal eager's at three sizes (float64 decides where they
        differ), graphs, breaks with reason and line, recompiles at each size, fallbacks, seconds of each first call and
        of eager's, steady time of eager over compiled; then a summary.
Holds:  training is forward and backward of a weighted sum of all floating-point outputs. Dropout is off. A row is
        whole if one graph was made of the model at every size, and no call or region ran eagerly.

The optional extra `zoo` names the libraries; one that is not installed is left out. Each row is a process of its own,
forked from one that has imported the libraries, with a cache folder of its own.
"""

import argparse
import collections
import contextlib
import copy
import gc
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks import zoo_models
from benchmarks.children import fresh_cache
from benchmarks.one import drop_gradients, in_turn
from benchmarks.sizes import relative_error

MODES = ("inference", "training")
ALLOWED = 2e-3  # of a tensor's largest value, before float64 is asked
NUDGES = 7  # other weights at which gradients are compared where they differ at the first
SLOW = 10.0  # seconds of a first call beyond what eager takes
STANDSTILL = 6  # times the limit, by the clock: a process that waits for something
BUDGET = 0.4  # seconds of steady timing
EAGER = ("fallback", "recompile_limit", "skip", "assumption")  # events of calls and code that run eagerly
Row = dict[str, Any]
Found = dict[str, list[Tensor]]


# ---- one row, in a process of its own


def floating(value: object) -> list[Tensor]:
    """The tensors of an output in order, caches and other objects left out."""
    if isinstance(value, Tensor):
        return [value] if value.layout is torch.strided and not value.is_complex() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in floating(v)] if isinstance(value, (list, tuple)) else []


def call(function: Callable[..., object], inputs: Row, training: bool) -> list[Tensor]:
    """Outputs of a call; in training after backward of a fixed weighted sum."""
    torch.manual_seed(3)
    if not training:
        with torch.no_grad():
            return floating(function(**inputs))
    outputs = floating(function(**inputs))
    roots = [t for t in outputs if t.requires_grad]
    if not roots:
        raise zoo_models.NoCase("no output has a gradient")
    torch.autograd.backward(roots, [torch.cos(torch.arange(t.numel())).view(t.shape).to(t) for t in roots])
    return [t.detach() for t in outputs]


def step(model: nn.Module, function: Callable[..., object], inputs: Row, training: bool) -> Found:
    """Outputs, gradients and state after a call."""
    outputs = call(function, copy.deepcopy(inputs), training)
    found = {
        "output": [t.double() for t in outputs],
        "gradient": [p.grad.double() for p in model.parameters() if p.grad is not None and not p.grad.is_sparse],
        "state": [b.double() for b in model.buffers()],
    }
    model.zero_grad(set_to_none=True)
    return found


def worst(got: Found, wanted: Found) -> float:
    return max(relative_error(got[part], wanted[part]) for part in wanted)


def attempt(action: Callable[[], Found]) -> tuple[Found | None, str]:
    try:
        return action(), ""
    except zoo_models.NoCase:
        raise
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"[:300]


class OutOfTime(BaseException):
    """A row took more of the processor than it may."""


def moved(value: Any, device: str) -> Any:
    """Inputs of a model with their tensors on a device."""
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v, device) for v in value)
    if isinstance(value, dict):
        return {name: moved(v, device) for name, v in value.items()}
    return value.to(device) if isinstance(value, Tensor) else value


def measure(case: zoo_models.Case, mode: str, backend: str, device: str = "cpu") -> Row:
    """The row of one model."""
    import pliant
    from pliant.debug import events

    training = mode == "training"
    base = without_dropout(case.build()).train(training)
    made = [moved(case.inputs(copied(base).eval(), size), device) for size in case.sizes]
    base = base.to(device)
    eager, ours = copied(base), copied(base)
    _, refused = attempt(lambda: step(copied(base), eager, made[0], training))  # warms up torch itself
    if refused:  # a model that wants labels in training, say
        raise zoo_models.NoCase(f"eager: {refused}")
    eager, function = copied(base), pliant.compile(ours, backend=backend)
    row: Row = {"what": case.what, "parameters": sum(p.numel() for p in base.parameters()), "sizes": []}
    pliant.reset()
    for at, inputs in enumerate(made):
        start = cpu_seconds()
        wanted, refused = attempt(lambda i=inputs: step(eager, eager, i, training))
        eagers, start, cpu = cpu_seconds() - start, time.perf_counter(), cpu_seconds()
        with events.collect("recompile", "graph", "graph_break", *EAGER) as seen:
            got, error = attempt(lambda i=inputs: step(ours, function, i, training))
        found = {"seconds": time.perf_counter() - start, "cpu": cpu_seconds() - cpu, "eager": eagers, **counted(seen)}
        found |= judged(base, made, at, training, (got, error), (wanted, refused))
        if not found["right"] and got is not None and wanted is not None:
            found |= nudged((eager, eager), (ours, function), inputs, (got, wanted))
        row["sizes"].append(found)
    row["stages"] = {stage: round(seconds, 2) for stage, seconds in pliant.stats()["seconds"].items() if seconds > 0.1}
    row["steady"] = steady(eager, ours, function, made[0], training) if backend == "pliant" else {}
    return row


def copied(model: nn.Module) -> nn.Module:
    """A copy. What hooks compute of parameters before each call (`weight_norm`) is no leaf, which PyTorch copies not."""
    computed = [v for m in model.modules() for v in vars(m).values() if isinstance(v, Tensor) and not v.is_leaf]
    return copy.deepcopy(model, {id(tensor): tensor.detach().clone() for tensor in computed})


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return model


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def counted(seen: Iterable[Any]) -> Row:
    kinds: dict[str, list[Any]] = collections.defaultdict(list)
    for event in seen:
        kinds[event.kind].append(event.fields)
    breaks = [{k: str(f.get(k))[:200] for k in ("reason", "why", "where")} for f in kinds["graph_break"]]
    return {
        "graphs": len(kinds["graph"]),
        "breaks": breaks,
        "recompiles": [f"{f['name']}: {f['why']}"[:200] for f in kinds["recompile"]],
        "fallbacks": [f"{f['name']}: {f['why']}"[:200] for k in EAGER for f in kinds[k]],
    }


def judged(base: nn.Module, made: list[Row], at: int, training: bool, ours: Any, eagers: Any) -> Row:
    """The error of one size; where it is large, both errors against float64 or what eager does as compiled code."""
    (got, error), (wanted, refused) = ours, eagers
    if got is None or wanted is None:
        return {"error": None, "right": (got is None) == (wanted is None), "raised": error or f"eager: {refused}"}
    found: Row = {"error": worst(got, wanted)}
    found["right"] = found["error"] <= ALLOWED
    if not found["right"]:
        with mock.patch("torch.compiler.is_compiling", lambda: True):
            as_compiled, _ = attempt(lambda: replayed(base, made, at, training, torch.float32))
        if as_compiled is not None and worst(got, as_compiled) <= ALLOWED:
            return found | {"right": True, "asks_is_compiling": True}
        exact, _ = attempt(lambda: replayed(base, made, at, training, torch.float64))
        if exact is not None:
            found["error64"], found["eager64"] = worst(got, exact), worst(wanted, exact)
            found["right"] = found["error64"] <= max(5 * found["eager64"], ALLOWED)
    return found


def nudged(eagers: Any, compiled: Any, inputs: Row, first: tuple[Found, Found]) -> Row:
    """Whether gradients alone differ, and over several weights are as near to float64's as eager's. Where an activation is
    next to a kink (that of `relu`, a maximum of two), rounding alone decides the slope; a wrong formula is wrong everywhere.
    Of a model that computes in float32 whatever its weights are, eager's own gradients are the measure.
    """
    smooth = [relative_error(*(found[part] for found in first)) for part in ("output", "state")]
    if max(smooth) > ALLOWED or not first[0]["gradient"]:
        return {}
    kept = [copy.deepcopy(model.state_dict()) for model, _ in (eagers, compiled)]
    errors = []
    for seed in range(NUDGES):
        for model, _ in (eagers, compiled):
            noise = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(1 + 1e-2 * torch.randn(p.shape, generator=noise).to(p))
        exact, _ = attempt(lambda: replayed(eagers[0], [inputs], 0, True, torch.float64))
        got, wanted = (step(model, function, inputs, True) for model, function in (compiled, eagers))
        errors.append([worst(one, wanted if exact is None else exact) for one in (got, wanted)])
    for state, (model, _) in zip(kept, (eagers, compiled), strict=True):
        model.load_state_dict(state)
    ours, eager = map(statistics.median, zip(*errors, strict=True))
    return {"nudged": errors, "right": ours <= max(ALLOWED, 3 * eager)}


def replayed(base: nn.Module, made: list[Row], at: int, training: bool, dtype: torch.dtype) -> Found:
    """What eager gives in this precision after the same calls."""
    model = copied(base).to(dtype)
    found: Found = {}
    for inputs in made[: at + 1]:
        cast = {n: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in inputs.items()}
        found = step(model, model, cast, training)
    return found


def finished(results: list[Tensor]) -> list[Tensor]:
    """The results, once a GPU has computed them."""
    if any(t.is_cuda for t in results):
        torch.cuda.synchronize()
    return results


def steady(eager: nn.Module, ours: nn.Module, function: Callable[..., object], inputs: Row, training: bool) -> Row:
    """Times of both, by turns; gradients that earlier steps left are dropped, as an optimizer's `zero_grad` drops them."""

    def once(model: nn.Module, f: Callable[..., object]) -> None:
        drop_gradients(model)
        finished(call(f, inputs, training))

    try:
        times = in_turn(lambda: once(eager, eager), lambda: once(ours, function), BUDGET)
    except Exception:
        return {}
    e, c = (statistics.median(column) for column in zip(*times, strict=True))
    return {"eager_ms": 1e3 * e, "ours_ms": 1e3 * c, "ratio": statistics.median(x / y for x, y in times)}


# ---- all rows


def in_child(name: str, mode: str, backend: str, device: str, timeout: float) -> Row:
    """The row of a model, from a forked process; what failed where there is none."""
    with fresh_cache() as cache, tempfile.NamedTemporaryFile() as answer:
        child = os.fork()
        if not child:
            run_child(name, mode, backend, device, timeout, cache, Path(answer.name))
        end = time.monotonic() + STANDSTILL * timeout
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                text = Path(answer.name).read_text()
                return json.loads(text) if text else {"failed": f"ended with {os.waitstatus_to_exitcode(status)}"}
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return {"failed": f"stands still, or over {STANDSTILL * timeout:.0f} s by the clock"}
            time.sleep(0.05)


def run_child(name: str, mode: str, backend: str, device: str, timeout: float, cache: Path, answer: Path) -> None:
    """In the forked process: writes the row and ends."""
    os.setsid()
    from pliant import config

    config.update(cache_dir=str(cache))
    with contextlib.redirect_stdout(sys.stderr):
        try:
            case = zoo_models.find_case(name)
            zoo_models.limit(timeout, lambda: OutOfTime(f"over {timeout:.0f} s"))
            row = measure(case, mode, backend, device)
        except zoo_models.NoCase as error:
            row = {"none": str(error)[:300]}
        except BaseException as error:
            row = {"failed": f"{type(error).__name__}: {error}"[:300]}
    answer.write_text(json.dumps(row))
    os._exit(0)


def whole(row: Row) -> bool:
    """One graph at every size, nothing run eagerly."""
    return all(not s["breaks"] and not s["fallbacks"] for s in row["sizes"]) and row["sizes"][0]["graphs"] <= 1


def wrong(row: Row) -> bool:
    return not all(s["right"] for s in row["sizes"])


def first_call(row: Row) -> float:
    """Seconds that the slowest first call takes longer than eager's; the smaller of wall and processor time, as the
    machine may be shared."""
    return max(min(s["seconds"], s["cpu"]) - s.get("eager", 0.0) for s in row["sizes"])


def again(row: Row) -> int:
    """Times that a size after the first compiled anew beyond the one that makes sizes symbolic."""
    return max(0, sum(len(s["recompiles"]) for s in row["sizes"]) - 1)


STATES: dict[str, Callable[[Row], bool]] = {
    "none": lambda row: "none" in row,
    "failed": lambda row: "failed" in row,
    "wrong": lambda row: "sizes" in row and wrong(row),
    "broken": lambda row: "sizes" in row and not whole(row),
    "slow": lambda row: "sizes" in row and first_call(row) > SLOW,
    "recompiled": lambda row: "sizes" in row and whole(row) and bool(again(row)),
}


def key(row: Row) -> tuple[str, str, str, str]:
    """What a row is of: rows of other backends or devices are other rows."""
    return row["name"], row["mode"], row.get("backend", "pliant"), row.get("device", "cpu")


def read(files: Iterable[str]) -> dict[tuple[str, str, str, str], Row]:
    """The rows of these files, the last of each."""
    rows: dict[tuple[str, str, str, str], Row] = {}
    for file in files:
        with contextlib.suppress(FileNotFoundError), open(file) as lines:
            for line in lines:
                row = json.loads(line)
                rows[key(row)] = row
    return rows


def no_case(row: Row, done: dict[tuple[str, str, str, str], Row]) -> Row:
    """What the search for inference said where it found nothing: training has none either, and the search is long."""
    searched = done.get(key(row | {"mode": "inference"}), {}) if row["mode"] != "inference" else {}
    return {"none": searched["none"]} if "none" in searched else {}


def summary(rows: Iterable[Row]) -> Iterator[str]:
    """The table: a line a library and mode, then what is not as it should be, by frequency."""
    rows = list(rows)
    yield f"{'':22}{'run':>6}{'whole':>8}{'wrong':>7}{'>10 s':>7}{'again':>7}{'failed':>8}{'none':>6}{'speed':>8}"
    groups = sorted({(r["name"].partition("/")[0], r["mode"]) for r in rows}) + [("", m) for m in MODES] + [("", "")]
    for library, mode in groups:
        group = [r for r in rows if r["name"].startswith(library) and r["mode"].startswith(mode)]
        run = [r for r in group if "sizes" in r]
        if group:
            count = {state: sum(map(test, group)) for state, test in STATES.items()}
            share = f"{100 * (1 - count['broken'] / max(1, len(run))):.1f}%"
            ratios = [r["steady"]["ratio"] for r in run if r["steady"]]
            speed = statistics.geometric_mean(ratios) if ratios else float("nan")
            yield (
                f"{library or 'all':12}{mode or 'both':10}{len(run):6}{share:>8}{count['wrong']:7}{count['slow']:7}"
                f"{count['recompiled']:7}{count['failed']:8}{count['none']:6}{speed:8.2f}"
            )
    yield from details(rows)


def details(rows: list[Row]) -> Iterator[str]:
    reasons: dict[str, set[str]] = collections.defaultdict(set)
    for row in rows:
        label = f"{row['name']}:{row['mode'][0]}"
        for state in ("failed", "wrong", "slow"):
            if STATES[state](row):
                reasons[f"{state}: {row.get('failed', '')}"].add(label)
        for size in row.get("sizes", ()):
            for b in size["breaks"][:3]:
                reasons[f"break [{b['reason']}] {b['why']} {b['where']}"].add(label)
            for f in size["fallbacks"][:2]:
                reasons[f"fallback {f}"].add(label)
        if STATES["recompiled"](row):
            for why in [w for s in row["sizes"][1:] for w in s["recompiles"]][1:3]:
                reasons[f"again {why}"].add(label)
    for reason, who in sorted(reasons.items(), key=lambda item: -len(item[1])):
        yield f"{len(who):4}  {reason[:220]}\n        {' '.join(sorted(who)[:8])}"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Every model that the installed libraries can build.")
    parser.add_argument("--only", nargs="*", default=[], help="names, or parts of names")
    parser.add_argument("--library", nargs="*", default=list(zoo_models.LIBRARIES), choices=list(zoo_models.LIBRARIES))
    parser.add_argument("--mode", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument("--backend", default="pliant", help="`eager` tests capture alone, several times as fast")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--shard", default="0/1", help="i/n: each n-th name from the i-th")
    parser.add_argument("--timeout", type=float, default=150.0)
    parser.add_argument("--for", dest="seconds", type=float, default=float("inf"), help="seconds after which no row starts")
    parser.add_argument("--out", help="a file of JSON lines")
    parser.add_argument("--again", nargs="*", default=[], choices=list(STATES))
    parser.add_argument("--show", nargs="*")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[str]:
    index, _, count = options.shard.partition("/")
    listed = zoo_models.names(options.library)
    exact = [n for n in listed if n in options.only or n.partition("/")[2] in options.only]
    if options.only:
        listed = exact or [n for n in listed if any(part in n for part in options.only)]
    return listed[int(index) :: int(count)]


def main() -> None:
    options = parsed()
    if options.show is not None:
        print("\n".join(summary(read(options.show).values())))
        return
    warnings.filterwarnings("ignore")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    if options.device == "cuda":  # this one asks for a GPU when it is imported, which forked processes then cannot use
        options.library = [library for library in options.library if library != "pyg"]
        torch.backends.cudnn.allow_tf32 = False  # gradients that are zero but for rounding would differ in it alone
    zoo_models.import_libraries(options.library)
    gc.collect()
    gc.freeze()  # forked processes share what was imported
    done = read([options.out] if options.out else [])
    if options.list:
        print("\n".join(chosen(options)))
        return
    rows, left, end = [], 0, time.monotonic() + options.seconds
    for name in chosen(options):
        for mode in options.mode:
            row: Row = {"name": name, "mode": mode, "backend": options.backend, "device": options.device}
            known = done.get(key(row))
            if known is not None and not any(STATES[s](known) for s in options.again):
                continue
            if time.monotonic() > end:
                left += 1
                continue
            row |= no_case(row, done) or in_child(name, mode, options.backend, options.device, options.timeout)
            done[key(row)] = row
            rows.append(row)
            print(f"{name:40} {mode:10} {told(row)}", flush=True)
            if options.out:
                with open(options.out, "a") as file:
                    file.write(json.dumps(row) + "\n")
    print("\n".join(summary(rows)))
    if left:
        print(f"{left} rows are left: the same command goes on")


def told(row: Row) -> str:
    """A row in a line."""
    if "sizes" not in row:
        return " ".join(f"{k}: {row[k]}" for k in ("none", "failed") if k in row)[:150].replace("\n", " ")
    parts = [s for s in STATES if STATES[s](row)] or ["whole"]
    ratio = f"{row['steady'].get('ratio', float('nan')):.2f}"
    return f"{' '.join(parts):24} first {first_call(row):.1f} s, eager / compiled {ratio}, {row['what']}"


if __name__ == "__main__":
    main()
