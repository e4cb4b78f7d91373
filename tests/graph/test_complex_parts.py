"""Complex numbers of which only the parts are read are computed as two real ones, where a target asks for that."""

import dataclasses

import pytest
import torch

import pliant
from pliant.debug import events
from pliant.targets import registry

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def by_parts():
    there = registry.target_of(torch.device("cpu"))
    target = dataclasses.replace(there, complex_parts=frozenset((torch.float32, torch.float64)))
    registry.provide("cpu", lambda _: target)
    pliant.reset()
    yield
    registry.provide("cpu", lambda _: there)
    pliant.reset()


def pairs(x):
    return torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))


def rotated(x, f):
    return torch.view_as_real(pairs(x) * f[:, None]).flatten(3).type_as(x)


READ_IN_PARTS = {
    "rotated": rotated,
    "back": lambda x, f: rotated(rotated(x, f), f.conj()),
    "by a number": lambda x, f: torch.view_as_real(pairs(x) * 3),
    "by real numbers": lambda x, f: torch.view_as_real(pairs(x) * x[..., :1].float()),
    "by a complex number": lambda x, f: torch.view_as_real(pairs(x) * f[:, None] * (1 + 2j)),
    "conjugated": lambda x, f: torch.view_as_real(pairs(x).conj() * f.conj()[:, None]),
    "views": lambda x, f: torch.view_as_real((pairs(x) * f[:, None]).unsqueeze(0).view(-1, 4)),
    "parts": lambda x, f: ((pairs(x) * f[:, None]).real + 1, (pairs(x) * f.conj()[:, None]).imag * 2),
    "of wider numbers": lambda x, f: torch.view_as_real(pairs(x) * f.to(torch.complex128)[:, None]),
}
STAY = {
    "of which the backward keeps one": lambda x, f: (lambda z: torch.view_as_real(z * z))(pairs(x) * f[:, None]),
    "returned": lambda x, f: (lambda z: (z, torch.view_as_real(z)))(pairs(x) * f[:, None]),
    "results that share memory": lambda x, f: (lambda z: (torch.view_as_real(z), torch.view_as_real(z.transpose(1, 2))))(pairs(x) * 2),
    "a view": lambda x, f: (torch.view_as_real(pairs(x)), torch.view_as_real(f)),
    "a quotient": lambda x, f: torch.view_as_real(pairs(x) / (f[:, None] + 3)),
    "a sum": lambda x, f: torch.view_as_real(pairs(x) * 2 + f[:, None]),
    "in another order": lambda x, f: torch.view_as_real((pairs(x) * f[:, None]).transpose(1, 2)[:, :, 1:]),
}


def inputs(dtype=torch.float32, length=5):
    torch.manual_seed(0)
    x = torch.randn(2, length, 3, 8).to(dtype)
    return x.requires_grad_(), torch.polar(torch.rand(length, 4) + 1, torch.randn(length, 4))


def leaves(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.spread(2, "training", "name")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", [*READ_IN_PARTS, *STAY])
def test_values_and_gradients(name, training):
    program, results = {**READ_IN_PARTS, **STAY}[name], []
    with events.collect("loops") as found:
        call = pliant.compile(program, fullgraph=True)
        for length in (5, 7, 9):
            for f in (call, program):
                x, factors = inputs(length=length)
                with torch.set_grad_enabled(training):
                    y = leaves(f(x, factors))
                    grad = torch.autograd.grad(sum(t.abs().square().sum() for t in y), x) if training else ()
                results.append([*y, *grad])
    for ours, eager in zip(results[::2], results[1::2]):
        torch.testing.assert_close(ours, eager)
        assert [t.stride() for t in ours] == [t.stride() for t in eager]
    text = found[0].fields["text"]
    assert name not in READ_IN_PARTS or "aten.mul" not in text
    assert pliant.stats()["fallbacks"] == 0


def test_half_precision():
    for length in (5, 6):
        x, f = inputs(torch.bfloat16, length)
        with torch.no_grad():
            torch.testing.assert_close(pliant.compile(rotated)(x, f), rotated(x, f))


@pytest.mark.parametrize("name", ["by a number", "by a complex number", "by real numbers", "rotated", "conjugated"])
def test_infinities_and_what_is_no_number(name):
    values = torch.tensor([0.0, -0.0, 1.0, -2.0, INF, -INF, NAN])
    x = torch.cartesian_prod(values, values).reshape(1, 49, 1, 2).expand(1, 49, 49, 2).contiguous()
    f = torch.view_as_complex(torch.cartesian_prod(values, values)).reshape(49, 1)
    program = READ_IN_PARTS[name]
    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(program)(x, f), program(x, f), equal_nan=True)


def test_results_that_share_memory_do():
    program = STAY["results that share memory"]
    for f in (pliant.compile(program), program):
        one, other = f(*inputs())
        assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def test_results_stay_views_of_inputs():
    f = inputs()[1]
    assert pliant.compile(lambda x, f: torch.view_as_real(f))(f, f).data_ptr() == f.data_ptr()
