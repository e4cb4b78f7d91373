"""Random tensor programs, compiled and compared with eager in values and gradients.

Each seed makes one straight-line program over tensors of three sizes a, b, c: pointwise arithmetic with broadcasting,
reductions, views, joins, matrix products, normalizations, indexing and in-place writes. It runs at several sizes, so
static and symbolic code of the same program are both exercised.

    python -m tests.end_to_end.fuzz_tensors --count 500 --seed 0 [--device cuda --calls 5]

`--calls`: how often in a row it is called at each size; on a GPU the later ones may replay a recording.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from tests.autograd.fuzz_training_eager import Shaken, spread, within

import pliant

Shape = tuple[str, ...]
EXTENTS = ("a", "b", "c")
# Small, unit, just over a vector, and long enough for several threads and blocked sums.
SIZES = (
    {"a": 5, "b": 7, "c": 33},
    {"a": 4, "b": 130, "c": 65},
    {"a": 150, "b": 3, "c": 300},
)


@dataclass
class Maker:
    """Writes a program line by line and knows the shape of each value."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def value(self, rank: int | None = None) -> str:
        fitting = [v for v, s in self.shapes.items() if rank is None or len(s) == rank]
        return self.rng.choice(fitting or list(self.shapes))

    def of_shape(self, shape: Shape) -> str:
        return self.rng.choice([v for v, s in self.shapes.items() if s == shape])

    def add(self, text: str, shape: Shape) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.shapes[name] = shape
        return name


def _unary(m: Maker) -> None:
    x = m.value()
    text = m.rng.choice(
        ["torch.tanh({})", "torch.relu({})", "F.gelu({})", "torch.sigmoid({})", "-{}", "{}.abs()", "torch.exp(-{}.abs())",
         "F.silu({})", "torch.sqrt({}.abs() + 1)", "{}.clamp(-1, 1)", "torch.where({} > 0, {}, 0.5)", "F.leaky_relu({})",
         "torch.log1p({}.abs())", "{} * 0.5", "{}.double().round().double() + {}", "F.softplus({})", "{}.sign() * {}"]
    )  # fmt: skip
    m.add(text.replace("{}", x), m.shapes[x])


def _binary(m: Maker) -> None:
    x = m.value()
    y = m.of_shape(m.shapes[x])
    op = m.rng.choice(
        [
            "{} + {}",
            "{} * {}",
            "{} - {}",
            "torch.maximum({}, {})",
            "{} / ({}.abs() + 1)",
            "torch.where({} > {}, 1.0, -1.0).double()",
        ]
    )
    m.add(op.format(x, y), m.shapes[x])


def _broadcast(m: Maker) -> None:
    x = m.value()
    shape = m.shapes[x]
    if not shape:
        _unary(m)
        return
    d = m.rng.randrange(len(shape))
    kept = m.rng.choice(["{x}.sum({d}, keepdim=True)", "{x}.mean({d}, True)", "{x}.amax({d}, keepdim=True)"])
    m.add(f"{x} {m.rng.choice('+-*')} {kept.format(x=x, d=d)}", shape)


def _reduce(m: Maker) -> None:
    x = m.value()
    shape = m.shapes[x]
    if not shape:
        _unary(m)
        return
    d = m.rng.randrange(len(shape))
    op = m.rng.choice(
        ["{x}.sum({d})", "{x}.mean({d})", "{x}.amax({d})", "{x}.var({d}, unbiased=False)", "torch.logsumexp({x}, {d})",
         "{x}.min({d}).values", "{x}.norm(dim={d})", "{x}.argmax({d}).double()", "({x} > 0).sum({d}).double()", "{x}.prod({d}).tanh()"]
    )  # fmt: skip
    m.add(op.format(x=x, d=d), shape[:d] + shape[d + 1 :])


def _normalize(m: Maker) -> None:
    x = m.value()
    shape = m.shapes[x]
    if not shape:
        _unary(m)
        return
    d = m.rng.randrange(len(shape))
    op = m.rng.choice(
        [f"F.softmax({x}, {d})", f"F.log_softmax({x}, {d})", f"F.normalize({x}, dim={d})", f"{x}.cumsum({d}) * 0.1",
         f"F.layer_norm({x}, {x}.shape[-1:])", f"{x}.flip({d})", f"torch.roll({x}, 1, {d})"]
    )  # fmt: skip
    m.add(op, shape)


def _view(m: Maker) -> None:
    x = m.value()
    shape = m.shapes[x]
    if len(shape) < 2:
        _unary(m)
        return
    i, j = m.rng.sample(range(len(shape)), 2)
    swapped = list(shape)
    swapped[i], swapped[j] = shape[j], shape[i]
    if m.rng.random() < 0.5:
        m.add(f"{x}.transpose({i}, {j})", tuple(swapped))
        return
    flat = m.add(f"({x} * 1.5).flatten()", ("flat",))
    m.add(f"{flat}.tanh().view_as({x})", shape)
    del m.shapes[flat]
    return


def _select(m: Maker) -> None:
    x = m.value()
    shape = m.shapes[x]
    if not shape:
        _unary(m)
        return
    d = m.rng.randrange(len(shape))
    m.add(f"{x}.select({d}, {m.rng.choice([0, 1, -1])})", shape[:d] + shape[d + 1 :])
    return


def _expand(m: Maker) -> None:
    x = m.value()
    if len(m.shapes[x]) >= 3:
        _unary(m)
        return
    e = m.rng.choice(EXTENTS)
    m.add(
        f"{x}.unsqueeze(0).expand({e}, {', '.join(['-1'] * len(m.shapes[x]))})".replace(", )", ")"), (e, *m.shapes[x])
    )
    return


def _join(m: Maker) -> None:
    x = m.value()
    shape = m.shapes[x]
    if not shape:
        _unary(m)
        return
    d = m.rng.randrange(len(shape))
    y = m.of_shape(shape)
    wide = m.add(f"torch.cat([{x}, {y} * 2], {d})", ("wide",))
    part = m.rng.choice([f"narrow({d}, 1, {shape[d]})", f"narrow({d}, {shape[d]}, {shape[d]})"])
    m.add(f"{wide}.{part}", shape)
    m.add(f"torch.stack([{x}, {y}], {d}).sum({d})", shape)
    del m.shapes[wide]
    return


def _matmul(m: Maker) -> None:
    x = m.value(2)
    shape = m.shapes[x]
    if len(shape) != 2:
        _unary(m)
        return
    y = m.of_shape(shape)
    scale = f"({shape[1]} ** -0.5)"
    m.add(f"{x} @ {y}.T * {scale}", (shape[0], shape[0]))
    m.add(f"F.linear({x}, {y})[:, :1].expand(-1, {shape[1]}) * {scale}", shape)
    return


def _index(m: Maker) -> None:
    x = m.value()
    shape = m.shapes[x]
    if not shape:
        _unary(m)
        return
    op = m.rng.choice(
        [f"{x}[torch.arange({shape[0]}, device={x}.device) // 2]", f"{x}.index_select(0, torch.arange({shape[0]}, device={x}.device).flip(0))",
         f"torch.zeros_like({x}).index_add(0, torch.arange({shape[0]}, device={x}.device) // 3, {x})",
         f"{x}.masked_fill({x} > 0.5, 0.25)", f"{x}.gather(0, torch.zeros_like({x}, dtype=torch.int64))"]
    )  # fmt: skip
    m.add(op, shape)
    return


def _write(m: Maker) -> None:
    x = m.value()
    shape = m.shapes[x]
    y = m.of_shape(shape)
    copy = m.add(f"{x}.clone()", shape)
    target = f"{copy}[0]" if shape and m.rng.random() < 0.5 else copy
    source = f"{y}[0]" if target != copy else y
    m.lines.append(f"{target}.{m.rng.choice(['add_', 'mul_', 'copy_'])}({source})")
    return


def _pad(m: Maker) -> None:
    x = m.value()
    shape = m.shapes[x]
    if not shape:
        _unary(m)
        return
    m.add(f"F.pad({x}, (1, 2))[..., 1:-2]", shape)
    m.add(f"F.pad({x}, (2, 1), value=0.5)[..., 2:-1]", shape)
    return


STEPS: list[Callable[[Maker], None]] = [
    _unary, _unary, _binary, _binary, _broadcast, _reduce, _normalize, _view, _select, _expand, _join, _matmul, _index,
    _write, _pad,
]  # fmt: skip


def source_of(seed: int) -> str:
    """The text of the program `f(x, y, z, a, b, c)`."""
    rng = random.Random(seed)
    m = Maker(rng)
    m.shapes.update({"x": ("a", "b"), "y": ("a", "b", "c"), "z": ("c",)})
    for _ in range(rng.randrange(3, 14)):
        rng.choice(STEPS)(m)
    outputs = rng.sample(list(m.shapes), min(3, len(m.shapes)))
    body = "\n    ".join(m.lines)
    return f"def f(x, y, z):\n    a, b, c = y.shape\n    {body}\n    return {', '.join(outputs)},\n"


def program_of(seed: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    space = {"torch": torch, "F": F}
    exec(compile(source_of(seed), f"<program {seed}>", "exec"), space)
    return space["f"]


def inputs_of(seed: int, sizes: dict[str, int], device: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, b, c = (sizes[k] for k in EXTENTS)
    return [
        torch.randn(*shape, generator=generator, dtype=torch.float64).to(device).requires_grad_()
        for shape in ((a, b), (a, b, c), (c,))
    ]


def outcome(
    program: Callable[..., tuple[torch.Tensor, ...]], seed: int, sizes: dict[str, int], device: str
) -> list[torch.Tensor | None]:
    """Results and gradients."""
    inputs = inputs_of(seed, sizes, device)
    outputs = program(*inputs)
    generator = torch.Generator().manual_seed(1)
    loss = sum(
        (o * torch.randn(o.shape, generator=generator, dtype=o.dtype).to(device)).sum() for o in outputs if o.requires_grad
    )
    found: list[torch.Tensor | None] = [o.detach() for o in outputs]
    if isinstance(loss, torch.Tensor):
        found += torch.autograd.grad(loss, inputs, allow_unused=True)
    return found


def disagreement(seed: int, device: str = "cpu", calls: int = 1) -> str | None:
    """What differs from eager, or None. In float64, so that rounding does not hide or fake a difference."""
    program = program_of(seed)
    compiled = pliant.compile(program, dynamic=[None, True][seed % 2])
    before = _in_eager()
    for sizes in [sizes for sizes in SIZES for _ in range(calls)]:
        try:
            expected = outcome(program, seed, sizes, device)
        except RuntimeError:
            return None  # a program that eager refuses
        found = outcome(compiled, seed, sizes, device)
        for k, (one, other) in enumerate(zip(found, expected, strict=True)):
            if (one is None) != (other is None):
                return f"value {k} at {sizes}: {one} and {other}"
            if one is None or torch.allclose(one, other, rtol=1e-8, atol=1e-8, equal_nan=True):
                continue
            if not within(one, other, _rounding(program, seed, sizes, device, k, other), torch.equal):
                return f"value {k} at {sizes}: off by {(one - other).abs().max()}"
    if _in_eager() > before:
        return f"fallback: {pliant.stats()['fallback_reasons']} {pliant.stats()['assumption_reasons']}"
    return None


def _rounding(
    program: Callable[..., tuple[torch.Tensor, ...]], seed: int, sizes: dict[str, int], device: str, k: int, expected: torch.Tensor
) -> torch.Tensor | None:
    """How far eager's value of this number is from itself where operators round otherwise."""
    shaken = []
    for chance in range(8):
        with Shaken(chance):
            shaken.append(outcome(program, seed, sizes, device)[k])
    return spread(expected, shaken)


def _in_eager() -> int:
    """Calls that ran eagerly so far; no program here raises, so none of these is the program's own."""
    return pliant.stats()["fallbacks"] + pliant.stats()["assumptions"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--calls", type=int, default=1)
    options = parser.parse_args()
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            found = disagreement(seed, options.device, options.calls)
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:300]}"
        if found:
            wrong += 1
            print(f"seed {seed}: {found}", flush=True)
        pliant.reset()
    print(f"{options.count} programs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
