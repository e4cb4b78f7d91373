"""Backends that are callables: they get a runnable graph module and example inputs, and what they return is run."""

import collections
import contextlib
import dataclasses
import itertools

import pytest
import torch
from tests.capture.constructs.harness import same
from torch import fx, nn

import pliant

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Scaled:
    value: torch.Tensor
    factor: int = 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Tanh()})
        self.chain = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 4))
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])
        self.register_buffer("offset", torch.ones(4))


MODEL = Model()


class Counting:
    """A backend that counts graphs and operations, and checks what it is given."""

    def __init__(self):
        self.graphs = 0
        self.operations = 0

    def __call__(self, module, inputs):
        assert isinstance(module, fx.GraphModule)
        module.graph.lint()
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        assert len(placeholders) == len(inputs)
        self.graphs += 1
        self.operations += sum(node.op in ("call_function", "call_method") for node in module.graph.nodes)
        return module.forward


@contextlib.contextmanager
def _times(factor):
    yield factor + 1


def keywords(x, y):
    def inner(a, *rest, b, k=1, **more):
        return a * k + b + len(rest) + len(more)

    return inner(x, 1, b=y, z=3)


def containers(x, y):
    table = {"a": x, "b": y}
    table.update(c=x + y)
    ordered = collections.OrderedDict(table)
    ordered.move_to_end("a")
    return Pair(sum(table.values()), right=list(ordered)), table.setdefault("d", x), len(table), Scaled(x).factor


def modules(x, y):
    for layer in MODEL.layers:
        x = layer(x)
    for name, layer in MODEL.named.items():
        x = layer(x) + len(name)
    x = MODEL.chain[:2](x) + MODEL.chain[0].in_features + len(MODEL.chain)
    for scale in MODEL.scales:
        x = x * scale
    return x + MODEL.get_parameter("first.bias") + MODEL.state_dict()["offset"]


def parameters(x, y):
    return x + sum(p.sum() for n, p in MODEL.named_parameters() if "weight" in n), [n for n, _ in MODEL.named_buffers()]


def questions(x, y):
    if not (torch.is_tensor(x) and hasattr(x, "shape") and callable(MODEL) and type(x) is torch.Tensor):
        return y
    return x + getattr(MODEL, "missing", 2), x.size(), x.stride(), x.numel(), x.device.type, x.dtype


def modes(x, y):
    with torch.no_grad():
        x = MODEL.first(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = MODEL.first(x)
    with torch.profiler.record_function("name"), _times(2) as factor:
        return x * factor, low.float(), torch.is_grad_enabled()


def changes(x, y):
    x.add_(1)
    y[0] = 3
    return x[1:] * y[:1]


def slice_of_a_stream(x, y):
    return [a * b for a, b in itertools.islice(itertools.product([x, y], [1, 2]), 1, None)]


def initialised_inside(x, y):
    weight = torch.empty(4, 4)
    nn.init.constant_(weight, 0.5)
    nn.init.zeros_(weight[0])
    return x @ weight


def hook_registered_inside(x, y):
    handle = MODEL.first.register_forward_hook(lambda module, inputs, output: output * 3)
    result = MODEL.first(x)
    handle.remove()
    return result + MODEL.first(x)


def breaks(x, y):
    x = x + 1
    pliant.graph_break()
    return x * y


def inputs(rows=3):
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 4, generator=generator), torch.randn(rows, 4, generator=generator)


WHOLE = (
    keywords,
    containers,
    modules,
    parameters,
    questions,
    modes,
    changes,
    slice_of_a_stream,
    initialised_inside,
    hook_registered_inside,
)


@pytest.mark.parametrize("function", [*WHOLE, breaks], ids=lambda f: f.__name__)
def test_counting_backend(function):
    backend = Counting()
    compiled = pliant.compile(function, backend=backend, fullgraph=function in WHOLE)
    for rows in (3, 3, 5):
        mine, eager = inputs(rows), inputs(rows)
        assert same((compiled(*mine), mine), (function(*eager), eager))
    graphs = 1 if function in WHOLE else 2
    assert 2 * graphs <= backend.graphs <= 3 * graphs  # for one size, then for any
    assert backend.operations >= backend.graphs


def test_failed_assumption_leaves_written_inputs_as_they_were():
    """The branch that raises is assumed not to be taken; the call in which it is runs eagerly, from the start."""

    def function(x):
        x.add_(2)
        if x.sum() > 100:
            raise ValueError("large")
        return x + 1

    compiled = pliant.compile(function, backend=Counting())
    for value in (1.0, 1.0, 50.0):
        mine, eager = torch.full((3,), value), torch.full((3,), value)
        results = []
        for run, x in ((compiled, mine), (function, eager)):
            try:
                results.append(run(x))
            except ValueError as error:
                results.append(str(error))
        assert same(results[0], results[1])
        torch.testing.assert_close(mine, eager)
    assert pliant.stats()["assumptions"] >= 1


@pytest.mark.parametrize("backend", ["eager", "pliant"])
def test_an_assumption_that_failed_is_not_made_again(backend):
    """Calls in which a slice does not end as before for the first time run eagerly, and no other: then it is guarded."""

    def function(x, cuts):
        a, b = cuts.tolist()
        y = x.clone()
        y[a : a + b] = 1
        return y, x[:-a], x[:a].repeat(b)

    pliant.reset()
    compiled, x = pliant.compile(function, backend=backend), torch.arange(9.0)
    found = []
    for _ in range(4):
        for cuts in ((2, 3), (2, 3), (0, 3), (3, 1), (1, 5), (0, 0)):
            assert same(compiled(x, torch.tensor(cuts)), function(x, torch.tensor(cuts)))
        found.append(pliant.stats())
    assert found[0]["assumptions"] <= 2 and found[1]["assumptions"] == found[3]["assumptions"] <= 4
    assert found[1]["graphs"] == found[3]["graphs"] and found[3]["graph_breaks"] == 0
    pliant.reset()


def test_an_assumption_that_the_program_states_stays():
    """A call for which the program raises leaves the graph of the others whole."""

    def function(x):
        if x.sum() > 100:
            raise ValueError("large")
        return x + 1

    pliant.reset()
    compiled = pliant.compile(function, backend="eager")
    for value in (1.0, 50.0, 50.0, 1.0, 2.0):
        x = torch.full((3,), value)
        if value > 9:
            with pytest.raises(ValueError, match="large"):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), x + 1)
    stats = pliant.stats()
    assert stats["graphs"] == 1 and stats["graph_breaks"] == 0 and stats["assumptions"] == 2
    pliant.reset()
