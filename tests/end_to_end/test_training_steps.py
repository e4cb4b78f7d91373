"""Whole training steps in one compiled function: gradients, optimizer, schedule and averages as one graph."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import swa_utils

import pliant

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))


def train(make, compile_it, returned):
    net = model()
    average = copy.deepcopy(net)
    optimizer = make(net.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def step(x, y):
        optimizer.zero_grad()
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), net.parameters()):
                slow.lerp_(fast, 0.1)
        return returned(loss, logits)

    run = pliant.compile(step) if compile_it else step
    results = []
    for number in range(4):
        generator = torch.Generator().manual_seed(number)
        results.append(run(torch.randn(8, 6, generator=generator), torch.arange(8) % 3))
    return results, [*net.parameters(), *average.parameters()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_whole(name):
    pliant.reset()
    expected = train(OPTIMIZERS[name], False, lambda loss, logits: loss.detach())
    found = train(OPTIMIZERS[name], True, lambda loss, logits: loss.detach())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    stats = pliant.stats()
    assert (stats["graph_breaks"], stats["fallbacks"]) == (0, 0)
    assert stats["graphs"] == 2  # the step that makes the optimizer's state, and all others


def test_a_loss_whose_history_was_written_over_refuses_gradients_as_eager_does():
    pliant.reset()
    for compile_it in (False, True):
        (loss, *_), _ = train(OPTIMIZERS["sgd"], compile_it, lambda loss, logits: loss)
        assert loss.requires_grad
        with pytest.raises(
            RuntimeError, match="modified by an inplace operation|backward through the graph a second time"
        ):
            loss.backward()
    assert pliant.stats()["fallbacks"] == 0


def test_gradients_that_eager_still_has_are_kept():
    w = torch.ones(3, requires_grad=True)
    v = torch.ones(3, requires_grad=True)

    def step(x):
        first, second = (x * w).exp().sum(), (x * v).sum()
        with torch.no_grad():
            w.mul_(2)
        return first * w.sum(), second

    x = torch.arange(3.0)
    (_, kept), (_, expected) = pliant.compile(step)(x), step(x)
    assert torch.equal(torch.autograd.grad(kept, v)[0], torch.autograd.grad(expected, v)[0])


AVERAGES = {
    "plain": {},
    "buffers": {"use_buffers": True},
    "several": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
    "single": {"avg_fn": swa_utils.get_ema_avg_fn(0.9)},
    "of the program": {"avg_fn": lambda average, one, count: average * 0.5 + one / (count + 1)},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_models(name):
    results = []
    for compile_it in (True, False):
        pliant.reset()
        net = nn.Sequential(model(), nn.BatchNorm1d(3))
        average = swa_utils.AveragedModel(net, **AVERAGES[name])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()  # noqa: B023
            net(x).pow(2).sum().backward()  # noqa: B023
            optimizer.step()  # noqa: B023
            average.update_parameters(net)  # noqa: B023

        run = pliant.compile(step) if compile_it else step
        for number in range(4):
            run(torch.randn(5, 6, generator=torch.Generator().manual_seed(number)))
        results.append(average.state_dict())
        if compile_it and name != "of the program":
            assert (pliant.stats()["graphs"], pliant.stats()["graph_breaks"]) == (2, 0)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_the_update_of_an_averaged_model_is_one_graph():
    """Whether something was averaged before is chosen by an operator."""
    pliant.reset()
    net = model()
    average = swa_utils.AveragedModel(net)
    update = pliant.compile(average.update_parameters)
    for _ in range(3):
        update(net)
    assert pliant.stats()["graphs"] == 1


@pytest.mark.filterwarnings("ignore::pliant.errors.PliantWarning")  # of the number of compilations
def test_search_directions_of_their_own():
    """LBFGS asks for values at every turn, and calls a closure of the program."""
    results = []
    for compile_it in (True, False):
        parameters = [nn.Parameter(torch.linspace(0.1, 1, 6, dtype=torch.float64).view(2, 3))]
        optimizer = torch.optim.LBFGS(parameters, lr=0.1, max_iter=4, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()  # noqa: B023
            loss = parameters[0].pow(2).sum() + parameters[0].sin().sum()  # noqa: B023
            loss.backward()
            return loss

        step = pliant.compile(optimizer.step) if compile_it else optimizer.step
        results.append([[step(closure).detach() for _ in range(2)], parameters])
    torch.testing.assert_close(*results)
