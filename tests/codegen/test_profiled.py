"""A profiler sees kernels by name and the program's ranges; without one there is nothing to see, or to pay."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import pliant
from pliant.debug import events


def step(x, w):
    with record_function("the product"):
        y = (x.sin() + 1) @ w
    with record_function("the end"):
        return y.softmax(-1).cos().sum()


def profiled(run, *args):
    with profile(activities=[ProfilerActivity.CPU]) as found:
        result = run(*args)
    return result, {event.name: event for event in found.events()}


def test_kernels_appear_by_name_and_in_the_programs_ranges():
    pliant.reset()
    run, x, w = pliant.compile(step), torch.randn(4, 4), torch.randn(4, 4)
    expected = run(x, w)
    assert pliant.stats()["graph_breaks"] == 0
    for _ in range(2):  # the first of them compiles
        result, seen = profiled(run, x, w)
        torch.testing.assert_close(result, expected)
    ours = {name: event for name, event in seen.items() if name.startswith("pliant::")}
    assert len(ours) == 2
    assert all(event.cpu_parent is not None for event in ours.values())
    parents = {name: event.cpu_parent.name for name, event in ours.items()}
    assert {parents[name] for name in parents if "add" in name} == {"the product"}
    assert {parents[name] for name in parents if "softmax" in name} == {"the end"}
    before = pliant.stats()["graphs"]
    run(x, w)  # back to whole code, which is still there
    assert pliant.stats()["graphs"] == before


def test_a_whole_graph_stays_whole():
    run, x, w = pliant.compile(step, fullgraph=True), torch.randn(4, 4), torch.randn(4, 4)
    expected = run(x, w)
    result, seen = profiled(run, x, w)
    torch.testing.assert_close(result, expected)
    assert any(name.startswith("pliant::") for name in seen)


def test_backward_kernels_appear_and_errors_tell_the_same():
    def program(x, y):
        y.add_(1)
        return (x.sin() * y).sum()

    run = pliant.compile(program)
    x, y = torch.randn(3, requires_grad=True), torch.zeros(3)
    run(x, y).backward()
    x.grad = None
    _, seen = profiled(lambda: run(x, y).backward())
    assert any("program_backward" in name for name in seen if name.startswith("pliant::"))
    assert y.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError):
        profiled(run, x, torch.zeros(2))


def test_without_a_profiler_the_wrapper_has_no_range():
    with events.collect("output_code") as heard:
        pliant.compile(step)(torch.randn(4, 4), torch.randn(4, 4))
    assert heard and "profiler_range" not in heard[0].fields["text"]
