"""No-ops go from graphs, those that are returned too."""

import torch
from torch import fx

from lowering.tracing import trace
from pliant.graph.interpret import interpret
from pliant.graph.passes.simplify import simplify

_view = torch.ops.aten.view.default


def returns_views(x):
    """Calls that change nothing: some are returned, some read too, one twice."""
    y = torch.relu(x)
    first, second, third = _view(y, [2, 3]), _view(y, [2, 3]), _view(x, [2, 3])
    back = _view(_view(y, [6]), [2, 3])
    return first, second * 2, [third, second], first, back


def test_returned_no_ops_are_their_sources():
    x = torch.randn(2, 3)
    graph = trace(returns_views, (x,))
    wanted = interpret(graph, [x])
    (end,) = graph.graph.find_nodes(op="output")
    places = len(end.args[0])
    assert simplify(graph.graph) == 4
    assert len(end.args[0]) == places
    assert not [node for node in end.all_input_nodes if node.target is _view]
    graph.graph.lint()
    for one, other in zip(interpret(graph, [x]), wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_returned_is_written_once(monkeypatch):
    """However many of the results are no-ops: each change of a node's arguments goes through all of them."""
    changed = []
    replace = fx.Node._replace_input_with

    def noted(self, old, new):
        changed.append(self)
        replace(self, old, new)

    monkeypatch.setattr(fx.Node, "_replace_input_with", noted, raising=False)
    graph = trace(lambda x: [_view(torch.relu(x + k), [2, 3]) for k in range(20)], (torch.randn(2, 3),))
    (end,) = graph.graph.find_nodes(op="output")
    assert simplify(graph.graph) == 20
    assert end not in changed
