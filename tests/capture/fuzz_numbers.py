"""Random arithmetic on numbers that vary from call to call: each value, or each error, must be Python's.

`python -m tests.capture.fuzz_numbers --count 500 --first 0` prints each expression that differs. A program computes
many, and is called with numbers around zero, of both signs, with and without a fraction.
"""

import argparse
import math
import random
import warnings
from collections.abc import Callable

import torch
from tests.capture.constructs.harness import same

import pliant

LEAVES = ("n", "n", "m", "k", "f", "rows", "(-n)", "(n - 5)", "3", "-2", "7", "2.5", "flag", "x.shape[0]")
ARITHMETIC = ("+", "-", "*", "/", "/", "//", "//", "%", "%")
BITS = ("<<", ">>", "&", "|", "^")
COMPARISONS = ("<", "<=", "==", "!=", ">=", ">")
UNARY = ("abs", "int", "float", "bool", "round", "math.floor", "math.ceil", "math.trunc", "-", "+", "~", "not ")
MATH = ("math.sqrt", "math.isqrt", "math.log2", "math.exp", "math.hypot", "math.atan", "math.isfinite")
MATH_OF_TWO = ("math.fmod", "math.gcd", "math.copysign", "math.atan2", "math.lcm", "math.remainder", "pow", "divmod")
EXPRESSIONS = 25
CALLS = (
    (4, 3, 2, 5, 1.5, True),
    (5, -4, 3, 5, -2.5, False),
    (2, 7, -3, 6, 0.0, True),
    (6, 0, 5, -1, 3.0, False),
    (3, -1, -7, 2, -0.5, True),
)


def expression(chance: random.Random, depth: int) -> str:
    """Text of one value, of so many levels of operations."""
    if not depth:
        return chance.choice(LEAVES)

    def inner() -> str:
        return expression(chance, depth - 1)

    forms: tuple[tuple[int, Callable[[], str]], ...] = (
        (50, lambda: f"({inner()} {chance.choice(ARITHMETIC)} {inner()})"),
        (8, lambda: f"({inner()} {chance.choice(BITS)} {inner()})"),
        (10, lambda: f"({inner()} {chance.choice(COMPARISONS)} {inner()})"),
        (7, lambda: f"{chance.choice(('min', 'max'))}({inner()}, {inner()})"),
        (8, lambda: f"({chance.choice(UNARY)}({inner()}))"),
        (3, lambda: f"round({inner()}, {chance.choice((-1, 0, 1, 2))})"),
        (3, lambda: f"({inner()} {chance.choice(('and', 'or'))} {inner()})"),
        (3, lambda: f"({inner()} if {inner()} else {inner()})"),
        (3, lambda: f"{chance.choice(MATH)}({inner()})"),
        (3, lambda: f"{chance.choice(MATH_OF_TWO)}({inner()}, {inner()})"),
        (2, lambda: f"({inner()} ** {chance.choice(('2', '3', '-1', '0.5'))})"),
    )
    (form,) = chance.choices([form for _, form in forms], [weight for weight, _ in forms])
    return form()


def program(expressions: list[str]) -> Callable[..., object]:
    """A function that computes them all."""
    lines = ["def f(x, n, m, k, f, flag):", "    found, rows = [], x.shape[0]"]
    for text in expressions:
        lines += [
            f"    try: found.append({text})",
            "    except Exception as e: found.append((type(e).__name__, str(e)))",
        ]
    namespace = {"math": math}
    exec("\n".join([*lines, "    return x.sum() * n, found"]), namespace)
    return namespace["f"]


def disagreement(seed: int) -> str:
    """The expressions that differ, with what came; empty if none."""
    chance = random.Random(seed)
    expressions = [expression(chance, chance.randint(1, 3)) for _ in range(EXPRESSIONS)]
    found = first_difference(expressions, dynamic=True if seed % 2 else None)
    return f"seed {seed}, {found}" if found else ""


def first_difference(expressions: list[str], dynamic: bool | None) -> str:
    """At the first call where any of the expressions is not what it is in Python."""
    function = program(expressions)
    pliant.reset()
    compiled = pliant.compile(function, backend="eager", dynamic=dynamic)
    for rows, *numbers in CALLS:
        x = torch.ones(rows, 2)
        got, want = (observed(f, x, *numbers) for f in (compiled, function))
        if not same(got, want):
            if isinstance(got, str):
                return f"{numbers}: {got}"
            pairs = zip(expressions, got[1], want[1])
            lines = [f"  {text}: got {a!r}, want {b!r}" for text, a, b in pairs if not same(a, b)]
            return f"rows {rows}, {numbers}\n" + "\n".join(lines)
    return ""


def observed(function, *arguments):
    with warnings.catch_warnings(action="ignore"):
        try:
            return function(*arguments)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    bad = 0
    with pliant.config.patch(strict=True):
        for seed in range(options.first, options.first + options.count):
            if found := disagreement(seed):
                bad += 1
                print(found, flush=True)
    print(f"{bad} of {options.count} disagree")


if __name__ == "__main__":
    main()
