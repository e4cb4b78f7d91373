"""Entries of programs on a GPU: what one process compiled the next finds, and runs without a compiler loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]

PROGRAM = """
import copy, json, sys, threading, time, torch
from torch import nn
import pliant
from tests.gpu import kept_programs
name = sys.argv[1]
model, calls, training = kept_programs.PROGRAMS[name]()
eager = copy.deepcopy(model)
torch.cuda.synchronize()
compiled = pliant.compile(model, **({"mode": "reduce-overhead"} if name == "recorded" else {}))
loaded, first, results = None, None, []
def step(function, module, x):
    torch.manual_seed(1)
    with torch.set_grad_enabled(training), torch.autocast("cuda", torch.bfloat16, enabled=name == "autocast"):
        result = function(x)
        if training:
            result.float().square().mean().backward()
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    return [result.detach(), *gradients]
for x in calls:
    began = time.perf_counter()
    got = step(compiled, model, x)
    torch.cuda.synchronize()
    first = first if first is not None else time.perf_counter() - began
    loaded = loaded or sorted(m for m in sys.modules if m.startswith("pliant."))
    results.append(got)
for thread in threading.enumerate():
    if thread.name.startswith("pliant"):
        thread.join()
stats = pliant.stats()
for x, got in zip(calls, results):
    torch.testing.assert_close(got, step(eager, eager, x), rtol=2e-2 if name == "autocast" else 1e-3, atol=1e-2 if name == "autocast" else 1e-4)
print(json.dumps([stats["entries"], stats["calls"], loaded, first]))
"""
STAGES = ("capture", "symbolic", "lowering", "schedule", "codegen", "ir", "autograd.joint", "autograd.partition", "graph.fake_tensor")
NAMES = ("inference", "training", "autocast", "dropout", "sizes", "lengths", "constant", "recorded", "convolutions")


def ran(folder, name):
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PLIANT_KEEP_ENTRIES": "1", "PLIANT_CACHE_DIR": str(folder), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", PROGRAM, name], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_the_next_process_compiles_nothing(tmp_path, name):
    kept = ran(tmp_path / "cache", name)
    assert kept[0].get("kept") and not kept[0].get("not kept"), kept[0]
    entries, calls, loaded, first = ran(tmp_path / "cache", name)
    print(f"{name}: first call {kept[3]:.3f} s, found {first:.3f} s")
    assert entries.get("found") and not entries.get("kept")
    assert not calls.keys() & {"capture", "joint", "lower", "schedule", "codegen", "build"}
    heavy = tuple(f"pliant.{stage}" for stage in STAGES)
    assert not [module for module in loaded if module.startswith(heavy)]
