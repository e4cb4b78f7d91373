"""Small programs of which one thing changes between two processes: the second must compute what its own eager does.

`changes.txt` is the table: a row is a way for something to matter to what is compiled. Both processes are one here, which
loads the program's module anew: objects have other addresses, and what is kept is looked for as in another process.

    python -m tests.entries.changes [words that names contain] [--mixed 1000] [--compiled]

`--mixed`: then so many programs made of two that are kept; in one of them something changes, or in both, or in none.
`--compiled`: nothing is kept; the same compiled function is called again after everything that the program holds was
replaced. What differs from eager there is a guard that is missing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import random
import shutil
import sys
import tempfile
import types
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import pliant
from pliant import background
from pliant.cache.store import FORMAT
from pliant.debug import events

_NAME = "program_that_changes"
_IMPORTS = """
import abc, collections, dataclasses, enum, functools, inspect, logging, math, operator, os, re, sys, types, typing, warnings
import torch
import torch.nn.functional as F
from torch import nn
"""


@dataclass(frozen=True)
class Change:
    """A program with a place, and what stands there in the first process and in the second."""

    text: str
    first: str
    second: str


def _read() -> dict[str, Change]:
    blocks = (Path(__file__).with_suffix(".txt")).read_text().split("\n\n")[1:]
    found = {}
    for head, _, body in (block.partition("\n") for block in blocks):
        name, _, values = head.partition(": ")
        text = "\n".join(line.removeprefix("    ") for line in body.splitlines())
        found[name] = Change(text, *ast.literal_eval(values))
    return found


CHANGES = _read()


@dataclass
class Told:
    """What a process did. `wrong`: "" if compiled code computed what eager did."""

    wrong: str
    entries: dict[str, int]
    why: list[str]


def load(change: Change, value: str, name: str = _NAME) -> types.ModuleType:
    """The program as a module of this process."""
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(_IMPORTS + change.text.replace("{0}", value), f"/nowhere/{name}.py", "exec"), module.__dict__)
    return module


def process(change: Change, value: str) -> Told:
    """Load the program, run it eagerly and compiled."""
    return process_of(lambda: load(change, value))


def process_of(load: Callable[[], types.ModuleType]) -> Told:
    """The same of a program that is loaded so."""
    events.reset()
    module = load()
    try:
        expected = _outcome(module.f, module)
        if getattr(module, "FRESH", False):
            module = load()
        found = _outcome(pliant.compile(module.f), module)
    finally:
        getattr(module, "UNDO", lambda: None)()
    background.finish()
    wrong = "" if _same(found, expected) else f"{found} is not {expected}"
    why = [str(e.fields["why"]) for e in events.events("entry") if "not" in str(e.fields["what"])]
    return Told(wrong, dict(pliant.stats()["entries"]), why)


def _outcome(call, module: types.ModuleType) -> object:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 12).view(3, 4)
    training = getattr(module, "TRAIN", False)
    with torch.set_grad_enabled(training):
        try:
            found = call(x.requires_grad_(training))
        except Exception as error:
            return repr(error)
    if training:
        leaves = torch.utils._pytree.tree_leaves(found)
        sum(one.sum() for one in leaves if isinstance(one, torch.Tensor) and one.requires_grad).backward()
    return found, x.grad


def _same(one: object, other: object) -> bool:
    a, shape = torch.utils._pytree.tree_flatten(one)
    b, other_shape = torch.utils._pytree.tree_flatten(other)
    return shape == other_shape and all(map(_same_leaf, a, b))


def _same_leaf(a: object, b: object) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and (a == b or a != a and b != b)
    same = (a.dtype, a.shape, a.requires_grad, a.device) == (b.dtype, b.shape, b.requires_grad, b.device)
    return same and (a.is_meta or torch.allclose(a.detach(), b.detach(), atol=1e-6, equal_nan=True))


@contextlib.contextmanager
def keeping(folder: str):
    """A store without entries; kernels, which are what their text says, stay."""
    shutil.rmtree(Path(folder, FORMAT, "entries"), ignore_errors=True)
    with pliant.config.patch(keep_entries=True, cache_dir=folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def pair(name: str, folder: str) -> list[Told]:
    """The first process, the same again, and the second."""
    change = CHANGES[name]
    with keeping(folder):
        return [process(change, value) for value in (change.first, change.first, change.second)]


def replaced(change: Change) -> str:
    """What is wrong of a compiled function when all that the program's module holds was replaced; "" if nothing is."""
    module = load(change, change.first)
    compiled = pliant.compile(module.f)
    try:
        _outcome(compiled, module)
        other = vars(load(change, change.second))
        kept = {"f", *(name for name, value in other.items() if isinstance(value, types.ModuleType))}
        vars(module).update({name: value for name, value in other.items() if name not in kept and name[:2] != "__"})
        sides = [_outcome(call, module) for call in (compiled, module.f)]
    finally:
        getattr(module, "UNDO", lambda: None)()
    return "" if _same(*sides) else f"{sides[0]} is not {sides[1]}"


_BOTH = """
def f(x):
    return one(x), other(x)
"""


def _loaded(parts: list[tuple[str, str]]) -> types.ModuleType:
    """A program that calls those of the table."""
    module = sys.modules[_NAME] = types.ModuleType(_NAME)
    for name, (row, value) in zip(("one", "other"), parts, strict=True):
        part = load(CHANGES[row], value, f"{_NAME}_{name}")
        vars(module)[name] = part.f
    exec(compile(_BOTH, f"/nowhere/{_NAME}.py", "exec"), module.__dict__)
    return module


def mixed(names: list[str], folder: str, rng: random.Random) -> tuple[str, list[Told]]:
    """Two processes of a program made of two, each with the first value of its place or the second."""
    rows = rng.sample(names, 2)
    before, after = ([(row, rng.choice((CHANGES[row].first, CHANGES[row].second))) for row in rows] for _ in range(2))
    with keeping(folder):
        return f"{before} {after}", [process_of(lambda parts=parts: _loaded(parts)) for parts in (before, after)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--mixed", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true")
    given = parser.parse_args()
    names = [name for name in CHANGES if not given.words or any(word in name for word in given.words)]
    if given.compiled:
        wrong = {name: replaced(CHANGES[name]) for name in names if "FRESH" not in CHANGES[name].text}
        print(*(f"{name}: {text[:300]}" for name, text in wrong.items() if text), f"{len(wrong)} rows", sep="\n")
        return
    counts: Counter[str] = Counter()
    alone = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            first, again, second = pair(name, folder)
            _count(counts, name, again, second)
            counts["kept"] += bool(first.entries.get("kept"))
            if again.entries.get("found") and "UNDO" not in CHANGES[name].text and "TRAIN" not in CHANGES[name].text:
                alone.append(name)
            elif not again.entries.get("found"):
                print(f"{name} is not found: {[*first.why, *again.why][:1]}")
        rng = random.Random(given.seed)
        for _ in range(given.mixed):
            name, told = mixed(alone, folder, rng)
            _count(counts, name, *told)
            counts["mixed, found"] += bool(told[1].entries.get("found"))
    print(dict(counts))


def _count(counts: Counter[str], name: str, first: Told, second: Told) -> None:
    counts["pairs"] += 1
    if counts["pairs"] % 100 == 0:
        print(dict(counts), flush=True)
    for one in (first, second):
        if one.wrong:
            counts["stale" if one.entries.get("found") else "wrong"] += 1
            print(f"{name}: {one.entries} {one.wrong[:300]}")


if __name__ == "__main__":
    main()
