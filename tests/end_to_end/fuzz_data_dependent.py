"""Random programs whose sizes and numbers depend on data, compiled and compared with eager: values, errors, gradients.

Each seed makes one straight-line program over a matrix and a vector of integers: masks, positions, numbers read from
tensors, slices and sizes by such numbers, repetition, counting, reductions, stores. It runs on data of several kinds,
so that sizes become 0 and 1, and numbers negative or too large.

    python -m tests.end_to_end.fuzz_data_dependent --count 300 --seed 0
"""

from __future__ import annotations

import argparse
import random
from typing import Any

import torch
import torch.nn.functional as F

import pliant

ROWS, COLUMNS = 6, 3
LENGTH = 14
# How the matrix is shifted and what the integers are: some rows kept, all, none, one; small and large numbers.
DATA = ((0.0, (0, 5)), (9.0, (1, 3)), (-9.0, (0, 2)), (-1.5, (2, 7)), (0.3, (-3, 3)), (1.0, (0, 1)))

# Text of a step by the kinds of its arguments; `{m}`: a matrix of three columns, `{v}`: a vector, `{n}`: a number,
# `{i}`: the integers. The result's kind is the key.
STEPS: dict[str, list[str]] = {
    "m": [
        "{m}[{m}[:, 0] > 0]", "{m}[{m}.sum(1) > {n} + 0.1]", "{m}[:{n}]", "{m}[{n}:]", "{m} * {n}", "{m}.relu() + 1", "-{m}",
        "torch.cat([{m}, {m}])", "{m}.flip(0)", "torch.repeat_interleave({m}, 2, dim=0)", "{m}.new_zeros(abs({n}), 3)",
        "{m}[torch.nonzero({m}[:, 1] < 0.5).squeeze(1)]", "torch.softmax({m}, 1)", "{m} - {m}.mean(0)", "{m}.sort(0).values",
        "{m}.cumsum(0)", "{m}[{i} % 3]", "F.layer_norm({m}, (3,))", "{m}.roll({n}, 0)", "stored({m}, {n})", "masked({m})",
        "torch.where({m} > 0, {m}, 0.5)", "{m} / ({m}.size(0) + 1)", "F.pad({m}, (0, 0, 1, {n}))", "{m}[:4] * 2",
        "{m}.new_zeros(2, 3).index_add(0, torch.arange({m}.size(0)) % 2, {m})", "{m}.expand(2, -1, -1).reshape(-1, 3)",
        "{m}[torch.unique({i} % 2)]", "torch.stack([{m}.sum(0), {m}.amax(0)])", "{m} @ {m}.T @ {m} * 0.01",
    ],
    "v": [
        "{m}.sum(1)", "{m}.amax(0)", "{m}.mean(0)", "{v}[{v} > 0]", "{v} * {n}", "{v}[:{n}]", "{m}.flatten()", "{v}.cumsum(0)",
        "torch.masked_select({m}, {m} > 0)", "torch.ones(abs({n}))", "torch.arange({n}) * 0.5", "torch.bincount({i}.abs()).float()",
        "torch.unique({i}).float()", "{v}.sort().values", "{v}.softmax(0)", "{m}[0]", "{m}[{n}]", "{v}.tanh()", "{v} + {v}",
        "torch.full((2,), {n}).float()", "torch.tensor([{n}, 1]).float()", "{v}[torch.where({v} > 0)]",
    ],
    "n": [
        "{i}.max().item()", "int(({m} > 0.3).sum())", "{i}[0].item()", "{m}.size(0)", "{v}.numel()", "({m} > 0).sum().item()", "{n} + 1",
        "{n} // 2", "max({n}, 1)", "min({n}, 3)", "{n} % 4", "abs({n})", "{i}.tolist()[1]", "({v} > 0.5).nonzero().size(0)",
        "int({m}.abs().max() > 1)", "checked({n})", "-{n}",
    ],
}  # fmt: skip
WEIGHTS = {"m": 5, "v": 3, "n": 4}


def stored(x: torch.Tensor, n: int) -> torch.Tensor:
    y = x * 1
    y[:n] = 2
    y[n:].mul_(3)
    return y


def masked(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[y > 1] = 0
    y[y[:, 0] < 0] += 1
    return y


def checked(n: int) -> int:
    torch._check(n >= -20, lambda: f"{n} is small")
    if n > 500:
        raise ValueError("large")
    return n


def program_of(seed: int) -> Any:
    rng = random.Random(seed)
    names: dict[str, list[str]] = {"m": ["x"], "v": ["x.sum(1)"], "n": ["2"], "i": ["i"]}
    lines = []
    for number in range(rng.randrange(3, LENGTH)):
        kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        text = rng.choice(STEPS[kind])
        filled = text
        for slot in "mvni":
            while "{" + slot + "}" in filled:
                recent = names[slot][-3:]
                filled = filled.replace("{" + slot + "}", rng.choice(recent), 1)
        lines.append(f"    t{number} = {filled}")
        names[kind].append(f"t{number}")
    results = [f"t{number}" for number in range(len(lines))]  # all: errors of what nobody reads are not kept
    text = "def program(x, i):\n" + "\n".join(lines) + f"\n    return ({', '.join(results)},)\n"
    scope: dict[str, Any] = {"torch": torch, "F": F, "stored": stored, "masked": masked, "checked": checked}
    exec(compile(text, f"<program {seed}>", "exec"), scope)
    scope["program"].text = text
    return scope["program"]


def outcome(program: Any, seed: int, kind: int) -> Any:
    """The results and the gradient, or the error."""
    shift, (low, high) = DATA[kind]
    g = torch.Generator().manual_seed(seed * 10 + kind)
    x = (torch.randn(ROWS, COLUMNS, generator=g, dtype=torch.float64) + shift).requires_grad_()
    i = torch.randint(low, high, (5,), generator=g)
    try:
        results = program(x, i)
    except Exception as error:
        return type(error)
    roots = [t for t in results if isinstance(t, torch.Tensor) and t.requires_grad]
    gradient = torch.autograd.grad(sum(t.sin().sum() for t in roots), x)[0] if roots else None
    return [t.detach() if isinstance(t, torch.Tensor) else t for t in results], gradient


def disagreement(seed: int) -> str | None:
    pliant.reset()
    program = program_of(seed)
    compiled = pliant.compile(program, dynamic=[None, True][seed % 2])
    for kind in range(len(DATA)):
        expected, found = outcome(program, seed, kind), outcome(compiled, seed, kind)
        if isinstance(expected, type) or isinstance(found, type):
            if found is not expected:
                return f"data {kind}: {found} and {expected}\n{program.text}"
            continue
        try:
            torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7, equal_nan=True)
        except AssertionError as error:
            return f"data {kind}: {error}\n{program.text}"
    if pliant.stats()["fallbacks"]:
        return f"fallback: {pliant.stats()['fallback_reasons']}\n{program.text}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wrong = breaks = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            found = disagreement(seed)
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:300]}"
        breaks += bool(pliant.stats()["break_reasons"])
        if found:
            wrong += 1
            print(f"seed {seed}: {found}", flush=True)
    print(f"{options.count} programs, {wrong} wrong, {breaks} with breaks")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
