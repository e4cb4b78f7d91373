"""Programs made at random, exported at one size and called at others: eager's result or an error, never another result.

    python -m tests.exporting.generated --count 500 --seed 1 [--compiled]

A program is a chain of steps over three tensors whose sizes are Dims. Each step asks something of sizes: whether one is 1,
whether two are equal, what a slice leaves, whether memory is in order. An export asks no more of a size than its programs
need, so questions that have a fallback leave no guard: this is what would show one that should.
"""

import argparse
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch

import pliant
from pliant.errors import ExportError, PliantError

# Steps: `a` and `b` are tensors that exist, `k` a small number.
STEPS = (
    "{a} + {b}", "{a} * {b}", "torch.where({a} > 0, {a}, {b})", "torch.maximum({a}, {b})", "{a} @ {b}", "{a} @ {b}.mT",
    "{a}[:{k}]", "{a}[{k}:]", "{a}[-{k}:]", "{a}[:-{k}]", "{a}[::{k}]", "{a}[:, :{k}]", "{a}.narrow(0, 0, {k})", "{a}[{k}]",
    "{a}[-1]", "{a}[:{b}.shape[0]]", "{a}[{b}.shape[0]:]", "{a}.flatten()[: {b}.numel()]",
    "torch.cat([{a}, {b}])", "torch.cat([{a}, {b}], -1)", "torch.stack([{a}, {b}])",
    "{a}.t()", "{a}.transpose(0, -1)", "{a}.mT.contiguous()", "{a}.squeeze()", "{a}.squeeze(0)", "{a}.unsqueeze(0)", "{a}.unsqueeze(-1)",
    "{a}.expand({b}.shape)", "{a}.expand({k}, -1, -1)", "{a}.expand_as({b})", "{a}.repeat({k}, 1)", "{a}.repeat({b}.shape[0], 1)",
    "{a}.reshape(-1)", "{a}.reshape({a}.shape[0], -1)", "{a}.reshape({b}.shape)", "{a}.view(-1)", "{a}.view(-1, {k})",
    "{a}.view({a}.shape[0], -1, 1)", "{a}.t().reshape(-1)", "{a}.flatten(0, 1)", "{a}.unflatten(0, (-1, {k}))",
    "{a}.sum(0)", "{a}.mean(-1, keepdim=True)", "{a}.softmax(-1)", "{a}.cumsum(0)", "{a}.amax(0)", "{a}.std(0)", "{a}.var(-1)",
    "torch.nn.functional.layer_norm({a}, {a}.shape[-1:])", "torch.nn.functional.pad({a}, ({k}, -1))", "torch.nn.functional.pad({a}, (0, {k}))",
    "torch.nn.functional.avg_pool1d({a}, {k})", "torch.nn.functional.interpolate({a}[None, None], scale_factor={k})",
    "torch.nn.functional.adaptive_avg_pool1d({a}, {k})", "torch.nn.functional.scaled_dot_product_attention({a}, {b}, {b})",
    "torch.nn.functional.max_pool1d({a}, {k}, 1, {k} // 2)",
    "{a}.chunk({k})[0]", "{a}.chunk({k})[-1]", "{a}.split({k})[0]", "{a}.tensor_split({k})[0]", "torch.cat({a}.split({b}.shape[0]))",
    "{a}.tril()", "{a}.diagonal()", "{a}.roll(1, 0)", "{a}.flip(0)", "{a}.gather(0, torch.zeros_like({a}, dtype=torch.int64))",
    "{a}.index_select(0, torch.arange({k}))", "{a}.topk({k}, 0).values", "{a}.sort(0).values", "{a}.argmax(0)", "{a}.unfold(0, {k}, 1)",
    "{a}.as_strided({a}.shape, {a}.stride())", "{a}.movedim(0, -1)", "{a}.contiguous()", "{a}.clone(memory_format=torch.contiguous_format)",
    "torch.arange({a}.shape[0]) * 1.0", "torch.zeros({a}.shape[0], {b}.shape[-1])", "torch.ones({a}.shape[-1] // {k})", "{a}.new_full(({k},), {a}.shape[0])",
    "torch.einsum('ij,kj->ik', {a}, {b})", "torch.outer({a}.flatten(), {b}.flatten())", "torch.bmm({a}[None], {b}[None])", "torch.nn.functional.linear({a}, {b})",
    "torch.broadcast_to({a}, {b}.shape)", "{a} if {a}.is_contiguous() else {a} * 2", "{a} * 2 if {a}.shape[0] == {b}.shape[0] else {a}",
    "{a} * {a}.stride(0)", "{a} + ({a}.shape[0] > {k})", "{a} - ({a}.numel() % {k})", "{a}.clone().add_({b})", "{a}.clone().copy_({b})",
    "{a}.index_put((torch.arange({k}),), {b})", "{a}.masked_fill({b} > 0, 1.0)", "torch.lerp({a}, {b}, 0.5)", "torch.addmm({a}, {b}, {b}.mT)",
    "torch.addcmul({a}, {b}, {a})", "{a}.nonzero()[:, 0] * 1.0", "{a}[{a} > 0]", "{a}.dot({b})", "{a}.mv({b})", "torch.cdist({a}, {b})",
    "torch.kron({a}, {b})", "torch.tensordot({a}, {b}, 1)", "{a}.slice_scatter({b}, 0, 0, {k})", "{a}.select_scatter({b}, 0, {k})",
    "torch.nn.functional.one_hot(torch.arange({a}.shape[0]), {k} * 4) * 1.0", "torch.meshgrid({a}.flatten(), {b}.flatten(), indexing='ij')[0]",
    "torch.vander({a}.flatten(), {k})", "torch.nn.functional.normalize({a}, dim=0)", "torch.nn.functional.conv1d({a}[None], {b}[None].mT[..., :1])",
    "torch.nn.functional.group_norm({a}[None], {k})", "torch.nn.functional.batch_norm({a}, None, None, training=True)", "{a}.norm()", "{a}.renorm(2, 0, 1.0)",
    "torch.nn.functional.embedding(torch.arange({a}.shape[0]) % {b}.shape[0], {b})", "{a}.permute(1, 0)", "{a}.swapaxes(0, 1)", "torch.atleast_3d({a})",
    "torch.hstack([{a}, {b}])", "torch.vstack([{a}, {b}])", "torch.block_diag({a}, {b})", "{a}.cummax(0).values", "torch.tril_indices({a}.shape[0], {k})[0] * 1.0",
    "{a}.scatter_add(0, torch.zeros_like({b}, dtype=torch.int64), {b})", "{a}.unbind(0)[0]", "{a}.take_along_dim({b}.argsort(0), 0)", "{a}.logsumexp(0)",
    "torch.bincount(torch.arange({a}.shape[0])) * 1.0", "torch.searchsorted({a}, {b}) * 1.0", "{a}.diff(dim=0)", "torch.trapezoid({a})", "{a}.prod(0)",
    "{a}.median(0).values",
)  # fmt: skip
SIZES = ((1, 1), (2, 2), (1, 4), (4, 1), (3, 3), (7, 2), (2, 7), (12, 5), (5, 12), (6, 6), (0, 3), (3, 0))
EXAMPLES = ((4, 4), (6, 3), (3, 6), (8, 1), (1, 8), (12, 5))
FORMS = (("n", "m"), ("n", 3), (3, "n"), ("n",), ("m",), (1, "n"), ("m", "n"), ("n", "n"), (3,), ("n", 1))


def tensor(form, sizes, seed):
    shape = [sizes["nm".index(one)] if isinstance(one, str) else one for one in form]
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Generated:
    """A program, as text, with arguments for every pair of sizes."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.example = rng.choice(EXAMPLES)
        self.forms = [rng.choice(FORMS) for _ in range(3)]
        self.empty = rng.random() < 0.3
        self.lines, self.names = [], ["x", "y", "z"]

    def grow(self, steps):
        """Steps that eager can do at the example's size."""
        scope = {"torch": torch, **dict(zip("xyz", self.at(self.example), strict=True))}
        for _ in range(steps * 8):
            if len(self.lines) == steps:
                break
            recent = self.names[-3:] if self.rng.random() < 0.7 else self.names
            text = self.rng.choice(STEPS).format(a=self.rng.choice(recent), b=self.rng.choice(self.names), k=self.rng.randint(1, 4))
            try:
                made = eval(text, scope)
            except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
                continue
            if not isinstance(made, torch.Tensor) or made.numel() > 5000:
                continue
            scope[f"v{len(self.lines)}"] = made
            self.append(text)
        return self

    def append(self, text):
        name = f"v{len(self.lines)}"
        self.names.append(name)
        self.lines.append(f"{name} = {text}")

    @property
    def text(self):
        made = self.names[3:]
        sizes = ", ".join(f"{name}.shape" for name in made[-2:])
        return "\n    ".join(["def program(x, y, z):", *self.lines, f"return ({', '.join([*made, sizes])},)"])

    def function(self):
        scope = {"torch": torch}
        exec(self.text, scope)
        return scope["program"]

    def at(self, sizes):
        return tuple(tensor(form, sizes, place) for place, form in enumerate(self.forms))

    def said(self):
        lo = 0 if self.empty else None
        dims = {"n": pliant.Dim("n", min=lo), "m": pliant.Dim("m", min=lo)}
        mine = ({d: dims[one] for d, one in enumerate(form) if isinstance(one, str)} for form in self.forms)
        return tuple(one or None for one in mine)

    def auto(self):
        return tuple({d: pliant.AUTO for d, one in enumerate(form) if isinstance(one, str)} or None for form in self.forms)


def exported(made):
    """As is said, else as far as the program can vary."""
    fn, args = made.function(), made.at(made.example)
    try:
        return pliant.export(fn, args, dynamic_shapes=made.said())
    except PliantError:
        return pliant.export(fn, args, dynamic_shapes=made.auto())


def differs(found, wanted):
    """Why a result is another one; nothing if it is not."""
    for place, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if not isinstance(b, torch.Tensor):
            if tuple(a) != tuple(b):
                return f"result {place} is {tuple(a)}, not {tuple(b)}"
        elif a.shape != b.shape or a.dtype != b.dtype:
            return f"result {place} is {a.dtype} of {tuple(a.shape)}, not {b.dtype} of {tuple(b.shape)}"
        elif not torch.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True):
            return f"result {place} has other values"
    return ""


def outcomes(made, compiled=False, saved=False):
    """What became of one program at every size: (sizes, "as eager", "an error", "eager's error" or why it is wrong)."""
    try:
        program = exported(made)
    except PliantError as error:
        yield None, f"not exported: {error.kind}"
        return
    if saved:
        try:
            program = _read_again(program)
        except ExportError as error:
            yield None, f"not saved: {error.kind}"
            return
    call, fn = program.compile() if compiled else program, made.function()
    for sizes in SIZES if made.empty else SIZES[:-2]:
        yield sizes, _outcome(call, fn, made, sizes)


def _read_again(program):
    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / "file")
        return pliant.load(Path(folder) / "file")


def _outcome(call, fn, made, sizes):
    try:
        wanted = fn(*made.at(sizes))
    except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
        wanted = None
    try:
        found = call(*made.at(sizes))
    except (PliantError, RuntimeError, IndexError, ZeroDivisionError) as error:
        sort = "refused" if isinstance(error, PliantError) else type(error).__name__
        return "eager's error" if wanted is None else f"an error, {sort}"
    if wanted is None:
        return "wrong: eager raises"
    return f"wrong: {why}" if (why := differs(found, wanted)) else "as eager"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--saved", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    total = Counter()
    for seed in range(options.seed, options.seed + options.count):
        try:
            made = Generated(seed).grow(options.steps)
            for sizes, outcome in outcomes(made, options.compiled, options.saved):
                total[outcome.partition(":")[0]] += 1
                if outcome.startswith("wrong"):
                    print(f"seed {seed} exported at {made.example}, called at {sizes}: {outcome}\n{made.text}\n{made.forms}", flush=True)
        except Exception as error:  # of the compiler, or a crash of the test itself
            total["crash"] += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(dict(total))
    sys.exit(bool(total["wrong"] or total["crash"]))


if __name__ == "__main__":
    main()
