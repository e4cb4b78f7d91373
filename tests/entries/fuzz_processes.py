"""Two processes run a program between which something changed: the second must compute what its own eager does.

A program is a text with slots. The first process runs it with one choice of values, and keeps what it compiled; the second
with another choice, from the same place on disk. Processes are forks that have loaded PyTorch, and compiled nothing.

    python -m tests.entries.fuzz_processes --pairs 2000 --seed 1
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import hashlib
import json
import logging
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import types
import warnings
from collections import Counter

import torch
from tests.autograd.fuzz_training_eager import Shaken, spread, within
from tests.entries.fuzz_patches import apply_patch
from tests.entries.fuzz_slots import SETTINGS, SLOTS
from tests.entries.fuzz_texts import LIBRARY, PROGRAM
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import pliant
from pliant import background
from pliant.cache.store import FORMAT

SECONDS = 600

def choices(rng: random.Random, fixed: dict[str, str] | None = None) -> dict[str, str]:
    """A value for each slot and setting: mostly the first."""
    table = {**SLOTS, **SETTINGS}
    chosen = {name: rng.choice(values) if rng.random() < 0.15 else values[0] for name, values in table.items()}
    return {**chosen, "target": rng.choice(SETTINGS["target"]), "grad": rng.choice(("on", "off")), **(fixed or {})}


def mutated(rng: random.Random, chosen: dict[str, str]) -> dict[str, str]:
    """The same but for one value, or a few, or none."""
    table = {**SLOTS, **SETTINGS}
    found = dict(chosen)
    for name in rng.sample(list(table), rng.choice([0, 1, 1, 1, 1, 2])):
        found[name] = rng.choice([value for value in table[name] if value != chosen[name]])
    return found


def load(chosen: dict[str, str]) -> types.ModuleType:
    """The program as two modules of this process."""
    for name, text in (("fuzz_library", LIBRARY), ("fuzz_program", PROGRAM)):
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(text.format(**chosen), f"/nowhere/{name}.py", "exec"), module.__dict__)
    return sys.modules["fuzz_program"]


def _prepare(program: types.ModuleType, chosen: dict[str, str]):
    """What is called, and with what."""
    torch.manual_seed(0)
    if chosen["default dtype"]:
        torch.set_default_dtype(torch.float64)
    if chosen["deterministic"]:
        torch.use_deterministic_algorithms(True)
    if chosen["mkldnn"]:
        torch.backends.mkldnn.enabled = False
    os.environ["FUZZ_MODE"] = chosen["environment"]
    if chosen["environment"] == "number":
        os.environ["FUZZ_OTHER"] = "2.0"
    torch.set_num_threads(int(chosen["threads"] or "1"))
    sys.setrecursionlimit(int(chosen["recursion"] or sys.getrecursionlimit()))
    logging.getLogger("fuzz_program").setLevel(chosen["logging"] or "WARNING")
    torch.set_flush_denormal(bool(chosen["flush"]))
    warnings.simplefilter(chosen["warnings"] or "ignore", UserWarning)
    if chosen["precision"]:
        torch.set_float32_matmul_precision("medium")
    rows, width = map(int, chosen["sizes"].split())
    model = program.Model(width).train(bool(chosen["training"]))
    if chosen["batch"]:
        model.parts[0].batch.train()
    if chosen["context"]:
        program.VARIABLE.set(float(chosen["context"]))
    match chosen["parameters"]:
        case "float64" | "bfloat16" as name:
            model.to(getattr(torch, name))
        case "frozen":
            model.requires_grad_(False)
        case "one frozen":
            next(model.parameters()).requires_grad_(False)
    if chosen["weights"] == "other":
        with torch.no_grad():
            model.parts[0].linear.weight.mul_(2)
    elif chosen["weights"] == "tied" and len(model.parts) > 1:
        model.parts[1].linear = model.parts[0].linear
    with warnings.catch_warnings(action="ignore"):  # PyTorch warns where a kernel of its own is replaced
        apply_patch(program, model, chosen["patched"])
    dtype = next(model.parameters()).dtype if chosen["target"] != "function" else torch.get_default_dtype()
    target = {"function": program.function, "model": model, "method": model.parts[0].finish, "closure": program.closure,
              "partial": program.step, "object": program.callable_object, "class method": program.Part.named}  # fmt: skip
    found = target[chosen["target"]]
    x = _input(chosen, rows, width, dtype, program)
    if chosen["target"] == "partial":
        found = functools.partial(found, x.detach().clone())
    if chosen["default device"]:
        torch.set_default_device(chosen["default device"])
    return found, x


def _input(chosen: dict[str, str], rows: int, width: int, dtype: torch.dtype, program: types.ModuleType) -> torch.Tensor:
    x = torch.randn(rows, width, dtype=dtype)
    match chosen["layout"]:
        case "transposed":
            x = torch.randn(width, rows, dtype=dtype).t()
        case "expanded":
            x = x[:1].expand(rows, width)
        case "offset":
            x = torch.randn(rows + 1, width, dtype=dtype)[1:]
        case "every other":
            x = torch.randn(rows, 2 * width, dtype=dtype)[:, ::2]
    match chosen["input"]:
        case "subclass":
            return x.detach().as_subclass(program.Sub)
        case "parameter":
            return torch.nn.Parameter(x.detach())
        case "integer":
            return (x * 4).to(torch.int64)
    return x.requires_grad_() if chosen["input"] else x


class _FunctionMode(TorchFunctionMode):
    """Doubles every tanh."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * 2 if func in (torch.tanh, torch.Tensor.tanh) else found


class _DispatchMode(TorchDispatchMode):
    """Adds one to every sine."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found + 1 if func is torch.ops.aten.sin.default else found


@contextlib.contextmanager
def _around(chosen: dict[str, str]):
    with contextlib.ExitStack() as blocks:
        if chosen["grad"] != "on":
            blocks.enter_context(torch.inference_mode() if chosen["grad"] == "inference" else torch.no_grad())
        if chosen["anomaly"]:
            blocks.enter_context(torch.autograd.set_detect_anomaly(True))
        match chosen["mode"]:
            case "function":
                blocks.enter_context(_FunctionMode())
            case "dispatch":
                blocks.enter_context(_DispatchMode())
            case "saved tensors":
                blocks.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x * 2))
        if chosen["autocast"]:
            blocks.enter_context(torch.autocast("cpu", torch.bfloat16))
        match chosen["options"]:
            case "fuse":
                blocks.enter_context(pliant.config.patch(fuse=False))
            case "dynamic":
                blocks.enter_context(pliant.config.patch(dynamic="all"))
            case "duck":
                blocks.enter_context(pliant.config.patch(duck_sizing=False))
            case "numerics":
                blocks.enter_context(pliant.config.patch(numerics="fast"))
            case "blocks":
                blocks.enter_context(pliant.config.patch(repeated_blocks=True))
            case "specialize":
                blocks.enter_context(pliant.config.patch(specialize_float=True, dynamic="all"))
        yield


def run(chosen: dict[str, str]) -> dict[str, object]:
    """One process: what differs from eager ("" if nothing), and what became of the entries."""
    pliant.reset()  # what the process before the fork did
    target, x = _prepare(load(chosen), chosen)
    compiled = pliant.compile(target)
    sides = []
    for call in (target, compiled, compiled):
        torch.manual_seed(1)
        x.grad = None
        with _around(chosen):
            sides.append(_outcome(call, x))
    background.finish()
    tolerance = 5e-2 if "bfloat16" in (chosen["autocast"], chosen["parameters"]) else 1e-4
    no_eager = sides[0] == "InternalTorchDynamoError"  # branches on tensors go through PyTorch's compiler in eager, too
    same = no_eager or all(_same(sides[0], side, tolerance) for side in sides[1:]) or _by_rounding(target, x, chosen, sides)
    wrong = "" if same else f"{sides[0]} is not {sides[1:]}"
    refused = [f"{e.fields['what']}: {e.fields['why']}" for e in pliant.debug.events.events("entry")]
    return {"wrong": wrong[:2000], "entries": pliant.stats()["entries"], "events": refused, "bits": _bits(sides[1:])}


def _bits(sides: list[object]) -> str:
    """Of all numbers that were computed, for comparing processes."""
    leaves = [t.detach().contiguous() if isinstance(t, torch.Tensor) else t for t in torch.utils._pytree.tree_leaves(sides)]
    texts = [bytes(t.view(-1).view(torch.uint8).tolist()) if isinstance(t, torch.Tensor) else repr(t).encode() for t in leaves]
    return hashlib.sha256(b"|".join(texts)).hexdigest()


def _outcome(call, x: torch.Tensor) -> object:
    try:
        found = call(x)
        tensors = [t for t in torch.utils._pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            sum(t.float().sum() for t in tensors if t.requires_grad).backward()  # which fails on NaN in anomaly mode
            return found, x.grad
        return found
    except Exception as error:
        return type(error).__name__


def _by_rounding(target, x: torch.Tensor, chosen: dict[str, str], sides: list[object]) -> bool:
    """Whether numbers alone differ, and by no more than eager's own do with operators that round otherwise."""
    shaken = []
    for seed in range(3):
        torch.manual_seed(1)
        x.grad = None
        with _around(chosen), Shaken(seed):
            shaken.append(torch.utils._pytree.tree_leaves(_outcome(target, x)))
    theirs = torch.utils._pytree.tree_leaves(sides[0])
    measure = spread(theirs, shaken)
    same = functools.partial(_same_leaf, tolerance=1e-8)
    return measure is not None and all(
        _same(sides[0], side, float("inf"))
        and all(within(*each, same) for each in zip(torch.utils._pytree.tree_leaves(side), theirs, measure, strict=True))
        for side in sides[1:]
    )


def _same(one: object, other: object, tolerance: float) -> bool:
    a, shape = torch.utils._pytree.tree_flatten(one)
    b, other_shape = torch.utils._pytree.tree_flatten(other)
    return shape == other_shape and all(_same_leaf(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _same_leaf(a: object, b: object, tolerance: float) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and a == b
    same = (a.dtype, a.shape, _steps(a), a.requires_grad) == (b.dtype, b.shape, _steps(b), b.requires_grad)
    return same and (tolerance == math.inf or torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides; of what has no history, as gradients, only those between elements: eager promises no others of them."""
    return [step for size, step in zip(tensor.shape, tensor.stride()) if size > 1 or tensor.requires_grad]


def in_a_fork(chosen: dict[str, str]) -> dict[str, object]:
    """`run` in a process of its own, on one thread: the threads of OpenMP that the parent may have started are not in a fork,
    and eager's own operators would wait for them. One that takes longer than `SECONDS` dies."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a handler of Python's would wait for the operator
        signal.alarm(SECONDS)
        try:
            with os.fdopen(write, "w") as pipe:
                json.dump(_guarded(chosen), pipe)
                pipe.flush()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(process, 0)
    return json.loads(text) if text else {"wrong": "the process died", "entries": {}, "events": [], "bits": ""}


def _guarded(chosen: dict[str, str]) -> dict[str, object]:
    warnings.simplefilter("ignore")
    try:
        with pliant.config.patch(keep_entries=True):
            return run(chosen)
    except Exception as error:
        return {"wrong": f"{type(error).__name__}: {error}", "entries": {}, "events": [], "bits": ""}


def pair(
    seed: int, fixed: dict[str, str] | None = None
) -> tuple[dict[str, str], dict[str, str], dict[str, object], dict[str, object]]:
    """One pair of processes, with entries of their own."""
    rng = random.Random(seed)
    first = choices(rng, fixed)
    second = mutated(rng, first)
    with _no_entries():
        return first, second, in_a_fork(first), in_a_fork(second)


def without_entries(chosen: dict[str, str]) -> dict[str, object]:
    """What a process computes that finds nothing: a difference from eager that it has too comes from compiling."""
    with _no_entries():
        return in_a_fork(chosen)


@contextlib.contextmanager
def _no_entries():
    """A store without entries; kernels, which are what their text says, stay from pair to pair."""
    shutil.rmtree(os.path.join(_folder(), FORMAT, "entries"), ignore_errors=True)
    with pliant.config.patch(cache_dir=_folder()):
        yield


@functools.cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="pliant-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # forks end without it
    return folder


def load_compiler() -> None:
    """Load, in the process that forks, what compiling loads."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.GELU())
    pliant.compile(module)(torch.randn(2, 4)).sum().backward()
    background.finish()
    first = {name: values[0] for name, values in {**SLOTS, **SETTINGS}.items()}
    program = load({**first, "namespace": "fuzz_parent"})
    program.gradients(torch.ones(2, requires_grad=True)).sum().backward()  # operators of one's own load much, too
    for on in (True, False):
        torch.use_deterministic_algorithms(on)  # which loads half of PyTorch the first time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--fix", nargs="*", default=[], help="values of all first processes: parameters=bfloat16 ...")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    load_compiler()
    end, counts, reasons = time.monotonic() + given.seconds, Counter(), Counter()
    for seed in range(given.seed, given.seed + given.pairs):
        if time.monotonic() > end:
            break
        first, second, one, other = pair(seed, dict(one.split("=", 1) for one in given.fix))
        changed = {name: (first[name], second[name]) for name in first if first[name] != second[name]}
        counts["pairs"] += 1
        found = bool(other["entries"].get("found"))
        counts["found" if found else "compiled again"] += 1
        counts["kept"] += bool(one["entries"].get("kept"))
        counts["nothing changed"] += not changed
        counts["nothing changed, kept, not found"] += not changed and not found and bool(one["entries"].get("kept"))
        reasons.update(text[:90] for text in one["events"] if text.startswith("not kept"))
        for which, result in (("first", one), ("second", other)):
            if result["wrong"]:
                counts[f"wrong in the {which}"] += 1
                alone = without_entries(second if result is other else first)
                counts["wrong only with an entry"] += alone["bits"] != result["bits"]
                print(f"seed {seed}, {which} process (entry found: {found}), changed {changed}\n  {result['wrong'][:600]}")
                print(f"  without entries: {'the same bits' if alone['bits'] == result['bits'] else alone['wrong'][:600]}")
        if counts["pairs"] % 100 == 0:
            print(dict(counts), flush=True)
        if given.verbose:
            print(seed, changed, other["entries"], other["events"][:2])
    print(dict(counts))
    for text, count in reasons.most_common(12):
        print(f"  {count} {text}")


if __name__ == "__main__":
    main()
