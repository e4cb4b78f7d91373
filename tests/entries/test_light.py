"""A call that an entry on disk serves needs nothing of the compiler: not even loaded."""

import dataclasses
import importlib
import json
import os
from pathlib import Path

import pytest
import torch

import own_process
import pliant
from pliant.entries import programs

PROGRAM = """
import json, sys, torch
there = {*sys.modules}  # what PyTorch itself loads differs from release to release
import pliant
from tests.entries import programs
model, x = programs.Model(), torch.ones(4, 4)
compiled = pliant.compile(model)
with torch.set_grad_enabled(sys.argv[1] == "training"):
    result = compiled(x)
    if sys.argv[1] == "training":
        result.sum().backward()
loaded = sorted(name for name in {*sys.modules} - there if name.startswith(("pliant.", "torch._dynamo", "decimal")))
pliant.background.finish()
found = [result.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]
stats = pliant.stats()
model.zero_grad()
with torch.set_grad_enabled(sys.argv[1] == "training"):
    expected = model(x)
    if sys.argv[1] == "training":
        expected.sum().backward()
torch.testing.assert_close(found, [expected.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
print(json.dumps([stats["entries"], stats["calls"], loaded]))
"""
# Stages that only what compiles needs.
STAGES = ("capture", "symbolic", "lowering", "schedule", "codegen", "ir", "autograd.joint", "autograd.partition", "graph.fake_tensor",
          "runtime.cuda", "graph.packed_weights", "autograd.aliases")  # fmt: skip
OF_TRAINING = ("autograd.trained", "autograd.function", "autograd.higher_order", "autograd.endings", "autograd.history",
               "autograd.refused", "autograd.wanted", "autograd.kept_inputs")  # fmt: skip


def ran(folder, mode, **more):
    environment = {**os.environ, "PLIANT_KEEP_ENTRIES": "1", "PLIANT_CACHE_DIR": str(folder), **more}
    root = Path(__file__).parents[2]
    environment["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [environment.get("PYTHONPATH")])])
    return json.loads(own_process.ran(PROGRAM, mode, env=environment, check=True).stdout)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_what_finds_its_entry_in_a_bundle_loads_and_needs_no_compiler(tmp_path, mode):
    assert "kept" in ran(tmp_path / "cache", mode)[0]
    with pliant.config.patch(cache_dir=str(tmp_path / "cache")):
        pliant.cache.export(tmp_path / "bundle.tgz", models=["Model"])
    with pliant.config.patch(cache_dir=str(tmp_path / "other")):
        pliant.cache.import_(tmp_path / "bundle.tgz")
    entries, calls, loaded = ran(tmp_path / "other", mode, PATH="/nowhere")  # without a C compiler
    assert entries == {"found": 1}
    assert not calls.keys() & {"capture", "joint", "lower", "schedule", "codegen", "build"}
    heavy = tuple(f"pliant.{stage}" for stage in (*STAGES, *(OF_TRAINING if mode == "inference" else ())))
    asked = ("pliant.runtime.cuda", "pliant.runtime.cuda.driver") if torch.cuda.is_available() else ()  # which GPU it is
    assert not [name for name in loaded if name.startswith((*heavy, "torch._dynamo", "decimal")) and name not in asked]


NAMED = """
import json, sys, torch
import pliant
overload, packet = torch.ops.aten.add.Tensor, torch.ops.aten.mul

def calls(x):
    return packet(overload(x, x), x) + torch.ops.aten.neg.default(x)

x = torch.linspace(-1, 1, 12)
with torch.no_grad():
    result = pliant.compile(calls)(x)
pliant.background.finish()
torch.testing.assert_close(result, calls(x))
print(json.dumps(pliant.stats()["entries"]))
"""


def test_what_names_operators_of_pytorch_is_found(tmp_path):
    """In a process that has not loaded what tells of operators."""
    environment = {**os.environ, "PLIANT_KEEP_ENTRIES": "1", "PLIANT_CACHE_DIR": str(tmp_path)}
    program = tmp_path / "program.py"
    program.write_text(NAMED)
    ends = [own_process.ran(program, env=environment) for _ in range(2)]
    assert [json.loads(done.stdout or "null") for done in ends] == [{"kept": 1}, {"found": 1}], ends[-1].stderr[-2000:]


STATED = """
import json, sys, torch
import pliant

def stated(x):
    n = int((x > 0).sum().item())
    torch._check(n < 7)
    return torch.ones(n).cumsum(0)

x = torch.linspace(-1, 1, 12)
with torch.no_grad():
    result = pliant.compile(stated)(x)
loaded = sorted(name for name in sys.modules if name.startswith("pliant."))
pliant.background.finish()
torch.testing.assert_close(result, stated(x))
print(json.dumps([pliant.stats()["entries"], loaded]))
"""


def test_what_states_something_of_numbers_in_data_loads_nothing_of_sizes(tmp_path):
    program = tmp_path / "stated.py"
    program.write_text(STATED)
    environment = {**os.environ, "PLIANT_KEEP_ENTRIES": "1", "PLIANT_CACHE_DIR": str(tmp_path / "cache")}
    for word in ("kept", "found"):
        done = own_process.ran(program, env=environment, check=True)
        entries, loaded = json.loads(done.stdout)
        assert entries == {word: 1}
    assert not [name for name in loaded if name.startswith(tuple(f"pliant.{stage}" for stage in STAGES))]


# What writes entries, watches memory, explains, or follows a graph break.
LATER = ("entries.draft", "entries.namer", "entries.fact_writer", "entries.program_writer", "entries.taken", "entries.breaks",
         "entries.claims", "guards.codegen", "guards.explain", "guards.watch", "guards.native_watch", "guards.tensor_words",
         "graph.contracts", "debug.explain", "autograd.outputs")  # fmt: skip


def test_what_finds_its_entry_loads_nothing_that_only_others_need(tmp_path):
    assert "kept" in ran(tmp_path, "inference")[0]
    entries, _, loaded = ran(tmp_path, "inference")
    assert entries == {"found": 1}
    assert not [name for name in loaded if name.removeprefix("pliant.") in LATER]


BEGINNING = """
import sys
import pliant
from pliant.guards import native_watch
loaded = []
native_watch.prepare_beside = lambda: loaded.append("pliant.dispatch.new_entry" in sys.modules)
pliant.compile(abs)
print(loaded, "pliant.dispatch.new_entry" in sys.modules)
"""


def test_c_that_any_entry_needs_is_compiled_while_stages_are_loaded(tmp_path):
    environment = {**os.environ, "PLIANT_CACHE_DIR": str(tmp_path)}
    done = own_process.ran(BEGINNING, env=environment)
    assert done.stdout.strip() == "[False] True", done.stderr[-3000:]


def test_what_runs_programs_is_where_the_tables_say():
    for name, module in programs.MAKERS.items():
        maker = getattr(importlib.import_module(f"pliant.{module}"), name)
        assert maker.__name__ == name and (hasattr(maker, "__wrapped__") or name == "wrapper_of")  # the one whose calls are noted
    for name, module in programs.RECORDS.items():
        cls = getattr(importlib.import_module(f"pliant.{module}"), name)
        assert dataclasses.is_dataclass(cls) and cls.__module__ == f"pliant.{module}"


TWICE = """
import contextlib, json, torch
import pliant
from pliant.runtime import tensor_address

def doubled(x):
    return x * 2 + 1

compiled, x = pliant.compile(doubled), torch.linspace(-1, 1, 12)
known = []
for profiled in (False, True, False, False):
    with torch.profiler.profile() if profiled else contextlib.nullcontext():
        torch.testing.assert_close(compiled(x), x * 2 + 1)
    known.append(tensor_address.layout.cache_info().currsize)
pliant.background.finish()
print(json.dumps([pliant.stats()["entries"], known]))
"""


def test_where_tensors_have_their_data_is_found_out_at_a_second_call(tmp_path):
    """And not while a profiler records, which would see it."""
    program = tmp_path / "twice.py"
    program.write_text(TWICE)
    environment = {**os.environ, "PLIANT_KEEP_ENTRIES": "1", "PLIANT_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        done = own_process.ran(program, env=environment, check=True)
    assert json.loads(done.stdout) == [{"found": 1}, [0, 0, 1, 1]]


COLD = """
import json, sys, torch
import pliant

def doubled(x):
    return x * 2 + 1

compiled, x = pliant.compile(doubled), torch.linspace(-1, 1, 12)
before = {*sys.modules}
with torch.no_grad():
    compiled(x)
print(json.dumps([[name for name in {*sys.modules} - before if name.startswith("pliant.entries.")], sorted(sys.modules)]))
"""
# What only programs need that break, train, fail, have sizes that vary, or convolve, norm and index.
OF_OTHERS = ("autograd.training", "autograd.trained", "autograd.function", "autograd.expand", "autograd.partition.policy",
             "capture.recording.tensor_errors", "dispatch.behind", "dispatch.resume_function", "graph.fallback",
             "ir.interpret", "lowering.bits", "lowering.depthwise", "lowering.normalization", "lowering.scattering",
             "symbolic.prove")  # fmt: skip


def test_what_compiles_a_small_function_loads_what_that_needs_and_before_the_first_call(tmp_path):
    """Loading what writes entries takes a tenth of the first call of a small function."""
    program = tmp_path / "cold.py"
    program.write_text(COLD)
    environment = {**os.environ, "PLIANT_KEEP_ENTRIES": "1", "PLIANT_CACHE_DIR": str(tmp_path / "cache")}
    done = own_process.ran(program, env=environment, check=True)
    in_the_call, loaded = json.loads(done.stdout)
    assert in_the_call == []
    assert not {f"pliant.{name}" for name in OF_OTHERS}.intersection(loaded)
