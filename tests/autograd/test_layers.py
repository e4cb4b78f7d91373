"""Programs of equal layers, compiled once for all: they do what eager does, whatever passes between the layers."""

import cProfile
import dataclasses
import operator
import pstats
import random

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pliant
from pliant.autograd import layers
from pliant.graph.fake_mode import FakeMode
from pliant.targets import registry

WIDTH, LAYERS = 8, 7


@pytest.fixture(autouse=True)
def short_layers(monkeypatch):
    """Layers as small as those of tests count as long."""
    pliant.reset()
    target = dataclasses.replace(registry.known_target(torch.device("cpu")), layer_bytes=1)
    monkeypatch.setattr(layers, "known_target", lambda device: target)
    monkeypatch.setattr(layers, "LEAST_SAVED", 6)
    monkeypatch.setattr(layers, "LEAST_NODES", 3)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)
        self.drop = nn.Dropout(0.0)

    def forward(self, x, scale=1.0):
        return x + self.drop(self.down(torch.tanh(self.up(self.norm(x))) * scale))


class Model(nn.Module):
    def __init__(self, count=LAYERS, forward=None):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(count)])
        self.end = nn.Linear(WIDTH, 3)
        self.how = forward
        self.double()  # so that nothing is left to rounding

    def forward(self, x):
        if self.how is not None:
            return self.how(self, x)
        for layer in self.layers:
            x = layer(x)
        return self.end(x)


def traced(monkeypatch):
    """The list of programs whose joint graph is traced from now on."""
    found = []
    real = layers.trace_joint
    monkeypatch.setattr(layers, "trace_joint", lambda program: found.append(program) or real(program))
    return found


def leaves_of(value):
    return [one for one in torch.utils._pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]


def steps(model, call, x, seed=0):
    """Results, gradients and random state of two training steps."""
    found = []
    for step in range(2):
        torch.manual_seed(seed + step)
        given = x.clone().requires_grad_()
        model.zero_grad()
        results = leaves_of(call(given))
        sum(one.pow(2).sum() for one in results if one.requires_grad).backward()
        found += [*results, given.grad, *[p.grad for p in model.parameters()], torch.rand(1)]
    return found


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def inputs(rows=2):
    return torch.randn(rows, 5, WIDTH, dtype=torch.float64)


def test_equal_layers_are_traced_once(monkeypatch):
    found = traced(monkeypatch)
    model = Model()
    x = inputs()
    same(steps(model, pliant.compile(model), x), steps(model, model, x))
    count = len(found)
    assert count <= 4
    model = Model(3 * LAYERS)
    same(steps(model, pliant.compile(model), x), steps(model, model, x))
    assert len(found) == 2 * count


def test_in_inference(monkeypatch):
    found = traced(monkeypatch)
    model = Model().eval()
    compiled = pliant.compile(model)
    for mode in (torch.no_grad, torch.inference_mode):
        for rows in (2, 3):
            x = inputs(rows)
            with mode():
                torch.testing.assert_close(compiled(x), model(x))
    assert found


def _hidden_states(model, x):
    every = [x]
    for layer in model.layers:
        every.append(layer(every[-1]))
    return model.end(every[-1]), every


def _shared_scale(model, x):
    scale = (x.mean((0, 2), keepdim=True) + model.end.bias.sum()).sigmoid()
    for layer in model.layers:
        x = layer(x, scale)
    return model.end(x)


def _skips(model, x):
    first = model.layers[0](x)
    x = first
    for layer in model.layers[1:]:
        x = layer(x) + first * 0.1
    return model.end(x), first


def _two_streams(model, x):
    y = x * 2
    for layer in model.layers:
        x, y = layer(y), layer(x) + y
    return model.end(x + y)


def _in_place(model, x):
    x = x + 0
    for layer in model.layers:
        h = layer(x)
        h.mul_(0.5).add_(x)
        x = h
    return model.end(x)


def _views(model, x):
    for layer in model.layers:
        x = layer(x).transpose(0, 1)
    return model.end(x), x


def _one_layer(model, x):
    for _ in range(LAYERS):
        x = model.layers[0](x)
    return model.end(x)


def _checkpoints(model, x):
    for layer in model.layers:
        x = checkpoint(layer, x, use_reentrant=False)
    return model.end(x)


def _frozen_in_places(model, x):
    for number, layer in enumerate(model.layers):
        with torch.set_grad_enabled(number != 2):
            y = layer(x)
        x = y + x
    return model.end(x)


def _detached(model, x):
    for layer in model.layers:
        x = layer(x.detach()) + x
    return model.end(x)


def _sums(model, x):
    total = x.new_zeros(())
    for layer in model.layers:
        x = layer(x)
        total = total + x.mean()
    return model.end(x), total


def _numbers(model, x):
    for number, layer in enumerate(model.layers):
        x = layer(x) * (1 + number % 2)
    return model.end(x)


PROGRAMS = [_hidden_states, _shared_scale, _skips, _two_streams, _in_place, _views, _one_layer, _checkpoints,
            _frozen_in_places, _detached, _sums, _numbers]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_what_passes_between_layers(program, monkeypatch):
    found = traced(monkeypatch)
    model = Model(forward=program)
    compiled = pliant.compile(model)
    for rows in (2, 3):
        x = inputs(rows)
        same(steps(model, compiled, x), steps(model, model, x))
    assert found and (program is not _checkpoints or len(found) <= 8)


def test_under_autocast(monkeypatch):
    found = traced(monkeypatch)
    model = Model().float()
    compiled = pliant.compile(model)
    x = inputs().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = steps(model, compiled, x), steps(model, model, x)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=3e-2, atol=3e-2)
    assert found


def test_dropout_draws_what_eager_draws():
    model = Model()
    for layer in model.layers:
        layer.drop.p = 0.3
    compiled = pliant.compile(model)
    for rows in (2, 3):
        x = inputs(rows)
        same(steps(model, compiled, x), steps(model, model, x))


@pytest.mark.parametrize("frozen", [[1], [0, 3], [2, 3, 4, 5]])
def test_layers_that_differ_in_what_requires_grad(frozen):
    model = Model()
    for number in frozen:
        model.layers[number].requires_grad_(False)
    x = inputs()
    same(steps(model, pliant.compile(model), x), steps(model, model, x))


def test_layers_of_which_one_has_another_width():
    model = Model()
    model.layers[3].up, model.layers[3].down = nn.Linear(WIDTH, 9).double(), nn.Linear(9, WIDTH).double()
    x = inputs()
    same(steps(model, pliant.compile(model), x), steps(model, model, x))


def test_gradients_of_gradients():
    model = Model(forward=lambda model, x: _two_streams(model, x).tanh())
    compiled = pliant.compile(model)
    x = inputs()

    def penalty(call):
        given = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(call(given).sum(), given, create_graph=True)
        return torch.autograd.grad(gradient.pow(2).sum(), list(model.parameters()), allow_unused=True)

    same(list(penalty(compiled)), list(penalty(model)))


def test_hooks_and_parameters_that_change():
    model = Model()
    compiled = pliant.compile(model)
    x = inputs()
    same(steps(model, compiled, x), steps(model, model, x))
    handle = model.layers[2].register_forward_hook(lambda module, args, result: result * 2)
    same(steps(model, compiled, x), steps(model, model, x))
    handle.remove()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.9)
    same(steps(model, compiled, x), steps(model, model, x))
    calls = []
    for p in model.parameters():
        p.register_hook(lambda gradient: calls.append(gradient.shape))
    same(steps(model, compiled, x), steps(model, model, x))
    half = len(calls) // 2
    assert calls[:half] == calls[half:]


def test_hook_on_what_passes_between_layers():
    def hooked(model, x):
        for number, layer in enumerate(model.layers):
            x = layer(x)
            if number == 3:
                x.register_hook(lambda gradient: gradient * 2)
        return model.end(x)

    model = Model(forward=hooked)
    x = inputs()
    same(steps(model, pliant.compile(model), x), steps(model, model, x))


def test_the_graph_is_kept_when_asked_and_freed_when_not():
    model = Model()
    compiled = pliant.compile(model)
    x = inputs().requires_grad_()
    result = compiled(x).sum()
    (first,) = torch.autograd.grad(result, x, retain_graph=True)
    (second,) = torch.autograd.grad(result, x)
    torch.testing.assert_close(first, second)
    with pytest.raises(RuntimeError, match="a second time|already been freed"):
        torch.autograd.grad(result, x)


def test_small_layers_are_compiled_together(monkeypatch):
    monkeypatch.setattr(layers, "known_target", registry.known_target)
    found = traced(monkeypatch)
    model = Model()
    x = inputs()
    same(steps(model, pliant.compile(model), x), steps(model, model, x))
    assert not found


def test_functions_of_the_program_are_alike_if_they_are_the_same():
    class Scaled:
        """Equal to any other, whatever it computes."""

        def __init__(self, by):
            self.by, self.__name__ = by, "scaled"

        def __call__(self, x):
            return x * self.by

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

    scales = [pliant.allow_in_graph(Scaled(1 + number / 8)) for number in range(LAYERS)]

    def scaled(model, x):
        for layer, scale in zip(model.layers, scales, strict=True):
            x = scale(layer(x))
        return model.end(x)

    model = Model(forward=scaled)
    x = inputs()
    same(steps(model, pliant.compile(model), x), steps(model, model, x))


def random_chain(count):
    """Nodes that take what one of the few before them made."""
    graph, chosen = torch.fx.Graph(), random.Random(count)
    nodes = [graph.placeholder("x")]
    for _ in range(count):
        nodes.append(graph.call_function(torch.add, (nodes[-1], chosen.choice(nodes[-9:]))))
    graph.output(chosen.choices(nodes, k=3))
    return nodes[1:]


def test_the_cut_is_where_fewest_tensors_are_read_behind_it():
    nodes = random_chain(90)
    places = {node: place for place, node in enumerate(nodes)}
    last = [max((places.get(user, len(nodes)) for user in node.users), default=-1) for node in nodes]
    for first, period in ((0, 30), (7, 20), (60, 15)):
        crossing = {place: sum(one >= place + period for one in last[: place + period]) for place in range(first, first + period)}
        assert layers._narrowest(nodes, first, period) == min(crossing, key=crossing.__getitem__)


def test_the_cut_is_found_in_one_pass():
    def calls(count):
        nodes, profile = random_chain(count), cProfile.Profile()
        profile.runcall(layers._narrowest, nodes, 0, count // 2)
        return pstats.Stats(profile).total_calls

    assert calls(400) < 2.2 * calls(200)


def test_what_many_nodes_take_is_described_once():
    def calls(count):
        mode, graph = FakeMode(), torch.fx.Graph()
        fakes = [mode.from_real(torch.empty(4)) for _ in range(count)]
        parts, profile = graph.placeholder("parts"), cProfile.Profile()
        parts.meta["val"] = fakes
        nodes = [graph.call_function(operator.getitem, (parts, place)) for place in range(count)]
        for node, fake in zip(nodes, fakes, strict=True):
            node.meta["val"] = fake
        assert profile.runcall(layers._kinds, nodes) == list(range(count))
        return pstats.Stats(profile).total_calls

    assert calls(80) < 2.2 * calls(40)
