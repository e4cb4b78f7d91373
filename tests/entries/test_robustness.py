"""Whatever happens to the store: the right result, at most one warning, and entries again afterwards."""

import errno
import os
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from tests.entries import faults, programs

import pliant
from pliant import background
from pliant.cache import store as stores
from pliant.debug import events

X = torch.randn(4, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    background.finish()  # entries of other tests
    pliant.reset()
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"
    pliant.reset()


@torch.no_grad()
def called():
    """What a new dispatcher does: the counts of entries, and the warnings."""
    events.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = pliant.compile(programs.scaled)  # which has the entry until it is written down
        result = compiled(X)
        background.finish()
    torch.testing.assert_close(result, programs.scaled(X))
    return pliant.stats()["entries"], [str(one.message) for one in caught]


def files(folder, namespace="*"):
    return sorted(file for file in folder.glob(f"v1/{namespace}/??/*/*") if file.is_file())


def replaced(file, content):
    """As another file: this process may have loaded the one that is there."""
    file.unlink()
    file.write_bytes(content)


def flipped(file, rng):
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    replaced(file, content)


DAMAGE = {
    "a bit": flipped,
    "the end": lambda file, rng: replaced(file, file.read_bytes()[: rng.randrange(file.stat().st_size)]),
    "all": lambda file, rng: replaced(file, b""),
    "the file": lambda file, rng: file.unlink(),
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("name", ["data.json", "key.json"])
def test_a_damaged_entry_is_dropped(folder, what, name):
    assert called() == ({"kept": 1}, [])
    for seed in range(4):
        (file,) = (one for one in files(folder, "entries") if one.name == name)
        DAMAGE[what](file, random.Random(seed))
        counts, told = called()
        assert len(told) <= 1
        if counts != {"found": 1}:  # not so where a bit of the description is told to people only
            assert counts == {"kept": 1} and called() == ({"found": 1}, [])


@pytest.mark.parametrize("what", ["a bit", "the end"])
def test_damaged_kernels_are_built_again(folder, what):
    called()
    for file in files(folder, "kernels"):
        if file.name == "data.so":
            DAMAGE[what](file, random.Random(0))
    counts, told = called()
    assert "found" not in counts and len(told) <= 1
    assert called() == ({"found": 1}, [])


def test_a_full_disk(folder, monkeypatch):
    called()  # kernels are built

    def full(path, data):
        path.write_bytes(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for file in files(folder, "entries"):
        file.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(stores, "_write", full)
        counts, told = called()
    assert counts == {"not kept": 1} and len(told) <= 1
    assert not list(folder.rglob(".new-*"))
    called()
    assert called() == ({"found": 1}, [])


def test_a_folder_that_can_only_be_read(folder, monkeypatch):
    def seen():
        told = [(file, file.stat()) for file in files(folder)]
        return {file: (one.st_size, one.st_mtime_ns, one.st_mode) for file, one in told}  # not when it was last read

    called()
    before = seen()
    monkeypatch.setattr(stores, "_is_writable", lambda root: root != folder)
    assert called() == ({"found": 1}, [])
    with pliant.config.patch(fuse=False):
        assert called() == ({"kept": 1}, [])  # for this process alone
    assert seen() == before


def test_a_clock_that_goes_back(folder, monkeypatch):
    """What is dated ahead of the clock is neither fresh for ever nor in the way."""
    called()
    for file in files(folder):
        os.utime(file, (time.time() + 1e6, time.time() + 1e6))
    assert called() == ({"found": 1}, [])
    opened = stores.open_store("entries")
    monkeypatch.setattr(opened, "max_bytes", 1)
    (entry,) = opened.entries()
    os.utime(entry.folder / "key.json", (time.time() + 1e6, time.time() + 1e6))
    opened._evict()
    assert not list(opened.entries())


@pytest.mark.parametrize("keeps", [False, True], ids=["finding", "keeping"])
def test_a_disk_that_fails(tmp_path, keeps):
    """`python -m tests.entries.faults` fails at each call."""
    faults.called(tmp_path / "base")
    for number in (7, 10, 13, 25, 31):
        for lasting in (False, True):
            root = tmp_path / f"{number}-{lasting}"
            assert not faults.trouble(tmp_path / "base", root, keeps, number, lasting)[0], (number, lasting)


def test_what_killed_writers_left_goes(folder):
    called()
    opened = stores.open_store("entries")
    old, new = (opened.home / "ab" / f".new-{name}" for name in ("old", "new"))
    for scratch in (old, new):
        scratch.mkdir(parents=True)
        (scratch / "data.json").write_bytes(b"half")
    os.utime(old, (0, 0))
    opened._evict()
    assert not old.exists() and new.exists()


def ran(*command):
    """In a process of its own: its children are forks, which a process with threads of others' had better not make."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])}
    return subprocess.run([sys.executable, "-m", *command], env=environment, capture_output=True, text=True, timeout=200, check=False)


def test_processes_at_once_and_killed_ones():
    done = ran("tests.entries.crowd", "--processes", "4", "--killed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "second wave: 0 of 4 wrong or noisy, 0 captured" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser mounts disks and becomes others")
def test_hardships():
    done = ran("tests.entries.hardships")
    if "mount" in done.stderr:
        pytest.skip("no disks can be mounted here")
    assert done.returncode == 0, done.stdout + done.stderr
