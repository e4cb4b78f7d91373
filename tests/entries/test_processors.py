"""Entries of several processors lie in one store, and in one bundle: each finds its own."""

import pytest
import torch
from tests.entries import programs

import pliant
from pliant import background
from pliant.entries import environment
from pliant.runtime import build


def on(processor, folder, monkeypatch):
    """What becomes of the entries of a call on a processor of this name, with the kernels of this one."""
    for module in (environment, build):
        monkeypatch.setattr(module, "machine", lambda: processor)
    environment._versions.cache_clear()
    pliant.reset()
    with pliant.config.patch(keep_entries=True, cache_dir=str(folder)), torch.no_grad():
        x = torch.ones(3)
        assert torch.equal(pliant.compile(programs.scaled)(x), programs.scaled(x))
        background.finish()
        return pliant.stats()["entries"]


@pytest.fixture(autouse=True)
def versions():
    yield
    environment._versions.cache_clear()


def test_one_bundle_serves_several_processors(tmp_path, monkeypatch):
    made, taken, bundle = tmp_path / "made", tmp_path / "taken", tmp_path / "bundle.tgz"
    assert on("one", made, monkeypatch) == {"kept": 1} == on("other", made, monkeypatch)
    with pliant.config.patch(cache_dir=str(made)):
        pliant.cache.export(bundle, models=["scaled"])
    with pliant.config.patch(cache_dir=str(taken)):
        pliant.cache.import_(bundle)
    assert on("one", taken, monkeypatch) == {"found": 1} == on("other", taken, monkeypatch)
    assert on("a third", taken, monkeypatch) == {"kept": 1}
