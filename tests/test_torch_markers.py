"""What PyTorch's own markers and wrappers say is honoured. In a process of its own: they load PyTorch's compiler."""

import subprocess
import sys

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


def test_markers_of_pytorch():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("fine"), done.stdout + done.stderr
