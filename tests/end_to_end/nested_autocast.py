"""Nested blocks of autocast in a compiled function, against eager, whose casts of parameters are kept until the outermost
block ends: dtypes of results, gradients, errors.

    python -m tests.end_to_end.nested_autocast [--only FORM] [--part 0/4]     every case
"""

from __future__ import annotations

import argparse
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import torch

import pliant

BLOCKS = {
    "bf16": "torch.autocast('cpu', torch.bfloat16)",
    "f16": "torch.autocast('cpu', torch.float16)",
    "off": "torch.autocast('cpu', enabled=False)",
    "uncached": "torch.autocast('cpu', torch.bfloat16, cache_enabled=False)",
    "uncached f16": "torch.autocast('cpu', torch.float16, cache_enabled=False)",
    "default": "torch.autocast('cpu')",
    "no_grad": "torch.no_grad()",
}
USES = {
    "layer": "lin(x)",
    "parameter": "lin.weight @ lin.weight",
    "activation": "x @ x.mT",
    "both": "x @ lin.weight",
    "view of a parameter": "lin.weight[:2] @ lin.weight",
    "buffer": "buf @ lin.weight",
    "not a leaf": "(lin.weight * 1) @ lin.weight.detach()",
}
FORMS = {
    "inside": "with {one}:\n    a = {use}\n    with {two}:\n        b = {use}\n    d = {use}\nreturn [a, b, d]",
    "inside first": "with {one}:\n    with {two}:\n        b = {use}\n    d = {use}\nreturn [b, d]",
    "after": "with {one}:\n    a = {use}\nwith {two}:\n    b = {use}\nreturn [a, b]",
    "cleared": "with {one}:\n    a = {use}\n    torch.clear_autocast_cache()\n    with {two}:\n        b = {use}\nreturn [a, b]",
    "broken before": "with {one}:\n    a = {use}\n    break_here()\n    with {two}:\n        b = {use}\nreturn [a, b]",
    "twice": "with {one}:\n    a = {use}\nwith {two}:\n    break_here()\n    b = {use}\nreturn [a, b]",
    "in eager": "with {one}:\n    a = {use}\n    return [a, *inner(x, lin, buf)]",
    "broken behind": "with {one}:\n    with {two}:\n        b = {use}\n    break_here()\n    d = {use}\nreturn [b, d]",
    "disabled": "with {one}:\n    a = {use}\n    b = disabled(x, lin, buf)\nreturn [a, *b]",
    "broken in a callee": "with {one}:\n    a = {use}\n    b = broken(x, lin, buf)\nreturn [a, *b]",
    "kept of before": (
        "for _ in range(2):\n    with {one}:\n        a = {use}\n        break_here()\n"
        "    with {two}:\n        b = disabled(x, lin, buf)\nreturn [a, *b]"
    ),
    "broken": "with {one}:\n    a = {use}\n    with {two}:\n        break_here()\n        b = {use}\nreturn [a, b]",
}

Case = tuple[str, str, str, str]


def cases() -> Iterator[Case]:
    yield from itertools.product(BLOCKS, BLOCKS, USES, FORMS)


def text(case: Case) -> str:
    one, two, use, form = case
    body = FORMS[form].format(one=BLOCKS[one], two=BLOCKS[two], use=USES[use])
    inner = f"with {BLOCKS[two]}:\n    return [{USES[use]}]"
    functions = {"f": body, "inner": inner, "disabled": inner, "broken": f"break_here()\n{inner}"}
    texts = (f"def {name}(x, lin, buf):\n{textwrap.indent(text, '    ')}\n" for name, text in functions.items())
    return "".join(texts)


def answers(case: Case, compiler: Callable[[Any], Any], grad: bool) -> list[Any]:
    names: dict[str, Any] = {"torch": torch, "break_here": pliant.graph_break}
    exec(text(case), names)
    torch.manual_seed(0)
    lin, buf, x = torch.nn.Linear(4, 4), torch.rand(4, 4), torch.rand(4, 4)
    lin.requires_grad_(grad)
    names["disabled"] = pliant.disable(names["disabled"])
    compiled = "inner" if case[-1] == "in eager" else "f"
    names[compiled] = compiler(names[compiled])
    f = names["f"]
    found: list[Any] = []
    for _ in range(2):
        lin.zero_grad()
        try:
            results = f(x, lin, buf)
        except RuntimeError as error:
            found.append(str(error)[:30])
            continue
        found += results
        loss = sum(one.float().sum() for one in results)
        if loss.requires_grad:
            loss.backward()
            found.append(lin.weight.grad)
    return found


def difference(case: Case) -> str | None:
    for grad in (True, False):
        expected, found = answers(case, lambda f: f, grad), answers(case, pliant.compile, grad)
        if len(expected) != len(found) or not all(map(_alike, expected, found)):
            short = [[one if isinstance(one, str) else one.dtype for one in results] for results in (found, expected)]
            return f"{case} grad={grad}\n  ours  {short[0]}\n  eager {short[1]}"
    return None


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return bool(isinstance(one, str) and isinstance(other, str))
    return one.dtype is other.dtype and torch.allclose(one.float(), other.float(), rtol=2e-2, atol=2e-2)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="forms of this name")
    parser.add_argument("--part", default="0/1")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    failed = 0
    for case in [case for case in cases() if options.only in ("", case[-1])][part::parts]:
        pliant.reset()
        found = difference(case)
        if found is not None:
            failed += 1
            print(found, flush=True)
    print(f"{failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
