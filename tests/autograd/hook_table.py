"""Hooks on tensors, inside a compiled function and on what it returns, against eager.

A case is (tensor, hook, result): which tensor of the program is hooked inside, by what, and what is returned. Each is
called once per question: what the caller hooks, and of which results and for which tensors gradients are asked. Compared are
gradients, `.grad`s, what hooks saw, in order, and the types of errors.

    python -m tests.autograd.hook_table [--only TEXT] [--part 0/4]     every case
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import pliant

# Statements that make `y`, which is hooked next, from the inputs `x` (a leaf) and `q` (computed).
TENSORS = {
    "computed": "y = x * 2",
    "of a result": "y = q * 2",
    "view of an input": "y = q[1:]",
    "view of a computed": "b = x * 2; y = b[1:]",
    "one of several": "z, y = (x * 2).unbind(0)",
    "one of two": "y, z = torch.var_mean(x, 0)",
    "written before": "y = x * 2; y.mul_(3)",
    "input": "y = x",
    "computed input": "y = q",
    "parameter": "y = w",
    "leaf": "b = x * 2; y = b[0].detach().requires_grad_()",
}
# What hooks it.
HOOKS = {
    "scaled": "y.register_hook(lambda g: g * 3)",
    "affine": "y.register_hook(lambda g: g + 1)",
    "constant": "y.register_hook(lambda g: torch.ones_like(g))",
    "closure": "y.register_hook(lambda g: g * w)",
    "closure over itself": "y.register_hook(lambda g: g * y)",
    "seen": "y.register_hook(note)",
    "two": "y.register_hook(lambda g: g * 3); y.register_hook(lambda g: g + 1)",
    "removed": "h = y.register_hook(lambda g: g * 3); h.remove()",
    "retained": "y.retain_grad()",
    "retained between": "y.register_hook(lambda g: g * 3); y.retain_grad(); y.register_hook(twice)",
    "accumulated": "y.register_post_accumulate_grad_hook(note_grad)",
    "without grad mode": "with torch.no_grad():\n    y.register_hook(lambda g: g * 3)",
}
# What the program does then and returns.
RESULTS = {
    "used": "return [(y.exp() * w).sum()]",
    "used and returned": "return [y.exp().sum(), y]",
    "returned first": "return [y, y.exp().sum()]",
    "returned twice": "return [y.exp().sum(), y, y]",
    "returned alone": "return [y]",
    "view returned": "return [y.exp().sum(), y.view(-1)]",
    "part returned": "return [y.exp().sum(), y[..., 1:], y]",
    "part used": "u = y[..., 1:]\nreturn [u.exp().sum(), u]",
    "part hooked too": "u = y[..., 1:]; u.register_hook(lambda g: g * 5)\nreturn [u.exp().sum(), u, y.sin()]",
    "beside": "return [y.exp(), x.sin() * q]",
    "detached": "return [y.exp().sum(), y.detach()]",
    "written after": "e = y.exp().sum(); y.mul_(2)\nreturn [e + y.sum(), y]",
    "base written after": "y.detach().mul_(2)\nreturn [y.sum(), y]",
    "gradient inside": "g, = torch.autograd.grad(y.exp().sum(), y, create_graph=True)\nreturn [g.sum(), y]",
    "several uses": "u = y * 2; v = u.sin()\nreturn [v.sum() + y.sum(), u, v, y]",
}  # fmt: skip

ASKS = """backward(r, 0)|backward(r, -1)|grad(r, 0, x)|grad(r, 0, r[-1])|grad(r, 0, [x, q, r[-1]])|grad(r, 0, [r[1], r[-1]])
grad(r, 0, [x, r[-1]], create_graph=True)[0].sum().backward()|backward(r, 0, retain_graph=True); backward(r, 0)
r[-1].register_hook(note); backward(r, 0)|r[-1].register_hook(twice); grad(r, 0, [x, r[-1]])|r[-1].retain_grad(); backward(r, 0)
r[-1].retain_grad(); r[-1].register_hook(twice); backward(r, 0)|backward(r, 0, inputs=[r[-1]])|backward(r, 0, -1)|w.register_hook(note); backward(r, 0)
r[1].register_hook(note); r[-1].register_hook(twice); backward(r, 0, 1)|r[0].grad_fn.register_prehook(note_node); backward(r, 0)
x.register_post_accumulate_grad_hook(note_grad); backward(r, 0)|(r[-1] * 3).exp().sum().backward()|grad([r[-1].sum()], 0, [x, q])
with torch.no_grad(): r[-1].register_hook(twice)|backward(r, 0, -1); backward(r, 0)|q.register_hook(note); backward(r, -1)"""
QUESTIONS = [one.replace("with ", "\nwith ") for line in ASKS.split("\n") for one in line.split("|")]


@dataclass(frozen=True)
class Case:
    tensor: str
    hook: str
    result: str

    def text(self) -> str:
        lines = [TENSORS[self.tensor], HOOKS[self.hook], RESULTS[self.result]]
        return "def f(x, q, w):\n" + "\n".join(f"    {one}" for text in lines for one in text.split("\n"))

    def __str__(self) -> str:
        return f"{self.tensor}, {self.hook}, {self.result}"


def cases() -> Iterator[Case]:
    yield from itertools.starmap(Case, itertools.product(TENSORS, HOOKS, RESULTS))


class _World:
    """What a program and its questions may name, and what they left behind."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def note(self, gradient: Any) -> None:
        self.log.append(gradient.detach().clone())

    def twice(self, gradient: Any) -> Any:
        self.note(gradient)
        return gradient * 2

    def note_grad(self, tensor: Any) -> None:
        self.log.append(tensor.grad.detach().clone())

    def note_node(self, gradients: Any) -> None:
        self.log.append("function")

    @staticmethod
    def backward(results: Any, *places: int, **options: Any) -> None:
        roots = [results[i] for i in places]
        torch.autograd.backward(roots, [torch.ones_like(one) * 0.5 for one in roots], **options)

    def grad(self, results: Any, place: int, wanted: Any, **options: Any) -> Any:
        wanted = wanted if isinstance(wanted, list) else [wanted]
        root = results[place]
        found = torch.autograd.grad(root, wanted, torch.ones_like(root) * 0.5, allow_unused=True, **options)
        self.log.append([one if one is None else one.detach() for one in found])
        return found

    def names(self) -> dict[str, Any]:
        own = ("note", "twice", "note_grad", "note_node", "backward", "grad")
        return {"torch": torch, **{name: getattr(self, name) for name in own}}


def answers(case: Case, compiler: Callable[[Any], Any], questions: list[str]) -> list[Any]:
    """What a caller sees after each question."""
    world = _World()
    names = world.names()
    exec(case.text(), names)
    f = compiler(names["f"])
    found = []
    for question in questions:
        world.log.clear()
        torch.manual_seed(0)
        x, w = torch.rand(3, 4, requires_grad=True), torch.rand(4, requires_grad=True)
        q = x * 1.5
        seen: list[Any] = [x, w, q]
        try:
            r = f(x, q, w)
            seen += r
            exec(question, names, {"x": x, "q": q, "w": w, "r": r})
            end = ""
        except Exception as error:
            end = type(error).__name__
        grads = [one.grad for one in seen if one.is_leaf or one.retains_grad]
        hooks = [len(one._backward_hooks or ()) for one in seen]
        found.append((list(world.log), grads, [one.detach() for one in seen], hooks, end))
        w.grad = x.grad = None
    return found


def difference(case: Case, compiler: Callable[[Any], Any] = pliant.compile) -> str | None:
    """The first question whose answer is not eager's."""
    expected = answers(case, lambda f: f, QUESTIONS)
    found = answers(case, compiler, QUESTIONS)
    for question, mine, eager in zip(QUESTIONS, found, expected, strict=True):
        if not _alike(mine, eager):
            return f"{case}\n{case.text()}\n>>> {question}\nours {mine}\neager {eager}"
    return None


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    return bool(one == other)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    chosen = [case for case in cases() if options.only in str(case)][part::parts]
    failed, counts = 0, dict.fromkeys(("fallbacks", "graph_breaks"), 0)
    for case in chosen:
        pliant.reset()
        text = difference(case)
        for name in counts:
            counts[name] += bool(pliant.stats()[name])
        if text is not None:
            failed += 1
            print(str(case) + ": " + text.split(">>> ")[1].split("\n")[0] if options.brief else text + "\n", flush=True)
    print(
        f"{len(chosen)} cases, {failed} differ; with fallbacks {counts['fallbacks']}, with breaks {counts['graph_breaks']}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
