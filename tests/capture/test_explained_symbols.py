"""Each guard on sizes and each specialization names the user's line, those that derivatives bring too."""

import math

import pytest
import torch

import pliant
from pliant.debug import events
from pliant.errors import ConstraintError


def view(x, n):
    return x.view(-1, n) * 2  # here


def branch(x, n):
    if x.size(0) > 5:  # here
        return x * 3
    return x * 2


def distance(x, n):
    y = x * 2
    return torch.cdist(y, y)  # here: small ones are computed in another way


def comparison(x, n):
    scale = 2 if n == 4 else 3  # here
    return x * scale


def loop(x, n):
    for _ in range(n):  # here
        x = x + 1
    return x


def derivative(x, n):
    y = x.cumprod(0)  # here: its formula loops over the size
    return y * 2


def module(x, n):
    return torch.nn.functional.pixel_shuffle(x[None, :, :, None].expand(-1, -1, -1, 4), 2)  # here


def inner(x, n):
    return helper(x) + 1


def helper(x):
    return x.view(4, -1)  # here


PROGRAMS = {f.__name__: f for f in (view, branch, distance, comparison, loop, derivative, module, inner)}


def lines(program, *args):
    with events.collect("guard", "specialize", "dynamic") as found:
        pliant.compile(program, dynamic=True)(*args).sum().backward()
    places = {str(e.fields["where"]) for e in found if e.kind in ("guard", "specialize") and not _is_of_python(e)}
    return places, [e for e in found if e.kind == "specialize"]


def _is_of_python(event):
    return "`" in str(event.fields.get("text"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_line_is_named(name):
    places, _ = lines(PROGRAMS[name], torch.randn(8, 6, requires_grad=True), 4 if name != "view" else 3)
    assert any("# here" in place for place in places), places


def test_specializations_are_logged():
    _, fixed = lines(derivative, torch.randn(8, 6, requires_grad=True), 4)
    assert [e.line for e in fixed] == [
        f"s0 (x.size(0)) specialized to 8 at test_explained_symbols.py:{derivative.__code__.co_firstlineno + 1} in "
        "derivative    y = x.cumprod(0)  # here: its formula loops over the size"
    ]


def test_symbols_are_logged():
    with events.collect("dynamic") as found:
        pliant.compile(lambda x, y, n: x * n + y, dynamic=True)(torch.randn(4, 5), torch.randn(4, 5), 7)
    assert [e.line for e in found] == [
        "s0 = x.size(0) and y.size(0): 4 in this call",
        "s1 = x.size(1) and y.size(1): 5 in this call",
        "s2 = n: 7 in this call",
    ]


def test_a_mark_that_the_derivative_contradicts():
    x = torch.randn(8, 6, requires_grad=True)
    pliant.mark_dynamic(x, 0)
    with pytest.raises(ConstraintError, match=r"x.size\(0\).*was marked dynamic") as found:
        pliant.compile(derivative)(x, 4).sum().backward()
    assert "y = x.cumprod(0)" in str(found.value)


@pytest.mark.parametrize(
    "function", [lambda x, p: x * math.hypot(p, 1.0, 2.0), lambda x, p: x * [1, 2, 3][int(p)]]
)
def test_floats_that_are_specialized_are_logged(function):
    program = lambda x, p: function(x, p) + 1  # noqa: E731
    with events.collect("specialize") as found:
        pliant.compile(program, dynamic=True)(torch.randn(4, 5).abs(), 1.25)
    assert len(found) == 1 and "test_explained_symbols.py" in found[0].line
