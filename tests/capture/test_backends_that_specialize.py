"""A backend that keeps the sizes and numbers that it was shown is right at other ones: it gets a graph without symbols."""

import random

import pytest
import torch
from tests.capture.constructs.harness import same
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import own_process
import pliant
from pliant.errors import BackendError, ConstraintError

MODEL = nn.Linear(3, 3)
MODEL.scale = 2


# ---- backends


def scripted_trace(module, inputs):
    """TorchScript's tracer over the inputs, of which it takes tensors alone."""
    tensors = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]

    def run(*given):
        values = list(inputs)
        for place, tensor in zip(tensors, given, strict=True):
            values[place] = tensor
        return module(*values)

    traced = torch.jit.trace(run, tuple(inputs[i] for i in tensors), check_trace=False)
    return lambda *given: traced(*(given[i] for i in tensors))


class Tape(TorchDispatchMode):
    """Records the operators that run, with the numbers they are given."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result


def tape_of_operators(module, inputs):
    """As `make_fx` over the inputs."""
    given = [i.detach().clone() if isinstance(i, torch.Tensor) else i for i in inputs]
    with Tape() as tape, torch.no_grad():
        results = module(*given)

    def run(*values):
        known = {id(old): new for old, new in zip(given, values, strict=True) if isinstance(old, torch.Tensor)}

        def now(tree):
            return tree_map_only(torch.Tensor, lambda t: known.get(id(t), t), tree)

        for func, args, kwargs, result in tape.calls:
            found = func(*now(args), **now(kwargs))
            for old, new in zip(*((r if isinstance(r, (list, tuple)) else [r]) for r in (result, found)), strict=True):
                known[id(old)] = new
        return now(results)

    return run


def numbers_written_in(module, inputs):
    """Each placeholder of a number is replaced in the very graph by the number."""
    nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node, value in zip(nodes, inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            node.replace_all_uses_with(value)
    module.recompile()
    return module.forward


def interpreter(module, inputs):
    """Keeps nothing, but how should one know?"""
    return lambda *values: fx.Interpreter(module).run(*values)


def as_it_is(module, inputs):
    return module.forward


BACKENDS = (scripted_trace, tape_of_operators, numbers_written_in, interpreter, as_it_is)


# ---- programs: each with calls that differ in what a trace would keep


def rows(n):
    return torch.linspace(-1, 2, 3 * n).view(n, 3)


@pliant.disable
def outside(n):
    return n + 1


def behind_a_break(x, n):
    y = x * n
    return y.expand(outside(n), *y.shape) + x.shape[0]


def drawn(x):
    return x * random.random() + random.randint(0, 9)


def of_module(x, n):
    MODEL.scale = n
    return MODEL(x) * MODEL.scale


PROGRAMS = {
    "alpha": (lambda x, y, d: torch.add(x, y, alpha=d), [(rows(2), rows(2), d) for d in (4, 5, 6, 7)]),
    "factor": (lambda x, f: x * f, [(rows(2), f) for f in (0.5, 1.5, 2.5, 0.0)]),
    "size": (lambda x: x + x.shape[0], [(rows(n),) for n in (2, 3, 4, 1)]),
    "view": (lambda x: x.reshape(-1, 3 * (x.shape[0] // 2)) * 2, [(rows(n),) for n in (2, 4, 6, 8)]),
    "expand": (lambda x, n: x.expand(n, *x.shape).clone(), [(rows(2), n) for n in (2, 3, 4)]),
    "factory": (lambda x: torch.arange(x.shape[0]) + torch.zeros(x.shape[0]), [(rows(n),) for n in (3, 4, 5)]),
    "slice": (lambda x, n: x[:n] + x[-n:], [(rows(6), n) for n in (2, 3, 4)]),
    "turns": (lambda x, n: sum(x * i for i in range(n)), [(rows(2), n) for n in (2, 3, 4, 5)]),
    "list": (lambda xs: torch.stack(xs).sum(0), [([rows(2)] * n,) for n in (2, 3, 4, 5)]),
    "mask": (lambda x, k: x[x > k].sum() + x[x > k].shape[0], [(rows(4), k) for k in (0.0, 0.5, 1.0)]),
    "element": (lambda x, t: x * t.item(), [(rows(2), torch.tensor(v)) for v in (2.0, 3.0, 4.0, 5.0, 6.0)]),
    "maximum": (lambda x: torch.zeros(int(x.max().item()) + 3), [(rows(2) * k,) for k in (1, 2, 3)]),
    "nonzero": (lambda x: x.nonzero() + 1, [(rows(4).relu() * k,) for k in (1, 0, 2)]),
    "drawn": (drawn, [(rows(2),)] * 4),
    "of module": (of_module, [(rows(2), n) for n in (2, 3, 4)]),
    "behind a break": (behind_a_break, [(rows(n), n) for n in (2, 3, 4)]),
}


@pytest.mark.spread(2, "program", "backend", "dynamic")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.__name__)
def test_right_at_other_values(backend, program, dynamic):
    function, calls = PROGRAMS[program]
    compiled = pliant.compile(function, backend=backend, dynamic=dynamic)
    for args in calls:
        results = []
        for run in (function, compiled):
            random.seed(3)
            with torch.no_grad():
                results.append((run(*args), random.getstate()))
        assert same(results[0], results[1]), args


# ---- who gets symbols


class Counting:
    """Counts its graphs; `run` makes what is returned."""

    def __init__(self, run):
        self.graphs, self.shown, self.run = 0, [], run

    def __call__(self, module, inputs):
        self.graphs += 1
        self.shown.append([type(i) for i in inputs])
        return self.run(module)


@pytest.mark.parametrize(
    ("run", "takes_symbols", "graphs"),
    [
        (lambda module: module.forward, False, 2),  # the graph itself holds for every size
        (lambda module: module, False, 2),
        (lambda module: lambda *args: module(*args), False, 6),  # one for each size, and the one with a symbol
        (lambda module: lambda *args: module(*args), True, 2),
    ],
    ids=["forward", "module", "a function", "a function that takes symbols"],
)
def test_who_gets_symbols(run, takes_symbols, graphs):
    backend = Counting(run)
    if takes_symbols:
        backend.takes_symbols = True
    compiled = pliant.compile(lambda x: x * x.shape[0], backend=backend)
    for n in (2, 3, 4, 5, 6):
        assert torch.equal(compiled(rows(n)), rows(n) * n)
    assert backend.graphs == graphs
    assert (torch.SymInt in backend.shown[-1]) == takes_symbols


def test_what_a_backend_that_takes_symbols_decides_is_guarded():
    seen = []

    def backend(module, inputs):
        size = next(i for i in inputs if isinstance(i, torch.SymInt))
        tensor = next(i for i in inputs if isinstance(i, torch.Tensor))
        assert tensor.shape[0] == size and tensor.dtype is torch.float32
        even = bool(size % 2 == 0)
        seen.append(even)
        return lambda *args: [module(*args)[0] + even]

    backend.takes_symbols = True
    compiled = pliant.compile(lambda x: x * x.shape[0], backend=backend, dynamic=True)
    for n in (4, 6, 3, 8, 5):
        assert torch.equal(compiled(rows(n)), rows(n) * n + (n % 2 == 0))
    assert seen == [True, False]


def test_a_mark_that_the_backend_cannot_serve_is_an_error():
    x = rows(4)
    pliant.mark_dynamic(x, 0)
    assert torch.equal(pliant.compile(lambda x: x * 2, backend=as_it_is)(x), x * 2)
    with pytest.raises(ConstraintError, match="takes_symbols"):
        pliant.compile(lambda x: x * 2, backend=interpreter)(x)


@pytest.mark.parametrize("found", [None, 3, "graph"])
def test_a_backend_that_returns_no_callable(found):
    compiled = pliant.compile(lambda x: x + 1, backend=lambda module, inputs: found)
    with pytest.raises(BackendError, match=f"returned {found!r}(.|\n)*module.forward"):
        compiled(rows(2))


# The peer's own tracer, which such backends call. In a process of its own: it changes the one that it runs in.
TRACED_BY_THE_PEER = """
import torch, pliant, warnings
warnings.simplefilter("ignore")
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

def backend(module, inputs):
    return aot_module_simplified(module, inputs, fw_compiler=lambda graph, _: make_boxed_func(graph.forward))

def function(x, y, d):
    return torch.add(x, y, alpha=d).expand(d, *x.shape)

compiled = pliant.compile(function, backend=backend)
for d, n in ((4, 2), (5, 2), (6, 3)):
    x, y = torch.randn(n, 2, requires_grad=True), torch.randn(n, 2)
    found = compiled(x, y, d)
    assert torch.equal(found, function(x, y, d))
    assert torch.equal(torch.autograd.grad(found.sum(), x)[0], torch.full((n, 2), float(d)))
assert pliant.stats()["fallbacks"] == 0
"""


def test_a_backend_that_traces_with_the_peer():
    own_process.ran(TRACED_BY_THE_PEER, check=True)
