"""What a system does to a store, done by the system itself: a disk that is full, a folder of which this user can only read, files of
another user. Each process computes what eager does, with at most one warning.

    python -m tests.entries.hardships        (as the superuser, who can become others and mount a small disk)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tests.entries import programs
from tests.entries.crowd import start, told

import pliant
from pliant import background

NOBODY = 65534
Told = dict[str, object] | None


@contextmanager
def a_disk(size: str) -> Iterator[Path]:
    """An empty file system of so many bytes."""
    folder = Path(tempfile.mkdtemp(prefix="pliant-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


@contextmanager
def a_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pliant-hardship-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def ran(folder: Path, user: int = 0) -> Told:
    return told(*start(str(folder), user))


def full_from_the_start() -> Iterator[Told]:
    with a_disk("16k") as folder:
        yield ran(folder)
        yield ran(folder)


def full_in_the_middle() -> Iterator[Told]:
    """Room for what is built, or for a part of it."""
    for size in ("48k", "96k", "160k", "256k"):
        with a_disk(size) as folder:
            yield ran(folder)
            yield ran(folder)
            assert not list(folder.rglob(".new-*")), "what was half written lies there"


def only_read() -> Iterator[Told]:
    """The superuser's, for all to read."""
    with a_folder() as folder:
        yield ran(folder)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        before = sorted(folder.rglob("*"))
        found = ran(folder, NOBODY)
        yield found
        assert found is None or found["entries"] == {"found": 2}, found
        assert sorted(folder.rglob("*")) == before


def only_read_and_empty() -> Iterator[Told]:
    with a_folder() as folder:
        folder.chmod(0o755)
        yield ran(folder, NOBODY)
        assert not list(folder.iterdir())


def of_another_user() -> Iterator[Told]:
    """One file, then all, belong to somebody who could have written anything."""
    with a_folder() as folder:
        yield ran(folder)
        files = [one for one in folder.glob("v1/entries/??/*/*") if one.is_file()]
        os.chown(files[0], NOBODY, NOBODY)
        folder.chmod(0o755)
        found = ran(folder)
        yield found
        assert found is None or not dict(found["entries"]).get("found"), found  # type: ignore[call-overload]
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        yield ran(folder)


HARDSHIPS: tuple[Callable[[], Iterator[Told]], ...] = (
    full_from_the_start, full_in_the_middle, only_read, only_read_and_empty, of_another_user,
)  # fmt: skip


def main() -> None:
    with a_folder() as folder, pliant.config.patch(keep_entries=True, cache_dir=str(folder)), torch.no_grad():
        for _ in range(2):  # what compiling and finding load, which others may not read
            pliant.compile(programs.Model())(torch.ones(4, 4))
            background.finish()
    bad = 0
    for hardship in HARDSHIPS:
        for found in hardship():
            wrong = found is None or bool(found["wrong"]) or len(found["warnings"]) > 1  # type: ignore[arg-type]
            bad += wrong
            print(f"{'WRONG ' if wrong else ''}{hardship.__name__}: {found}")
    print(f"{bad} wrong or noisy")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
