"""How many Python functions run in a warm call, beside the program's own and those of `Tensor.backward`: each costs more than it
seems, the more so on the engine's thread for a GPU."""

import sys

import pytest
import torch

import pliant

OF_RECORDS = torch.autograd.function.__file__  # what PyTorch runs around the bodies of custom functions


@pytest.fixture(autouse=True)
def without_the_peer(monkeypatch):
    """Where it is loaded, as other tests do, backwards are hidden from it by a function of its own."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)


def functions_in(call):
    """The names of Pliant's functions that run, generated ones too, and of those around a custom function's bodies."""
    found = []

    def note(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and ("/pliant/" in file or file.startswith("<pliant ") or file == OF_RECORDS):
            found.append(frame.f_code.co_name)

    for _ in range(6):  # the kinds of tensors are learnt
        call()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return [name for name in found if not (name.startswith("<") and name != "<lambda>")]  # comprehensions are part of them


def gelu():
    return pliant.compile(lambda x: torch.nn.functional.gelu(x))


def steps(compiled, x, *, given=None):
    """A step by `backward`, and one by `torch.autograd.grad`."""

    def by_backward():
        found = compiled(x)
        found.backward(torch.ones_like(found) if given is None else given)

    def by_grad():
        torch.autograd.grad(compiled(x), x, given)

    return by_backward, by_grad


def test_a_call_without_gradients():
    compiled, x = gelu(), torch.randn(4, 8)
    assert functions_in(lambda: compiled(x)) == ["compiled", "entry", "plain", "without_grad", "call"]
    with torch.no_grad():
        assert functions_in(lambda: compiled(x)) == ["compiled", "entry", "plain", "call"]


@pytest.mark.parametrize("by", (0, 1))
def test_a_training_step_of_one_operator(by):
    x = torch.randn(4, 8, requires_grad=True)
    step = steps(gelu(), x, given=torch.ones(4, 8))[by]
    forward = ["compiled", "entry", "plain", "forward", "call"]
    assert functions_in(step) == [*forward, "backward", "_backward", "call"]


def test_a_training_step_of_many_parameters_costs_no_more():
    layers = [layer for _ in range(5) for layer in (torch.nn.Linear(8, 8), torch.nn.ReLU())]
    compiled, x = pliant.compile(torch.nn.Sequential(*layers)), torch.randn(4, 8)
    step, _ = steps(compiled, x, given=torch.ones(4, 8))
    forward = ["__call__", "entry", "plain", "forward", "call"]
    assert functions_in(step) == [*forward, "backward", "_backward", "call"]


def test_symbolic_sizes_cost_a_look_at_how_gradients_lie():
    compiled, x = pliant.compile(lambda x: x.sin() * x.shape[0], dynamic=True), torch.randn(4, 8, requires_grad=True)
    step, _ = steps(compiled, x, given=torch.ones(4, 8))
    found = functions_in(step)
    assert len(found) <= 15 and "_by_what_is_given" not in found  # two of them: where what is saved lies, before and after


def test_whatever_is_around_a_call_is_asked_at_each():
    """What calls leave out where nothing is around them: casts, function modes, a graph that is retained, recorded gradients."""
    compiled, x = gelu(), torch.randn(4, 8, requires_grad=True)
    given = torch.ones(4, 8)
    expected = torch.autograd.grad(torch.nn.functional.gelu(x), x, given)
    for _ in range(3):
        with torch.autocast("cpu"):
            y = compiled(x)
            torch.testing.assert_close(torch.autograd.grad(y, x, given, retain_graph=True), expected)
        with torch.device("meta"):
            torch.testing.assert_close(torch.autograd.grad(y, x, given, retain_graph=True), expected)
        (again,) = torch.autograd.grad(y, x, given, create_graph=True)
        assert again.requires_grad
        torch.testing.assert_close(torch.autograd.grad(y, x, given), expected)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(y, x, given)
