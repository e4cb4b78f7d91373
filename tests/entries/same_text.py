"""Two processes keep the same bytes of each program: C, wrappers, guards, whole entries.

They order hashes otherwise, and one takes the programs in the opposite order, so that counts of what ran before would show. A
program that itself goes through a set of texts is another program where hashes are ordered otherwise: what differs is tried again
with hashes of one order, and is told apart if it is then the same.

    python -m tests.entries.same_text [--public 1/20 --library hf timm] [--modes inference training] [names]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from benchmarks import second_start, second_start_models, zoo_models

import pliant
from pliant import background
from pliant.cache.store import FORMAT

Digests = dict[str, str]  # of each file, by its place
STORES = ("entries", "kernels")


def kept(name: str, training: bool, folder: Path) -> Digests:
    """What a process writes that compiles the program."""
    target, inputs = second_start_models.built(name)
    if isinstance(target, torch.nn.Module):
        target.train(training)
    elif training:
        inputs["x"].requires_grad_()
    pliant.reset()
    with pliant.config.patch(keep_entries=True, cache_dir=str(folder)), torch.set_grad_enabled(training):
        second_start.called(pliant.compile(target), inputs, training)
        background.finish()
    files = [file for store in STORES for file in folder.glob(f"{FORMAT}/{store}/??/*/data*")]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def child(names: list[str], modes: list[str], folder: Path) -> None:
    """Write down what is kept of each."""
    warnings.simplefilter("ignore")
    zoo_models.import_libraries({name.partition("/")[0] for name in names if "/" in name})
    for name in names:
        for mode in modes:
            place = folder / f"{name.replace('/', '.')} {mode}"
            try:
                told: object = kept(name, mode == "training", place)
            except Exception as error:
                told = f"{type(error).__name__}: {error}"[:200]
            (folder / f"{place.name}.told").write_text(json.dumps(told))


def both(names: list[str], modes: list[str], root: Path, seeds: tuple[str, str] = ("1", "2")) -> dict[str, list[object]]:
    """By program and mode, what the two processes wrote."""
    running = []
    folders = root / "one", root / "other"
    for folder, seed, order in zip(folders, seeds, (names, names[::-1]), strict=True):
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "tests.entries.same_text", "--child", str(folder), "--modes", *modes, "--", *order]
        running.append(subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": seed}))
    for process in running:
        process.wait()
    told = sorted(folders[0].glob("*.told"))
    return {file.stem: [json.loads((folder / file.name).read_text()) for folder in folders] for file in told}


def differing(found: dict[str, list[object]]) -> dict[str, list[str]]:
    """What differs of each program of which something does."""
    return {name: trouble for name, (one, other) in found.items() if (trouble := different(one, other))}


def different(one: object, other: object) -> list[str]:
    """Files that only one has, or that differ."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return [] if one == other else [f"{one} | {other}"]
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--public", default="")
    parser.add_argument("--library", nargs="*", default=["hf"], choices=list(zoo_models.LIBRARIES))
    parser.add_argument("--modes", nargs="*", default=["inference", "training"])
    parser.add_argument("--child", type=Path)
    given = parser.parse_args()
    if given.child is not None:
        child(given.names, given.modes, given.child)
        return
    names = given.names or second_start_models.NAMES
    if given.public:
        part, count = map(int, given.public.split("/"))
        zoo_models.import_libraries(given.library)
        names = [n for n in zoo_models.names(given.library)[part - 1 :: count] if second_start_models.without_case(n) is None]
    with tempfile.TemporaryDirectory(prefix="pliant-text-") as folder:
        found = both(names, given.modes, Path(folder, "seeds"))
        wrong = differing(found)
        again = [name for name in names if any(told.startswith(f"{name.replace('/', '.')} ") for told in wrong)]
        same = both(again, given.modes, Path(folder, "seed"), ("1", "1")) if again else {}
    unlike = differing(same)
    for name, (one, _) in found.items():
        told = f"{len(one)} files, the same" if isinstance(one, dict) else one
        if name in wrong:
            told = unlike.get(name) or "the same where sets of texts have one order: the program goes through one"
        print(f"{name}: {told}")
    print(f"{len(unlike)} of {len(found)} differ")
    raise SystemExit(bool(unlike))


if __name__ == "__main__":
    main()
