"""Load damaged and made-up files: an error, or the right result, and never a crash.

    python -m tests.exporting.fuzz_files --count 100000 --seed 1

Bytes of a file are changed, cut or added (the result must be right if there is one), or values in its program (whatever
loads may then be another program). A process of its own does a share of the work, so that a crash is seen.
"""

import argparse
import copy
import json
import random
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import torch

import pliant
from pliant.errors import PliantError
from pliant.exporting.form import PROGRAM, TENSORS


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4)
        self.table = torch.nn.Embedding(10, 6)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, ids):
        self.calls += 1
        h = torch.relu(self.norm(self.first(x + self.table(ids).mean(1))))
        found = self.last(h)
        return {"all": found, "positive": found[found > 0], "size": x.shape[0], "x": x.t()}


def arguments(size=5):
    return torch.arange(size * 6, dtype=torch.float32).view(size, 6).sin(), torch.arange(size * 3).view(size, 3) % 10


def program():
    batch = pliant.Dim("batch", max=100)
    return pliant.export(Model().eval(), arguments(), dynamic_shapes=({0: batch}, {0: batch}))


def result(of):
    found = of(*arguments())
    return [found["all"], found["positive"], found["size"], found["x"]]


def same(found, wanted):
    return all(torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b for a, b in zip(found, wanted, strict=True))


# ---- mutations
def changed_bytes(content, rng):
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 4, 32))):
        place = rng.randrange(max(1, len(content) - 1))
        match rng.randrange(5):
            case 0:
                content[place : place + 1] = rng.randbytes(1)
            case 1:
                content[place : place + 1] = bytes(b ^ (1 << rng.randrange(8)) for b in content[place : place + 1])
            case 2:
                del content[place : place + rng.randrange(1, 64)]
            case 3:
                content[place:place] = rng.randbytes(rng.randrange(1, 16))
            case 4:
                content = content[: max(1, place)]
    return bytes(content)


VALUES = (
    None, True, -1, 0, 1, 2, 3, 7, 2**31, 2**63 - 1, 2**70, -(2**63), 1.5, "", "*", "s0", "u0", "s99", "-s0", "s0*s0*s0", "1//0",
    "s0**9", "((((", [], {}, [[]], {"node": "x"}, {"size": "s0"}, {"size": "-1"}, {"constant": ["float", "nan"]},
    {"constant": ["torch", "float16"]}, "aten.view.default", "aten.as_strided.default", "aten.empty.memory_format",
    "aten.index.Tensor", "aten.resize_.default", "item", "assume", "float64", "int64", "cuda", "meta", {"result": 0}, {"input": 0},
)  # fmt: skip


def changed_program(program, rng):
    program = copy.deepcopy(program)
    for _ in range(rng.choice((1, 1, 1, 2, 6))):
        holder, key = _place(program, rng)
        match rng.randrange(5):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(rng.choice(VALUES))
            case 3:
                other, there = _place(program, rng)
                holder[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(holder[key])
            case 4:
                del holder[key]
    return program


def _place(json_, rng):
    """A container in the program, and a key of it."""
    places = []

    def walk(value):
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            places.append((value, key))
            walk(value[key])

    walk(json_)
    return rng.choice(places) if places else ({"": None}, "")


def rewritten(path, program, target):
    """The file with another program, and the right sums."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        room = old.getinfo(TENSORS)
        new.writestr(room, old.read(TENSORS), zipfile.ZIP_STORED)
        new.writestr(PROGRAM, json.dumps(program))


def attempt(path, wanted):
    """What became of a file: "error", "right", "other", or why it is wrong."""
    try:
        loaded = pliant.load(path)
    except PliantError:
        return "error"
    except Exception as error:
        return f"wrong: load raised {type(error).__name__}: {error}"
    try:
        return "right" if same(result(loaded), wanted) else "other"
    except Exception:
        return "error at the call"


def share(count, seed, folder):
    """Attempts in this process: how often each outcome came."""
    torch.manual_seed(0)
    rng = random.Random(seed)
    path, target = Path(folder) / "good", Path(folder) / f"bad-{seed}"
    made = program()
    made.save(path)
    wanted = result(made)
    assert same(result(pliant.load(path)), wanted)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        text = json.loads(archive.read(PROGRAM))
    outcomes = Counter()
    for number in range(count):
        by_bytes = number % 2 == 0
        if by_bytes:
            target.write_bytes(changed_bytes(content, rng))
        else:
            rewritten(path, changed_program(text, rng), target)
        outcome = attempt(target, wanted)
        if by_bytes and outcome == "other":
            outcome = "wrong: another result"
        outcomes[outcome] += 1
        if outcome.startswith("wrong"):
            print(f"seed {seed}, file {number}: {outcome}", flush=True)
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=int, default=0, help="run so many in this process")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.share:
            print(json.dumps(share(options.share, options.seed, folder)))
            return
        total, each = Counter(), min(2000, options.count)
        for number in range(options.count // each):
            command = [sys.executable, "-m", "tests.exporting.fuzz_files", "--share", str(each), "--seed", str(options.seed + number)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"seed {options.seed + number} ended with {done.returncode}\n{done.stderr[-2000:]}")
                total["crash"] += 1
                continue
            *messages, last = done.stdout.strip().splitlines()
            print(*messages, sep="\n", end="\n" if messages else "")
            total.update(json.loads(last))
            print(dict(total), flush=True)
        sys.exit(any(key == "crash" or key.startswith("wrong") for key in total))


if __name__ == "__main__":
    main()
