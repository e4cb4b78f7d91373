"""Graph modules whose text is written when it is asked for."""

import copy
import pickle

import pytest
import torch
from torch import fx

import pliant
from pliant.graph.late_module import LateModule, with_code


def made(kind=LateModule):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.add, (x, graph.get_attr("c"))),))
    return kind({"c": torch.ones(2)}, graph)


def is_written(module):
    return "_code" in vars(module)


def test_nothing_is_written_before_it_is_asked_for():
    module = made()
    assert not is_written(module) and list(module.graph.nodes)
    assert isinstance(module, fx.GraphModule) and type(module).__name__ == "GraphModule"


USES = {
    "call": lambda module: module(torch.ones(2)),
    "forward": lambda module: module.forward(torch.ones(2)),
    "code": lambda module: module.code,
    "str": str,
    "recompile": lambda module: module.recompile().src,
    "print_readable": lambda module: module.print_readable(print_output=False),
    "pickle": lambda module: pickle.loads(pickle.dumps(module))(torch.ones(2)),
    "copy": lambda module: copy.deepcopy(module)(torch.ones(2)),
    "trace": lambda module: str(fx.symbolic_trace(with_code(module)).graph),
    "wrap": lambda module: fx.GraphModule(module, module.graph)(torch.ones(2)),
}


@pytest.mark.parametrize("use", USES)
def test_uses_are_those_of_any_graph_module(use):
    found, wanted = USES[use](made()), USES[use](made(fx.GraphModule))
    if use in ("call", "forward", "pickle", "copy", "wrap"):
        found, wanted = found[0].tolist(), wanted[0].tolist()
    assert found == wanted


def test_after_its_first_call_it_is_called_as_any_other():
    module = made()
    module(torch.ones(2))
    assert type(module).forward.__code__.co_filename.startswith("<eval_with_key>")
    next(node for node in module.graph.nodes if node.op == "call_function").kwargs = {"alpha": -1}
    module.recompile()
    assert module(torch.ones(2))[0].tolist() == [0, 0]


def test_what_is_added_before_the_text_is_asked_for_is_in_it():
    module = made()
    next(node for node in module.graph.nodes if node.op == "call_function").kwargs = {"alpha": -1}
    assert "alpha = -1" in with_code(module).code and module(torch.ones(2))[0].tolist() == [0, 0]


def test_other_peoples_backends_get_written_ones():
    seen = []

    def backend(module, inputs):
        seen.append(is_written(module))
        return module.forward

    assert pliant.compile(lambda x: x + 1, backend=backend)(torch.ones(2)).tolist() == [2, 2]
    assert seen == [True]


def test_compiled_graphs_have_no_text(monkeypatch):
    from pliant.capture import attempt

    modules = []

    class Noted(LateModule):
        def __init__(self, *args):
            super().__init__(*args)
            modules.append(self)

    monkeypatch.setattr(attempt, "LateModule", Noted)
    pliant.compile(lambda x: x * 2 + 1)(torch.ones(3))
    pliant.export(torch.nn.Linear(3, 3), (torch.ones(2, 3),))
    assert len(modules) == 2 and not any(map(is_written, modules))
