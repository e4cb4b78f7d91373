"""Random programs of tensor operators, with gradients: compiled values must be as near to float64 as eager's.

    python -m tests.codegen.fuzz_kernels 0 2000
    python -m tests.codegen.fuzz_kernels 117 --shown
    python -m tests.codegen.fuzz_kernels 0 2000 --device cuda

`--device shim`: kernels are CUDA C, run by a shim on the CPU.

A statement whose result jumps (a comparison, a rounding) takes exact values only: inputs, and what moves or selects them.
Each program is called at two sets of sizes; all statements are valid at both.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import pliant

Tensors = tuple[torch.Tensor, ...]

# `X`, `Y`: any float values of one shape; `B`: one that broadcasts with X; `E`: an exact float value; `I`: a value of integers;
# `D`: a dimension of X (of E, of I, where there is no X); `D2`: another. A row that begins with = gives an exact value.
_ROWS = """
X.sin(); X.cos(); X.tanh(); X.sigmoid(); X.clamp(-4, 3).exp(); X.erf(); X.abs().log1p(); (X.abs() + .1).sqrt()
(X.abs() + .5).rsqrt(); (X.abs() + .5).reciprocal(); X.atan(); X.clamp(-3, 3).expm1(); X.square(); X ** 3
(X.abs() + .1) ** .7; -X * .5; X.neg() + 1; (X.abs() + .2).log(); X.clamp(-2, 2).sinh(); X.tanh().asin(); X.logit(.05)
(X * .1).exp2(); X.sinc(); torch.special.expit(X); F.gelu(X); F.gelu(X, approximate='tanh'); F.silu(X); F.mish(X)
F.softplus(X); F.elu(X); F.selu(X); F.leaky_relu(X, .1); F.logsigmoid(X); F.hardswish(X); F.celu(X); F.softsign(X)
F.tanhshrink(X); F.glu(torch.cat([X, Y], D), D); X + Y; X - Y; X * Y; X / (Y.abs() + 1); torch.atan2(X, Y.abs() + 1)
torch.hypot(X, Y.abs() + .1); torch.lerp(X, Y, .3); torch.logaddexp(X, Y); torch.addcmul(X, X, Y, value=.5)
torch.addcdiv(X, X, Y.abs() + 1); torch.xlogy(X, Y.abs() + .5); X.copysign(E.sum()); X + B; X * B; B - X
torch.where(B.isfinite(), X, B); X * B.sigmoid(); torch.where(E > .2, E, -E) * X.mean()
torch.where(E > 0, E.exp().clamp(max=5), E.sin()); E.remainder(.7) + X.sum() * 0; E.fmod(.7); E.round()
E.floor() * .5; E.frac(); E.trunc() + E; E.sign() * E.abs(); (E > 0).to(E.dtype) - .5
E.detach().heaviside(E.detach().abs()); E.clamp(-.5, .5); F.hardtanh(E); X.masked_fill(X.isnan(), .5)
F.dropout(X, .5, False); E.masked_fill(E > .5, 0.); torch.where(E < 0, 0., E); X.sum(D); X.sum(D, keepdim=True)
X.mean(D, keepdim=True) * X; X.mean((D, D2)); X.sum() + B; X.var(D, keepdim=True) + X; X.std(D, correction=0)
X.logsumexp(D); X.norm(dim=D); X.abs().sum(D); X.norm(1, D, keepdim=True); X.clamp(.9, 1.1).prod(D)
X.square().sum((D, D2), keepdim=True) + X; X - X.amax(D, keepdim=True); X - X.mean((D, D2), keepdim=True)
X + X.sum(D, keepdim=True).tanh(); X.var((D, D2)); torch.linalg.vector_norm(X, dim=D); E.amax(D)
E.amin(D, keepdim=True); E.aminmax(dim=D)[1]; E.max(D).values; E.argmax(D, keepdim=True) + X.mean()
(E > 0).any(D).to(E.dtype); (E > 0).sum(D, keepdim=True) * X.sum(); (E > -1).all(D, keepdim=True) + X.mean()
E.nansum(D); E.count_nonzero(D) + X.sum(); X.softmax(D); X.log_softmax(D); F.softmin(X, D); F.normalize(X, dim=D)
F.layer_norm(X, X.shape[-1:]); F.rms_norm(X, X.shape[-1:]); F.normalize(X, p=1, dim=D); F.layer_norm(X, X.shape[-2:])
F.cosine_similarity(X, Y, D); F.mse_loss(X, Y) + B; F.smooth_l1_loss(X, Y) + B; F.l1_loss(X, Y, reduction='none')
F.binary_cross_entropy_with_logits(X, Y.sigmoid()) + X
F.kl_div(X.log_softmax(-1), Y.softmax(-1), reduction='sum') * .1 + B; F.huber_loss(X, Y) * X; = E.transpose(D, D2)
= E.flip(D); = E.roll(2, D); = E.narrow(D, 0, E.shape[D] // 2 + 1); = E[..., ::2]; = E[..., 1:] + 0; = E.unsqueeze(D)
= torch.cat([E, E.flip(D)], D); = torch.stack([E, -E], D); = F.pad(E, (1, 2)); = F.pad(E, (1, 0, 2, 1), value=.5)
= E.relu(); = E.abs(); = -E; = E.contiguous(); = E.tril(); = E.triu(1); = E.diagonal(0, D, D2); = E.movedim(D, D2)
= E.flatten(-2); = E.select(D, 0); = E.select(D, -1).clone(); = E.expand(2, *E.shape); = E.repeat_interleave(2, D)
= E.tile((2,)); = E.unflatten(D, (1, -1)); = E.chunk(2, D)[0]; = E.clone(); = E.detach(); = E.minimum(E.flip(D))
= E.maximum(-E); = E * 2; = E.rot90(1, (D, D2)); = F.pad(E, (-1, 1)); = E.cummax(D).values; = E.sort(D).values
torch.cat([X, X * 2], D); torch.cat([X.sin(), X[..., :1], X - 1], -1); X.transpose(D, D2).contiguous(); X.flip(D) + X
X.roll(1, D) * X; X.unfold(-1, 2, 1); torch.stack([X, Y], -1).sum(D); F.pad(X, (1, 1), value=.5)
F.pad(X, (1, 1), mode='circular') if X.dim() == 3 else X; F.pad(X, (1, 1), mode='replicate') if X.dim() == 3 else X
X.cumsum(D); X.cumsum(D).tanh(); X.clamp(.9, 1.1).cumprod(D); X.logcumsumexp(D); X.diff(dim=D)
X.flip(D).cumsum(D).flip(D); X.gather(D, E.argsort(D)) if X.shape == E.shape else X
torch.take_along_dim(X, X.new_zeros(X.shape).long(), D); X.index_select(D, torch.arange(X.shape[D]).flip(0))
torch.zeros_like(X).scatter_add(D, torch.zeros_like(X).long(), X); X[:, torch.arange(X.shape[1]) // 2]
X.index_add(0, torch.arange(X.shape[0]), Y)
torch.zeros(7, X.shape[-1]).to(X).index_put((torch.arange(X.numel() // X.shape[-1]) % 7,), X.reshape(-1, X.shape[-1]), accumulate=True)
F.embedding(torch.arange(5) % X.shape[0], X.flatten(1)) if X.dim() > 1 else X
X.scatter(D, torch.zeros_like(X).long().narrow(D, 0, 1), 1.5); X.bfloat16().to(X.dtype); X.half().to(X.dtype) * Y
X.double().sum(D).to(X.dtype); (X.bfloat16() * 2).to(X.dtype) + Y; (I // 3) * X.mean(); (I % 5) + X.sum() * .01
(I & 6) * X.mean(); (I.to(X.dtype) * .1).sum() + X; I.sum(-1) * X.mean(); (I ** 2).to(X.dtype) * .1
(I << 1 ^ 5) * X.sum(); I.cumsum(-1) * X.mean(); (I > 2).to(X.dtype) + X.mean(); F.one_hot(I % 5, 5) * X.mean()
I.float().to(X.dtype).softmax(-1); (I.clamp(0, 5) - 2) * X.std(); I.bitwise_not() * X.mean()
(I / 3).to(X.dtype) + X.sum(); I.amax(-1) + X.mean(); torch.where(I > 0, I, -I).to(X.dtype) * X.mean()
X @ X.transpose(-1, -2) * .1; (X.transpose(-1, -2) @ X).tanh(); F.linear(X, torch.ones(3, X.shape[-1]).to(X)) * .1
torch.einsum('...i,...i->...', X, Y); F.avg_pool2d(X, 2, 1) if X.dim() > 2 else X
F.max_pool2d(E, 2, 1) if E.dim() > 2 else E; F.avg_pool1d(X, 3, 2, 1) if X.dim() == 3 else X
F.interpolate(X[None], scale_factor=2) if X.dim() == 3 else X
F.interpolate(X, scale_factor=2, mode='linear') if X.dim() == 3 else X
F.interpolate(X[None], scale_factor=2, mode='bilinear') if X.dim() == 3 else X
F.pixel_shuffle(X.expand(4, *X.shape[-2:]), 2) if X.dim() == 2 else X
F.conv1d(X, torch.linspace(-1, 1, X.shape[1] * 3, dtype=X.dtype).reshape(X.shape[1], 1, 3), padding=1, groups=X.shape[1]) if X.dim() == 3 else X
torch.linspace(-1, 1, X.shape[-1], dtype=X.dtype) * X; torch.arange(X.shape[D]).sum() * X; X / X.shape[D]
torch.full_like(X, .5) + X; X.new_ones(X.shape) - X; torch.where(E > 0, torch.where(E < .5, E.exp(), -E), E * 2)
X.slice_scatter(Y.narrow(D, 0, 1), D, 0, 1); X.select_scatter(Y.select(D, 0), D, -1); X.flip(D).slice_scatter(X[..., 1:], -1, 1)
torch.cat([X, torch.cat([Y, X.sin()], D)], D).softmax(D); torch.where(B.isfinite(), torch.where(B > 0, X, X * 2), X + 1).softmax(D)
X.tril().softmax(-1); F.pad(F.pad(X, (1, 0)), (0, 2), value=.5); X.index_fill(D, torch.arange(X.shape[D] // 2), .5)
"""
ROWS = tuple(row.strip() for line in _ROWS.strip().splitlines() for row in line.split("; "))
_ROUNDS = re.compile(r"bfloat16|half")
_LARGEST = 20_000
_CLOSE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@dataclass(frozen=True)
class Program:
    """The text of `f(a, b, c, i)`; how many results it has; the inputs at both sets of sizes; whether each size may vary, and
    gradients are asked."""

    text: str
    results: int
    inputs: tuple[Tensors, Tensors]
    dynamic: bool | None
    training: bool

    def function(self) -> Any:
        names = {"torch": torch, "F": torch.nn.functional}
        exec(self.text, names)
        return names["f"]


def _laid_out(value: torch.Tensor, way: str) -> torch.Tensor:
    """The tensor in memory of another order, or with gaps."""
    if way == "transposed":
        return value.transpose(-1, -2).contiguous().transpose(-1, -2)
    return torch.stack([value, value], -1)[..., 1] if way == "gaps" else value


class _Made:
    """A program that grows: each statement is run at both sets of sizes, and dropped if either refuses it."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._dtype = self._chance.choice(
            (torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
        )
        ways = self._chance.choices(("", "", "", "transposed", "gaps"), k=4)
        self._dims = self._chance.choice((2, 2, 3, 3, 4))
        self.inputs = self._inputs(ways), self._inputs(ways)
        self._values = [dict(zip("abci", inputs, strict=True)) for inputs in self.inputs]
        self._exact = {"a", "b", "c"}
        self.lines: list[str] = []
        for _ in range(self._chance.randint(2, 14)):
            self._add()

    def _inputs(self, ways: list[str]) -> Tensors:
        """Two of one shape, one that broadcasts with them, integers."""
        pick = self._chance.choice
        shape = [pick((1, 2, 3, 4, 5)) for _ in range(self._dims - 2)] + [
            pick((1, 4, 5, 8, 17, 33)),
            pick((6, 8, 16, 17, 40, 65)),
        ]
        made = torch.Generator().manual_seed(self._chance.randrange(1 << 30))
        wide = [size if self._chance.random() < 0.6 else 1 for size in shape]
        floats = [torch.randn(s, generator=made).to(self._dtype) for s in (shape, shape, wide)]
        integers = torch.randint(-3, 9, shape, generator=made)
        return tuple(map(_laid_out, (*floats, integers), ways))

    def _add(self) -> None:
        row = self._chance.choice(ROWS)
        exact, row = row.startswith("= "), row.removeprefix("= ")
        text = self._filled(row)
        name = f"v{len(self.lines)}"
        try:
            made = [eval(text, {"torch": torch, "F": torch.nn.functional}, values) for values in self._values]
        except (RuntimeError, IndexError, ValueError, KeyError, TypeError):
            return
        if not all(0 < one.numel() < _LARGEST and one.dim() and one.isfinite().all() for one in made):
            return
        if made[0].dtype != self._dtype or max(one.abs().max() for one in made) > 1e4:
            return
        for values, one in zip(self._values, made, strict=True):
            values[name] = one
        if exact:
            self._exact.add(name)
        self.lines.append(f"{name} = {text}")

    def _filled(self, row: str) -> str:
        values, pick = self._values[0], self._chance.choice
        floats = [name for name, value in values.items() if value.is_floating_point()]
        x = pick([*floats, *floats[-2:], *floats[-2:]])  # the last are taken more often
        alike = [name for name in floats if all(v[name].shape == v[x].shape for v in self._values)]
        exact = pick(sorted(self._exact))
        shape = values[exact if "E" in row and "X" not in row else x].shape
        dims = self._chance.sample(range(len(shape)), min(2, len(shape))) or [0]
        signed = [d - len(shape) if self._chance.random() < 0.3 else d for d in (dims * 2)[:2]]
        put = {"X": x, "Y": pick(alike), "B": pick(floats), "E": exact, "I": "i", "D": signed[0], "D2": signed[1]}
        return re.sub(r"\b(X|Y|B|E|I|D2?)\b", lambda found: str(put[found[0]]), row)


def program(seed: int) -> Program:
    chance, made = random.Random(f"of {seed}"), _Made(seed)
    names = [line.split(" = ")[0] for line in made.lines]
    kept = sorted({*chance.sample(names, min(len(names), 2)), *names[-1:]}) or ["a + b"]
    text = "\n    ".join(["def f(a, b, c, i):", *made.lines, f"return {', '.join(kept)},"])
    return Program(text, len(kept), made.inputs, chance.choice((None, True, False)), chance.random() < 0.6)


def _exactly(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def _outcome(call: Any, inputs: Tensors, training: bool) -> list[torch.Tensor]:
    """Results, and gradients of the float inputs."""
    leaves = [one.detach().clone().requires_grad_(training and one.is_floating_point()) for one in inputs]
    results = call(*leaves)
    found = [one.detach() for one in results]
    differentiable = [one for one in results if one.requires_grad]
    if differentiable:
        weights = [torch.linspace(-1, 1, one.numel()).to(one).reshape(one.shape) for one in differentiable]
        wanted = [one for one in leaves if one.requires_grad]
        grads = torch.autograd.grad(differentiable, wanted, weights, allow_unused=True)
        found += [torch.zeros(()) if one is None else one for one in grads]
    return found


def disagreement(seed: int, device: str = "cpu") -> str:
    """How the compiled program differs; "" if it is as good as eager."""
    made = program(seed)
    pliant.reset()
    compiled = pliant.compile(made.function(), dynamic=made.dynamic)
    for inputs in made.inputs:
        given = tuple(one.to(device) for one in inputs)
        try:
            exact = _outcome(made.function(), tuple(map(_exactly, inputs)), made.training)
            with _made_on(device):
                expected = _outcome(made.function(), given, made.training)
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
            return ""  # this version of PyTorch has no such derivative
        with _made_on(device):
            found = _outcome(compiled, given, made.training)
        results = made.results
        for number, (ours, eager, reference) in enumerate(zip(found, expected, exact, strict=True)):
            difference = _difference(ours, eager, reference, bool(_ROUNDS.search(made.text)), number < results)
            if difference:
                return f"value {number} of {len(found)}: {difference}"
    fallbacks = pliant.stats()["fallbacks"] + pliant.stats()["assumptions"]  # no program here raises
    return f"fallbacks: {fallbacks}" if fallbacks else ""


def _made_on(device: str) -> contextlib.AbstractContextManager[Any]:
    """Where tensors are made that name no device."""
    return contextlib.nullcontext() if device == "cpu" else torch.device(device)


def _strides(value: torch.Tensor) -> list[int]:
    """Those that say where elements lie."""
    return [stride for stride, size in zip(value.stride(), value.shape, strict=True) if size > 1]


def _difference(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, rounds: bool, with_layout: bool) -> str:
    form, expected = [(one.dtype, one.shape, _strides(one) if with_layout else None) for one in (ours, eager)]
    if form != expected:
        return f"{form} for {expected}"
    ours, eager, exact = ours.cpu(), eager.cpu(), exact.double()
    if not torch.equal(ours.isnan(), eager.isnan()):
        return "NaN at other places"
    off, allowed = [float((one.double() - exact).nan_to_num(0, 0, 0).abs().max()) for one in (ours, eager)]
    scale = 1 + float(exact.nan_to_num(0, 0, 0).abs().max())
    limit = 8 * allowed + scale * (3e-2 if rounds else _CLOSE[eager.dtype])
    return f"off by {off:.3g} of {scale:.3g}, eager by {allowed:.3g}" if off > limit else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?")
    parser.add_argument("--shown", action="store_true", help="print the programs")
    parser.add_argument("--device", choices=("cpu", "cuda", "shim"), default="cpu")
    arguments = parser.parse_args()
    with _kernels_on_shim() if arguments.device == "shim" else contextlib.nullcontext():
        _run(arguments)


def _kernels_on_shim() -> contextlib.AbstractContextManager[None]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from codegen.cuda.shim_backend import kernels_on_shim

    return kernels_on_shim()


def _run(arguments: argparse.Namespace) -> None:
    device = "cuda" if arguments.device == "cuda" else "cpu"
    end = arguments.end or arguments.first + 1
    warnings.simplefilter("ignore")
    wrong = 0
    for seed in range(arguments.first, end):
        try:
            said = disagreement(seed, device)
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:300]}"
        wrong += bool(said)
        if said or arguments.shown:
            made = program(seed)
            print(f"{seed} (dynamic={made.dynamic}, training={made.training}): {said}\n{made.text}\n", flush=True)
    print(f"{wrong} of {end - arguments.first} disagree")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
