"""Call every operator that a loaded file may call with arguments that are wrong: an error or a result, never a crash.

    python -m tests.exporting.recorded_calls calls
    python -m tests.exporting.hostile_calls calls --count 200 --seed 1 [--operators aten.index.Tensor ...] [--guarded front | back]

Calls that torch's own samples make are changed: sizes, strides, dtypes, elements, numbers. Those that loading a file would let
through, with inputs of such sizes, run in a process of their own, and what they return is compared with what loading took it
for: a description that is wrong would let later calls through. `--guarded` puts every tensor before (or behind) a page that may
not be touched; without it many wrong reads are not seen. It needs gcc.
"""

import argparse
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import torch
from tests.exporting import recorded_calls
from torch import fx
from torch.utils import _pytree as pytree

from pliant.errors import FileError
from pliant.exporting.reading import computed
from pliant.exporting.values import READ_ERRORS, Reader
from pliant.graph.fake_mode import FakeMode
from pliant.symbolic.shape_env import ShapeEnv

SECONDS = 10  # for one call
SIZES = (0, 1, 2, 3, 5, 17, 64)
NUMBERS = (-(2**63), -(2**31) - 1, -7, -1, 0, 1, 2, 3, 4, 9, 64, 2**31 - 1, 2**31, 2**40, 2**63 - 1)
FLOATS = (0.0, -0.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("nan"))
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)


# ---- changes
def changed_tensor(tensor, rng):
    kind = rng.randrange(6)
    sizes = list(tensor.shape)
    if kind == 0 and sizes:
        sizes[rng.randrange(len(sizes))] = rng.choice((*SIZES, sizes[0] + 1, max(0, sizes[-1] - 1)))
        return filled(sizes, tensor.dtype, rng)
    if kind == 1:
        return tensor[rng.randrange(len(tensor))].clone() if sizes and len(tensor) and rng.random() < 0.6 else tensor[None].clone()
    if kind == 2:
        return _restrided(tensor, rng)
    if kind == 3:
        return filled(sizes, rng.choice(DTYPES), rng)
    return _other_elements(tensor, rng)


def filled(sizes, dtype, rng):
    if torch.Size(sizes).numel() > 1 << 20:
        sizes = [min(n, 8) for n in sizes]
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, generator=generator).to(dtype)
    return torch.randint(0, rng.choice((2, 4, 100)), sizes, generator=generator).to(dtype)


def _restrided(tensor, rng):
    if tensor.dim() > 1 and rng.random() < 0.5:
        return tensor.transpose(0, -1)
    if tensor.dim() and rng.random() < 0.5:
        return tensor[:1].expand(tensor.shape) if len(tensor) else tensor
    room = torch.empty((*tensor.shape, 2), dtype=tensor.dtype)[..., 1]
    return room.copy_(tensor)


def _other_elements(tensor, rng):
    made = tensor.clone()
    if not made.numel():
        return made
    values = FLOATS if made.is_floating_point() or made.is_complex() else NUMBERS
    flat = made.view(-1) if made.is_contiguous() else made.reshape(-1)
    for _ in range(rng.choice((1, 1, 3, flat.numel()))):
        value = rng.choice(values)
        flat[rng.randrange(flat.numel())] = value if made.dtype in (torch.int64, torch.bool) or values is FLOATS else value % 100 - 50
    return flat.view(tensor.shape)


def changed_value(value, rng):
    """Another value of its type."""
    if isinstance(value, torch.Tensor):
        return changed_tensor(value, rng) if rng.random() < 0.95 else None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, float):
        return rng.choice(FLOATS)
    if isinstance(value, torch.dtype):
        return rng.choice(DTYPES)
    if isinstance(value, (list, tuple)):
        return _changed_list(list(value), rng)
    return value if value is not None else rng.choice((None, 1, 2, [1], [0, 1]))


def _changed_list(found, rng):
    if found and rng.random() < 0.75:
        place = rng.randrange(len(found))
        found[place] = changed_value(found[place], rng)
    elif found and rng.random() < 0.5:
        del found[rng.randrange(len(found))]
    else:
        found.append(found[0] if found else 1)
    return found


def changed(call, rng):
    args, kwargs = list(call[0]), dict(call[1])
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        place = rng.randrange(len(args) + len(kwargs) or 1)
        if place < len(args):
            args[place] = changed_value(args[place], rng)
        elif kwargs:
            name = list(kwargs)[place - len(args)]
            kwargs[name] = changed_value(kwargs[name], rng)
    return args, kwargs


# ---- what loading lets through
def let_through(name, args, kwargs):
    """What a file that has this call is taken to make, if it is let through; otherwise an exception of `READ_ERRORS`."""
    env = ShapeEnv(duck_shape=False, specialize_zero_one=False)
    env.takes_fallbacks = env.takes_copies = True
    reader, mode, graph = Reader(env, {}, ()), FakeMode(env, allow_unbacked=True), fx.Graph()

    def given(tensor):
        node = graph.placeholder(f"x{len(graph.nodes)}")
        node.meta["val"] = mode.new(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
        return node

    target = reader.operator(name)
    found = computed(mode, target, *pytree.tree_map_only(torch.Tensor, given, (tuple(args), kwargs)))
    if env.take_asserts():
        raise ValueError("takes for granted what nothing checks")
    return target, found


def described(found):
    """What results are, as far as it is the same for fakes and tensors; None of a tensor that is not made."""
    leaves = [one for one in pytree.tree_leaves(found) if one is None or isinstance(one, torch.Tensor)]
    return [None if one is None else (tuple(n if type(n) is int else None for n in one.size()), one.dtype) for one in leaves]


def agree(said, found):
    return len(said) == len(found) and all(
        one is None or (a is not None and a[1] is one[1] and len(a[0]) == len(one[0]) and all(n is None or n == m for n, m in zip(a[0], one[0])))
        for a, one in zip(said, found)
    )


def _too_long(*_):
    raise TimeoutError


def outcome(name, call, seed, number):
    rng = random.Random(f"{name} {seed} {number}")
    args, kwargs = changed(call, rng) if number else call
    try:
        target, fake = let_through(name, args, kwargs)
    except (*READ_ERRORS, FileError, Exception) as error:
        return f"first refused: {error}" if not number else "refused"
    said = described(fake)
    if sum(torch.Size([n or 0 for n in size]).numel() for size, _ in filter(None, said)) > 1 << 24:
        return "large"
    started = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with torch.no_grad():
            found = target(*pytree.tree_map_only(torch.Tensor, _again, args), **pytree.tree_map_only(torch.Tensor, _again, kwargs))
    except TimeoutError:
        return "slow"
    except Exception as error:
        return f"first failed: {error}" if not number else "failed"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if time.process_time() - started > SECONDS:
        return "slow"
    return "result" if agree(said, described(found)) else f"other: said {said}, found {described(found)}"


def _again(tensor):
    """In memory of its own, which ends behind it."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor) if 0 not in tensor.stride() else tensor


# ---- processes
def survived(name, calls, seed, first, last):
    """Outcomes of calls from `first` on, how many there are, and the status of the process."""
    progress, (reading, writing) = mmap.mmap(-1, 8), os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _worked(name, calls, seed, range(first, last), progress, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said or "{}"), *struct.unpack("q", progress), status


def _worked(name, calls, seed, numbers, progress, writing):
    """A child's work; it never returns."""
    outcomes, status = Counter(), 1
    signal.signal(signal.SIGALRM, _too_long)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    signal.alarm(0)
    try:
        for done, number in enumerate(numbers, 1):
            outcomes[outcome(name, calls[number % len(calls)], seed, number // len(calls))] += 1
            struct.pack_into("q", progress, 0, done)
        os.write(writing, json.dumps(outcomes).encode())
        status = 0
    finally:
        traceback.print_exc() if status else None
        os._exit(status)


def checked(name, calls, seed, count):
    """What became of the calls of an operator: outcomes, and the numbers of calls that ended the process."""
    total, crashes, number = Counter(), [], 0
    while number < count:
        outcomes, passed, status = survived(name, calls, seed, number, count)
        total.update(outcomes)
        number += passed
        if status:
            crashes.append((number, os.waitstatus_to_exitcode(status)))
            number += 1
            if len(crashes) >= 3:
                break
    return total, crashes


def report(name, total, crashes):
    """Lines about what is wrong with an operator."""
    for number, status in crashes:
        yield f"{name}: call {number} ended the process with {status}"
    wrong = [(one, n) for one, n in total.items() if one.startswith(("other", "first", "slow"))]
    for one, n in wrong[:3]:
        yield f"{name}: {n} times {one[:300]}"


def guarded(where):
    """Start this program again with guarded memory."""
    source, made = Path(__file__).with_name("guarded_memory.c"), Path(tempfile.gettempdir()) / f"guarded_memory_{os.getuid()}.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    more = {"LD_PRELOAD": str(made), **({"GUARD_FRONT": "1"} if where == "front" else {})}
    words = [one for one in sys.argv[1:] if one not in ("--guarded", where)]
    os.execve(sys.executable, [sys.executable, "-m", "tests.exporting.hostile_calls", *words], {**os.environ, **more})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--count", type=int, default=200, help="for each operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operators", nargs="*")
    parser.add_argument("--guarded", choices=("front", "back"))
    options = parser.parse_args()
    if options.guarded:
        guarded(options.guarded)
    warnings.simplefilter("ignore")
    by_name, bad, outcomes = recorded_calls.read(options.path), False, Counter()
    for name in sorted(options.operators or by_name):
        total, crashes = checked(name, by_name[name], options.seed, options.count)
        for line in report(name, total, crashes):
            print(line, flush=True)
        bad = bad or bool(crashes)
        outcomes.update({one.partition(":")[0]: n for one, n in total.items()})
    print(dict(outcomes), len(by_name), "operators")
    sys.exit(bad)


if __name__ == "__main__":
    main()
