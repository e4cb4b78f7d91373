"""Random training programs: a function of many actions on memory and autograd, and a caller that uses its results.

A program is text: `setup` makes the inputs for a size, `body` is what is compiled, `driver` is what the caller does with
the function, its inputs and its results. Statements are drawn at random and kept if eager runs them for two sizes, so
programs are valid by construction; the driver's may fail. After every statement of the driver all that a caller can see
is compared with eager: values, layouts, flags, shared memory, identities, gradients, what hooks saw, random state, errors.

    python -m tests.autograd.fuzz_training --first 0 --count 500 [--backend pliant] [--keep-going] [--no-reduce]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.autograd.fuzz_training_space import space

import pliant
from pliant.debug import events

SIZES = (4, 6, 5)


@dataclass
class Line:
    """A statement, or a block with its body."""

    text: str
    body: list[Line] | None = None

    def lines(self) -> Iterator[str]:
        yield self.text
        for one in self.body or ():
            yield from (f"    {line}" for line in one.lines())
        if self.body is not None and not self.body:
            yield "    pass"


@dataclass
class Program:
    setup: list[Line] = field(default_factory=list)
    body: list[Line] = field(default_factory=list)
    result: list[str] = field(default_factory=list)
    driver: list[Line] = field(default_factory=list)

    def make_text(self) -> str:
        return _function("make(n)", self.setup, "return dict(x=x, y=y, p=p, b=b, c=c, q=q)")

    def call_text(self) -> str:
        return _function("f(x, y, p, b, c)", self.body, f"return [{', '.join(self.result)}]")

    def text(self) -> str:
        driver = "\n".join(line for one in self.driver for line in one.lines())
        return f"{self.make_text()}\n{self.call_text()}\n{driver}\n"


def _function(head: str, body: list[Line], end: str) -> str:
    text = "\n".join([line for one in body for line in one.lines()] + [end])
    return f"def {head}:\n{textwrap.indent(text, '    ')}\n"


# ---------------------------------------------------------------------------------------------------- inputs

MAKERS = [
    "(torch.rand(n, 3, dtype=D) + 0.5).requires_grad_()",
    "torch.rand(n, 3, dtype=D) + 0.5",
    "(torch.rand(n, 3, dtype=D).requires_grad_() + 0.5)",
    "(torch.rand(3, n, dtype=D).requires_grad_() + 0.5).t()",
    "(torch.rand(n, 6, dtype=D).requires_grad_() + 0.5)[:, ::2]",
    "(torch.rand(n + 2, 3, dtype=D).requires_grad_() + 0.5)[1:n + 1]",
    "(torch.rand(n, 1, dtype=D).requires_grad_() + 0.5).expand(n, 3)",
    "(torch.rand(2, n, 3, dtype=D).requires_grad_() + 0.5)[1]",
    "torch.rand(n, 3, dtype=D).requires_grad_()[:]",
    "torch.rand(n, 3, dtype=D).requires_grad_().detach()",
    "(torch.rand(3 * n, dtype=D).requires_grad_() + 0.5).as_strided((n, 3), (2, 1))",
    "(torch.rand(n, 3, dtype=D) + 0.5).t().contiguous().t().requires_grad_()",
    "torch.nn.Parameter(torch.rand(n, 3, dtype=D))",
    "(torch.rand(n, 3, dtype=D).requires_grad_() * 1).chunk(2)[0].new_ones(n, 3)",
    "(torch.rand(1, 3, n, 3, dtype=D).requires_grad_() * 2).to(memory_format=torch.channels_last)[0, 0]",
]
RELATED = ["x", "x", "x.view_as(x)", "x.detach()", "x.flip(0)", "x[:]", "x.t().t()", "p", "x.data", "x * 1"]
PS = [
    "torch.rand(3, dtype=D).requires_grad_()", "torch.nn.Parameter(torch.rand(n, 3, dtype=D))",
    "torch.rand(3, 3, dtype=D).requires_grad_()", "torch.rand(1, dtype=D).requires_grad_()",
    "torch.rand(n, 3, dtype=D).requires_grad_()", "torch.tensor(0.7, dtype=D).requires_grad_()",
]  # fmt: skip
BS = ["torch.rand(n, 3, dtype=D)", "torch.rand(3, dtype=D)", "torch.rand(6, n, dtype=D)[1:4].t()", "x.detach().clone()"]
CS = ["{'u': torch.rand(n, 3, dtype=D), 'w': [p, x]}", "{'u': x, 'w': [y]}", "{'u': torch.rand(3, dtype=D).requires_grad_(), 'w': []}",
      "{'u': b[:], 'w': [torch.rand(n, 3, dtype=D).requires_grad_() * 2]}", "{'u': p, 'w': [b, b]}"]  # fmt: skip


def _setup(rng: random.Random) -> list[Line]:
    dtype = rng.choices(["torch.float64", "torch.float32"], [9, 1])[0]
    lines = [f"torch.manual_seed(0)\nD = {dtype}", f"p = {rng.choice(PS)}", f"x = q = {rng.choice(MAKERS)}"]
    if rng.random() < 0.3:
        lines[-1] = f"q = torch.rand(n, 3, dtype=D).requires_grad_()\nx = q{rng.choice(['[:]', '.detach()', ' * 2', '.t().t()', '.data', '.view_as(q)'])}"
    lines.append(f"y = {rng.choice(RELATED) if rng.random() < 0.35 else rng.choice(MAKERS)}")
    lines.append(f"b = {rng.choice(BS)}")
    lines.append(f"c = {rng.choice(CS)}")
    if rng.random() < 0.15:
        lines.append("p.grad = torch.ones_like(p)")
    if rng.random() < 0.1:
        hook = rng.choice(["p.register_hook(noting('hp'))", "p.register_post_accumulate_grad_hook(noting_sum('pp'))",
                           "p.register_hook(noting_and_scaling('hp'))"])  # fmt: skip
        lines.append(hook)
    return [Line(line) for text in lines for line in text.split("\n")]


# ---------------------------------------------------------------------------------------------------- the body
# {t}, {s}, {r}: tensors. {d}: a dimension of {t}. {v}: a new name.

VIEWS = """{t}.transpose(0, -1)|{t}.t()|{t}.mT|{t}.diagonal()|{t}.reshape(-1)|{t}.flatten()|{t}.view(-1)|{t}.narrow({d}, 1, 2)
{t}.select({d}, 1)|{t}[1:]|{t}[..., ::2]|{t}[0]|{t}[..., 0]|{t}.unfold({d}, 2, 1)|{t}.chunk(2, {d})[1]|{t}.split(2, {d})[0]
{t}.unbind({d})[1]|{t}.expand(2, *{t}.shape)|{t}.as_strided((2, 2), (2, 1))|{t}.as_strided((2,), (1,), {t}.storage_offset() + 1)
{t}.unsqueeze({d})|{t}.movedim(0, -1)|{t}.squeeze()|{t}.detach()|{t}.data|{t}.view_as({t})|{t}[:]|{t}[None]|{t}.reshape(-1, 2)
torch.view_as_complex({t}.reshape(-1, 2))|torch.view_as_real({t})|{t}.real|{t}.imag|{t}.tensor_split(2)[0]|{t}.expand_as({s})
{t}.contiguous()|{t}.to({t}.dtype)|{t}.swapaxes(0, 1)|{t}.permute(1, 0)|{t}.view({t}.shape)|{t}.reshape({s}.shape)|{t}.hsplit(3)[1]
{t}.T|{t}.unflatten(0, (-1, 2))|{t}.broadcast_to(2, *{t}.shape)|{t}.view_as({s})|{t}.squeeze(0)|{t}.detach().requires_grad_()"""
PAIRS = """{v}, {w} = {t}.unbind(0)[:2]|{v}, {w} = {t}.chunk(2)|{v}, {w} = {t}.split([1, 2], -1)|{v}, {w}, *_ = {t}
{v}, {w} = AsIs.apply({t}, {s})|{v}, {w} = MaybeNone.apply({t}, {s})|{v}, {w} = NonDifferentiable.apply({t})
{v}, {w}, _ = Several.apply({t})|{v}, _, {w} = Several.apply({t})|{v}, {w} = torch.var_mean({t}, 0)|{v}, {w} = {t}.sort(0)
{v}, {w} = DirtyAndMore.apply({t}, {s})|{v}, {w} = {t}.aminmax(dim=0)"""
WRITES = """{t}.mul_(2)|{t}.add_({s})|{t}.copy_({s})|{t}.masked_fill_({t} > 0.7, 0.3)|{t}.index_put_((torch.tensor([0, 1]),), {t}[:1] * 2)
{t}[0] = {s}|{t}[0] += 1.0|{t}[1:] *= {s}|{t}[..., 1] = 0.5|{t}.zero_()|{t}.fill_(0.5)|{t}.sin_()|{t}.clamp_(0.2, 1.0)|{t}.mul_({s})
{t} += {s}|{t} *= 0.5|{t}.data.mul_(2)|{t}.detach().mul_(2)|{t}.index_add_(0, torch.tensor([1, 0]), {t}[:2].detach().clone())
{t}.addcmul_({s}, {r})|{t}.lerp_({s}, 0.3)|{t}.sub_({s}.detach())|torch.mul({s}, {r}, out={t})|torch.add({s}, 1, out={t})
{t}.diagonal().fill_(2.0)|{t}.t().mul_({s})|{t}.view(-1)[:2].zero_()|{t}.index_fill_(0, torch.tensor([1]), 0.2)|{t}[{t} > 0.6] = 0.1
{t}.index_copy_(0, torch.tensor([0]), {s}[:1])|{t}.masked_scatter_({t} > 0.6, {s} * 2)|{t}.relu_()|{t}.exp_()|{t}.bernoulli_(0.5)
{t}.normal_()|{t}.unbind(0)[0].mul_(2)|{t}.transpose(0, -1).copy_({s})|{t}.scatter_(0, torch.zeros(1, {t}.shape[-1], dtype=torch.long), {s})
torch.stack([{s}, {r}], out={t})|{t}.real.mul_(2)|{t}.tanh_().mul_(2)|{t}.squeeze().add_(1)|{t}.copy_({t}.flip(0) + 1)"""
METADATA = """{t}.t_()|{t}.unsqueeze_(0)|{t}.squeeze_()|{t}.resize_(2, 2)|{t}.set_({s})|{t}.detach_()|{t}.requires_grad_()|{t}.transpose_(0, 1)
{t}.requires_grad_(False)|{t}.data = {s}.detach() * 2|{t}.as_strided_((2, 2), (2, 1))|{t}.set_({s}.detach())|{t}.swapaxes_(0, 1)
{t}.grad = torch.ones_like({t})|{t}.grad = None|{t}.retain_grad()|{t}.data = {s}.data.clone()"""
COMPUTES = """{t} * {s}|{t} + {s}|{t}.sin()|{t}.tanh()|{t} * p|{t} @ {s}|{t}.sum()|{t}.mean({d})|{t}.cumsum({d})|{t}.softmax({d})|{t}.relu()
torch.where({t} > 0.6, {t}, {s})|({t}.abs() + 1).sqrt()|{t}.prod({d})|{t}.exp().log1p()|F.dropout({t}, 0.4)|{t} * torch.rand_like({t})|{t}.clone()
{t}.to(torch.float32)|{t}.double()|torch.complex({t}, {s})|{t}.abs()|torch.stack([{t}, {s}])|torch.cat([{t}, {s}])|{t} * 2|{t}.sigmoid()
torch.bernoulli({t}.detach().sigmoid())|{t}.gather(0, torch.zeros(1, {t}.shape[-1], dtype=torch.long))|{t}.flip(0)|{t}.clone().mul_(2)
F.linear({t}, {s})|{t}.norm()|{t}.std({d})|{t} / ({s}.abs() + 1)|{t}.pow(2)|torch.ones_like({t})|{t}.detach() * {s}|{t}.amax({d})
torch.einsum('ij,ij->i', {t}, {s})|{t}.new_zeros(2, 3)|torch.zeros_like({t}).copy_({s})|{t}.max()|{t}[torch.tensor([0, 1])]|{t}.repeat(2, 1)
Scale.apply({t}, 1.5)|Saves.apply({t})|Dirty.apply({t})|Dirty.apply({t}.clone())|Once.apply({t})|AsView.apply({t})|Needs.apply({t}, {s})
SetUp.apply({t}, 2)|Nested.apply({t})|AsIs.apply({t}, {s})[0]|Several.apply({t})[1]|Needs.apply({t}, {s}, False)|Saves.apply(Saves.apply({t}))
checkpoint(lambda a: a.sin() * p, {t}, use_reentrant=False)|checkpoint(lambda a, b: F.dropout(a * b, 0.5), {t}, {s}, use_reentrant=False)
checkpoint(lambda a: (a * 2).tanh().exp(), {t}, use_reentrant=True)|checkpoint(lambda a: F.dropout(a, 0.5).sin(), {t}, use_reentrant=True)
checkpoint(lambda a, b: (a + b).sin().cos(), {t}, {s}, use_reentrant=False, context_fn=selective)
checkpoint(lambda a: a.sin(), {t}, use_reentrant=False, preserve_rng_state=False)|F.layer_norm({t}, {t}.shape[-1:])
torch.func.grad(lambda a: a.sin().sum())({t})|torch.func.vmap(lambda a: a * 2)({t})|torch.func.vjp(torch.sin, {t})[0]
torch.autograd.grad({t}.sum(), {s}, allow_unused=True, retain_graph=True)[0]|torch.autograd.grad(({t} * {s}).sum(), {s}, create_graph=True)[0]
torch.autograd.grad({t}.pow(2).sum(), {s}, create_graph=True, allow_unused=True)[0]|torch.autograd.grad(({t} * {s}).sin().sum(), [{t}, {s}])[1]
torch.autograd.grad({t}.sin(), {t}, torch.ones_like({t}), create_graph=True)[0]|{t}.grad|{t}.grad * 2"""
ACTS = """{t}.register_hook(lambda g: g * 2)|{t}.register_hook(lambda g: None)|{t}.register_hook(noting('h{n}'))|{t}.retain_grad()
{t}.register_hook(noting_and_scaling('h{n}'))|({t} * {s}).sum().backward()|{t}.sum().backward()|{t}.sum().backward(retain_graph=True)
({t} ** 2).sum().backward(inputs=[p])|{t}.sin().sum().backward(create_graph=True)|{t} = {s}|del {t}|{v} = [{t}, {s}]|{v} = {t}.requires_grad
{v} = {t}.is_leaf|{v} = {t}.shape[0] + 1|{v} = {t}._version|{v} = {t} is {s}|{v} = {t}.grad_fn is None|{v} = {t}.is_inference()
{v} = {t}.data_ptr() == {s}.data_ptr()|c['u'] = {t}|c['w'].append({t})|c['k'] = {t}"""
BLOCKS = """with torch.no_grad():|with torch.enable_grad():|with torch.set_grad_enabled(False):|with torch.inference_mode():|with packing():
with torch.autocast('cpu', torch.bfloat16):|with torch.autograd.graph.save_on_cpu():|with torch.set_grad_enabled(True):|with torch.no_grad():
with torch.inference_mode(False):|with torch.autocast('cpu', enabled=False):|with torch.no_grad():"""
KINDS = [(VIEWS, 9), (PAIRS, 2), (WRITES, 7), (METADATA, 1), (COMPUTES, 10), (ACTS, 1), (BLOCKS, 1.2)]


def _split(text: str) -> list[str]:
    return [one for line in text.split("\n") for one in line.split("|")]


_WRITES = _split(WRITES)
_METADATA = _split(METADATA)  # of a view these are writes of all its base to eager, or leave it a view of where it was
_CHOICES = [(_split(text), weight, text in (VIEWS, COMPUTES), text is BLOCKS) for text, weight in KINDS]


class Maker:
    """Draws statements and runs them in eager for two sizes as it goes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.count = rng, 0
        self.program = Program(setup=_setup(rng))
        self.spaces = [space() for _ in SIZES[:2]]
        for names, n in zip(self.spaces, SIZES):
            exec(self.program.make_text(), names)
            names.update(names["make"](n))
        self.visible = ["x", "y", "p", "b", "c['u']"]
        self.visible += [f"c['w'][{i}]" for i in range(len(self.spaces[0]["c"]["w"]))]

    def runs(self, text: str) -> bool:
        try:
            for names in self.spaces:
                exec(text, names)
        except Exception:
            return False
        return True

    def tensors(self) -> list[str]:
        return [v for v in self.visible if isinstance(self.value(v), torch.Tensor)]

    def value(self, text: str) -> Any:
        try:
            return eval(text, self.spaces[0])
        except Exception:
            return None

    def tensor(self) -> str:
        found = self.tensors()
        return self.rng.choice(found[-4:] if self.rng.random() < 0.5 else found)

    def body(self, length: int, depth: int = 0) -> list[Line]:
        lines: list[Line] = []
        for _ in range(length):
            for _ in range(25):
                line = self.draw(depth)
                if line is not None:
                    lines.append(line)
                    break
        return lines

    def draw(self, depth: int) -> Line | None:
        choices, _, names, block = self.rng.choices(_CHOICES, [w for _, w, *_ in _CHOICES])[0]
        text = self.rng.choice(choices)
        if block:
            return self.block(text) if depth < 2 else None
        t = self.tensor()
        rank = self.value(t).dim()
        self.count += 1
        v, w = f"v{self.count}", f"w{self.count}"
        filled = text
        s, r = self.tensor(), self.tensor()
        for key, one in dict(t=t, s=s, r=r, d=self.rng.randrange(max(rank, 1)), v=v, w=w, n=self.count).items():
            filled = filled.replace(f"{{{key}}}", str(one))
        if "torch.func" in text and torch.is_inference_mode_enabled():
            return None
        if names:
            filled = f"{v} = {filled}"
        if text in _WRITES and self.overlaps(t, s, r) or "resize_" in text and self.value(t).numel() < 4:
            return None
        of_view = (".data =" in text or "as_strided" in text or "_hook" in text or text in _METADATA) and self.value(t)._is_view()
        if of_view or filled.startswith("del ") and "[" in filled or not self.runs(filled):
            return None
        self.visible += [one for one in (v, w) if one in self.spaces[0]]
        return Line(filled)

    def overlaps(self, target: str, *read: str) -> bool:
        """Whether a write reads memory that it writes, but not element by element: what comes out is undefined."""
        written = self.value(target)
        for one in map(self.value, read):
            if one.untyped_storage().data_ptr() == written.untyped_storage().data_ptr() and one is not written:
                return True
        return False

    def block(self, head: str) -> Line | None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(eval(head[5:-1], self.spaces[0]))
            body = self.body(self.rng.randrange(1, 5), depth=1)
        return Line(head, body) if body else None

    def results(self) -> list[str]:
        known = [v for v in self.visible if self.value(v) is not None]
        late = [v for v in known[-6:] if self.rng.random() < 0.5]
        found = list(dict.fromkeys([*self.rng.sample(known, min(len(known), self.rng.randrange(1, 4))), *late]))
        last = [v for v in self.tensors() if _facts(self.value(v))["history"] is True]
        if last and not any(v in last for v in found):
            found.append(last[-1])
        if self.rng.random() < 0.15:
            found.append(self.rng.choice(found))
        return found


# ---------------------------------------------------------------------------------------------------- the driver

DRIVES = """backward({o}, {i})|backward({o}, {i}, retain_graph=True)|backward({o}, {i})|backward({o}, {i}, create_graph=True)
{v} = grads({o}, {i}, {l}, retain_graph=True)|{v} = grads({o}, {i}, {l}, create_graph=True)|{v} = grads({o}, {i}, {l})
{v} = grads({o}, {i}, {l}, create_graph=True)|{v} = grads({o}, {i}, [{o}[{k}]], retain_graph=True)|{v} = batched({o}, {k}, {l}, retain_graph=True)
with torch.no_grad(): {m}.mul_(2)|with torch.no_grad(): {o}[{k}].mul_(2)|{o}[{k}].mul_(2)|{o}[{k}].add_(1)|{o}[{k}] = None|{m}.mul_(2)
{o}[{k}].register_hook(noting('ho{n}'))|{o}[{k}].register_hook(double)|{m}.register_hook(noting('hm{n}'))|{o}[{k}].retain_grad()
{m}.register_post_accumulate_grad_hook(noting_sum('pa{n}'))|{m}.grad = None|{m}.data.mul_(2)|{m}.requires_grad_(False)
{m}.register_hook(noting_and_scaling('hm{n}'))|{o}[{k}].register_hook(noting_and_scaling('ho{n}'))|{o}[{k}].grad_fn.register_prehook(noting_node('np{n}'))
{v} = [({o}[{k}] * 2).sin()]|{v} = [{o}[{k}].sum(), {o}[{k}][0]]|{v} = [{o}[{k}].view_as({o}[{k}])]|del {o}|{o}[{k}].requires_grad_()"""
CALLS = """{v} = call(f, {w})|{v} = call(f, make({size}))|with packing(): {v} = call(f, {w})|with torch.no_grad(): {v} = call(f, {w})
with torch.inference_mode(): {v} = call(f, {w})|{v} = call(f, {w}, x={o}[{k}])|{v} = call(f, {w}, y={o}[{k}])|{v} = call(f, {w}, y={w}['x'])
{u} = make({size}); {v} = call(f, {u})|{u} = make({size}); {v} = call(f, {u})|{u} = make({size}); {v} = call(f, {u})|{v} = call(f, {w}, b={w}['x'].detach())"""


_IN_INFERENCE = re.compile(r"func|enable_grad|set_grad_enabled\(True\)|inference_mode\(False\)")


class Driver:
    """Draws what the caller does, by what eager gives it."""

    def __init__(self, maker: Maker) -> None:
        self.rng, self.program = maker.rng, maker.program
        self.names = _ready(self.program, None)
        self.count = 0

    def run(self, length: int) -> list[Line]:
        lines = self.program.driver
        for text in ["w0 = make(4)", "o0 = call(f, w0)"]:
            _step(text, self.names)
            lines.append(Line(text))
        for _ in range(length):
            text = self.draw()
            if text is not None:
                _step(text, self.names)
                lines.append(Line(text))
        return lines

    def draw(self) -> str | None:
        rng = self.rng
        outputs = [k for k, v in self.names.items() if isinstance(v, list) and k[0] == "o" and k[1:].isdigit()]
        worlds = [k for k, v in self.names.items() if isinstance(v, dict) and k[0] == "w" and k[1:].isdigit()]
        if not outputs:
            return None
        o, w = rng.choice(outputs), rng.choice(worlds)
        values = self.names[o]
        live = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and v.requires_grad and _facts(v)["history"] != "an error"]
        tensors = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and _facts(v)["history"] != "an error"]
        if not tensors:
            return None
        members = [f"{w}['{k}']" for k, v in self.names[w].items() if isinstance(v, torch.Tensor)]
        wanted = [f"{w}['{k}']" for k, v in self.names[w].items() if isinstance(v, torch.Tensor) and v.requires_grad]
        if not wanted:
            return None
        self.count += 1
        text = rng.choice(_split(CALLS) if rng.random() < 0.25 else _split(DRIVES))
        if "inference_mode" in text and _IN_INFERENCE.search(self.program.call_text()):  # custom functions record there
            return None
        roots = rng.sample(live, rng.randrange(1, len(live) + 1)) if live else [0]
        filling = dict(
            o=o, w=w, v=f"o{self.count}", u=f"w{self.count}", size=rng.choice(SIZES), i=sorted(roots), n=self.count,
            k=rng.choice(live if live and rng.random() < 0.7 else tensors), m=rng.choice(members),
            l=f"[{', '.join(sorted(set(rng.choices(wanted, k=rng.randrange(1, 4)))))}]",
        )  # fmt: skip
        done = "".join(line.text for line in self.program.driver)
        if ("mul_" in text or "add_" in text) and "retain_grad" in done:
            return None  # PyTorch fails where the function has several results
        if "retain_grad" in text and ("mul_" in done or "add_" in done):
            return None
        if "[{o}[{k}]]" in text and ("retain_grad" in done or "register_hook" in done):
            return None  # the results of a compiled function have one function of autograd's graph
        if ("{o}[{k}].retain_grad" in text or "register_hook" in text) and re.search(r"\[o\d+\[\d+\]\]", done):
            return None
        for key, one in filling.items():
            text = text.replace(f"{{{key}}}", str(one))
        if ".register_hook" in text and eval(text.split(".register")[0], self.names)._is_view():
            return None  # PyTorch crashes where another view was written before
        return text


def program_of(seed: int) -> Program:
    rng = random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        maker = Maker(rng)
        maker.program.body = maker.body(rng.randrange(2, 13))
        maker.program.result = maker.results()
        Driver(maker).run(rng.randrange(2, 10))
    return maker.program


# ---------------------------------------------------------------------------------------------------- what is seen


def _ready(program: Program, backend: str | None) -> dict[str, Any]:
    given = {line.text.split(" = ")[0] for line in program.driver if re.match(r"o\d+ = (grads|batched)", line.text)}
    names = space() | {"__name__": "fuzzed", "GRADIENTS": given}
    exec(program.make_text(), names)
    exec(compile(program.call_text(), "<fuzzed>", "exec"), names)
    if backend is not None:
        names["f"] = pliant.compile(names["f"], backend=backend)
    return names


def _step(text: str, names: dict[str, Any]) -> Any:
    try:
        exec(text, names)
    except Exception as error:
        error.__traceback__ = None
        return type(error).__name__, str(error)
    return None


def _seen(names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All that a caller can see, by what it is of."""
    found: dict[str, Any] = {}
    for name, value in list(names.items()):
        if name[0] == "w" and name[1:].isdigit():
            leaves = {"x": value["x"], "y": value["y"], "p": value["p"], "b": value["b"], "q": value["q"], "c": names["flat"](value["c"])}
            found |= {f"{name}.{k}": v for k, v in leaves.items() if k != "c"}
            found |= {f"{name}.c{i}": v for i, v in enumerate(leaves["c"])}
        elif name[0] == "o" and name[1:].isdigit():
            found |= {f"{name}[{i}]": v for i, v in enumerate(value)}
    yield "what there is", list(found)
    for name, value in found.items():
        if isinstance(value, torch.Tensor):
            facts = _facts(value)
            if name.split("[")[0] in names["GRADIENTS"]:
                del facts["stride"]  # eager promises nothing of them
            yield f"facts of {name}", facts
            yield f"value of {name}", _copy(value)
            grad = _fact(lambda t: t.grad, value)
            yield f"gradient of {name}", _copy(grad) if isinstance(grad, torch.Tensor) else grad
        else:
            yield f"value of {name}", value
    tensors = {k: v for k, v in found.items() if isinstance(v, torch.Tensor)}
    yield "related", _relations(tensors)
    yield "bases", _bases({k: v for k, v in tensors.items() if k.split("[")[0] not in names["GRADIENTS"]})
    yield "hooks", list(names["LOG"])
    yield "random state", torch.get_rng_state()


def _copy(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone()


FACTS: dict[str, Callable[[torch.Tensor], Any]] = dict(
    shape=lambda t: tuple(t.shape), stride=lambda t: t.stride(), dtype=lambda t: t.dtype, conj=lambda t: t.is_conj(),
    requires_grad=lambda t: t.requires_grad, is_leaf=lambda t: t.is_leaf, history=lambda t: t.grad_fn is not None,
    inference=lambda t: t.is_inference(), retains=lambda t: t.retains_grad, kind=lambda t: type(t).__name__,
)  # fmt: skip


def _facts(t: torch.Tensor) -> dict[str, Any]:
    return {name: _fact(one, t) for name, one in FACTS.items()}


def _fact(one: Callable[[torch.Tensor], Any], t: torch.Tensor) -> Any:
    try:
        return one(t)
    except RuntimeError:  # a view that may not be looked at any more
        return "an error"


def _relations(tensors: dict[str, torch.Tensor]) -> list[Any]:
    found: list[Any] = []
    for (i, a), (j, b) in itertools.combinations(tensors.items(), 2):
        if a is b:
            found.append((i, "is", j))
        elif a.numel() and b.numel() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr():
            found.append((i, "shares with", j, a.storage_offset() - b.storage_offset()))
    return found


METADATA_WRITE = re.compile(r"[a-z]_\((0(, 1)?)?\)|resize_|set_|as_strided_")  # eager counts them as writes of all the memory
HIDDEN = "a tensor that is not seen"


def _bases(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    names = {id(t): name for name, t in tensors.items()}
    return {k: None if t._base is None else names.get(id(t._base), HIDDEN) for k, t in tensors.items()}


def observe(program: Program, backend: str | None) -> Iterator[tuple[str, Any, Any]]:
    """(statement, what, how it is) in turn."""
    names = _ready(program, backend)
    for line in program.driver:
        versions = {k: v._version for k, v in _world(names)}
        error = _step(line.text, names)
        yield line.text, "error", error
        now = {k: v._version - versions.get(k, 0) for k, v in _world(names)}
        yield line.text, "written", {k: bool(v) for k, v in now.items()}
        for what, value in _seen(names):
            yield line.text, what, value


def _world(names: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in list(names.items()):
        if name[0] == "w" and name[1:].isdigit():
            yield from ((f"{name}.{k}", v) for k, v in value.items() if isinstance(v, torch.Tensor) and not v.is_inference())


def _alike(mine: Any, theirs: Any, loose: bool) -> bool:
    if isinstance(theirs, torch.Tensor) or isinstance(mine, torch.Tensor):
        if not isinstance(theirs, torch.Tensor) or not isinstance(mine, torch.Tensor) or mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return False
        tolerance = 3e-2 if loose else 2e-4 if theirs.dtype in (torch.float32, torch.complex64) else 1e-8
        return torch.allclose(mine, theirs, tolerance, tolerance, equal_nan=True)
    if isinstance(theirs, (list, tuple)):
        return type(mine) is type(theirs) and len(mine) == len(theirs) and all(_alike(a, b, loose) for a, b in zip(mine, theirs))
    return bool(mine == theirs or mine != mine and theirs != theirs)


def _comparable(mine: Any, theirs: Any) -> Any:
    """Facts without those that eager refuses to tell, of views made and written in inference mode."""
    if isinstance(theirs, dict) and isinstance(mine, dict) and "history" in theirs:
        return {k: theirs[k] if theirs[k] == "an error" else v for k, v in mine.items()}
    return mine


def _shown(mine: Any, theirs: Any) -> str:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        return str({k: f"{mine.get(k)} for {v}" for k, v in theirs.items() if mine.get(k) != v})
    if isinstance(theirs, list) and isinstance(mine, list) and theirs and isinstance(theirs[0], tuple):
        more, less = [m for m in mine if str(m) not in map(str, theirs)], [t for t in theirs if str(t) not in map(str, mine)]
        return f"{more} instead of {less}" if more or less else f"{len(mine)} for {len(theirs)}: order"
    return f"{mine} instead of {theirs}"


def disagreement(program: Program, backend: str = "aot_eager") -> tuple[str, str] | None:
    """(what, in full) of the first difference from eager."""
    pliant.reset()
    loose = "bfloat16" in program.call_text() or "float32" in program.text()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = observe(program, None)
        found = observe(program, backend)
        torch.manual_seed(5)
        theirs_state = mine_state = torch.get_rng_state()
        while True:
            torch.set_rng_state(theirs_state)
            theirs = _burst(expected)
            theirs_state = torch.get_rng_state()
            torch.set_rng_state(mine_state)
            mine = _burst(found)
            mine_state = torch.get_rng_state()
            if not theirs and not mine:
                return None
            for (line, what, a), (_, what_b, b) in zip(mine, theirs):
                if what == "error":
                    if "don't yet support saved tensor hooks" in str(b):
                        return None
                    if a and "of a compiled function was written after the call" in a[1]:
                        return None  # refused: a further gradient needs values that eager does not keep either
                    if (a and a[0]) != (b and b[0]):
                        return f"error {a and a[0]} for {b and b[0]}", f"`{line}`: {a} instead of {b}"
                    if b and "call(f" not in line:
                        return None  # how far the engine got before is a matter of its order
                elif what == "bases":
                    a, b = ({k: v for k, v in one.items() if b[k] != HIDDEN} for one in (a, b))
                    if a != b and ".data = " not in program.text() and not METADATA_WRITE.search(program.call_text()):
                        return "bases", f"`{line}`: {_shown(a, b)}"
                elif what == "written" and METADATA_WRITE.search(program.call_text()):
                    continue
                elif what != what_b or not _alike(_comparable(a, b), b, loose):
                    return what.split(" ")[0], f"`{line}`: {what}: {_shown(a, b)}"


def _burst(steps: Iterator[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    """What is seen of one statement."""
    found = []
    for step in steps:
        found.append(step)
        if step[1] == "random state":
            break
    return found


# ---------------------------------------------------------------------------------------------------- reducing


def reduced(program: Program, kind: str, backend: str) -> Program:
    """The program without what the difference does not need."""

    def fails() -> bool:
        try:
            found = disagreement(program, backend)
        except Exception:
            return False
        return found is not None and found[0] == kind

    def shrink(lines: list[Any], keep: int = 0) -> bool:
        smaller = False
        for place in reversed(range(keep, len(lines))):
            one = lines.pop(place)
            inner = getattr(one, "body", None)
            if fails():
                smaller = True
                continue
            if inner:
                lines[place:place] = inner
                if fails():
                    smaller = True
                    continue
                del lines[place : place + len(inner)]
            lines.insert(place, one)
            if inner:
                smaller = shrink(inner) or smaller
        return smaller

    while shrink(program.driver) | shrink(program.result) | shrink(program.body) | shrink(program.setup):
        pass
    return program


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--no-reduce", action="store_true")
    parser.add_argument("--show", action="store_true", help="print the programs")
    options = parser.parse_args()
    wrong = whole = steps = 0
    for seed in range(options.first, options.first + options.count):
        program = program_of(seed)
        if options.show:
            print(f"# {seed}\n{program.text()}")
        with events.collect("fallback", "graph_break", "skip") as fell:
            found = disagreement(program, options.backend)
        whole, steps = whole + (not fell), steps + len(program.driver)
        if found is None:
            continue
        wrong += 1
        print(f"# ---- {seed}: {found[0]}: {found[1][:600]}", flush=True)
        if not options.no_reduce:
            print(textwrap.indent(reduced(program, found[0], options.backend).text(), "  "))
            print(f"  # {(disagreement(program, options.backend) or ('', 'gone'))[1][:600]}\n", flush=True)
    print(f"{options.count} programs, {steps} statements of drivers, {whole} captured whole, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
