"""Time the building of 10,000 typical expressions: `python -m tests.symbolic.build_time`."""

import time

from pliant.symbolic.expr import symbol

s0, s1 = symbol("s0"), symbol("s1")


def build(offset: int) -> None:
    for i in range(2000):
        (s0 + (i + offset)) * (s1 + 3) // (i + 2) + s0


def main() -> None:
    for title, offset in (("new", 0), ("seen before", 0)):
        start = time.perf_counter()
        build(offset)
        print(f"10,000 operations, {title}: {(time.perf_counter() - start) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
