"""Random programs that make sets of sets, dicts and lists: where hashes meet, the order tells how each was made.

    python -m tests.capture.set_programs 0 2000
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

import pliant

_NUMBERS = (0, 8, 16, 24, 32, 40, 64, 3, 11, 19, 7, -1, -2)  # most meet in a table of 8 slots; -1 and -2 hash alike
_MADE = {"set": set, "frozenset": frozenset, "dict.fromkeys": dict.fromkeys, "list": list}
_OPERATIONS = ("union", "intersection", "difference", "symmetric_difference")
_CHANGES = ("update", "difference_update", "intersection_update", "symmetric_difference_update")


class Program:
    """The text of a function `f(x)` that returns the orders of its sets, and the globals that it reads."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.outside: dict[str, Any] = {}
        self._sets: list[str] = []
        lines = [self._statement() for _ in range(self._chance.randint(2, 8))]
        shown = ", ".join(f"list({name}), str({name})" for name in self._sets)
        self.text = "\n    ".join(["def f(x):", *lines, f"return x, {shown}"])

    def function(self) -> Any:
        names = dict(self.outside)
        exec(self.text, names)
        return names["f"]

    def _source(self) -> str:
        """Something that a set is made of: made here, or from outside."""
        made = self._chance.choice(list(_MADE))
        items = self._chance.choices(_NUMBERS, k=self._chance.randint(1, 9))
        if self._chance.random() < 0.5:
            return f"{made}({items})"
        name = f"outside_{len(self.outside)}"
        self.outside[name] = _MADE[made](items)
        if made == "set" and self._chance.random() < 0.4:
            self._change_outside(self.outside[name])
        return name

    def _change_outside(self, items: set[int]) -> None:
        """Have it grow, shrink and grow again, or be a copy: its table has another size, or lost items."""
        more = range(100, 100 + self._chance.choice((1, 3, 40)))
        items.update(more)
        items.difference_update(more)
        items.update(self._chance.choices(_NUMBERS, k=self._chance.randint(0, 2)))

    def _set(self) -> str:
        return self._chance.choice(self._sets) if self._sets else f"set({self._source()})"

    def _statement(self) -> str:
        change = self._sets and self._chance.random() < 0.3
        return self._change() if change else self._assignment()

    def _assignment(self) -> str:
        number, pick = self._chance.choice(_NUMBERS), self._chance.choice
        text = pick((
            f"set({self._source()})",
            f"{{{number}, *{self._source()}}}",
            f"{{*{self._source()}, {number}, *{self._source()}}}",
            f"{{n for n in {self._source()}}}",
            f"{self._set()}.copy()",
            f"{self._set()} {pick('|&-^')} set({self._source()})",
            f"set(frozenset({self._source()}) {pick('|&-^')} {self._set()})",
            f"{self._set()}.{pick(_OPERATIONS)}({self._source()})",
            f"{self._set()}.union({self._source()}, {self._source()})",
        ))  # fmt: skip
        self._sets.append(f"s{len(self._sets)}")
        return f"{self._sets[-1]} = {text}"

    def _change(self) -> str:
        name, number, pick = self._set(), self._chance.choice(_NUMBERS), self._chance.choice
        return pick((
            f"{name}.add({number})",
            f"{name}.discard({number})",
            f"{name}.{pick(_CHANGES)}({self._source()})",
            f"if {name}: {name}.pop()",
        ))  # fmt: skip


def disagreement(seed: int) -> str:
    """What the compiled program says otherwise than Python; "" if nothing."""
    program, x = Program(seed), torch.ones(2)
    function = program.function()
    expected = function(x)[1:]
    pliant.reset()
    found = pliant.compile(program.function(), backend="eager")(x)[1:]
    return "" if found == expected else f"{program.text}\n{program.outside}\n{found}\n{expected}"


def main() -> None:
    first, last = map(int, sys.argv[1:])
    wrong = {seed: text for seed in range(first, last) if (text := disagreement(seed))}
    for seed, text in wrong.items():
        print(f"{seed}:\n{text}\n")
    print(f"{len(wrong)} of {last - first} disagree")


if __name__ == "__main__":
    main()
