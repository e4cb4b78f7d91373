"""The command line that fuzzers of capture share: seeds in turn, what disagrees printed, crashes of the compiler too."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pliant


def run_seeds(disagreement: Callable[..., str], *, backend: bool | str = False, **settings: object) -> None:
    """`disagreement(seed)`: a text, empty where all agrees; with `backend` the command line names one, or it is this one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    if backend:
        parser.add_argument("--backend", default=backend if isinstance(backend, str) else "eager")
    options = parser.parse_args()
    named = {"backend": options.backend} if backend else {}
    bad = []
    with pliant.config.patch(strict=True, **settings):
        for seed in range(options.first, options.first + options.count):
            try:
                found = disagreement(seed, **named)
            except Exception as error:  # a crash of the compiler itself
                found = f"seed {seed}: {type(error).__name__}: {error}"
            if found:
                bad.append(seed)
                print(found[:3000], flush=True)
    print(f"{len(bad)} of {options.count} disagree: {bad}")
