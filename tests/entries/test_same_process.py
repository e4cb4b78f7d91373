"""Another object of a class, and a function or class that a notebook defines again, compile nothing in the same process."""

import itertools
import sys
import types

import pytest
import torch

import pliant
from pliant import background

SOURCE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.first(x)).sum() + self.second(x).mean()

def function(x):
    return x.sin() * 2 + 1
"""
X = torch.linspace(-1, 1, 16).view(4, 4)
_cells = itertools.count(1)


def cell(namespace):
    """Run as a cell of a notebook, whose every run is a file of its own."""
    exec(compile(SOURCE, f"<ipython-input-{next(_cells)}>", "exec"), namespace)


def compiled(made, training):
    """What its first call compiled."""
    before = dict(pliant.stats()["calls"])
    with torch.set_grad_enabled(training):
        result = pliant.compile(made)(X)
        torch.testing.assert_close(result, made(X))
        if result.requires_grad:
            result.sum().backward()
    after = pliant.stats()["calls"]
    return {stage for stage in ("capture", "joint", "lower", "codegen", "build") if after.get(stage, 0) != before.get(stage, 0)}


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("name", ["Net", "function"])
def test_what_was_compiled_once_is_not_compiled_again(name, waits, training, tmp_path, monkeypatch):

    module = types.ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", module)

    def made():
        found = vars(module)[name]
        return found() if isinstance(found, type) else found

    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path)):
        cell(vars(module))
        assert "capture" in compiled(made(), training)
        if waits:
            background.finish()
        assert not compiled(made(), training)  # of the same class
        cell(vars(module))
        assert not compiled(made(), training)  # defined again
        background.finish()
