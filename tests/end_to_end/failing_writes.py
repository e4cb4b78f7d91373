"""Operators that fail on their data in functions that write, against eager: what is written by then, in tensors and in
Python, what is returned, which error comes out.

A case is (operator, what is written, when, effect, whether the program catches the error).

    python -m tests.end_to_end.failing_writes [--only TEXT]     every case
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import random
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import pliant

# Operators that fail on the tensor that `bad` gives (and do not on `good`): `x: [4, 4]`, `i` an index, `m` a matrix.
FAILING = {
    "index": "x[i]",
    "index of a product": "(x @ x)[i].sin()",
    "index of the written": "x[i] + x.sum()",
    "assigned": "x.clone().index_put_((i,), x[0])",
    "gather": "x.gather(0, i[None])",
    "embedding": "torch.nn.functional.embedding(i, x)",
    "index_select": "x.index_select(0, i)",
    "take": "x.take(i * 100)",
    "scatter": "x.scatter(0, i[None], 1.0)",
    "index_add": "x.index_add(0, i, x[:2])",
    "index_copy": "x.index_copy(0, i, x[:2])",
    "cholesky": "torch.linalg.cholesky(m)",
    "inverse": "torch.linalg.inv(m) @ x",
    "solve": "torch.linalg.solve(m, x)",
    "multinomial": "torch.multinomial(m.diagonal(), 1)",
    "one_hot": "torch.nn.functional.one_hot(i, 4)",
    "division": "(x.long() + 7) // (m.long())",
    "remainder": "torch.arange(4) % m.long()",
    "cross entropy": "torch.nn.functional.cross_entropy(x[:2], i)",
    "binary cross entropy": "torch.nn.functional.binary_cross_entropy(m, m.abs().clamp(0, 1))",
    "bernoulli": "torch.bernoulli(m)",
    "repeated": "x.repeat_interleave(i - 1, 0, output_size=3)",
    "an item": "x[int(i.sum()) - 3]",
    "bincount": "torch.bincount(i - 1)",
    "custom": "torch.ops.failing_writes.checked(x, i)",
}


@torch.library.custom_op("failing_writes::checked", mutates_args=())
def checked(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    """An operator of the program's own, in Python."""
    if i.max() > 3:
        raise ValueError("too large")
    return x * 2


checked.register_fake(lambda x, i: torch.empty_like(x))

WRITES = {
    "input": "x.add_(1)",
    "view of an input": "x[1:].mul_(2)",
    "other input": "z.copy_(x + 1)",
    "written by the same": "z.add_(({operator}).sum())",
    "buffer": "mod.seen.add_(1)",
    "out": "torch.add(x, 1, out=z)",
    "attribute": "mod.count = mod.count + x.sum()",
    "two inputs": "x.add_(1); z.sub_(x)",
    "statistics": "F.batch_norm(x, mod.mean, mod.variance, training=True)",
    "nothing": "",
}
ORDERS = {"before": "{write}\n{effect}\nr = {operator}", "after": "{effect}\nr = {operator}\n{write}",
          "around": "{write}\n{effect}\nr = {operator}\n{write}\n{effect}"}  # fmt: skip
EFFECTS = {
    "list": "c['l'].append(len(c['l']))",
    "dict": "c['d'] = 5",
    "tensor in a list": "c['l'].append(x * 2)",
    "module": "mod.flag = 3",
    "print": "print('here')",
}


@dataclass(frozen=True)
class Case:
    operator: str
    write: str
    order: str
    effect: str
    caught: bool

    def text(self) -> str:
        operator = FAILING[self.operator]
        write = WRITES[self.write].format(operator=operator)
        body = ORDERS[self.order].format(write=write, effect=EFFECTS[self.effect], operator=operator)
        if self.caught:
            body = f"try:\n{textwrap.indent(body, '    ')}\nexcept Exception as error:\n    c['l'].append(type(error).__name__)\n    r = x * 3"
        return f"def f(x, z, i, m, mod, c):\n{textwrap.indent(body, '    ')}\n    return r\n"

    def __str__(self) -> str:
        return f"{self.operator}, {self.write} {self.order}, {self.effect}{', caught' * self.caught}"


def cases() -> Iterator[Case]:
    yield from itertools.starmap(Case, itertools.product(FAILING, WRITES, ORDERS, EFFECTS, (False, True)))


def sample(count: int, seed: int = 0) -> list[Case]:
    return random.Random(seed).sample(list(cases()), count)


class _Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.count, self.flag = torch.zeros(()), 0
        self.mean, self.variance = torch.zeros(4), torch.ones(4)


def answers(case: Case, compiler: Callable[[Any], Any], grad: bool) -> list[Any]:
    """What is seen after each of three calls: one that is well, one that fails, one that is well."""
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(case.text(), names)
    f, mod, c = compiler(names["f"]), _Module(), {"l": []}
    found: list[Any] = []
    for bad in (False, True, False):
        torch.manual_seed(0)
        z = torch.zeros(4, 4)
        x = torch.arange(16.0).div(16).requires_grad_(grad).view(4, 4) * 1
        i = torch.tensor([1, 9 if "repeated" not in case.operator else 0]) * (1 if bad else 0) + torch.tensor(
            [1, 2]
        ) * (not bad)
        m = (
            torch.full((4, 4), -1.0).tril() * 0 - torch.eye(4).roll(1, 0).triu() * 0
            if bad
            else torch.eye(4) * 0.5 + 0.25
        )
        if bad and case.operator in ("binary cross entropy", "bernoulli", "multinomial"):
            m = torch.full((4, 4), -2.0)
        if not bad and case.operator in ("division", "remainder"):
            m = m + 1
        if bad and case.operator == "bincount":
            i = torch.tensor([0, 0])
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            try:
                end: Any = f(x, z, i, m, mod, c)
            except Exception as error:
                end = f"{type(error).__name__}: {str(error)[:60]}"
        seen = [end, x, z, mod.seen, mod.count, mod.mean, mod.variance, mod.flag, text.getvalue(), c.get("d"), list(c["l"])]
        found.append([one.detach().clone() if isinstance(one, torch.Tensor) else one for one in seen])
    return found


def difference(case: Case, grad: bool = False, **how: Any) -> str | None:
    expected = answers(case, lambda f: f, grad)
    found = answers(case, lambda f: pliant.compile(f, **how), grad)
    for number, (mine, eager) in enumerate(zip(found, expected, strict=True)):
        if not _alike(mine, eager):
            return f"{case}\n{case.text()}call {number}\nours  {mine}\neager {eager}"
    return None


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    return type(one) is type(other) and bool(one == other)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="pliant")
    options = parser.parse_args()
    chosen = [case for case in cases() if options.only in str(case)]
    if options.count:
        chosen = random.Random(options.seed).sample(chosen, min(options.count, len(chosen)))
    failed = 0
    for number, case in enumerate(chosen):
        pliant.reset()
        text = difference(case, grad=bool(number % 2), backend=options.backend)
        if text is not None:
            failed += 1
            print(text + "\n", flush=True)
    print(f"{len(chosen)} cases, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
