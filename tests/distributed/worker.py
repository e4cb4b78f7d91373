"""One of the processes that run a table of programs, eagerly and compiled: `python -m tests.distributed.worker`.

Arguments: the module of the table, this process's rank, the folder where processes meet and results are left, "cpu" or "cuda".
"""

import datetime
import importlib
import json
import os
import sys
import traceback
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from tests.distributed import devices

import pliant


def outcome(run, rank):
    """What the program returns and what it leaves in its argument."""
    x = torch.arange(1.0, 5.0, device=devices.current()) + 10 * rank
    result = run(x)
    return [_plain(t) for t in _tensors(result)], x


def gradient(run, rank):
    """The gradient of what the program returns; the kind of error where eager has none."""
    leaf = (torch.arange(1.0, 5.0, device=devices.current()) + rank).requires_grad_()
    try:
        results = [t for t in _tensors(run(leaf.clone())) if t.requires_grad]
        return torch.autograd.grad([t.sum() for t in results], leaf) if results else ()
    except RuntimeError:
        return (leaf.new_tensor(-1.0),)


def _tensors(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _plain(tensor):
    return tensor.wait() if hasattr(tensor, "wait") else tensor


def compared(program, rank, backend, gradients):
    """Whether the compiled program does what eager does, and how. `gradients`: with what it does for gradients."""
    pliant.reset()
    compiled = pliant.compile(program, backend=backend)
    wrong, stats = "", {}
    try:
        for _ in range(2):
            torch.testing.assert_close(outcome(compiled, rank), outcome(program, rank))
        stats = pliant.stats()
        if gradients:
            torch.testing.assert_close(gradient(compiled, rank), gradient(program, rank))
    except Exception:
        wrong = traceback.format_exc()
    counts = {name: stats.get(name, 0) for name in ("graphs", "graph_breaks", "fallbacks")}
    return {"wrong": wrong, **counts}


def main(module, rank, folder, kind):
    warnings.simplefilter("ignore")
    table = importlib.import_module(module)
    where = devices.use(kind, rank)
    limit = datetime.timedelta(seconds=100)
    dist.init_process_group(rank=rank, world_size=2, init_method=f"file://{folder}/meet", timeout=limit, **where)
    results = Path(folder, f"rank{rank}.json")
    found = {}
    for name, run in table.rows():
        found[name] = run(rank)
        results.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    # PyTorch's caches of distributed tensors hold process groups, eager ones too, whose threads a dying interpreter aborts.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
