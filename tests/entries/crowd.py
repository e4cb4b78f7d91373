"""Many processes start at once on one store, some of them killed while they write: each that lives computes what eager does.

    python -m tests.entries.crowd --processes 100 --killed 20
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
import warnings
from pathlib import Path

import torch
from tests.entries import programs

import pliant
from pliant import background


def start(folder: str, user: int | None = None) -> tuple[int, int]:
    """A process of its own, of the user, that compiles, or finds, a model: its number, and a pipe for what it tells."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return process, read
    try:
        os.close(read)
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        with warnings.catch_warnings(record=True) as caught, pliant.config.patch(keep_entries=True, cache_dir=folder):
            warnings.simplefilter("always")
            told = _worked()
        told["warnings"] = [str(one.message) for one in caught]
        with os.fdopen(write, "w") as pipe:
            json.dump(told, pipe)
    finally:
        os._exit(0)


def _worked() -> dict[str, object]:
    torch.manual_seed(0)
    pliant.reset()  # what the process before the fork did
    model, x = programs.Model(), torch.randn(4, 4)
    try:
        with torch.no_grad():
            found, again = (pliant.compile(model)(x) for _ in range(2))
        background.finish()
        wrong = "" if torch.allclose(found, model(x)) and torch.allclose(again, model(x)) else "another result"
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    return {"wrong": wrong, "entries": pliant.stats()["entries"], "builds": pliant.stats()["calls"].get("capture", 0)}


def told(process: int, pipe: int) -> dict[str, object] | None:
    """What the process said; None if it was killed."""
    with os.fdopen(pipe) as file:
        text = file.read()
    os.waitpid(process, 0)
    return json.loads(text) if text else None


def together(folder: str, count: int) -> list[dict[str, object] | None]:
    return [told(*one) for one in [start(folder) for _ in range(count)]]


def killed(folder: str, after: float) -> None:
    """A process that is killed so many seconds after it began."""
    process, pipe = start(folder)
    time.sleep(after)
    os.kill(process, signal.SIGKILL)
    told(process, pipe)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--killed", type=int, default=20)
    given = parser.parse_args()
    pliant.compile(programs.scaled)(torch.ones(2))  # what compiling loads, once for all
    with tempfile.TemporaryDirectory(prefix="pliant-crowd-") as folder:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as other:
            told(*start(other))
        once = time.monotonic() - began
        for _ in range(given.killed):
            killed(folder, random.uniform(0, 1.5 * once))
        of_killed = set(Path(folder).rglob(".new-*"))  # the store removes them once they are an hour old
        all_wrong = []
        for wave in ("first", "second"):
            found = together(folder, given.processes)
            wrong = [one for one in found if one is None or one["wrong"] or len(one["warnings"]) > 1]
            all_wrong += wrong
            captured = sum(bool(one and one["builds"]) for one in found)
            print(f"{wave} wave: {len(wrong)} of {len(found)} wrong or noisy, {captured} captured; {wrong[:2]}")
        left = [str(one) for one in Path(folder).rglob(".new-*") if one not in of_killed]
        print("left behind:", left)
        raise SystemExit(bool(all_wrong or left))


if __name__ == "__main__":
    main()
