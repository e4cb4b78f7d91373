"""What calls wait for while their code is compiled: the first call, the longest one until code is ready, calls from then on.

    python -m benchmarks.background [--program small bert-inference bert-training] [--without]

A row a program and way: `in calls` as by default, `behind` with the option `background`. The store is empty for each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch


def _small() -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    x, y = torch.randn(256, 1024), torch.randn(1024)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.sin(x) * y + torch.cos(x)).softmax(-1) * torch.exp(x)

    def prepared(compile_: Callable[..., Any]) -> Callable[[], Any]:
        run = compile_(program)
        return lambda: run(x, y)

    return prepared


class _Block(torch.nn.Module):
    """A layer as BERT has them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, width = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5).softmax(-1)
        x = self.first(x + self.out((scores @ v).transpose(1, 2).reshape(b, n, width)))
        found: torch.Tensor = self.second(x + self.down(torch.nn.functional.gelu(self.up(x))))
        return found


def _bert(trains: bool) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 256), *(_Block(256, 4) for _ in range(4)), torch.nn.Linear(256, 1000))
    ids = torch.randint(0, 1000, (4, 64))

    def prepared(compile_: Callable[..., Any]) -> Callable[[], Any]:
        run = compile_(model)

        def step() -> None:
            if trains:
                torch.nn.functional.cross_entropy(run(ids).flatten(0, 1), ids.flatten()).backward()
                model.zero_grad()
            else:
                with torch.no_grad():
                    run(ids)

        return step

    return prepared


PROGRAMS = {"small": _small, "bert-inference": lambda: _bert(False), "bert-training": lambda: _bert(True)}


def _seconds(step: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def measured(name: str, behind: bool) -> str:
    """One row, in a process of its own."""
    torch.manual_seed(0)
    prepared = PROGRAMS[name]()
    plain = prepared(lambda fn: fn)
    eager = statistics.median(_seconds(plain) for _ in range(9))

    import pliant

    step = prepared(lambda fn: pliant.compile(fn, options={"background": behind}))
    begun = time.perf_counter()
    first, meanwhile = _seconds(step), list[float]()
    while pliant.stats()["pending"]:
        meanwhile.append(_seconds(step))
    ready = time.perf_counter() - begun
    for _ in range(30):
        step()
    steady = statistics.median(_seconds(step) for _ in range(30))
    longest, usual = (max(meanwhile), statistics.median(meanwhile)) if meanwhile else (0.0, 0.0)
    way = "behind" if behind else "in calls"
    told = ", ".join(f"{count} {what}" for what, count in dict(pliant.stats()["background"]).items())  # type: ignore[call-overload]
    figures = "".join(f"{1e3 * one:11.2f}" for one in (eager, first, ready, longest, usual, steady))
    return f"{name:16}{way:10}{figures}   {len(meanwhile):5} {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--way", nargs="*", default=["calls", "behind"], choices=["calls", "behind"])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(measured(given.one[0], given.one[1] == "behind"))
        return
    heads = ("eager ms", "first call", "until ready", "longest", "usual", "steady")
    print(f"{'':26}" + "".join(f"{head:>11}" for head in heads) + "   calls meanwhile", flush=True)
    for name in given.program:
        for way in given.way:
            with tempfile.TemporaryDirectory() as store:
                command = [sys.executable, "-m", "benchmarks.background", "--one", name, way]
                subprocess.run(command, env={**os.environ, "PLIANT_CACHE_DIR": store}, check=True)


if __name__ == "__main__":
    main()
