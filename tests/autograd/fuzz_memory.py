"""Random programs that read and write memory by positions in it, of inputs that begin behind its start or have gaps.

All of the memory is compared, what lies outside the inputs too.

    python -m tests.autograd.fuzz_memory 0 1000 [--backend aot_eager]
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import torch

import pliant

STATEMENTS = (
    "{t}.mul_(2)", "{t}[0].add_(1)", "{t} = {t}.clone()", "{v} = {t}.as_strided((2, 2), {strides}, {offset})",
    "{t}.diagonal().zero_()", "{v} = {t}[1:]", "{v} = {t}.t()", "{v} = {t} * 1", "{v} = {t}.detach()",
    "{t}.as_strided((2, 2), {strides}, {offset}).mul_(3)", "{t}.copy_({s}.flip(0))", "{v} = {t}.contiguous()",
    "{v} = {t}.as_strided((2,), (3,))", "{v} = {t}.reshape(-1)[2:6]", "{v} = torch.roll({t}, 1, 0)",
    "{v} = {t}.unfold(0, 2, 1)", "{v} = {t}.expand(2, *{t}.shape)[1]",
)  # fmt: skip
PARTS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda whole: whole[2:6],
    lambda whole: whole[1:5].t(),
    lambda whole: whole[2:7:2],
)
World = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # the arguments `a` and `b`, and the memory in which `a` lies


class Program:
    """The text of a function `f(a, b)`: statements that eager runs."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.part = self.chance.choice(PARTS)
        a, b, _ = self.world()
        self.known: dict[str, Any] = {"torch": torch, "a": a, "b": b}
        self.names = ["a", "b"]
        lines = [line for number in range(self.chance.randrange(2, 9)) if (line := self.statement(number))]
        results = self.chance.sample(self.names, min(len(self.names), 3))
        self.text = "\n    ".join(["def f(a, b):", *lines, f"return {', '.join(results)},"])

    def world(self) -> World:
        whole = torch.arange(24.0).reshape(8, 3)
        return self.part(whole), torch.arange(12.0).reshape(4, 3) + 0.5, whole

    def statement(self, number: int) -> str:
        pick, made = self.chance.choice, f"v{number}"
        for _ in range(10):
            filling = {
                "t": pick(self.names), "s": pick(self.names), "v": made, "offset": self.chance.randrange(8),
                "strides": pick(("(1, 2)", "(2, 1)", "(3, 1)")),
            }  # fmt: skip
            line = pick(STATEMENTS).format(**filling)
            try:
                exec(line, self.known)
            except (RuntimeError, IndexError):
                continue
            self.names += [made] if made in self.known else []
            return line
        return ""


def disagreement(seed: int, backend: str = "aot_eager") -> str:
    """The program, if it leaves other values than eager does; "" if not."""
    program, known = Program(seed), {"torch": torch}
    exec(program.text, known)
    function: Any = known["f"]
    mine, theirs = program.world(), program.world()
    try:
        expected = function(*theirs[:2])
    except RuntimeError:
        return ""
    pliant.reset()
    found = pliant.compile(function, backend=backend)(*mine[:2])
    pairs = zip((*found, *mine), (*expected, *theirs), strict=True)
    return "" if all(one.shape == other.shape and torch.equal(one, other) for one, other in pairs) else program.text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--backend", default="pliant")
    options = parser.parse_args()
    seeds = range(options.first, options.end)
    wrong = {seed: text for seed in seeds if (text := disagreement(seed, options.backend))}
    for seed, text in wrong.items():
        print(f"{seed}:\n{text}\n")
    print(f"{len(wrong)} of {len(seeds)} disagree")


if __name__ == "__main__":
    main()
