"""Functions defined anew for each call are known by what they do, not by which object they are."""

import functools

import torch

import pliant


def apply(x, function):
    return function(x) * 2


def scaled(n):
    return lambda v: v * n


def shifted(by=1, *, also=0):
    def inner(v, step=by, *, extra=also):
        return v + step + extra

    return inner


def compile_fresh(function):
    pliant.reset()
    return pliant.compile(function, backend="eager", fullgraph=True)


def test_one_entry_serves_functions_of_the_same_code():
    compiled = compile_fresh(apply)
    x = torch.ones(2)
    for _ in range(4):
        assert torch.equal(compiled(x, lambda v: v + 1), torch.full((2,), 4.0))
    assert pliant.stats()["recompiles"] == 0


def test_what_they_close_over_and_their_defaults_count():
    compiled = compile_fresh(apply)
    x = torch.ones(2)
    for n in (2, 3, 2, torch.tensor(5.0), 4):
        assert torch.equal(compiled(x, scaled(n)), apply(x, scaled(n)))
    for by, also in ((1, 0), (2, 0), (1, 7)):
        assert torch.equal(compiled(x, shifted(by, also=also)), apply(x, shifted(by, also=also)))


def test_functions_compared_by_identity():
    def same(x, f, g):
        return x + (1 if f is g else 2), {f: 1}.get(g, 0), f == g

    compiled = compile_fresh(same)
    x = torch.ones(2)
    for pair in ((scaled(1), scaled(1)), (scaled(1),) * 2, (scaled(2),) * 2, (scaled(1), scaled(1))):
        torch.testing.assert_close(compiled(x, *pair), same(x, *pair))


def test_functions_with_attributes_are_told_apart():
    def outer(function):
        @functools.wraps(function)
        def inner(v):
            return function(v) + 1

        return inner

    compiled = compile_fresh(apply)
    x = torch.ones(2)
    for function in (torch.sin, torch.cos, torch.nn.functional.relu, torch.nn.functional.max_pool2d):
        given = outer(function) if function is not torch.nn.functional.max_pool2d else torch.sin
        assert torch.equal(compiled(x, given), apply(x, given))


def test_alive_over_a_break():
    def program(x):
        double = lambda v: v * 2  # noqa: E731
        if x.sum() > 0:
            x = x + 1
        return double(x)

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for _ in range(4):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert pliant.stats()["recompiles"] == 0


def test_a_class_that_was_changed_serves_no_other_call():
    def program(x):
        class Made:
            count = 0

        Made.count += 1
        return x + 1, Made

    compiled = pliant.compile(program, backend="eager")
    first = compiled(torch.ones(1))[1]
    first.later = True
    first.count = 7
    for _ in range(2):
        made = compiled(torch.ones(1))[1]
        assert not hasattr(made, "later")
        assert made.count == 1
