"""What the forward saved is freed while the backward runs, after its last use: not when the backward has ended."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import pliant

LAYERS, WIDTH, ROWS = 10, 256, 128


class Chain(torch.nn.Module):
    """Layers that save about as much as the gradients of their weights take."""

    def __init__(self, normalized: bool) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        kind = torch.nn.BatchNorm1d if normalized else torch.nn.Identity
        self.norms = torch.nn.ModuleList(kind(WIDTH) for _ in range(LAYERS))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = torch.sin(norm(layer(x)))
        return x


def peak_bytes(call, parameters, among) -> int:
    """The most bytes that are allocated at once in a step: tensors made before it is profiled would not be seen freed."""
    x = torch.ones(ROWS, WIDTH)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found, among():
        torch.autograd.grad(call(x).float().sum(), parameters)
    now = peak = 0
    for event in sorted(found.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def casts():
    return torch.autocast("cpu", torch.bfloat16)


def no_casts():
    return torch.autocast("cpu", enabled=False)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("among", [no_casts, casts])
def test_backward_frees_what_was_saved_as_it_goes(normalized, among):
    """Running statistics are watched for writes, casts around a backward are looked into: neither holds what was saved."""
    model = Chain(normalized)
    compiled, parameters = pliant.compile(model), list(model.parameters())
    peak_bytes(compiled, parameters, among)  # compiles it
    ours = peak_bytes(compiled, parameters, among)
    assert ours <= 1.1 * peak_bytes(model, parameters, among)
