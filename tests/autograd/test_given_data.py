"""Tensors that a program gives other data (`p.data = other`): from there on they lie in the other's memory."""

import itertools

import pytest
import torch

import pliant

SOURCES = {
    "an input": lambda p, o: o,
    "data of an input": lambda p, o: o.data,
    "part of an input": lambda p, o: o.view(3, 1)[:, 0],
    "a result": lambda p, o: o * 2,
    "its own, restored": lambda p, o: (p.data, setattr(p, "data", o * 2))[0],
    "exchanged": lambda p, o: (o.data, setattr(o, "data", p.data))[0],
}
WRITES = {
    "none": lambda p, q: None,
    "of the tensor": lambda p, q: p.sub_(1),
    "of the data": lambda p, q: q.mul_(2),
    "of both": lambda p, q: (p.sub_(1), q.mul_(2), p.add_(3)),
}
READS = {
    "nothing": lambda p, q: (),
    "both": lambda p, q: ((p * p).sum(), q * 2),
    "a gradient": lambda p, q: torch.autograd.grad((p * p).sum(), p) if p.requires_grad else (),
    "the data": lambda p, q: (q,),
}


def _program(source, write, read):
    def f(p, o):
        q = SOURCES[source](p, o)
        p.data = q
        before = (p * 3).sum()
        with torch.no_grad():
            WRITES[write](p, q)
        return before, *READS[read](p, q)

    return f


def _seen(f, requires_grad):
    p = torch.nn.Parameter(torch.arange(3.0) + 1, requires_grad=requires_grad)
    o = torch.arange(3.0) * 10 + 3
    old = p.data
    results = list(f(p, o))
    if requires_grad:
        results += torch.autograd.grad(results[0], p)
    now = [one.detach().clone() for one in results]
    with torch.no_grad():
        p.add_(100)  # shows what shares its memory
    return [*now, *(one.detach() for one in results), p.detach(), o, old, p.is_leaf]


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("source", SOURCES)
def test_memory_is_shared(source, requires_grad):
    for write, read in itertools.product(WRITES, READS):
        f = _program(source, write, read)
        found = _seen(pliant.compile(f, backend="aot_eager"), requires_grad)
        torch.testing.assert_close(found, _seen(f, requires_grad), msg=lambda text: f"{write=} {read=}: {text}")  # noqa: B023


def test_memory_handed_over_a_break():
    """As SAM does: a step away, a gradient there, and the step back by the data that was kept."""
    results = []
    for compile_it in (False, True):
        ps = [torch.nn.Parameter(torch.linspace(0.1, 1, 3, dtype=torch.float64) + k) for k in range(3)]
        kept = [{} for _ in ps]

        def step(x):
            sum((p * x).exp().sum() for p in ps).backward()  # noqa: B023
            with torch.no_grad():
                for p, state in zip(ps, kept):  # noqa: B023
                    state["old"] = p.data.clone()
                    p.add_(p.grad, alpha=1e-3)
            sum((p * x).exp().sum() for p in ps).backward()  # noqa: B023
            with torch.no_grad():
                for p, state in zip(ps, kept):  # noqa: B023
                    p.data = state["old"]
                for p in ps:  # noqa: B023
                    p.sub_(p.grad, alpha=1e-3)
                    p.grad = None

        run = pliant.compile(step) if compile_it else step
        for number in range(3):
            run(torch.full((3,), 0.1 * number, dtype=torch.float64))
        results.append([*ps, *(state["old"] for state in kept)])
    torch.testing.assert_close(*results)
