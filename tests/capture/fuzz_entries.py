"""Random programs called in many ways: results as in eager, and entries in proportion to what the program does differently.

A call's behaviour is the lines that it runs, the truths, texts and lengths that it logs, whether `getattr` gives its default,
how long its containers are and whether the lists are one, and, if the program writes or compares tensors, which of these are one. More
entries than twice the behaviours are guards on what does not matter.

    python -m tests.capture.fuzz_entries --count 2000 --first 0
"""

from __future__ import annotations

import copy
import random
import sys
import types
from typing import Any

import numpy
import torch
from tests.capture.constructs.harness import same
from tests.capture.fuzz_command import run_seeds
from tests.capture.fuzz_programs import load

import pliant

PARAMETERS = "x, y, z, items, more, keys, some, count"
CONTAINERS = ("items", "more", "keys", "some")
READS = (
    "a = a + z",
    "a = torch.where(y > 0, a, a + 1) - z * y",
    "a = a * count",
    "n = n + count",
    "log.append(count * 2 + 1)",
    "log.append((count, -count))",
    "n = n + len(items)",
    "n = n + len(more)",
    "for v in items: a = a + v",
    "n = n + sum(more)",
    "log.append([v * 2 for v in items])",
    "n = n + len(keys) + len(some)",
    "for k in keys: n = n + keys[k]",
    "log.append('k3' in keys)",
    "n = n + keys.get('k3', 5)",
    "log.append(3 in some)",
    "for v in sorted(some): a = a + v",
    "log.append(sum(some))",
    "log.append(type(count).__name__)",
    "log.append(isinstance(count, int))",
    "if count > 4: a = a + 1\nelse: a = a - 1",
    "if len(items) > 2: a = a * 2",
    "a = a + torch.tensor(count)",
)
ASKS = (
    "log.append((x is y, y is z))",
    "log.append(items is more)",
    "log.append(id(x) == id(z))",
    "log.append(z in {x: 1, y: 2})",
    "log.append(hasattr(BOX, 'late'))",
    "n = n + getattr(BOX, 'late', 7)",
    "log.append('LATE' in globals())",
    "try: n = n + LATE\nexcept NameError as e: log.append(str(e))",
    "try: n = n + STATE['late']\nexcept KeyError: log.append('no key')",
)
WRITES = (
    "z.add_(2)",
    "y[0] = 5",
    "items.append(3)",
    "more.append(1); n = n + len(items)",
    "keys['late'] = 1",
    "some.discard(2)",
)
KINDS = (int, int, int, numpy.int64, numpy.float64, numpy.float32)
PRELUDE = "import torch\nclass Box: pass\nBOX, STATE = Box(), {}\n"


def program(seed: int) -> str:
    chance = random.Random(seed)
    tables = [READS, READS, ASKS] + [WRITES] * (seed % 3 == 0)
    statements = [chance.choice(chance.choice(tables)) for _ in range(chance.randint(3, 6))]
    lines = [f"    {line}" for statement in statements for line in statement.split("\n")]
    body = "\n".join(["    a, n, log = x * 1, 0, []", *lines, "    return a, n, log"])
    return f"{PRELUDE}def f({PARAMETERS}):\n{body}\n"


def ways(chance: random.Random, kind: Any) -> dict[str, Any]:
    """How one call differs from others."""
    return {
        "tensors": chance.choice(((0, 1, 2), (0, 0, 2), (0, 1, 0), (0, 1, 1), (0, 0, 0))),
        "one_list": chance.random() < 0.5,
        "length": chance.choice((2, 3)),
        "held": chance.choice((0, 2, 4)),
        "count": kind(chance.randint(2, 9)),
        "late": chance.random() < 0.5,
    }


def arguments(way: dict[str, Any], seed: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(4, generator=generator) for _ in range(3)]
    items = list(range(way["length"]))
    more, held = items if way["one_list"] else [1, 2], range(way["held"])
    keys, some = {f"k{i}": i for i in held}, set(held)
    return (*(tensors[i] for i in way["tensors"]), items, more, keys, some, way["count"])


def prepare(module: types.ModuleType, late: bool) -> None:
    """The name, the attribute and the key are there, or not."""
    for owner, name in ((vars(module), "LATE"), (vars(module.BOX), "late"), (module.STATE, "late")):
        owner.pop(name, None)
        if late:
            owner[name] = 3


def behaviour(module: types.ModuleType, given: tuple[Any, ...]) -> tuple[Any, Any]:
    """What eager gives, and what it does: the lines it runs and what it logs but for numbers."""
    lines = set()

    def note(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != module.f.__code__.co_filename:
            return None
        lines.add(frame.f_lineno)
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        result = module.f(*given)
    finally:
        sys.settrace(before)
    return result, (frozenset(lines), str(_without_numbers(result[2])))


def _without_numbers(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_without_numbers(one) for one in value]
    return value if isinstance(value, (bool, str)) else None


def disagreement(seed: int, calls: int = 24) -> str:
    """What differs from eager, or how many entries there are too many; empty if nothing."""
    text, chance = program(seed), random.Random(seed)
    eager, other = load(text, "entries"), load(text, "entries")
    pliant.reset()
    compiled = pliant.compile(other.f, backend="eager")
    behaviours = set()
    body = text.partition("log = ")[2]
    tells_apart = any(word in body for word in ("z.add_", "y[0]", " is ", "id(", "z in"))
    kind = KINDS[seed % len(KINDS)]
    for call in range(calls):
        way = ways(chance, kind)
        given = arguments(way, seed)
        prepare(eager, way["late"])
        prepare(other, way["late"])
        mine = copy.deepcopy(given)
        want, done = behaviour(eager, given)
        got = compiled(*mine)
        if not same((got, mine), (want, given)):
            return f"seed {seed}, call {call}, {way}:\n{text}\n got {got}\nwant {want}\n"
        lists = tuple(len(one) for one, name in zip(given[3:7], CONTAINERS) if name in body)
        tensors = way["tensors"] if tells_apart else ()
        behaviours.add((done, lists, way["one_list"], tensors, way["late"] if "getattr(" in body else None))
    stats = pliant.stats()
    captures = stats["calls"].get("capture", 0)
    if not stats["graph_breaks"] and captures > 2 * len(behaviours):
        reasons = "\n  ".join(stats["recompile_reasons"])
        return f"seed {seed}: {captures} entries for {len(behaviours)} behaviours\n{text}\n  {reasons}\n"
    return ""


if __name__ == "__main__":
    run_seeds(disagreement, recompile_limit=64)
