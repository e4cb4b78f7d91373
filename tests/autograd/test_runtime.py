"""The callable: compiled when, by whom, and what if that fails."""

import threading

import torch
from tests.autograd.programs import captured, compiled

from pliant.autograd.runtime import build
from pliant.debug import events
from pliant.graph.interpret import eager


def leaf(*size):
    return torch.randn(*size, requires_grad=True)


class Counting:
    """A backend that notes the graphs it was given."""

    def __init__(self, fails=lambda name: False):
        self.names, self.fails = [], fails

    def __call__(self, aten):
        self.names.append(aten.name)
        if self.fails(aten.name):
            raise ValueError("refused")
        return eager(aten)


def test_backward_is_compiled_at_its_first_run():
    backend = Counting()
    run = compiled(lambda x: (x.sin(),), [leaf(3)], backend)
    y = run(leaf(3))[0]
    assert backend.names == ["test_forward"]
    y.sum().backward()
    run(leaf(3))[0].sum().backward()
    assert backend.names == ["test_forward", "test_backward"]


def test_backward_is_compiled_once_by_many_threads():
    backend = Counting()
    run = compiled(lambda x: (x.sin(),), [leaf(3)], backend)
    threads = [threading.Thread(target=lambda: run(leaf(3))[0].sum().backward()) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert backend.names == ["test_forward", "test_backward"]


def test_backward_that_does_not_compile_runs_eagerly():
    run = compiled(lambda x: (x.sin(),), [leaf(3)], Counting(lambda name: name == "test_backward"))
    x = leaf(3)
    with events.collect("fallback") as found:
        run(x)[0].sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())
    assert "refused" in found[0].line


def test_missing_tangents_are_zeros():
    run = compiled(lambda x: (x.sin(), x.cos()), [leaf(3)])
    x = leaf(3)
    run(x)[1].sum().backward()
    torch.testing.assert_close(x.grad, -x.detach().sin())


def test_tangent_of_another_layout():
    run = compiled(lambda x: (x.t() * 1.5,), [leaf(3, 4)])
    x = leaf(3, 4)
    run(x)[0].backward(torch.arange(12.0).view(4, 3))
    assert torch.equal(x.grad, torch.arange(12.0).view(4, 3).t() * 1.5)


def test_written_saved_tensor_is_noticed():
    run = compiled(lambda x, w: (x * w,), [torch.randn(3), leaf(3)])
    x, w = torch.randn(3), leaf(3)
    (y,) = run(x, w)
    x.zero_()
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("no error")


def test_autocast_around_the_call_does_not_cast_again():
    program = captured(lambda x, w: (x @ w,), [leaf(4, 4), leaf(4, 4)])
    run = build(program, eager)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (y,) = run([leaf(4, 4), leaf(4, 4)])
        assert y.dtype is torch.float32
        y.sum().backward()


def test_hooks_on_inputs_and_outputs_run():
    run = compiled(lambda x: (x * 2,), [leaf(3)])
    x, seen = leaf(3), []
    x.register_hook(lambda g: seen.append("input"))
    (y,) = run(x)
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert seen == ["input"] and x.grad.tolist() == [20.0] * 3
