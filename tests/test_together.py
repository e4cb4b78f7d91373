"""Graphs of a program are built beside one another, and failures are met where they would have been."""

import contextlib
import threading

import pytest
import torch

import pliant
from codegen.cuda.shim_backend import kernels_on_shim
from pliant.debug import events
from pliant.dispatch import entry_writer
from pliant.runtime import backend
from pliant.runtime import compile_program as stage
from pliant.together import LateFailure, later, together


def test_what_follows_runs_in_order_when_all_is_begun():
    seen = []
    with together():
        assert all(later(lambda: None, lambda k=k: seen.append(k)) for k in range(3))
        assert not seen
    assert seen == [0, 1, 2] and not later(lambda: None, lambda: None)


def test_a_failure_ends_the_block():
    def fails():
        raise OSError("no room")

    with pytest.raises(LateFailure) as found, together():
        later(fails, lambda: None)
    assert isinstance(found.value.__cause__, OSError)
    with pytest.raises(ValueError, match="inside"), together():
        raise ValueError("inside")
    assert not later(lambda: None, lambda: None)


def step(x, w):
    return torch.nn.functional.gelu(x @ w).softmax(-1)


def results(function, x, w):
    found = function(x, w)
    return found, *torch.autograd.grad(found.square().sum(), (x, w))


@pytest.mark.parametrize("device", [contextlib.nullcontext, kernels_on_shim], ids=["processor", "gpu"])
def test_both_halves_are_built_at_once(monkeypatch, device):
    """With symbolic sizes: the backward is compiled with the forward."""
    begun = []
    monkeypatch.setattr(stage, "later", lambda build, then: begun.append(later(build, then)) or begun[-1])
    pliant.reset()
    x, w = torch.randn(6, 5, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    with device():
        got = results(pliant.compile(step, dynamic=True, fullgraph=True), x, w)
    torch.testing.assert_close(got, results(step, x, w))
    assert begun == [True, True]


def test_code_that_cannot_be_built_beside_is_built_again(monkeypatch):
    real, calls = backend.build_native, []

    def fails_once(code, options):
        calls.append(code.kernels)
        if len(calls) == 1:
            raise OSError("no room")
        return real(code, options)

    monkeypatch.setattr(backend, "build_native", fails_once)
    pliant.reset()
    x, w = torch.randn(6, 5, requires_grad=True), torch.randn(5, 9, requires_grad=True)
    with events.collect("fallback") as fallbacks:
        got = results(pliant.compile(step, dynamic=True, fullgraph=True), x, w)
    torch.testing.assert_close(got, results(step, x, w))
    assert calls and not fallbacks
    assert pliant.stats()["graphs"] == 1


def test_guards_are_written_while_kernels_are_built(monkeypatch):
    written, seen = threading.Event(), []
    define, build = entry_writer.define_entry, backend.build_native

    def defined(*given):
        written.set()
        return define(*given)

    def built(code, options):
        seen.append(written.wait(20))
        return build(code, options)

    monkeypatch.setattr(entry_writer, "define_entry", defined)
    monkeypatch.setattr(backend, "build_native", built)
    pliant.reset()
    x, w = torch.randn(6, 5), torch.randn(5, 13)
    torch.testing.assert_close(pliant.compile(step)(x, w), step(x, w))
    assert seen[0]


def test_a_profiler_sees_the_kernels_of_what_was_built_beside():
    pliant.reset()
    compiled = pliant.compile(step, dynamic=True, fullgraph=True)
    x, w = torch.randn(6, 5), torch.randn(5, 11)
    expected = compiled(x, w)
    with torch.profiler.profile() as profile:
        assert torch.equal(compiled(x, w), expected)
    assert any("step" in event.name for event in profile.events())
