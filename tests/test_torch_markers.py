"""What PyTorch's own markers and wrappers say is honoured. In a process of its own: they load PyTorch's compiler."""


import pytest

import own_process
from test_backends import is_named

PROGRAM = """
import torch
import pliant
from pliant.debug import events

X = torch.randn(3, 8)


def double(x):
    return x * 2


def check(name, inner, breaks):
    f = pliant.compile(lambda x: inner(x + 1) - 1, backend="eager")
    events.reset()
    assert torch.equal(f(X), inner(X + 1) - 1), name
    assert (events.stats()["graph_breaks"] > 0) == breaks, (name, events.stats())


check("compiled function", torch.compile(double, backend="eager"), False)
check("compiled module", torch.compile(torch.nn.ReLU(), backend="eager"), False)
check("nested region", torch.compiler.nested_compile_region(double), False)
check("disabled function", torch.compiler.disable(lambda x: x * 2), True)
check("disabled module", torch.compiler.disable(torch.nn.ReLU()), True)

calls = []


def number():
    calls.append(1)
    return 7


torch.compiler.assume_constant_result(number)


def constant_and_break(x):
    y = x * number()
    torch._dynamo.graph_break()
    torch.compiler.cudagraph_mark_step_begin()
    return y + 1


f = pliant.compile(constant_and_break, backend="eager")
events.reset()
for _ in range(2):
    assert torch.equal(f(X), X * 7 + 1)
assert len(calls) == 1 and events.stats()["graph_breaks"] == 1

# PyTorch disables functions of its own for its own compiler
weight = torch.nn.Parameter(torch.ones(3))
weight.grad = torch.ones(3)
optimizer = torch.optim.Adam([weight])
events.reset()
pliant.compile(optimizer.step, backend="eager")()
assert "user-request" not in events.stats()["break_reasons"], events.stats()

# and patches modules and optimizers when it is first used
torch.compile(lambda x: x + 1, backend="eager")(X)
layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)])
optimizer = torch.optim.Adam(layers.parameters(), lr=0.1)


def step(x):
    for layer in layers[:2]:
        x = layer(x)
    x.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return x.detach()


events.reset()
pliant.compile(step, backend="eager")(torch.ones(2, 3))
assert (events.stats()["graph_breaks"], events.stats()["fallbacks"]) == (0, 0), events.stats()
print("fine")
"""

# What was said to PyTorch's compiler by calls that leave no mark on a function.
STATE = """
import warnings
import torch
import pliant
from pliant.errors import GraphBreakError, RecompileError

X = torch.ones(3)


def raises(kind, function):
    try:
        function()
    except kind:
        return True
    return False


def counts():
    return pliant.stats()["graphs"], pliant.stats()["graph_breaks"], pliant.stats()["fallbacks"]


# a warm function, before PyTorch's compiler is loaded
calls = []


def seen(x):
    calls.append(type(x))
    return x + 1


warm = pliant.compile(seen)
warm(X)
calls.clear()
torch.compiler.set_stance("force_eager")
pliant.reset()
warm(X)
assert counts() == (0, 0, 0)
torch.compiler.set_stance("default")
warm(X)
assert counts()[0] == 1
with torch.compiler.set_stance("force_eager"):
    warm(X)
warm(X)
assert counts()[0] == 1 and len(calls) == 4
torch.compiler.set_stance("fail_on_recompile")
assert raises(RecompileError, lambda: warm(X.double()))
torch.compiler.set_stance("eager_on_recompile")
warm(X.double())
assert counts()[0] == 1
torch.compiler.set_stance("default")


# functions put in the graph, kept from it
def opaque(x):
    return x * 2


torch.compiler.allow_in_graph(opaque)
graphs = []


def backend(module, inputs):
    graphs.append(module.code)
    return module.forward


pliant.reset()
f = pliant.compile(lambda x: opaque(x) + 1, backend=backend, fullgraph=True)
torch.testing.assert_close(f(-X), -X * 2 + 1)
assert "opaque" in graphs[0] and len(graphs) == 1
torch._dynamo.disallow_in_graph(torch.sub)
pliant.reset()
pliant.compile(lambda x: torch.sub(x + 1, 2) * 2, backend="eager")(X)
assert counts()[1] == 1

# breaks that are errors
pliant.reset()
broken = pliant.compile(lambda x: torch.sub(x + 1, 3) * 2, backend="eager")
with torch._dynamo.error_on_graph_break(True):
    assert raises(GraphBreakError, lambda: broken(X))
broken(X)


def block_inside(x):
    with torch._dynamo.error_on_graph_break(True):
        return x + 1


with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    pliant.compile(block_inside, backend="eager")(X)
assert any("put it around the call" in str(one.message) for one in told)


# backends by name
@torch._dynamo.register_backend
def counting_backend(module, inputs):
    graphs.append(module.code)
    return module.forward


graphs.clear()
pliant.compile(lambda x: x * 5, backend="counting_backend")(X)
assert len(graphs) == 1 and "counting_backend" in pliant.list_backends()
assert pliant.lookup_backend("counting_backend") is counting_backend

# autograd that PyTorch's compiler compiles
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU())


def gradients(run):
    model.zero_grad()
    run(X).square().sum().backward()
    return [p.grad.clone() for p in model.parameters()]


def same_as_in_eager(found):
    for mine, eager in zip(found, gradients(model), strict=True):
        torch.testing.assert_close(mine, eager)


compiled = pliant.compile(model)
pliant.reset()
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
    found = gradients(compiled)
same_as_in_eager(found)
assert counts() == (0, 0, 1), counts()
same_as_in_eager(gradients(compiled))
loss = compiled(X).square().sum()
model.zero_grad()
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
    loss.backward()
same_as_in_eager([p.grad.clone() for p in model.parameters()])
assert counts() == (1, 0, 1), counts()

# what `torch.compile` hands to the backend
for given in ({"mode": "max-autotune"}, {"options": {"fuse": False}}):
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend="pliant", **given)(X), model(X))
print("fine")
"""


@pytest.mark.parametrize("program", [pytest.param(PROGRAM, id="marks"), pytest.param(STATE, id="state", marks=is_named)])
def test_markers_of_pytorch(program):
    done = own_process.ran(f"import warnings\nwarnings.simplefilter('ignore')\n{program}")
    assert done.stdout.strip().endswith("fine"), done.stdout + done.stderr
