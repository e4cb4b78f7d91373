"""Check random expressions for as long as you like: `python -m tests.symbolic.fuzz --count 100000 --seed 0`."""

from __future__ import annotations

import argparse
import random
import time

from tests.symbolic.checks import check_random


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    for i in range(options.count):
        seed = options.seed + i
        try:
            check_random(random.Random(seed).randrange)
        except Exception as error:
            raise SystemExit(f"seed {seed}: {type(error).__name__}: {error}") from error
    print(f"{options.count} rounds in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
