"""Two processes keep the same bytes of each program: C, wrappers, guards, whole entries.

They order hashes otherwise, and one takes the programs in the opposite order, so that counts of what ran before would show.

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


def both(names: list[str], modes: list[str], root: Path) -> dict[str, list[object]]:
    """By program and mode, what the two processes wrote."""
    running = []
    for seed, order in (("1", names), ("2", names[::-1])):
        (root / seed).mkdir()
        command = [sys.executable, "-m", "tests.entries.same_text", "--child", str(root / seed), "--modes", *modes, "--", *order]
        running.append(subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": seed}))
    for process in running:
        process.wait()
    told = sorted((root / "1").glob("*.told"))
    return {file.stem: [json.loads((root / seed / file.name).read_text()) for seed in "12"] for file in told}


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
        found = both(names, given.modes, Path(folder))
    wrong = 0
    for name, (one, other) in found.items():
        trouble = different(one, other)
        wrong += bool(trouble)
        print(f"{name}: {f'{len(one)} files, the same' if not trouble and isinstance(one, dict) else trouble or one}")
    print(f"{wrong} of {len(found)} differ")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
