"""Random programs called with arguments that may be one object: results, gradients and aliasing as in eager, few entries.

A program takes three tensors (plain, or leaves, parameters or results of autograd) and three modules, of which any may be
one, or the weight of one of the modules, and two functions that may have been defined in one call. It reads them, writes
them, compares them, asks for gradients of them or returns them. Where it only reads and returns, at most two entries serve
all calls; else at most two for each way in which the arguments are one.

    python -m tests.capture.fuzz_shared --count 2000 --first 0
"""

from __future__ import annotations

import random
from typing import Any

import torch
from tests.capture.fuzz_command import run_seeds
from tests.capture.fuzz_programs import load

import pliant

READS = (
    "s = s + {t} * {u}",
    "s = s * {t}",
    "s = s + {m}(s) * {t}",
    "s = s + {m}.weight",
    "s = {m}(s) + {n}(s)",
    "log.append(({m}.training, {n}.training))",
    "s = g(s) + h(s)",
    "s = torch.where({t} > 1, s, {u}.sin())",
    "out.append({t} * {u})",
    "log.append({t}.requires_grad)",
)
RETURNS = (
    "out.append({t})",
    "out.append({t}.view(2, 2))",
    "out.append({t}.detach())",
    "out.append({m}.weight)",
    "out.append([{t}, {u}])",
)
WRITES = (
    "with torch.no_grad(): {t}.add_(1)",
    "{t}.data.mul_(2)",
    "{t}.detach().add_(0.5)",
    "with torch.no_grad(): {m}.weight.mul_(1.5)",
    "{m}.calls += 1",
    "{m}.calls = {m}.calls + 1; log.append({n}.calls)",
    "{m}.late = 3; log.append(getattr({n}, 'late', None))",
    "{m}.notes.append(1); log.append(len({n}.notes))",
    "{m}.weight = torch.nn.Parameter({m}.weight.detach() * 2); s = s + {n}.weight",
    "{t}.tag = 5; log.append(getattr({u}, 'tag', None))",
)
ASKS = (
    "log.append({t} is {u})",
    "log.append({m} is {n})",
    "log.append({m} in ({n}, {n}))",
    "log.append({{ {m}: 1 }}.get({n}))",
    "log.append(id({m}) == id({n}))",
    "log.append({m}.weight is {t})",
    "log.append(len({{ {t}, {u} }}))",
    "log.append(id({t}) == id({u}))",
)
GRADIENTS = (
    "s = s + torch.autograd.grad(({t} * {u}).sum(), {u})[0]",
    "s = s + sum(torch.autograd.grad(({t} * {u} * {u}).sum(), [{t}, {u}]))",
    "s = s + torch.autograd.grad({m}({t}).sum(), {m}.weight)[0]",
)
STORES = (
    "({t} * {u}).sum().backward()",
    "log.append({t}.grad is None)",
    "s = s if {t}.grad is None else s + {t}.grad",
    "{t}.grad = None",
)
BREAK = "pliant.graph_break()"
PRELUDE = "import torch, pliant\n"
KINDS = ("plain", "leaf", "parameter", "result")


class Scale(torch.nn.Module):
    """A module with one parameter and a number that programs change."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.calls, self.notes = 0, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def functions(weight: torch.Tensor) -> tuple[Any, Any]:
    """Two functions that share a cell."""

    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * weight

    def shift(x: torch.Tensor) -> torch.Tensor:
        return x + weight

    return scale, shift


def program(seed: int) -> tuple[str, bool, bool]:
    """Its text, whether it matters to it which arguments are one, and whether it is broken."""
    chance, kind = random.Random(seed), KINDS[seed % 4]
    tables = [READS, READS, RETURNS]
    tells = seed % 3 > 0
    if tells:
        tables += [WRITES, ASKS] + [GRADIENTS] * (kind != "plain") + [STORES] * (kind in ("leaf", "parameter"))
    statements = [chance.choice(chance.choice(tables)) for _ in range(chance.randint(3, 6))]
    tells = any(one not in (*READS, *RETURNS) for one in statements)
    broken = chance.random() < 0.2
    if broken:
        statements.insert(len(statements) // 2, BREAK)
    body = "\n".join("    " + _filled(one, chance) for one in statements)
    text = (
        f"{PRELUDE}def f(x, a, b, c, m, n, k, g, h):\n    s, out, log = x * 1, [], []\n{body}\n    return s, out, log\n"
    )
    return text, tells, broken


def _filled(statement: str, chance: random.Random) -> str:
    t, u = chance.sample("abc", 2)
    m, n = chance.sample("mnk", 2)
    return statement.format(t=t, u=u, m=m, n=n)


def pool(kind: str) -> tuple[list[torch.Tensor], list[Scale], list[torch.Tensor]]:
    """Tensors and modules of which a call's arguments are chosen, and the leaves whose gradients are compared."""
    data = [torch.tensor([0.5, 1.0, 1.5, 2.0]) * k for k in (1, 1.5, 2)]
    modules = [Scale(torch.tensor([1.0, 2.0, 0.5, 1.5])), Scale(torch.tensor([0.5, 1.0, 2.0, 1.0]))]
    leaves = [one.weight for one in modules]
    if kind == "plain":
        return data, modules, leaves
    made = [torch.nn.Parameter(one) if kind == "parameter" else one.requires_grad_() for one in data]
    tensors = [one * 1 for one in made] if kind == "result" else made
    return tensors + [modules[0].weight] * (kind == "parameter"), modules, leaves + made


def called(function: Any, kind: str, way: tuple[int, ...]) -> Any:
    """All that can be seen of one call: results, gradients, what is one, what was written."""
    tensors, modules, leaves = pool(kind)
    torch.manual_seed(0)
    pairs = [functions(torch.tensor([1.0, 0.5, 2.0, 1.5])), functions(torch.tensor([0.5, 2.0, 1.0, 1.5]))]
    given = [tensors[i % len(tensors)] for i in way[:3]] + [modules[i] for i in way[3:6]]
    try:
        result = function(torch.ones(4), *given, pairs[way[6]][0], pairs[way[7]][1])
        s, out, log = result
        found = [s, *(one for part in out for one in (part if isinstance(part, list) else [part]))]
        shared = _sharing(found, [*tensors, *(one.weight for one in modules)])
        losses = [one.square().sum() for one in found if one.requires_grad]
        if losses:
            sum(losses).backward()
    except Exception as error:
        return type(error).__name__
    values = [(one.detach().clone(), one.requires_grad) for one in found]
    state = [(one.detach(), one.grad, getattr(one, "tag", None)) for one in (*leaves, *tensors) if one.is_leaf]
    return values, log, shared, state, [(one.calls, one.notes, getattr(one, "late", None)) for one in modules]


def _sharing(found: list[torch.Tensor], given: list[torch.Tensor]) -> Any:
    """Which results are one, or one of the arguments, and which share memory."""
    everything = [*found, *given]
    return [
        [(one is other, one.untyped_storage()._cdata == other.untyped_storage()._cdata) for other in everything]
        for one in found
    ]


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    return bool(type(a) is type(b) and a == b)


def disagreement(seed: int, calls: int = 12, backend: str = "eager") -> str:
    """What differs from eager, or how many entries there are too many; empty if nothing."""
    text, tells, broken = program(seed)
    chance, kind = random.Random(seed), KINDS[seed % 4]
    pliant.reset()
    function = load(text, "shared").f
    compiled = pliant.compile(load(text, "shared").f, backend=backend)
    ways = set()
    for call in range(calls):
        way = tuple(chance.choice((0, 0, 1, 2, 3)) for _ in range(3)) + tuple(chance.choice((0, 1)) for _ in range(5))
        want, got = called(function, kind, way), called(compiled, kind, way)
        if not alike(want, got):
            return f"seed {seed}, {kind}, call {call}, {way}:\n{text}\n got {got}\nwant {want}\n"
        ways.add(way if tells else ())
    stats = pliant.stats()
    captures, breaks = stats["calls"].get("capture", 0), stats["graph_breaks"]
    if captures > 2 * len(ways) * (1 + broken) and (broken or not breaks):
        reasons = "\n  ".join(stats["recompile_reasons"])
        return f"seed {seed}: {captures} entries for {len(ways)} behaviours\n{text}\n  {reasons}\n"
    return ""


if __name__ == "__main__":
    run_seeds(disagreement, backend=True, recompile_limit=64)
