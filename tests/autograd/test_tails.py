"""Sums of losses, and what else is computed from one, returned beside the losses after `backward()`: what the caller may still
ask of them, and what not."""

import math

import pytest
import torch
from torch import nn

import pliant

X = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def losses(model, x):
    y = model(x)
    return {"a": y.sin().mean(), "b": y.square().mean(), "c": y.abs().mean()}


def total(found):
    return found["a"] + found["b"] - found["c"]


def added_in_place(found):
    result = 0.0
    for one in found.values():
        result += one
    return result


def weighted(found):
    return found["a"] + 0.5 * found["b"]


def stacked(found):
    return torch.stack(list(found.values())).mean()


SUMS = (total, added_in_place, weighted, stacked, lambda found: sum(found.values()))


def asked(results):
    """The gradients of each result in each other; NaN is an error."""
    found = {}
    for name, one in results.items():
        for other, inner in results.items():
            try:
                found[name, other] = torch.autograd.grad(one, inner)[0].item()
            except RuntimeError:
                found[name, other] = math.nan
    return found


def steps(compiled, model):
    found = []
    for size in (5, 4, 3):
        model.zero_grad()
        results = compiled(X[:size])
        gradients = [one.grad.clone() for one in model.parameters()]
        found.append(({k: one.detach() for k, one in results.items()}, gradients, asked(results)))
        for one in results.values():
            try:
                one.backward()
                found.append(0)
            except RuntimeError as error:
                found.append(1 + ("second time" in str(error)))
    return found


@pytest.mark.spread(2, "combine", "retain", "parts")
@pytest.mark.parametrize("combine", SUMS)
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("parts", [False, True])
def test_the_sum_is_returned_beside_the_losses(combine, retain, parts):
    def step(x):
        found = losses(model, x)
        whole = combine(found)
        whole.backward(retain_graph=retain)
        return {"whole": whole, **found} if parts else {"whole": whole}

    model = net()
    expected = steps(step, model)
    model = net()
    if not (retain and parts and combine is weighted):  # a compiled graph frees all that it saved at its first gradient
        compiled = pliant.compile(step, fullgraph=True)
        before = pliant.stats()["fallbacks"]
        torch.testing.assert_close(steps(compiled, model), expected, equal_nan=True)
        assert pliant.stats()["fallbacks"] == before


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize(
    "measure",
    [
        lambda loss: -10.0 * torch.log(loss) / torch.log(torch.tensor([10.0])),
        lambda loss: loss.exp(),
        lambda loss: (loss * loss + loss.sqrt()).clamp(max=3.0),
        lambda loss: torch.nn.functional.softplus(torch.stack([loss, loss.detach()])).norm(),
    ],
)
def test_what_is_computed_from_a_loss_is_returned_beside_it(measure, retain):
    def step(x):
        loss = model(x).square().mean()
        told = measure(loss)
        loss.backward(retain_graph=retain)
        return {"loss": loss, "told": told.sum()}

    model = net()
    expected = steps(step, model)
    model = net()
    compiled = pliant.compile(step, fullgraph=True)
    before = pliant.stats()["fallbacks"]
    torch.testing.assert_close(steps(compiled, model), expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert pliant.stats()["fallbacks"] == before


def test_a_training_step_that_returns_all_its_losses_is_compiled():
    def run(wrap):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        @wrap
        def step(x):
            optimizer.zero_grad()
            found = losses(model, x)
            found["loss"] = sum(found.values())
            found["loss"].backward()
            optimizer.step()
            return found

        return [{k: v.detach() for k, v in step(X[:size]).items()} for size in (5, 4, 5)], list(model.parameters())

    expected = run(lambda f: f)
    before = pliant.stats()["fallbacks"]
    torch.testing.assert_close(run(lambda f: pliant.compile(f, fullgraph=True)), expected)
    assert pliant.stats()["fallbacks"] == before


def _a_view_of_the_sum(found):
    whole = total(found)
    whole.backward()
    return whole, found["a"], whole.view(1)


def _a_loss_that_is_written(found):
    whole = total(found)
    whole.backward()
    with torch.no_grad():
        found["a"].mul_(2)
    return whole, found["a"]


def _what_is_drawn(found):
    whole = found["a"] + torch.bernoulli(found["a"].sigmoid())
    whole.backward()
    return whole, found["a"]


def _what_is_drawn_of_what_is_left(found):
    noisy = torch.nn.functional.dropout(found["a"].expand(3), 0.5).sin()
    found["a"].backward()
    return noisy, found["a"]


def _a_sum_of_which_a_part_was_freed(found):
    whole = found["a"].sin() + found["a"]
    whole.backward()
    return whole, found["a"]


@pytest.mark.fallbacks_expected  # gradients are asked for through a tensor that is returned
@pytest.mark.parametrize(
    "end",
    [
        _a_view_of_the_sum,
        _a_loss_that_is_written,
        _what_is_drawn,
        _what_is_drawn_of_what_is_left,
        _a_sum_of_which_a_part_was_freed,
    ],
)
def test_what_must_not_be_made_again_runs_eagerly(end):
    def step(x):
        return end(losses(model, x))

    found = []
    for run in (step, pliant.compile(step)):
        model = net()
        torch.manual_seed(3)
        results = run(X)
        asks = asked(dict(enumerate(one.sum() for one in results)))
        found.append((results, asks, torch.rand(1)))
        with pytest.raises(RuntimeError):
            torch.autograd.grad(results[0], model[0].weight)
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


@pytest.mark.parametrize("results", [("whole",), ("a",), ("a", "b"), ("y",), ("y", "whole")])
def test_gradients_behind_a_sum_are_freed_with_it(results):
    def step(x):
        y = model(x)
        found = {"y": y, "a": y.sin().mean(), "b": y.square().mean()}
        found["whole"] = found["a"] * 2 + found["b"]
        found["whole"].backward()
        return [found[name] for name in results]

    compiled = pliant.compile(step, fullgraph=True)
    before = pliant.stats()["fallbacks"]
    for run in (step, compiled):
        model = net()
        for one in run(X):
            with pytest.raises(RuntimeError, match="second time"):
                one.sum().backward()
    assert pliant.stats()["fallbacks"] == before
