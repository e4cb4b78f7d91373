"""Run `benchmarks.one` in processes of their own and print tables.

In:     what to measure and the cache folder to use.
Out:    the dictionary that the child printed, or the last line of its error.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.models import MODELS


def options_for(description: str) -> argparse.ArgumentParser:
    """The options all drivers share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--modes", nargs="*", default=["inference", "training"], choices=["inference", "training"])
    parser.add_argument("--peer", action="store_true", help="measure torch.compile too")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of timing for each size")
    return parser


@contextmanager
def fresh_cache() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        yield Path(folder)


def run(compiler: str, model: str, mode: str, cache: Path, *, sizes: int = 1, budget: float = 2.0) -> dict[str, Any]:
    """What the child measured; `{"failed": why}` if it did not get that far."""
    command = [sys.executable, "-m", "benchmarks.one", "--compiler", compiler, "--model", model]
    command += ["--sizes", str(sizes), "--budget", str(budget)] + (["--training"] if mode == "training" else [])
    folders = {"PLIANT_CACHE_DIR": str(cache / "pliant"), "TORCHINDUCTOR_CACHE_DIR": str(cache / "peer")}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **folders}, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:100]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def print_row(cells: Sequence[object], widths: Iterable[int]) -> None:
    texts = [f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells]
    print("".join(t.ljust(w) if i < 2 else t.rjust(w) for i, (t, w) in enumerate(zip(texts, widths, strict=False))))
    sys.stdout.flush()


def geometric_mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values) if values else float("nan")
