"""Inputs whose elements overlap in memory keep their layout, and their gradients are those of eager."""

import torch

import pliant
from pliant.debug import events


def make():
    torch.manual_seed(0)
    base = torch.randn(256).requires_grad_()
    return base, (base * 1).as_strided([2, 3, 4, 8], [8, 64, 32, 1]), torch.randn(2, 3, 4, 8)


def product(query, key):
    return torch.einsum("bcxd,bcyd->bcxy", query, key)


def test_gradient_of_overlapping_chunks():
    grads = []
    for function in (product, pliant.compile(product, backend="aot_eager")):
        base, query, key = make()
        function(query, key).square().sum().backward()
        grads.append(base.grad)
    torch.testing.assert_close(grads[1], grads[0])


def test_a_written_input_that_overlaps_itself_is_left_to_eager():
    def function(x):
        return x.mul_(2)

    given, wanted = (torch.arange(20.0).as_strided((4, 4), (2, 1)) for _ in range(2))
    with torch.no_grad(), events.collect("fallback") as fallbacks:
        pliant.compile(function)(given)
    assert fallbacks
    torch.testing.assert_close(given, function(wanted))


def test_an_input_that_overlaps_itself_is_refused_in_programs_that_are_cut_too():
    def program(x, y):
        x.mul_(2)
        y += x.sin()
        return x

    seen = []
    for f in (program, pliant.compile(program)):
        torch.manual_seed(0)
        leaf = torch.rand(12, requires_grad=True)
        x, y = torch.rand(4, 3, requires_grad=True) * 1, (leaf * 1).as_strided((4, 3), (2, 1))
        f(x, y)
        seen.append(y)
    torch.testing.assert_close(*seen)
