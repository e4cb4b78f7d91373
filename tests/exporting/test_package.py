"""Packages: kernels in the file, run by a process that has no C compiler, and only where they may be."""

import os

import pytest
import torch
from torch import nn

import own_process
import pliant
from pliant.errors import ConfigError, FallbackWarning, FileError, PliantWarning
from pliant.exporting import processors, unpacked


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(8, 16), nn.LayerNorm(16)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return {"y": self.norm(torch.nn.functional.gelu(self.linear(x))), "x": x.t()}


def arguments(size):
    return torch.arange(size * 8, dtype=torch.float32).view(size, 8).sin()


SIZES = (1, 2, 5, 33)


@pytest.fixture(scope="module")
def model():
    return Model().eval()


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    target = tmp_path_factory.mktemp("packages") / "model.pliant"
    program = pliant.export(model, (arguments(5),), dynamic_shapes=({0: pliant.Dim("batch", max=64)},))
    pliant.aot_compile(program, target)
    return target


def is_right(program, model):
    for size in SIZES:
        with torch.no_grad():
            wanted = model(arguments(size))["y"]
        torch.testing.assert_close(program(arguments(size))["y"], wanted)
    return True


WITHOUT_COMPILER = """
import sys, torch, pliant
from pliant.debug import events
program = pliant.load(sys.argv[1], kernels=True)
found = [program(x)["y"] for x in torch.load(sys.argv[2])]
assert program._caller is not None and program._caller.run.__globals__.get("__name__") != "pliant.graph.interpret"
assert not events.events("build") and not events.events("fallback"), "nothing is compiled, nothing runs by operators"
assert not [one for one in sys.modules if one.startswith(("pliant.lowering", "pliant.schedule.", "pliant.capture"))], "nor are compilers loaded"
assert float(program.state["calls"]) == len(found)
torch.save(found, sys.argv[3])
"""


def test_a_process_without_a_compiler_runs_the_kernels(path, model, tmp_path):
    torch.save([arguments(size) for size in SIZES], tmp_path / "calls")
    environment = {**os.environ, "PLIANT_CACHE_DIR": str(tmp_path / "cache"), "PLIANT_CC": "/no/compiler", "PATH": "/nowhere"}
    own_process.ran(WITHOUT_COMPILER, path, tmp_path / "calls", tmp_path / "found", env=environment, check=True)
    for found, size in zip(torch.load(tmp_path / "found"), SIZES, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(found, model(arguments(size))["y"])


def test_kernels_of_a_file_that_is_not_trusted_are_not_used(path, model):
    with pytest.warns(PliantWarning, match="its kernels are not used"):
        program = pliant.load(path)
    assert program._caller is None and is_right(program, model)


def test_kernels_for_another_place_are_not_used(path, model, monkeypatch):
    here = processors.environment()
    monkeypatch.setattr(unpacked, "environment", lambda: {**here, "torch": "another"})
    with pytest.warns(FallbackWarning, match="torch is another and was"):
        program = pliant.load(path, kernels=True)
    assert program._caller is None and is_right(program, model)
    with pliant.config.patch(strict=True), pytest.raises(FileError, match="its kernels are for another place"):
        pliant.load(path, kernels=True)


def test_wrong_calls(path, model, tmp_path):
    program = pliant.load(path, kernels=True)
    program.save(tmp_path / "plain")
    with pytest.raises(FileError, match="has no kernels"):
        pliant.load(tmp_path / "plain", kernels=True)
    with pytest.raises(ConfigError, match="it is no exported program"):
        pliant.aot_compile(model, tmp_path / "file")
