"""Check random expressions for as long as you like: `python -m tests.symbolic.fuzz --count 100000 --seed 0`.

Each round builds one expression and asks one question under learnt facts, checked on random values and then put to a
solver, which gets `--solver` milliseconds for each (0: not asked). A failure prints its seed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from collections import Counter
from functools import partial

from tests.symbolic.checks import check_random


def check(seed: int, milliseconds: int) -> tuple[str, ...]:
    """What became of the seed's claims; ("failed", why) if one does not hold."""
    try:
        made = check_random(random.Random(seed).randrange)
        if not milliseconds:
            return ()
        from tests.symbolic.solver import check_round

        return tuple(check_round(made, milliseconds))
    except Exception as error:
        print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        return ("failed",)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solver", type=int, default=40, help="milliseconds for each claim")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    start = time.perf_counter()
    seeds = range(options.seed, options.seed + options.count)
    found: Counter[str] = Counter()
    with multiprocessing.Pool(options.processes) as pool:
        for results in pool.imap_unordered(partial(check, milliseconds=options.solver), seeds, chunksize=100):
            found.update(results)
    print(f"{options.count} rounds on values in {time.perf_counter() - start:.0f} s, {found['failed']} failed")
    print("claims by solver:", ", ".join(f"{found[key]} {key}" for key in ("equal", "unknown", "outside")))
    raise SystemExit(found["failed"] > 0)


if __name__ == "__main__":
    main()
