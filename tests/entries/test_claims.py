"""Processes that start with the same call: one compiles, the others wait for its entry, but for nobody who is gone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.entries import programs

import pliant
from pliant import background
from pliant.cache.store import open_store
from pliant.dispatch.roots import CallableRoot
from pliant.entries import claims

X = torch.randn(4, 4)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    pliant.reset()
    monkeypatch.setattr(claims, "_given_up", set())
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"
    pliant.reset()


def claim(*args):
    return claims.claimed(open_store("entries"), CallableRoot(programs.scaled), args, {})


def test_one_of_many_compiles():
    """They are forked from a process without threads, which none of these would have."""
    command = [sys.executable, "-m", "tests.entries.crowd", "--processes", "8", "--killed", "0"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert "first wave: 0 of 8 wrong or noisy, 1 captured" in ran.stdout, ran.stdout + ran.stderr
    assert "second wave: 0 of 8 wrong or noisy, 0 captured" in ran.stdout, ran.stdout + ran.stderr


def test_a_process_does_not_wait_for_itself():
    first = claim(X)
    assert claim(X) is None
    first.release()
    other = claim(X)
    assert other is not None and not other.was_anothers
    other.release()


def test_an_argument_that_contains_itself():
    items = [2.0]
    items.append(items)
    compiled = pliant.compile(lambda x, items: x * items[0])
    torch.testing.assert_close(compiled(X, items), 2 * X)
    assert not pliant.stats()["fallbacks"]


def test_calls_of_other_sizes_do_not_wait():
    first, other = claim(X), claim(X[:2])
    assert other is not None
    first.release()
    other.release()


def _owner(kept):
    """A process that has the claim, and releases it when it is told to."""
    read, write = os.pipe()
    ready, told = os.pipe()
    process = os.fork()
    if process == 0:
        one = claim(X)
        os.write(told, b"x")
        os.read(read, 1)
        one.release(kept)
        os._exit(0)
    os.read(ready, 1)
    return process, write


@pytest.mark.parametrize("kept", [True, False])
def test_the_others_go_on_when_it_is_released(kept):
    process, write = _owner(kept)
    os.write(write, b"x")
    found = claim(X)
    os.waitpid(process, 0)
    if found is not None:
        found.release()
    assert kept or found is None or not found.was_anothers


def test_who_is_killed_holds_nothing():
    process, _ = _owner(True)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    found = claim(X)
    assert found is not None
    found.release()


def test_nobody_waits_for_long(monkeypatch):
    monkeypatch.setattr(claims, "PATIENCE", 0.2)
    process, write = _owner(True)
    began = time.monotonic()
    assert claim(X) is None
    assert claim(X[:2]) is None  # nor once more
    assert time.monotonic() - began < 5
    os.write(write, b"x")
    os.waitpid(process, 0)


def test_a_claim_that_is_dropped_as_the_interpreter_ends(monkeypatch):
    found = claim(X)
    with monkeypatch.context() as ended:
        ended.setattr(claims, "_lock", None)
        found.__del__()
    found.release()


def test_nothing_is_left_behind(folder):
    pliant.compile(programs.scaled)(X)
    background.finish()
    assert not list(folder.glob("v1/claims/*"))


def test_a_folder_that_is_no_folder_is_not_waited_for(folder):
    (folder / "v1").mkdir(parents=True, exist_ok=True)
    (folder / "v1" / "claims").write_text("")
    assert claim(X) is None
    torch.testing.assert_close(pliant.compile(programs.scaled)(X), programs.scaled(X))


def test_claims_do_not_go_where_others_write(folder):
    claim(X).release()
    claims_folder = next(path for path in (folder / "v1").iterdir() if path.name == claims._FOLDER)
    folder.chmod(0o755), (folder / "v1").chmod(0o755)
    claims_folder.rename(folder / "elsewhere")
    claims_folder.symlink_to(folder / "elsewhere")
    before = (folder / "elsewhere").stat().st_mtime_ns
    assert claim(X) is None and (folder / "elsewhere").stat().st_mtime_ns == before
