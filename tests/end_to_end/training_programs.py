"""Training programs of many kinds, each compared with eager: `python -m tests.end_to_end.training_programs [--only TEXT]`.

In:     `PROGRAMS`: name -> builder. A builder is given what wraps its models and returns `(modules, step)`; `step(size)`
        trains once on data of that size and returns the losses.
Out:    `compare(name, how)`: what differs from eager after each of five steps of changing sizes ("" if nothing): losses,
        every parameter, its gradient, every buffer. `how`: "model" compiles the models, "step" the whole step.
Holds:  numbers are doubles: Adam makes steps of full size out of the rounding errors of gradients that are zero.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

import pliant
from pliant.debug import events

F = nn.functional
Wrap = Callable[[Any], Any]
Step = Callable[[int], Any]
Builder = Callable[[Wrap], tuple[list[nn.Module], Step]]
SIZES = (6, 4, 9, 5, 8)
PROGRAMS: dict[str, Builder] = {}


def program(builder: Builder) -> Builder:
    PROGRAMS[builder.__name__] = builder
    return builder


def adam(*modules: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for m in modules for p in m.parameters() if p.requires_grad], lr=0.01, **options)


def supervised(
    wrap: Wrap, model: nn.Module, data: Callable[[int], tuple[Any, ...]], loss: Callable[..., Tensor]
) -> Any:
    run, optimizer = wrap(model), adam(model)

    def step(size: int) -> Tensor:
        *inputs, target = data(size)
        optimizer.zero_grad()
        found = loss(run(*inputs), target)
        found.backward()
        optimizer.step()
        return found.detach()

    return [model], step


# ---- images


class DoubleConv(nn.Sequential):
    def __init__(self, before: int, after: int) -> None:
        layers: list[nn.Module] = []
        for width in (before, after):
            layers += [nn.Conv2d(width, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    def __init__(self, channels: int = 3, width: int = 8, out: int = 2) -> None:
        super().__init__()
        self.down = nn.ModuleList([DoubleConv(channels, width), DoubleConv(width, 2 * width)])
        self.middle = DoubleConv(2 * width, 4 * width)
        self.rise = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)]
        )
        self.up = nn.ModuleList([DoubleConv(4 * width, 2 * width), DoubleConv(2 * width, width)])
        self.head = nn.Conv2d(width, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for rise, block in zip(self.rise, self.up):
            x = block(torch.cat([rise(x), skips.pop()], 1))
        return self.head(x)


@program
def unet(wrap: Wrap) -> Any:
    def data(size: int) -> tuple[Tensor, Tensor]:
        side = 8 * (1 + size % 3)
        return torch.randn(2, 3, side, side), torch.randint(0, 2, (2, side, side))

    return supervised(wrap, UNet(), data, F.cross_entropy)


@program
def batch_norm_net(wrap: Wrap) -> Any:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout2d(0.2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, 5),
    )  # fmt: skip
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    return supervised(wrap, model, lambda n: (torch.randn(n, 3, 16, 16), torch.randint(0, 5, (n,))), loss)


@program
def gan(wrap: Wrap) -> Any:
    generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh())
    critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(16, 1))
    make, judge = wrap(generator), wrap(critic)
    of_generator, of_critic = adam(generator, betas=(0.5, 0.99)), adam(critic)

    def step(size: int) -> Any:
        real, noise = torch.randn(size, 8), torch.randn(size, 4)
        ones, zeros = torch.ones(size, 1), torch.zeros(size, 1)
        of_critic.zero_grad()
        fake = make(noise)
        first = F.binary_cross_entropy_with_logits(judge(real), ones)
        first = first + F.binary_cross_entropy_with_logits(judge(fake.detach()), zeros)
        first.backward()
        of_critic.step()
        of_generator.zero_grad()
        second = F.binary_cross_entropy_with_logits(judge(fake), ones)
        second.backward()
        of_generator.step()
        return first.detach(), second.detach()

    return [generator, critic], step


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 16), nn.ELU())
        self.mean, self.spread = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 12))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.spread(h)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(z), mean, log_variance


@program
def vae(wrap: Wrap) -> Any:
    def loss(found: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
        made, mean, log_variance = found
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(made, target) + 0.1 * divergence

    return supervised(wrap, VAE(), lambda n: ((x := torch.rand(n, 12)), x), loss)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.enter, self.leave = nn.Conv1d(2, 16, 3, padding=1), nn.Conv1d(16, 2, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        rates = torch.exp(-math.log(100.0) * torch.arange(4).double() / 4)
        angles = t[:, None] * rates
        bias = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        return self.leave(F.silu(self.norm(self.enter(x)) + bias[:, :, None]))


@program
def diffusion(wrap: Wrap) -> Any:
    model = Denoiser()
    run, optimizer = wrap(model), torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.1, 50), 0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=20)

    def step(size: int) -> Tensor:
        x, t = torch.randn(size, 2, 12), torch.randint(0, 50, (size,))
        noise = torch.randn_like(x)
        share = kept[t].view(-1, 1, 1)
        loss = F.mse_loss(run(share.sqrt() * x + (1 - share).sqrt() * noise, t), noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    return [model], step


# ---- sequences


class Translator(nn.Module):
    """A recurrent encoder and decoder with attention; the decoder sometimes reads the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.encoder = nn.GRU(8, 8, batch_first=True, bidirectional=True)
        self.cell, self.ask, self.out = nn.GRUCell(8 + 16, 16), nn.Linear(16, 16), nn.Linear(32, 20)

    def forward(self, source: Tensor, target: Tensor, truth: list[bool]) -> Tensor:
        memory, _ = self.encoder(self.words(source))
        state, word, logits = memory.mean(1), target[:, 0], []
        for i, forced in enumerate(truth):
            weights = torch.softmax((memory @ self.ask(state).unsqueeze(2)).squeeze(2), 1)
            context = (weights.unsqueeze(1) @ memory).squeeze(1)
            state = self.cell(torch.cat([self.words(word), context], 1), state)
            logits.append(self.out(torch.cat([state, context], 1)))
            word = target[:, i] if forced else logits[-1].argmax(1)
        return torch.stack(logits, 1)


@program
def seq2seq(wrap: Wrap) -> Any:
    model = Translator()
    run, optimizer = wrap(model), adam(model)

    def step(size: int) -> Tensor:
        source, target = torch.randint(0, 20, (3, size)), torch.randint(0, 20, (3, 4))
        logits = run(source, target, [True, False, True, False])
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [model], step


class TiedModel(nn.Module):
    """A small language model whose output layer is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30, 16), nn.Embedding(32, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        count = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(count)
        x = self.words(ids) + self.places(torch.arange(count))
        return self.head(self.body(x, mask=mask, is_causal=True))


@program
def weight_tying(wrap: Wrap) -> Any:
    def loss(logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits.transpose(1, 2), target)

    return supervised(wrap, TiedModel(), lambda n: (torch.randint(0, 30, (3, n)), torch.randint(0, 30, (3, n))), loss)


class LowRank(nn.Module):
    """A frozen layer and a trained correction."""

    def __init__(self, layer: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + F.linear(F.linear(F.dropout(x, 0.1, self.training), self.a), self.b) * 0.5


@program
def lora(wrap: Wrap) -> Any:
    model = nn.Sequential(LowRank(nn.Linear(8, 16)), nn.LayerNorm(16), nn.GELU(), LowRank(nn.Linear(16, 3)))
    model[1].requires_grad_(False)
    return supervised(wrap, model, lambda n: (torch.randn(n, 8), torch.randint(0, 3, (n,))), F.cross_entropy)


@program
def ctc(wrap: Wrap) -> Any:
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5), nn.LogSoftmax(-1))

    def loss(rows: Tensor, target: Tensor) -> Tensor:
        count = rows.shape[1]
        return F.ctc_loss(rows, target, torch.full((count,), rows.shape[0]), torch.full((count,), target.shape[1]))

    return supervised(wrap, model, lambda n: (torch.randn(n + 4, 3, 6), torch.randint(1, 5, (3, 3))), loss)


# ---- representations


@program
def contrastive(wrap: Wrap) -> Any:
    """Two views, one temperature; the other rows are the negatives."""
    model = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    model.register_parameter("temperature", nn.Parameter(torch.tensor(2.0)))
    run, optimizer = wrap(model), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)

    def step(size: int) -> Tensor:
        x = torch.randn(size, 10)
        views = [F.normalize(run(x + 0.1 * torch.randn_like(x)), dim=-1) for _ in range(2)]
        scores = views[0] @ views[1].T * model.temperature.exp()
        labels = torch.arange(size)
        loss = (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [model], step


@program
def triplet(wrap: Wrap) -> Any:
    model = nn.Sequential(nn.Linear(6, 12), nn.PReLU(), nn.Linear(12, 4))

    def loss(found: Tensor, target: Tensor) -> Tensor:
        a, b, c = found.chunk(3)
        return F.triplet_margin_loss(a, b, c, margin=0.5) + F.cosine_embedding_loss(a, b, target)

    return supervised(wrap, model, lambda n: (torch.randn(3 * n, 6), torch.ones(n)), loss)


@program
def teacher_and_average(wrap: Wrap) -> Any:
    """A frozen teacher under no_grad, and a slow average of the student, buffers too."""
    student = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.GELU(), nn.Linear(12, 4))
    teacher = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4)).eval().requires_grad_(False)
    average = copy.deepcopy(student).requires_grad_(False)
    run, ask, slow, optimizer = wrap(student), wrap(teacher), wrap(average), adam(student)

    def step(size: int) -> Tensor:
        x, y = torch.randn(size, 6), torch.randint(0, 4, (size,))
        with torch.no_grad():
            wanted, mean = ask(x) / 2, slow(x)
        logits = run(x)
        loss = F.cross_entropy(logits, y) + F.mse_loss(logits, mean)
        loss = loss + F.kl_div((logits / 2).log_softmax(1), wanted.softmax(1), reduction="batchmean") * 4
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average.parameters(), student.parameters()):
                old.mul_(0.9).add_(new, alpha=0.1)
            for old, new in zip(average.buffers(), student.buffers()):
                old.copy_(new)
        return loss.detach()

    return [student, teacher, average], step


@program
def detached_branches(wrap: Wrap) -> Any:
    """A quantizer with straight-through gradients, a codebook loss and a commitment loss."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
    book, decoder = nn.Embedding(5, 8), nn.Linear(8, 6)
    run, back, optimizer = wrap(model), wrap(decoder), adam(model, book, decoder)

    def step(size: int) -> Tensor:
        x = torch.randn(size, 6)
        z = run(x)
        code = book(torch.cdist(z, book.weight).argmin(1))
        passed = z + (code - z).detach()
        loss = F.mse_loss(back(passed), x) + F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [model, book, decoder], step


# ---- graphs, decisions, schemes of training


class GraphLayer(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.own, self.message, self.gate = nn.Linear(before, after), nn.Linear(before, after), nn.Linear(2 * after, 1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        sent, own = self.message(x), self.own(x)
        score = F.leaky_relu(self.gate(torch.cat([sent[source], own[target]], 1)).squeeze(1), 0.2)
        top = torch.full((x.shape[0],), -1e9).scatter_reduce(0, target, score, "amax")
        weight = (score - top[target]).exp()
        total = torch.zeros(x.shape[0]).index_add(0, target, weight)
        share = weight / total[target].clamp(min=1e-6)
        return F.relu(
            own
            + torch.zeros_like(own).scatter_add(
                0, target[:, None].expand(-1, own.shape[1]), sent[source] * share[:, None]
            )
        )


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([GraphLayer(5, 8), GraphLayer(8, 8)])
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edges)
        return self.head(x)


@program
def graph_network(wrap: Wrap) -> Any:
    def data(n: int) -> tuple[Tensor, Tensor, Tensor]:
        return torch.randn(n, 5), torch.randint(0, n, (2, 3 * n)), torch.randint(0, 3, (n,))

    return supervised(wrap, GraphNet(), data, F.cross_entropy)


@program
def policy_gradient(wrap: Wrap) -> Any:
    """Actor and critic with sampled actions, an entropy bonus and clipped ratios."""
    body, actor, critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh()), nn.Linear(16, 3), nn.Linear(16, 1)
    run, optimizer = wrap(nn.ModuleList([body, actor, critic])[0]), adam(body, actor, critic)

    def step(size: int) -> Tensor:
        state, reward = torch.randn(size, 4), torch.randn(size)
        with torch.no_grad():
            before = torch.distributions.Categorical(logits=actor(run(state)))
            action = before.sample()
            old = before.log_prob(action)
        h = run(state)
        policy, value = torch.distributions.Categorical(logits=actor(h)), critic(h).squeeze(1)
        advantage = (reward - value).detach()
        ratio = (policy.log_prob(action) - old).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        loss = -gain.mean() + F.smooth_l1_loss(value, reward) - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_([*body.parameters(), *actor.parameters()], 0.1)
        optimizer.step()
        return loss.detach()

    return [body, actor, critic], step


@program
def q_learning(wrap: Wrap) -> Any:
    online = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    target = copy.deepcopy(online)
    run, goal, optimizer = wrap(online), wrap(target), torch.optim.RMSprop(online.parameters(), lr=0.01, centered=True)

    def step(size: int) -> Tensor:
        now, then, reward = torch.randn(size, 4), torch.randn(size, 4), torch.randn(size)
        action, done = torch.randint(0, 3, (size, 1)), torch.rand(size) < 0.3
        with torch.no_grad():
            best = goal(then).gather(1, run(then).argmax(1, keepdim=True)).squeeze(1)
            wanted = torch.where(done, reward, reward + 0.9 * best)
        loss = F.huber_loss(run(now).gather(1, action).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        target.load_state_dict(online.state_dict())
        return loss.detach()

    return [online, target], step


@program
def accumulation(wrap: Wrap) -> Any:
    """Three small batches a step, an auxiliary head, groups with rates of their own."""
    model, extra = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4)), nn.Linear(4, 1)
    groups = [{"params": model.parameters()}, {"params": extra.parameters(), "lr": 0.1, "weight_decay": 0.01}]
    run, optimizer = wrap(model), torch.optim.AdamW(groups, lr=0.01)

    def step(size: int) -> Any:
        losses = []
        for part in range(3):
            x = torch.randn(size + part, 6)
            h = run(x)
            loss = (h.softmax(1)[:, 0] - extra(h).squeeze(1)).pow(2).mean() / 3
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        return losses

    return [model, extra], step


@program
def mixture_of_experts(wrap: Wrap) -> Any:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(6, 3)
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)) for _ in range(3))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            shares = self.router(x).softmax(-1)
            top, chosen = shares.topk(2, -1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                row, slot = torch.where(chosen == number)
                out = out.index_add(0, row, expert(x[row]) * top[row, slot].unsqueeze(1))
            return out, (shares.mean(0) ** 2).sum()

    def loss(found: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        return F.mse_loss(found[0], target) + 0.1 * found[1]

    return supervised(wrap, Mixture(), lambda n: ((x := torch.randn(n, 6)), x.flip(1)), loss)


@program
def reused_and_normed(wrap: Wrap) -> Any:
    """A layer called several times, weight norm, spectral norm, embedding bags, a hook on the gradient."""
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4))
    bag = nn.EmbeddingBag(12, 8, mode="mean")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.normed, self.spectral = bag, normed, spectral

        def forward(self, ids: Tensor) -> Tensor:
            x = self.bag(ids)
            for _ in range(3):
                x = x + torch.tanh(self.normed(x))
            return self.spectral(x)

    bag.weight.register_hook(lambda g: g * 0.5)
    return supervised(
        wrap, Model(), lambda n: (torch.randint(0, 12, (n, 3)), torch.randint(0, 4, (n,))), F.multi_margin_loss
    )


# ---- comparison


def _state(modules: Iterable[nn.Module]) -> dict[str, Tensor]:
    found = {}
    for number, module in enumerate(modules):
        for name, p in module.named_parameters():
            found[f"{number}.{name}"] = p.detach().clone()
            if p.grad is not None:
                found[f"{number}.{name}.grad"] = p.grad.clone()
        found |= {f"{number}.{name}": b.clone() for name, b in module.named_buffers()}
    return found


def run(name: str, wrap: Wrap, wrap_step: Wrap) -> list[Any]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return _run(name, wrap, wrap_step)
    finally:
        torch.set_default_dtype(before)


def _run(name: str, wrap: Wrap, wrap_step: Wrap) -> list[Any]:
    torch.manual_seed(0)
    modules, step = PROGRAMS[name](wrap)
    step = wrap_step(step)
    seen = []
    for number, size in enumerate(SIZES):
        torch.manual_seed(100 + number)
        seen.append((step(size), _state(modules)))
    return seen


def compare(name: str, how: str) -> str:
    pliant.reset()
    same: Wrap = lambda fn: fn  # noqa: E731
    theirs = run(name, same, same)
    mine = run(name, pliant.compile, same) if how == "model" else run(name, same, pliant.compile)
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        if one[1].keys() != other[1].keys():
            return f"step {number}: {sorted(one[1].keys() ^ other[1].keys())} on one side only"
        try:
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
        except AssertionError as error:
            return f"step {number}: {' '.join(str(error).split())[:300]}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="")
    bad = 0
    only = parser.parse_args().only
    for name in PROGRAMS:
        for how in ("model", "step"):
            if only in f"{name}/{how}":
                with events.collect("fallback", "graph_break", "recompile") as seen:
                    try:
                        found = compare(name, how)
                    except Exception as error:
                        found = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                bad += bool(found)
                counts = {kind: sum(e.kind == kind for e in seen) for kind in ("fallback", "graph_break", "recompile")}
                why = {str(e.fields.get("why"))[:150] for e in seen if e.kind == "fallback"}
                print(name, how, found or "equal", counts, why or "", flush=True)
    raise SystemExit(f"{bad} differ" if bad else 0)


if __name__ == "__main__":
    main()
