"""Load damaged and made-up files: an error, or the right result, and never a crash.

    python -m tests.exporting.fuzz_files --count 100000 --seed 1 [--loops | --objects]

Bytes of a file are changed, cut or added (the result must be right if there is one), or values in its program (whatever
loads may then be another program). A process of its own does 2,000 at a time, so that a crash is seen and the rest goes on.
A file is made again from its seed and number (`--first`).
"""

import argparse
import copy
import json
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import traceback
import zipfile
from collections import Counter, defaultdict, deque
from pathlib import Path

import torch
from tests.exporting import loops

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


class Loops(torch.nn.Module):
    """With programs inside the program, which is `--loops`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.LSTM(6, 4, batch_first=True)

    def forward(self, x, ids):
        slow, rows = x.cumsum(0), x.shape[0]
        run, steps = loops.scan(lambda so_far, one: (so_far * 0.5 + one * rows, so_far.sin() + slow[0]), x[0] * 0, x)
        pairs = loops.associative_scan(lambda a, b: (a[0] * b[0], a[1] + b[1] * a[0]), (x, slow), dim=0, combine_mode="generic")
        part = loops.cond(x.sum() > 0, lambda a, b: a.view(-1, 6)[:, :3] + b.sum(), lambda a, b: a[:, 3:] * b.shape[0], (steps, ids))
        count, halved = loops.while_loop(lambda n, a: a.abs().sum() > 1, lambda n, a: (n + 1, a / 2), (ids.sum() * 0, run))
        return {"all": part, "positive": halved + count, "size": rows, "x": self.layer(pairs[1][None])[0]}


class Held:
    def __init__(self, **parts):
        self.__dict__.update(parts)


class Objects(Model):
    """Whose result is an object, with another in it, which is `--objects`."""

    def forward(self, x, ids):
        found = super().forward(x, ids)
        held = Held(all=found["all"], more={"positive": Held(part=found["positive"])}, shape=x.shape, last=deque([x.shape], 3))
        by_name = defaultdict(list, all=found["all"])
        return Held(all=held.all * 1, positive=held.more["positive"].part * 1, size=found["size"], x=found["x"], held=[held, by_name])


def arguments(size=5):
    return torch.arange(size * 6, dtype=torch.float32).view(size, 6).sin(), torch.arange(size * 3).view(size, 3) % 10


def program(model=Model):
    batch = pliant.Dim("batch", max=100)
    return pliant.export(model().eval(), arguments(), dynamic_shapes=({0: batch}, {0: batch}))


def result(of):
    found = of(*arguments())
    found = vars(found) if type(found) is Held else found
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
    "branch", "while", "scan", "associative_scan", "recurrent", [[0], [0]], [[0, 1], [0, 2, 1]],
)  # fmt: skip


def changed_program(program, places, rng):
    """The program of a file, changed. `places`: of every key in it."""
    for _ in range(rng.choice((1, 1, 1, 2, 6))):
        holder, key = _place(program, places, rng)
        match rng.randrange(5):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(rng.choice(VALUES))
            case 3:
                other, there = _place(program, places, rng)
                holder[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(holder[key])
            case 4:
                del holder[key]
    return program


def places_of(value, path=()):
    """The way to every key of every container in the program."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*path, key)
        yield from places_of(value[key], (*path, key))


def _place(program, places, rng):
    """A container in the program, and a key of it. Earlier changes may have taken a place away: then another one."""
    while program:
        *way, key = rng.choice(places)
        holder = program
        try:
            for step in way:
                holder = holder[step]
            holder[key]
        except (LookupError, TypeError):
            continue
        if isinstance(holder, dict | list):
            return holder, key
    return {"": None}, ""


def rewritten(path, program, target):
    """The file with another program, and the right sums."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        room = old.getinfo(TENSORS)
        new.writestr(room, old.read(TENSORS), zipfile.ZIP_STORED)
        new.writestr(PROGRAM, json.dumps(program))


def _too_long(*_):
    raise TimeoutError


def attempt(path, wanted):
    """What became of a file: "error", "right", "other", or why it is wrong."""
    try:
        loaded = pliant.load(path, classes=(Held,))
    except PliantError:
        return "error"
    except Exception as error:
        return f"wrong: load raised {type(error).__name__}: {error}"
    signal.alarm(20)  # a changed loop may go on
    try:
        return "right" if same(result(loaded), wanted) else "other"
    except Exception:
        return "error at the call"
    finally:
        signal.alarm(0)


class Files:
    """A good file, and files made of it."""

    def __init__(self, folder, model=Model):
        signal.signal(signal.SIGALRM, _too_long)
        torch.manual_seed(0)
        self.path, self.target = Path(folder) / "good", Path(folder) / "bad"
        made = program(model)
        made.save(self.path)
        self.wanted = result(made)
        assert same(result(pliant.load(self.path, classes=(Held,))), self.wanted)
        self.content = self.path.read_bytes()
        with zipfile.ZipFile(self.path) as archive:
            self.text = archive.read(PROGRAM)
        self.places = list(places_of(json.loads(self.text)))

    def outcome(self, seed, number):
        """What became of one file. Every second one is changed in its bytes, the others in their programs."""
        rng, by_bytes = random.Random(f"{seed} {number}"), number % 2 == 0
        if by_bytes:
            self.target.write_bytes(changed_bytes(self.content, rng))
        else:
            rewritten(self.path, changed_program(json.loads(self.text), self.places, rng), self.target)
        outcome = attempt(self.target, self.wanted)
        if by_bytes and outcome == "other":
            outcome = "wrong: another result"
        if outcome.startswith("wrong"):
            print(f"seed {seed}, file {number}: {outcome}", flush=True)
        return outcome


def share(count, seed, folder, model=Model):
    """How often each outcome came, in this process."""
    files = Files(folder, model)
    return Counter(files.outcome(seed, number) for number in range(count))


def survived(files, seed, first, last):
    """The same in a process of its own, for files from `first` on: outcomes, how many files it came through, and the status
    that it ended with."""
    progress, (reading, writing) = mmap.mmap(-1, 8), os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _worked(files, seed, range(first, last), progress, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said or "{}"), *struct.unpack("q", progress), status


def _worked(files, seed, numbers, progress, writing):
    """A child's work; it never returns."""
    outcomes, status = Counter(), 1
    try:
        for done, number in enumerate(numbers, 1):
            outcomes[files.outcome(seed, number)] += 1
            struct.pack_into("q", progress, 0, done)
        os.write(writing, json.dumps(outcomes).encode())
        status = 0
    finally:
        traceback.print_exc() if status else None
        os._exit(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first file")
    parser.add_argument("--loops", action="store_true", help="a program with branches, loops and a recurrent layer")
    parser.add_argument("--objects", action="store_true", help="a program whose result is an object")
    options = parser.parse_args()
    total, number, end = Counter(), options.first, options.first + options.count
    with tempfile.TemporaryDirectory() as folder:
        files = Files(folder, Loops if options.loops else Objects if options.objects else Model)
        while number < end:
            outcomes, passed, status = survived(files, options.seed, number, min(number + 2000, end))
            total.update(outcomes)
            number += passed
            if status:
                print(f"seed {options.seed}, file {number}: the process ended with {os.waitstatus_to_exitcode(status)}")
                total["crash"] += 1
                number += 1
            print(dict(total), flush=True)
    sys.exit(any(key == "crash" or key.startswith("wrong") for key in total))


if __name__ == "__main__":
    main()
