"""Entries with operators of the program's own: found while all that their functions read is the same."""

import math
import os
import sys
import types
from pathlib import Path

import pytest
import torch

import own_process
import pliant
from pliant import background
from pliant.debug import events

SCALE = 2.0
ENDS = torch.tensor([2, 5])
X = torch.linspace(-1, 1, 12).view(3, 4)


def helper(g):
    return g * SCALE


@torch.library.custom_op("pliant_entries::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * math.pi


@scaled.register_fake
def fake(x):
    return torch.empty_like(x)


def backward(ctx, g):
    return helper(g).neg()


scaled.register_autograd(backward)


@torch.library.custom_op("pliant_entries::increment_", mutates_args=("x",))
def increment_(x: torch.Tensor, by: int = 1) -> None:
    x.add_(by)


@torch.library.custom_op("pliant_entries::rowed", mutates_args=())
def rowed(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0)


@rowed.register_fake
def _(x):
    return x.new_empty(x.shape[1])


@torch.library.custom_op("pliant_entries::counted", mutates_args=())
def counted(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return x * len(ends.tolist())


@counted.register_fake
def _(x, ends):
    return torch.empty_like(x)


def reads_values(ctx, g):
    for end in ctx.saved_tensors[1].tolist():
        g = g * end
    return g * SCALE, None


counted.register_autograd(reads_values, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def values_read(x):
    return counted(x * 2, ENDS).exp()


def by_name(x):
    return torch.ops.pliant_entries.scaled(x * 2) + 1


def called(x):
    return scaled(x * 2) + 1


def writes(x):
    y = x * 2
    increment_(y, 3)
    return y + 1


def only_its_size(x):
    return torch.ones(rowed(x).shape[0]) * 2


@pytest.fixture(autouse=True)
def folder(tmp_path):
    pliant.reset()
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path / "cache"), strict=True):
        yield
        background.finish()
    pliant.reset()


def is_found(fn, grad=False):
    events.reset()
    x, y = (X.clone().requires_grad_(grad) for _ in range(2))
    found, expected = pliant.compile(fn)(x), fn(y)
    torch.testing.assert_close(found, expected)
    if grad:
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    background.finish()
    return not events.events("capture")


@pytest.mark.parametrize("fn", [by_name, called, writes, only_its_size])
def test_they_are_found(fn):
    assert not is_found(fn)
    assert is_found(fn)


@pytest.mark.parametrize("fn", [called, values_read])
def test_gradients_are_found(fn):
    assert not is_found(fn, grad=True)
    assert is_found(fn, grad=True)


def test_a_derivative_that_reads_values_is_found_in_a_new_process(tmp_path):
    variables = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]), "PLIANT_KEEP_ENTRIES": "1", "PLIANT_CACHE_DIR": str(tmp_path)}
    for found in (False, True):
        text = f"from test_operators import values_read, is_found; assert is_found(values_read, grad=True) is {found}"
        own_process.ran(text, env=os.environ | variables, check=True)


CHANGES = {
    "a number that the derivative reads": lambda patch: patch.setitem(globals(), "SCALE", 3.0),
    "a function that it calls": lambda patch: patch.setitem(globals(), "helper", lambda g: g * 5),
    "a function of PyTorch's": lambda patch: patch.setattr(torch.Tensor, "neg", lambda g: g * 7, raising=False),
    "the derivative": lambda patch: patch.setattr(scaled, "_backward_fn", lambda ctx, g: g * 11),
    "the shape function": lambda patch: patch.setattr(scaled, "_abstract_fn", lambda x: x.new_empty(x.shape)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_them_is_seen(what, monkeypatch):
    assert not is_found(called, grad=True)
    CHANGES[what](monkeypatch)
    assert not is_found(called, grad=True)


def test_the_kernel_is_called():
    assert not is_found(called)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(math, "pi", 3.0)
        assert is_found(called)


@pytest.mark.parametrize("what", ["an object", "a module", "a kernel beside"])
def test_what_cannot_be_told_is_not_kept(what, monkeypatch):
    match what:
        case "an object":
            monkeypatch.setitem(globals(), "SCALE", torch.tensor(2.0))
        case "a module":
            monkeypatch.setitem(globals(), "helper", types.ModuleType("helper"))
        case "a kernel beside":
            library = torch.library.Library("pliant_entries", "FRAGMENT")
            library.impl("scaled", lambda x: x.cos(), "CPU")
    events.reset()
    pliant.compile(called)(X)
    background.finish()
    reasons = {event.fields["reason"] for event in events.events("entry")}
    assert reasons == {"custom-operator"}
