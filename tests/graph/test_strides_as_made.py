"""How a graph's results lie for inputs that lie otherwise than described: only what reads such values is run."""

import torch
from torch import fx

from pliant.graph.contracts import AtenGraph
from pliant.graph.fake_mode import FakeMode
from pliant.graph.interpret import strides_as_made
from pliant.symbolic.shape_env import ShapeEnv

aten = torch.ops.aten


def graph_of(results):
    """A graph of two 3 x 3 inputs; `results(graph, a, b)` adds its calls."""
    mode, graph = FakeMode(ShapeEnv()), fx.Graph()

    def described(node, shape=(3, 3)):
        node.meta["val"] = mode.new(shape, torch.empty(shape).stride(), torch.float32, torch.device("cpu"))
        return node

    def call(target, *args, shape=(3, 3)):
        return described(graph.call_function(target, args), shape)

    inputs = [described(graph.placeholder(name)) for name in "ab"]
    graph.output(results(call, *inputs))
    return AtenGraph(graph, ShapeEnv())


def strides(graph, *inputs):
    mode = FakeMode(ShapeEnv())
    with mode:
        return strides_as_made(graph, list(inputs), lambda t: mode.new(t.shape, t.stride(), t.dtype, t.device))


def never(*args):
    raise AssertionError("it reads nothing that lies otherwise")


def test_what_reads_a_value_that_lies_otherwise_is_run():
    def results(call, a, b):
        return [call(aten.sin.default, b), call(aten.add.Tensor, a, b), call(aten.sum.dim_IntList, b, [0], shape=(3,))]

    graph = graph_of(results)
    a = torch.randn(3, 3)
    assert strides(graph, a, a) == [(3, 1), (3, 1), (1,)]
    assert strides(graph, a, a.t()) == [(1, 3), (3, 1), (1,)]
    assert strides(graph, a.t(), a.t()) == [(1, 3), (1, 3), (1,)]


def test_what_reads_only_values_that_lie_as_described_is_not_run():
    def results(call, a, b):
        product = call(aten.mm.default, a, b)  # reads one, and is laid out as ever
        return [call(never, product), call(never, a), b, None]

    a = torch.randn(3, 3)
    assert strides(graph_of(results), a, a[:1].expand(3, 3)) == [(3, 1), (3, 1), (0, 1), None]
