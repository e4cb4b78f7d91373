"""Forward and backward recorded apart, under autograd: results, gradients and buffers are eager's."""

import copy

import pytest
import torch
from torch import nn

import pliant
from fake_recorder import FakeRecorder
from pliant.debug import events
from pliant.graph.interpret import interpret
from pliant.lowering.lower import lower
from pliant.runtime import kernels_or_operators
from pliant.runtime.cuda.capturable import roles_of
from pliant.runtime.cuda.graphs import Graphed


@pytest.fixture
def recorded(monkeypatch):
    """`pliant.compile`; graphs run operator by operator, recorded."""
    pliant.reset()
    recorder = FakeRecorder()

    def compile_aten(graph):
        roles = roles_of(lower(graph, lambda device: False), graph.static_inputs, graph.private_outputs)
        return Graphed(lambda inputs: interpret(graph, inputs), roles, recorder, graph.name)

    monkeypatch.setattr(kernels_or_operators, "kernels_or_operators", compile_aten)
    yield pliant.compile
    pliant.reset()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 3))


def same(one, other):
    torch.testing.assert_close([p.grad for p in one.parameters()], [p.grad for p in other.parameters()])
    torch.testing.assert_close(list(one.state_dict().values()), list(other.state_dict().values()))


def test_a_training_loop(recorded):
    eager, plain = model(), model()
    compiled = recorded(plain)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (eager, plain)]
    for step in range(6):
        x, losses = torch.randn(5, 6), []
        for module, optimizer in zip((eager, compiled), optimizers):
            torch.manual_seed(step)
            loss = module(x).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            losses.append(loss)
            optimizer.step()
        same(eager, plain)
        torch.testing.assert_close(*losses)
    assert len(events.events("cuda_graph")) >= 2 and not events.events("cuda_graph_refused")
    assert not events.events("cuda_graph_skipped")


def test_forwards_before_their_backwards(recorded):
    """Two micro-batches whose backwards run in the other order, and one whose graph is kept: nothing is overwritten."""
    eager, plain = model(), model()
    compiled = recorded(plain)
    for step in range(5):
        for module in (eager, compiled):
            torch.manual_seed(step)
            losses = [module(torch.randn(5, 6)).square().mean() for _ in range(2)]
            losses[1].backward(retain_graph=True)
            losses[0].backward()
            losses[1].backward()
        same(eager, plain)
    assert events.events("cuda_graph_skipped")


def test_results_may_be_kept_and_training_stopped(recorded):
    eager, plain = model().eval(), model().eval()
    compiled, kept = recorded(plain), []
    for step in range(8):
        x = torch.randn(5, 6)
        with torch.set_grad_enabled(step % 2 == 0):
            kept.append((compiled(x), eager(x)))
        for one, other in kept:
            torch.testing.assert_close(one, other)


def test_parameters_that_are_replaced(recorded):
    eager, plain = model(), model()
    compiled = recorded(plain)
    for step in range(6):
        if step % 2:
            for module in (eager, plain):
                for p in module.parameters():
                    p.data = p.data.clone() * 0.9
        x = torch.randn(5, 6)
        for module in (eager, compiled):
            torch.manual_seed(step)
            module(x).sum().backward()
        same(eager, plain)


def test_sizes_that_change(recorded):
    eager, plain = model(), model()
    compiled = recorded(plain)
    for step, batch in enumerate((4, 5, 6, 5, 6, 4, 5, 6)):
        x = torch.randn(batch, 6)
        for module in (eager, compiled):
            torch.manual_seed(step)
            module(x).sum().backward()
        same(eager, plain)


def test_what_a_hook_kept_of_the_saved_tensors(recorded):
    compiled, kept = recorded(copy.deepcopy(model())), []

    @pliant.keeps_saved_values
    def pack(t):
        kept.append((t, t.clone()))
        return t

    for _ in range(4):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            compiled(torch.randn(5, 6)).sum().backward()
    for tensor, before in kept:
        assert torch.equal(tensor, before)
