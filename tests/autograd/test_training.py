"""Training steps through joint trace, partition and the interpreter equal eager's."""

import dataclasses
import threading
import weakref

import pytest
import torch
from tests.autograd.programs import check, of_module
from torch import nn
from torch.utils import _pytree as pytree

import pliant
from pliant import config
from pliant.autograd import training
from pliant.debug import events
from pliant.runtime import kernels_or_operators
from pliant.targets import cpu


def check_module(module, *inputs, **options):
    function, state = of_module(module)
    return check(function, [*state, *inputs], **options)


def test_mlp():
    check_module(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)), torch.randn(5, 4))


def test_conv_and_batch_norm():
    check_module(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)), torch.randn(2, 3, 8, 8))


def test_batch_norm_in_evaluation():
    check_module(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval(), torch.randn(2, 3, 8, 8))


def test_layer_norm_and_softmax():
    check_module(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 5), nn.Softmax(-1)), torch.randn(3, 6))


def test_embedding():
    check_module(nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)), torch.randint(0, 10, (3, 5)))


def test_dropout_draws_as_eager():
    check_module(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh()), torch.randn(5, 4))


def test_input_that_needs_a_gradient():
    check_module(nn.Linear(4, 2), torch.randn(5, 4, requires_grad=True))


def test_gradient_of_one_output_only():
    def f(x, w):
        return x @ w, (x * 2).sum()

    run = check(f, [torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)])
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    run(x, w)[1].backward()
    assert torch.equal(x.grad, torch.full((3, 4), 2.0))
    assert w.grad is None or not w.grad.any()


def test_an_operator_with_kernels_of_its_own_is_not_taken_apart():
    """In halves each of its parts would be rounded."""
    x, g = torch.randn(64, dtype=torch.bfloat16), torch.randn(64, dtype=torch.bfloat16)
    exact, wide = torch.nn.functional.silu, x.double().requires_grad_()
    x.requires_grad_()
    with events.collect("joint") as found:
        result = pliant.compile(exact)(x)
    assert [e.fields["text"].count("aten.silu_backward") for e in found] == [1]
    (got,), (want,) = (torch.autograd.grad(*pair) for pair in ((result, x, g), (exact(wide), wide, g.double())))
    torch.testing.assert_close(got.double(), want, rtol=2**-8, atol=1e-6)


def test_no_gradient_wanted():
    check(lambda x: (x.sin() + 1, x.sum()), [torch.randn(3)])


def test_under_no_grad():
    check(lambda x: (x.sin(),), [torch.randn(3, requires_grad=True)], grad=False)


def test_no_grad_region():
    def f(x):
        with torch.no_grad():
            y = x * 2
        return (x * y, y)

    check(f, [torch.randn(3, requires_grad=True)])


def test_gradients_turned_on_inside():
    def f(x, w):
        y = x * 2
        with torch.enable_grad():
            z = y @ w
            leaf = torch.ones(3).requires_grad_()
        return z, y, leaf

    def start_without(x, w):
        with torch.no_grad():
            y = f(x, w)[1]
            if y.sum() < 0:  # a break: what follows starts where gradients are off
                y = y + 1
        return y @ w

    x, w = torch.ones(3, 3), torch.randn(3, 3, requires_grad=True)
    for program in (f, start_without):
        compiled = pliant.compile(program)
        for _ in range(2):
            with torch.set_grad_enabled(program is start_without):
                expected, found = program(x, w), compiled(x, w)
            flags = pytree.tree_map(lambda t: t.requires_grad, (expected, found))
            assert flags[0] == flags[1]
            z, y = pytree.tree_leaves(expected)[0], pytree.tree_leaves(found)[0]
            assert torch.equal(*(torch.autograd.grad(t.sum(), w)[0] for t in (z, y)))


def test_detach():
    check(lambda x: (x.detach() * x, (x * 2).detach()), [torch.randn(3, requires_grad=True)])


def test_integer_outputs_are_not_differentiable():
    check(lambda x: (x * 2, x.argmax(0), (x > 0)), [torch.randn(3, 4, requires_grad=True)])


def test_constant_tensors():
    table = torch.arange(3.0)
    check(lambda x: (x * table + torch.tensor(2.5),), [torch.randn(3, requires_grad=True)])


def test_gradient_inside():
    def f(x):
        y = (x**3).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return ((g**2).sum(),)

    check(f, [torch.randn(3, requires_grad=True)])


def test_autocast():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ((x @ w).relu().float().sum(),)

    check(f, [torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)])


def test_backward_twice():
    run = check(lambda x: ((x.sin() * x).sum(),), [torch.randn(3, requires_grad=True)])
    x = torch.randn(3, requires_grad=True)
    (y,) = run(x)
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * first)


def test_an_input_on_which_no_gradient_depends_is_let_go():
    compiled = pliant.compile(lambda x: (x - x.mean()) * 3)
    leaf = torch.randn(8, requires_grad=True)
    x = leaf * 1
    compiled(leaf * 1)
    result, held = compiled(x), weakref.ref(x)
    del x
    assert held() is None
    (gradient,) = torch.autograd.grad((result**2).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad((gradient**2).sum(), leaf)
    expected = leaf.detach().requires_grad_()
    (first,) = torch.autograd.grad((((expected * 1 - expected.mean()) * 3) ** 2).sum(), expected, create_graph=True)
    torch.testing.assert_close(gradient, first)
    torch.testing.assert_close(second, torch.autograd.grad((first**2).sum(), expected)[0])


def test_options_hold_for_what_is_compiled_at_the_first_gradient(monkeypatch):
    """Backwards and their gradients, in whatever thread they are first asked for."""
    pliant.reset()
    compile_graph, found = kernels_or_operators.kernels_or_operators, {}

    def noted(graph):
        found[graph.name] = config.get().build.packed_bytes
        return compile_graph(graph)

    monkeypatch.setattr(kernels_or_operators, "kernels_or_operators", noted)
    f = pliant.compile(lambda x: (x.sin() * x).sum(), options={"packed_bytes": 12345})
    x = torch.randn(5, requires_grad=True)
    loss = f(x)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    torch.testing.assert_close(x.grad, x.sin() + x * x.cos())
    (gradient,) = torch.autograd.grad(f(x), x, create_graph=True)
    gradient.sum().backward()
    assert len(found) >= 3 and set(found.values()) == {12345}, found
    pliant.reset()


@pytest.mark.parametrize("in_threads", [False, True])
def test_where_code_is_built_in_threads_the_backward_is_begun_with_its_forward(monkeypatch, in_threads):
    pliant.reset()
    target = dataclasses.replace(cpu.target(), builds_in_threads=in_threads)
    monkeypatch.setattr(training, "known_target", lambda device: target)
    compile_graph, found = kernels_or_operators.kernels_or_operators, []
    monkeypatch.setattr(kernels_or_operators, "kernels_or_operators", lambda graph: found.append(graph) or compile_graph(graph))
    x = torch.randn(5, requires_grad=True)
    loss = pliant.compile(lambda x: (x.sin() * x).sum())(x)
    assert len(found) == 1 + in_threads
    loss.backward()
    assert len(found) == 2
    torch.testing.assert_close(x.grad, x.detach().sin() + x.detach() * x.detach().cos())
    pliant.reset()


def test_the_record_of_an_ordinary_call_holds_only_what_is_its_own():
    """Each attribute is stored and freed in each call."""
    x = torch.randn(4, requires_grad=True)
    result = pliant.compile(lambda a: a.sin())(x)
    assert len(vars(result.grad_fn)) == 2
    result.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())
