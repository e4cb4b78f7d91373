"""Small training programs around one feature of autograd each: values, gradients, calls and draws are eager's."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations
from torch.optim import SGD, Adam, AdamW, lr_scheduler
from torch.utils import checkpoint

import pliant

F = nn.functional
PROGRAMS = {}


def program(build):
    """`build(wrap)` runs the program, what is to be compiled wrapped, and returns what to compare."""
    PROGRAMS[build.__name__] = build
    return build


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))


def state(module):
    return [(p.detach(), p.grad) for p in module.parameters()], list(module.buffers())


def trained(wrap, module, *shape):
    """Three steps of the module, compiled."""
    compiled, optimizer, losses = wrap(module), SGD(module.parameters(), lr=0.1), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (compiled(torch.randn(shape)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(module)


def stepped(wrap, module, optimizer):
    """A whole step, compiled."""

    @wrap
    def step(x):
        optimizer.zero_grad()
        loss = module(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# ---- checkpoints


class Checkpointed(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.inner, self.outer, self.run = nn.Sequential(net(), nn.Dropout(0.3)), nn.Linear(3, 3), run

    def forward(self, x):
        return self.outer(self.run(self.inner, x))


def all_of_it(inner, x):
    with checkpoint.set_checkpoint_early_stop(False):
        return checkpoint.checkpoint(inner, x, use_reentrant=False)


def products_are_saved(context, operator, *args, **kwargs):
    kept = operator is torch.ops.aten.addmm.default
    return checkpoint.CheckpointPolicy.MUST_SAVE if kept else checkpoint.CheckpointPolicy.PREFER_RECOMPUTE


def selective(inner, x):
    contexts = functools.partial(checkpoint.create_selective_checkpoint_contexts, products_are_saved)
    return checkpoint.checkpoint(inner, x, use_reentrant=False, context_fn=contexts)


def in_parts(inner, x):
    return checkpoint.checkpoint_sequential(inner, 2, x, use_reentrant=False)


for run in (all_of_it, selective, in_parts):
    PROGRAMS[f"checkpoint_{run.__name__}"] = lambda wrap, run=run: trained(wrap, Checkpointed(run), 5, 6)


# ---- recurrent modules' dropout, parametrizations


class First(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


RECURRENT = {
    "batch_first": (nn.LSTM(6, 5, 2, dropout=0.5, batch_first=True, bidirectional=True), (3, 4, 6)),
    "unbatched": (nn.LSTM(6, 5, 3, dropout=0.5), (4, 6)),
    "gru": (nn.GRU(6, 5, 2, dropout=0.5, batch_first=True), (3, 4, 6)),
}
for name, (module, shape) in RECURRENT.items():
    PROGRAMS[f"recurrent_{name}"] = lambda wrap, m=module, s=shape: trained(wrap, First(copy.deepcopy(m)), *s)
for norm in (parametrizations.weight_norm, parametrizations.spectral_norm, nn.utils.spectral_norm):
    PROGRAMS[f"{norm.__module__}_{norm.__name__}"] = lambda wrap, norm=norm: trained(
        wrap, nn.Sequential(norm(nn.Linear(6, 4)), nn.ReLU(), nn.Linear(4, 2)), 5, 6
    )


# ---- whole steps


@program
def clipped(wrap):
    module = net()
    optimizer = SGD(module.parameters(), lr=0.1, momentum=0.9, nesterov=True)

    @wrap
    def step(x):
        loss = module(x).pow(2).sum()
        loss.backward()
        clip_grad_value_(module.parameters(), 0.1)
        norm = clip_grad_norm_(module.parameters(), 1.0, norm_type=float("inf"))
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.detach(), norm

    return [step(torch.randn(5, 6)) for _ in range(3)], state(module)


@program
def groups_and_schedule(wrap):
    module = net()
    groups = [
        {"params": module[0].parameters(), "lr": 0.01},
        {"params": module[2].parameters(), "weight_decay": 0.1},
    ]
    optimizer = AdamW(groups, lr=0.02, amsgrad=True)
    schedule = lr_scheduler.OneCycleLR(optimizer, [0.1, 0.2], total_steps=10)
    step, found = stepped(wrap, module, optimizer), []
    for _ in range(4):
        found.append(step(torch.randn(5, 6)))
        schedule.step()
        found.append([group["lr"] for group in optimizer.param_groups])
    return found, state(module)


@program
def averaged(wrap):
    module = net()
    average = copy.deepcopy(module)
    optimizer = Adam(module.parameters(), lr=0.01)

    @wrap
    def step(x):
        optimizer.zero_grad()
        loss = module(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), module.parameters()):
                kept.lerp_(new, 0.1)
        return loss.item()

    return [step(torch.randn(5, 6)) for _ in range(3)], state(module), state(average)


@program
def scaled(wrap):
    """An infinite gradient at the third of four steps is skipped and halves the scale."""
    module = net()
    optimizer = SGD(module.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

    @wrap
    def step(x):
        optimizer.zero_grad()
        loss = module(x).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = clip_grad_norm_(module.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach(), norm

    data = [torch.randn(5, 6) * (float("inf") if k == 2 else 1.0) for k in range(4)]
    return [(step(x), scaler.get_scale()) for x in data], state(module)


@program
def line_search(wrap):
    module = nn.Linear(6, 1).double()  # a search makes of a rounding some thousand
    optimizer = torch.optim.LBFGS(module.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
    x, y = torch.randn(5, 6).double(), torch.randn(5, 1).double()
    error = wrap(lambda x: F.mse_loss(module(x), y))

    def closure():
        optimizer.zero_grad()
        loss = error(x)
        loss.backward()
        return loss

    return [optimizer.step(closure).detach() for _ in range(2)], state(module)


# ---- functions of autograd's graph


class NoZeros(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(a, b)
        return a * b, a + b

    @staticmethod
    def backward(ctx, product, total):
        a, b = ctx.saved_tensors
        if product is None:
            return total, total
        return (product * b, product * a) if total is None else (product * b + total, product * a + total)


@program
def absent_tangents(wrap):
    found = []
    for choose in (lambda p, q: p.sum(), lambda p, q: q.sum(), lambda p, q: (p * q).sum()):
        a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        choose(*wrap(lambda a, b: NoZeros.apply(a, b))(a, b)).backward()
        found += [a.grad, b.grad]
    return found


class Order(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.sort()
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places, values)
        return values, places

    @staticmethod
    def backward(ctx, tangent, nothing):
        places, values = ctx.saved_tensors
        return torch.zeros_like(tangent).scatter(-1, places, tangent * values)


@program
def saved_outputs(wrap):
    w = torch.randn(4, requires_grad=True)
    values, places = wrap(lambda w: Order.apply(w * 2))(w)
    (first,) = torch.autograd.grad((values * torch.arange(4.0)).sum(), w, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), w)
    return values.detach(), places, places.requires_grad, first.detach(), second


# ---- torch.func


@program
def transforms(wrap):
    def f(x):
        return torch.tanh(x @ torch.ones(4, 4).triu()).cumsum(0)

    def all_of_them(x):
        return jacrev(f)(x), jacfwd(f)(x), hessian(lambda v: f(v).sum())(x), vjp(f, x)[1](torch.ones(4))

    return wrap(all_of_them)(torch.randn(4))


@program
def hessian_vector_product(wrap):
    module = net()
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    directions = {name: torch.ones_like(p) for name, p in parameters.items()}

    @wrap
    def product(parameters, x):
        def loss(parameters):
            return functional_call(module, parameters, (x,)).pow(2).mean()

        return jvp(grad(loss), (parameters,), (directions,))[1]

    return product(parameters, torch.randn(5, 6))


@program
def gradients_of_samples(wrap):
    module = net()
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def loss(parameters, x, y):
        return F.cross_entropy(functional_call(module, parameters, (x[None],)), y[None])

    each = wrap(lambda p, x, y: vmap(grad(loss), in_dims=(None, 0, 0))(p, x, y))
    return each(parameters, torch.randn(5, 6), torch.tensor([0, 1, 2, 1, 0]))


def outcome(build, wrap):
    torch.manual_seed(0)
    return build(wrap), torch.get_rng_state()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    pliant.reset()
    (want, drawn), (got, ours) = outcome(PROGRAMS[name], lambda f: f), outcome(PROGRAMS[name], pliant.compile)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert torch.equal(drawn, ours)
    assert not pliant.stats()["fallback_reasons"]
