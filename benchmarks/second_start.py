"""The second start of a program: what its first call costs once another process has compiled it.

Each model runs in processes of its own, forks that have loaded PyTorch and the model's library and nothing of a compiler:
one in which eager makes its first call; a cold one; a warm one that finds built code; a warm one that finds whole entries;
with `--peer`, a cold and a warm one of torch.compile, with a cache folder of their own. Seconds are those of the first call
(with its gradients, in training). `load` is what `import pliant` and `pliant.compile` took before it. `added` is what the
first call takes above eager's where the entry is found. `of peer` is that call over torch.compile's warm one; `load too`
is the same with what both load before it. `start` is all that a process pays that finds nothing, loading the stages too.

    python -m benchmarks.second_start [--peer] [--device cuda] [--models bert gpt2...] [--modes inference training]
                                      [--repeat 3] [--processor] [--keeping] [--public 1/20]

CUDA graphs are off. `--repeat n`: all of it n times, medians are printed. `--processor`: seconds of the processors, those of the
compilers that a process starts included, in place of a clock's: on a machine that others use too. What one small function costs
comes last, where `function` is among the models. `--keeping`: instead, the
first call of a process that keeps its entry beside one that keeps none. `--public k/n`: in place of these a part of the
public models that `benchmarks.zoo` lists (`--library hf timm...`), and which were kept and found, or why not.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import resource
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from benchmarks import zoo_models
from benchmarks.children import geometric_mean, print_row
from benchmarks.second_start_models import HUGGING_FACE, NAMES, OWN, built, without_case
from benchmarks.sizes import relative_error
from benchmarks.zoo import ALLOWED, moved

Row = dict[str, Any]
PATIENCE = 900.0  # seconds a process may take
_STAGES = ("capture", "symbolic", "lowering", "codegen")


# ------------------------------------------------------------------------------------------------- in a process


def of_processors() -> float:
    """Seconds that this process, and the ones that it waited for, have used."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


now = time.perf_counter

def prepared(name: str, training: bool, device: str) -> tuple[Any, dict[str, Any]]:
    """The model and its inputs on their device, which is ready."""
    warnings.simplefilter("ignore")
    target, inputs = built(name)
    inputs = moved(inputs, device)
    if isinstance(target, nn.Module):
        target.to(device).train(training)
    elif training:
        inputs["x"].requires_grad_()
    finish(device)
    return target, inputs


def finish(device: str) -> None:
    """Waits for what the device has been given."""
    if device != "cpu":
        torch.cuda.synchronize()


def eager_call(name: str, training: bool, device: str) -> Row:
    """What the first call costs a process without a compiler."""
    target, inputs = prepared(name, training, device)
    return {"call": timed(target, inputs, training, device)[0]}


def peer_call(name: str, training: bool, device: str) -> Row:
    """What the first call costs a process with torch.compile."""
    target, inputs = prepared(name, training, device)
    start = now()
    compiled = torch.compile(target)
    loaded = now()
    call, result = timed(compiled, inputs, training, device)
    return {"load": loaded - start, "call": call, "right": is_right(result, target, inputs, training)}


def first_call(name: str, training: bool, device: str) -> Row:
    """What the first call costs a process with Pliant, and whether it computes what eager does."""
    target, inputs = prepared(name, training, device)
    start = now()
    import pliant
    from pliant import background

    compiled = pliant.compile(target)
    loaded = now()
    thread = time.thread_time()
    call, result = timed(compiled, inputs, training, device)
    thread = time.thread_time() - thread
    background.finish()
    with torch.set_grad_enabled(training):
        stats = pliant.stats()
        called(compiled, inputs, training)
        again = pliant.stats()
        right = is_right(result, target, inputs, training) or is_right_without_tf32(compiled, target, inputs, training, device)
    modules = [name for name in sys.modules if name.startswith("pliant.")]
    return {
        "load": loaded - start,
        "call": call,
        "thread": thread,
        "right": right,
        "captures": stats["calls"].get("capture", 0),  # type: ignore[attr-defined]
        "later": again["calls"].get("capture", 0),  # type: ignore[attr-defined]
        "entries": stats["entries"],
        "reasons": [str(e.fields["why"])[:90] for e in pliant.debug.events.events("entry") if "not" in str(e.fields["what"])],
        "imported": {stage: sum(m.startswith(f"pliant.{stage}") for m in modules) for stage in _STAGES},
        "dynamo": "torch._dynamo" in sys.modules,
        "seconds": {k: v for k, v in stats["seconds"].items() if k in ("find", "keep", "capture")},  # type: ignore[attr-defined]
    }


def timed(call: Any, inputs: dict[str, Any], training: bool, device: str) -> tuple[float, list[torch.Tensor]]:
    """Seconds of a call, with its backward in training, and its results, which are looked at behind it."""
    start = now()
    with torch.set_grad_enabled(training):
        tensors = ran(call, inputs, training)
    finish(device)
    seconds = now() - start
    return seconds, results_of(call, inputs, training, tensors)


def called(call: Any, inputs: dict[str, Any], training: bool) -> list[torch.Tensor]:
    """The results of a call, and in training its gradients."""
    return results_of(call, inputs, training, ran(call, inputs, training))


def ran(call: Any, inputs: dict[str, Any], training: bool) -> list[torch.Tensor]:
    """The tensors that a call returns; in training its gradients are computed, too."""
    torch.manual_seed(1)
    leaves = torch.utils._pytree.tree_leaves(call(**inputs))
    tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
    if not training:
        return tensors
    loss = [t.float().sum() for t in tensors if t.requires_grad]
    if not loss:
        raise zoo_models.NoCase("no output has a gradient")
    torch.stack(loss).sum().backward()
    return [t.detach() for t in tensors]


def results_of(call: Any, inputs: dict[str, Any], training: bool, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """With the gradients, which are taken from where they are."""
    if not training:
        return tensors
    parameters = list(call.parameters()) if isinstance(call, nn.Module) else list(inputs.values())
    found = [p.grad.clone() for p in parameters if p.grad is not None]
    for p in parameters:
        p.grad = None
    return [*tensors, *found]


def is_right(result: list[torch.Tensor], target: Any, inputs: dict[str, Any], training: bool) -> bool:
    """Whether it is what eager gives, or about as near to what float64 gives: gradients behind norms over few elements, or
    in formats of few bits, differ by rounding alone."""
    wanted = called(target, inputs, training)
    if relative_error(result, wanted) <= ALLOWED:
        return True
    if not isinstance(target, nn.Module):
        return False
    with mock.patch("torch.compiler.is_compiling", lambda: True):  # some libraries build other masks then
        if relative_error(result, called(target, inputs, training)) <= ALLOWED:
            return True
    cast = {n: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for n, v in inputs.items()}
    exact = called(copy.deepcopy(target).double(), cast, training)
    ours, eagers = (relative_error([t.to(e.dtype) for t, e in zip(one, exact, strict=True)], exact) for one in (result, wanted))
    return ours <= max(5 * eagers, ALLOWED)


def is_right_without_tf32(call: Any, target: Any, inputs: dict[str, Any], training: bool, device: str) -> bool:
    """Whether a program of a GPU is right where no convolution computes in TF32: where one may, cuDNN chooses by the layout,
    and a convolution that reads images channels last can be in TF32 where eager's is not."""
    if device == "cpu" or not torch.backends.cudnn.allow_tf32:
        return False
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        return is_right(called(call, inputs, training), target, inputs, training)


# ------------------------------------------------------------------------------------------------- the processes


def in_a_fork(work: Callable[[], Row], environment: dict[str, str]) -> Row:
    """What the work returns in a process of its own."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.environ.update(environment)
        try:
            found = work()
        except Exception as error:
            found = {"failed": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        with os.fdopen(write, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        if not select.select([pipe], [], [], PATIENCE)[0]:
            os.kill(process, signal.SIGKILL)
        text = pipe.read()
    os.waitpid(process, 0)
    return dict(json.loads(text)) if text else {"failed": "the process died, or took too long"}


def measured(name: str, training: bool, device: str, peer: bool) -> dict[str, Row]:
    """A row for each process: `eager`; `cold`; `warm`, with built code; `entries`; `peer cold` and `peer`, the warm one."""
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        ours = {"PLIANT_CACHE_DIR": f"{folder}/ours", "PLIANT_CUDA_GRAPHS": "never"}
        theirs = {
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/peer",
            "TRITON_CACHE_DIR": f"{folder}/peer/triton",
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        }
        Path(folder, "peer").mkdir()
        rows = {"eager": in_a_fork(lambda: eager_call(name, training, device), {})}
        for kind, keep in (("cold", "1"), ("warm", "0"), ("entries", "1")):
            rows[kind] = in_a_fork(lambda: first_call(name, training, device), {**ours, "PLIANT_KEEP_ENTRIES": keep})
        for kind in ("peer cold", "peer") if peer else ():
            rows[kind] = in_a_fork(lambda: peer_call(name, training, device), theirs)
        return rows


def medians(runs: list[dict[str, Row]]) -> dict[str, Row]:
    """One run whose times are the medians, and in which a row is right, or found, if it always was."""
    made = {}
    for kind in runs[0]:
        rows = [run[kind] for run in runs]
        made[kind] = next((row for row in rows if "failed" in row), dict(rows[-1]))
        if "failed" not in made[kind]:
            made[kind] |= {k: statistics.median(row[k] for row in rows) for k in ("call", "load", "thread") if k in rows[0]}
            made[kind] |= {"right": all(row.get("right", True) for row in rows)}
            made[kind] |= {"captures": max(row.get("captures", 0) for row in rows)}
    return made


# ------------------------------------------------------------------------------------------------- the table

_COLUMNS = ("model", "mode", "eager", "start", "cold", "warm", "load", "entries", "added", "of cold", "of warm", "captures")
_OF_PEER = ("peer cold", "peer", "of peer", "load too")
_ASKED = {"of cold": 0.15, "of peer": 1 / 15}
# Seconds: of model and mode, the columns that they are the sum of, and what is asked.
_ASKED_SECONDS = {
    ("bert-base", "inference"): ((("entries",), 0.15),),
    ("bert-base", "training"): ((("entries",), 0.3),),
}
_SHARES = ("of cold", "of warm", "of peer", "load too")


def cells_of(rows: dict[str, Row]) -> dict[str, Any]:
    """What is printed of a model, by column."""
    times = {kind: row["call"] for kind, row in rows.items() if "failed" not in row}
    found, last = times["entries"], rows["entries"]
    right = all(rows[kind]["right"] for kind in ("cold", "warm", "entries"))
    cells = {**times, "start": rows["cold"]["load"] + times["cold"], "load": last["load"], "added": found - times["eager"], "of cold": found / times["cold"]}
    cells |= {"of warm": found / times["warm"], "captures": f"{last['captures']}{'' if right else ' WRONG'}"}
    if "peer" in times:
        cells["of peer"] = found / times["peer"]
        cells["load too"] = (found + last["load"]) / (times["peer"] + rows["peer"]["load"])
    return cells


def print_rows(models: list[str], modes: list[str], device: str, peer: bool, repeat: int) -> None:
    """What each model costs, and the means."""
    columns = [*_COLUMNS, *(_OF_PEER if peer else ())]
    widths = (max(14, *(len(name) + 2 for name in models)), 10, *(max(8, len(c) + 2) for c in columns[2:]))
    print_row(columns, widths)
    shown: dict[tuple[str, str], dict[str, Any]] = {}
    last: Row = {}
    for mode in modes:
        for name in models:
            if (none := without_case(name)) is not None:
                print_row((name, mode, none), widths)
                continue
            rows = medians([measured(name, mode == "training", device, peer) for _ in range(repeat)])
            failed = next((row["failed"] for kind, row in rows.items() if "failed" in row and "peer" not in kind), "")
            if failed:
                print_row((name, mode, failed), widths)
                continue
            cells, last = cells_of(rows), rows["entries"]
            if not last["captures"]:
                shown[name, mode] = cells
            print_row((name, mode, *(cells.get(column, "-") for column in columns[2:])), widths)
            notes = [*rows["cold"]["reasons"], *last["reasons"], *(r["failed"] for r in rows.values() if "failed" in r)]
            for text in dict.fromkeys(notes):
                print(f"    {text}", flush=True)
    if last:
        print_means(shown, last)


def print_means(shown: dict[tuple[str, str], dict[str, Any]], last: Row) -> None:
    """Of the models whose entries were found: geometric means of the shares, and which are above what is asked."""
    print(f"where the entry is found ({len(shown)} rows), in the geometric mean:")
    for share in _SHARES:
        values = [cells[share] for cells in shown.values() if share in cells]
        if values:
            asked = f", asked at most {_ASKED[share]:.3f}" if share in _ASKED else ""
            print(f"  {share}: {geometric_mean(values):.3f} (largest {max(values):.3f}{asked})")
    for share, most in _ASKED.items():
        whole = {"of cold": "cold", "of peer": "peer"}[share]
        above = [
            f"{name} {mode} {c[share]:.3f} (eager's own call {c['eager'] / c[whole]:.3f})"
            for (name, mode), c in shown.items()
            if c.get(share, 0.0) > most
        ]
        if above:
            print(f"  {share} above {most:.3f}: {', '.join(above)}")
    for (name, mode), rows in _ASKED_SECONDS.items():
        for columns, most in rows if (name, mode) in shown else ():
            cells = shown[name, mode]
            found = sum(cells[column] for column in columns)
            print(f"  {name} {mode}, {' + '.join(columns)}: {found:.3f} s (eager {cells['eager']:.3f}, asked at most {most:.3f})")
    if shown:
        print(f"loading Pliant where the entry is found: {statistics.median(c['load'] for c in shown.values()):.3f} s in the median")
    print(f"modules of each stage in the last process: {last['imported']}", flush=True)


def print_keeping(models: list[str], modes: list[str], device: str, repeat: int) -> None:
    """What keeping an entry adds to the first call: as seconds, and as those of the thread that calls, which wait for nothing."""
    widths = (max(14, *(len(name) + 2 for name in models)), 10, 10, 10, 10, 10)
    print_row(("model", "mode", "kept", "not kept", "of call", "of thread"), widths)
    shares = []
    for name, mode in ((name, mode) for mode in modes for name in models if without_case(name) is None):
        kinds: dict[str, list[Row]] = {"1": [], "0": []}
        for keep in [*kinds] * repeat:
            with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
                options = {"PLIANT_CACHE_DIR": folder, "PLIANT_CUDA_GRAPHS": "never", "PLIANT_KEEP_ENTRIES": keep}
                kinds[keep].append(in_a_fork(functools.partial(first_call, name, mode == "training", device), options))
        kept, none = (medians([{"run": row} for row in rows])["run"] for rows in kinds.values())
        if failed := next((row["failed"] for row in (kept, none) if "failed" in row), ""):
            print_row((name, mode, failed), widths)
            continue
        shares.append((kept["call"] / none["call"], kept["thread"] / none["thread"]))
        print_row((name, mode, kept["call"], none["call"], *shares[-1]), widths)
    of_call, of_thread = (geometric_mean([row[k] for row in shares]) for k in range(2))
    print(f"in the geometric mean: of call {of_call:.3f}, of thread {of_thread:.3f}; asked at most 1.050")


SMALL = """
import resource, time
import torch

def of_processors():
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime

def small(x):
    return (x * 2 + 1).relu()

x = torch.randn(100)
clock, mine, all_ = time.perf_counter(), time.process_time(), of_processors()
import pliant
with torch.no_grad():
    pliant.compile(small)(x)
print(time.perf_counter() - clock, time.process_time() - mine, of_processors() - all_)
pliant.background.finish()
"""


def print_small(repeat: int) -> None:
    """What one small function costs a new process, importing Pliant too: one that finds nothing, and one that finds its entry.
    A fork, as the processes of the table are, pays for each page of its parent's that it writes to as well."""
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        program = Path(folder, "small.py")
        program.write_text(SMALL)

        def ran(cache: str) -> list[float]:
            environment = {**os.environ, "PLIANT_CACHE_DIR": f"{folder}/{cache}", "PYTHONPYCACHEPREFIX": str(sys.pycache_prefix)}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True)
            return [float(word) for word in done.stdout.split()]

        for kind, asked in (("cold", 0.2), ("found", 0.03)):
            runs = [ran(f"cold{k}" if kind == "cold" else "cold0") for k in range(-1, repeat)][1:]
            least, middle = ([choose(column) for column in zip(*runs, strict=True)] for choose in (min, statistics.median))
            told = (f"{a:.3f} {b:.3f}" for a, b in zip(least, middle, strict=True))
            words = ("s by the clock", "of its processor time", "with compilers'")
            print(f"a small function, {kind}, least and median: {', '.join(f'{t} {w}' for t, w in zip(told, words, strict=True))}; asked {asked:.3f}")


def import_models(names: list[str], libraries: list[str]) -> None:
    """Loads what the models are made with, once for all processes."""
    if {*names} <= {*OWN}:
        return
    zoo_models.import_libraries(libraries)
    try:
        transformers = __import__("transformers")
    except ImportError:  # the rows of its models say so
        return
    for kind in ("BertForMaskedLM", "GPT2LMHeadModel", *(row[0] for row in HUGGING_FACE.values())):
        getattr(transformers, kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--modes", nargs="*", default=["inference", "training"], choices=["inference", "training"])
    parser.add_argument("--peer", action="store_true", help="torch.compile beside it")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--processor", action="store_true", help="seconds of the processors")
    parser.add_argument("--keeping", action="store_true", help="what keeping an entry adds to the first call")
    parser.add_argument("--public", default="")
    parser.add_argument("--library", nargs="*", default=["hf", "timm"], choices=list(zoo_models.LIBRARIES))
    given = parser.parse_args()
    global now
    now = of_processors if given.processor else time.perf_counter
    # A process that has asked the driver for its devices cannot be forked; libraries ask when they are imported.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import_models(given.models, given.library if given.public else ["hf"])
    if given.public:
        part, count = map(int, given.public.split("/"))
        given.models = zoo_models.names(given.library)[part - 1 :: count]
    with tempfile.TemporaryDirectory(prefix="pliant-bytecode-") as folder:
        # Modules are loaded from bytecode, as where Pliant is installed, whatever this environment says of writing it.
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder
        measured("function", training=True, device=given.device, peer=given.peer)  # which writes it
        if given.keeping:
            print_keeping(given.models, given.modes, given.device, max(1, given.repeat))
        else:
            print_rows(given.models, given.modes, given.device, given.peer, max(1, given.repeat))
            if "function" in given.models:
                print_small(max(3, given.repeat))


if __name__ == "__main__":
    main()
