"""Print the tables of `codegen/float_tables.py`: `python tools/float_tables.py`.

A row of numbers a line, as bits in hexadecimal: the centres of 32 intervals, then the coefficients around them.
Each interval is a quarter of an octave, the lowest one begins at 0; of the centres near its middle the one is taken whose value is nearest to a float,
so that the constant coefficient hardly rounds. Coefficients are least squares, weighted by relative error.
The normal distribution and GELU's derivative have intervals of equal width, of which the centres need no row.
"""

import math
from collections.abc import Callable

import numpy as np

DEGREE = 6
FIRST = int(np.float32(0.0625).view(np.int32)) >> 21  # the lowest interval but the one that begins at 0
FUNCTIONS: dict[str, tuple[Callable[[float], float], float, float]] = {
    "tanh": (math.tanh, 9.02, 0.0),  # the function, where it is 1, what the lowest interval leaves out of f(x) / x
    "erf": (math.erf, 3.93, 1.0),
}


def _edge(number: int) -> float:
    return float(np.int32(number << 21).view(np.float32))


def _centre(f: Callable[[float], float], low: float, high: float) -> float:
    """The float near the middle whose value is nearest to a float."""
    bits = int(np.float32((low + high) / 2).view(np.int32))
    near = [float(np.int32(bits + k).view(np.float32)) for k in range(-4000, 4001)]
    inside = [c for c in near if low <= c <= high]
    return min(inside, key=lambda c: abs(f(c) - float(np.float32(f(c)))) / f(c))


def _interval(f: Callable[[float], float], low: float, high: float) -> list[float]:
    """The centre and the coefficients for one interval."""
    c = _centre(f, low, high) if low else 0.0
    first = float(np.float32(f(c)))
    nodes = 200
    d = (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes) - c
    d = d[np.abs(d) > (high - low) / 1000]
    weights = np.array([abs(x) / f(c + x) for x in d])
    values = np.array([(f(c + x) - first) / x for x in d])
    scale = np.abs(d).max()
    powers = np.vander(d / scale, DEGREE, increasing=True)
    found = np.linalg.lstsq(powers * weights[:, None], values * weights, rcond=None)[0]
    return [c, first, *(found / scale ** np.arange(DEGREE))]


def table(f: Callable[[float], float], top: float, beside: float) -> list[list[float]]:
    """Columns of intervals in the order of the lowest five bits of their number."""
    columns = [[0.0] * (DEGREE + 2) for _ in range(32)]
    for number in range(FIRST, FIRST + 31):
        if _edge(number) < top:
            columns[number % 32] = _interval(f, _edge(number), min(_edge(number + 1), top))
    columns[(FIRST - 1) % 32] = _interval(lambda x: f(x) - beside * x, 0.0, _edge(FIRST))
    return columns


# Functions that go to 0 below 0, their values there by the argument's size, the intervals to 1, and the size below which errors
# are absolute ones, since the function has a zero
FALLING: dict[str, tuple[Callable[[float], float], float, float]] = {
    "normal cdf": (lambda a: math.erfc(a * math.sqrt(0.5)) / 2, 5.5, 0.0),
    "gelu slope": (lambda a: math.erfc(a * math.sqrt(0.5)) / 2 - a * math.exp(-a * a / 2) / math.sqrt(2 * math.pi), 5.0, 0.02),
}
FALLING_DEGREE = 4


def falling(f: Callable[[float], float], steps: float, absolute: float) -> list[list[float]]:
    """Columns for the intervals around k / steps; the last interval has nothing."""
    columns = []
    for k in range(31):
        d = 0.5 * np.cos(np.pi * (np.arange(400) + 0.5) / 400)
        d = d if k else np.abs(d)
        values = np.array([f((k + x) / steps) for x in d])
        weights = 1 / np.maximum(np.abs(values), absolute)
        powers = np.vander(d, FALLING_DEGREE + 1, increasing=True)
        columns.append(np.linalg.lstsq(powers * weights[:, None], values * weights, rcond=None)[0].tolist())
    return [*columns, [0.0] * (FALLING_DEGREE + 1)]


def main() -> None:
    for name, (f, steps, absolute) in FALLING.items():
        print(name)
        _print(falling(f, steps, absolute))
    for name, (f, top, beside) in FUNCTIONS.items():
        print(name)
        _print(table(f, top, beside))


def _print(columns: list[list[float]]) -> None:
    for row in zip(*columns, strict=True):
        print(" ".join(f"{int(np.float32(x).view(np.uint32)):08x}" for x in row))


if __name__ == "__main__":
    main()
