"""Mixed precision on the CPU: autocast around and inside compiled functions, and the gradient scaler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pliant
from pliant.debug import events


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1))


def same(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, rtol=2e-2, atol=1e-2, equal_nan=True)


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [p.grad for p in model.parameters()]


def test_around_a_compiled_model() -> None:
    models = network(), network()
    functions = pliant.compile(models[0], fullgraph=True), models[1]
    x = torch.randn(6, 8)
    for enabled in (True, False, True):
        outputs = []
        for function, model in zip(functions, models):
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                outputs.append(function(x))
                loss = (outputs[-1].float() ** 2).sum()
            loss.backward()
        same(*outputs)
        same(*map(gradients, models))


def test_inside_with_a_part_left_out() -> None:
    def step(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            output = model(x)
            with torch.autocast("cpu", enabled=False):
                sums = output.float() @ torch.ones(4, 2)
        return nn.functional.mse_loss(sums, torch.zeros_like(sums)), output

    models, x = (network(), network()), torch.randn(6, 8)
    found = [function(model, x) for function, model in zip((pliant.compile(step, fullgraph=True), step), models)]
    same(*found)
    for loss, _ in found:
        loss.backward()
    same(*map(gradients, models))


def test_as_a_decorator_and_asked_for() -> None:
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Any, bool]:
        return x @ w, torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")

    x, w = torch.randn(3, 4), torch.randn(4, 5)
    product, dtype, enabled = pliant.compile(function, fullgraph=True)(x, w)
    assert product.dtype is dtype is torch.bfloat16 and enabled
    same(product, function(x, w)[0])


def test_a_weight_used_twice_gets_both_gradients() -> None:
    def function(model: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(model(x)).float().sum()

    torch.manual_seed(0)
    model, x = nn.Linear(4, 4), torch.randn(3, 4)
    found = []
    for call in (pliant.compile(function, fullgraph=True), function):
        model.zero_grad()
        call(model, x).backward()
        found.append(gradients(model))
    same(*found)


class _Product(torch.autograd.Function):
    @staticmethod
    def multiply(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grads[0] @ w.t(), x.t() @ grads[0]


class InFloat(_Product):
    forward = staticmethod(torch.amp.custom_fwd(_Product.multiply, device_type="cpu", cast_inputs=torch.float32))


class AsItIs(_Product):
    forward = staticmethod(torch.amp.custom_fwd(_Product.multiply, device_type="cpu"))


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("cls", [InFloat, AsItIs])
def test_custom_functions(cls: Any, enabled: bool) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return cls.apply(x.sin(), w).float().sum()

    found = []
    for call in (pliant.compile(function, fullgraph=True), function):
        torch.manual_seed(1)
        x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = call(x, w)
        loss.backward()
        found.append([loss, x.grad, w.grad])
    same(*found)


def whole_step(model: nn.Module, optimizer: Any, scaler: Any) -> Callable[[Tensor, Tensor], Tensor]:
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


@pytest.mark.parametrize("whole", [True, False])
def test_scaler_skips_steps_and_changes_its_scale_as_in_eager(whole: bool) -> None:
    models = network(), network()
    scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2) for _ in models]
    called = (pliant.compile(models[0]) if not whole else models[0]), models[1]
    steps = [whole_step(call, torch.optim.SGD(call.parameters(), 0.1), scaler) for call, scaler in zip(called, scalers)]
    if whole:
        steps[0] = pliant.compile(steps[0])
    with events.collect("fallback") as fallbacks:
        for number in range(6):
            x, y = torch.randn(6, 8), torch.randn(6, 4)
            if number == 3:
                x[0, 0] = float("inf")
            same(*[step(x, y) for step in steps])
            assert scalers[0].get_scale() == scalers[1].get_scale()
    same(*[list(model.parameters()) for model in models])
    assert not fallbacks


SCALED: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], int]] = {  # and how many breaks: in the first step
    "sgd": (lambda p: torch.optim.SGD(p, 0.1), 1),
    "momentum": (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 1),
    "adam": (lambda p: torch.optim.Adam(p, 0.01), 1),
    "foreach": (lambda p: torch.optim.RMSprop(p, 0.01, foreach=True), 1),
    "fused": (lambda p: torch.optim.AdamW(p, 0.01, fused=True), 0),
    "nadam": (lambda p: torch.optim.NAdam(p, 0.01), 1),
}


def scaled_step(loss_of: Callable[[Tensor], Tensor], optimizer: Any, scaler: Any, clip: bool = False) -> Any:
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(x)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


@pytest.mark.spread(2, "name", "clip")
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("name", SCALED)
def test_steps_that_data_may_skip_are_part_of_the_graph(name: str, clip: bool) -> None:
    make, breaks = SCALED[name]
    results = []
    for compiled in (True, False):
        model = network()
        optimizer, scaler = make(model.parameters()), torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        step = scaled_step(lambda x, model=model: model(x).pow(2).mean(), optimizer, scaler, clip)  # type: ignore[misc]
        run = pliant.compile(step) if compiled else step
        losses = []
        with events.collect("graph_break", "fallback") as seen:
            for number in range(7):
                losses += [
                    run(torch.full((3, 8), float("inf") if number in (2, 5) else 0.1 * number)),
                    scaler.get_scale(),
                ]
                schedule.step()
        state = [optimizer.state[p] for p in model.parameters()]
        results.append([losses, list(model.parameters()), state, scaler.state_dict()])
        assert [e.kind for e in seen] == ["graph_break"] * (breaks * compiled)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", SCALED)
def test_a_first_step_that_is_skipped(name: str) -> None:
    results = []
    for compiled in (True, False):
        weight = nn.Parameter(torch.ones(3))
        optimizer, scaler = SCALED[name][0]([weight]), torch.amp.GradScaler("cpu", init_scale=8.0)
        step = scaled_step(lambda x, weight=weight: (weight * x).sum(), optimizer, scaler)  # type: ignore[misc]
        run = pliant.compile(step) if compiled else step
        states = []
        for value in (float("nan"), float("inf"), 1.0, 2.0):
            run(torch.full((3,), value))
            states.append({name: part.clone() for name, part in optimizer.state[weight].items() if part is not None})
        results.append([weight, states])
    torch.testing.assert_close(*results, equal_nan=True)


def test_hooks_of_skipped_steps_do_not_run() -> None:
    weight, called = nn.Parameter(torch.ones(3)), list[int]()
    optimizer, scaler = torch.optim.SGD([weight], 0.1), torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer.register_step_post_hook(lambda *_: called.append(1))

    step = pliant.compile(scaled_step(lambda x: (weight * x).sum(), optimizer, scaler))
    for value in (1.0, float("inf"), 1.0):
        step(torch.full((3,), value))
    assert called == [1, 1]


def test_autocast_where_a_size_says_so() -> None:
    def function(model: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=x.shape[0] > 4):
            return model(x)

    model, compiled = nn.Linear(4, 4), pliant.compile(function, fullgraph=True, dynamic=True)
    for size in (3, 8, 5, 2):
        x = torch.ones(size, 4)
        same(compiled(model, x), function(model, x))
