"""Functions defined anew for each call are known by what they do, not by which object they are."""

import functools

import numpy as np
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


def plus(v, by=1, *, times=1):
    return (v + by) * times


def partials(x, *made):
    """One entry serves all of these, each compared with eager; returns the recompiles."""
    compiled = compile_fresh(apply)
    for function in made:
        torch.testing.assert_close(compiled(x, function), apply(x, function))
    return pliant.stats()["recompiles"]


def test_partials_made_anew_are_known_by_what_they_hold():
    x = torch.ones(2)
    assert partials(x, *(functools.partial(plus, by=2) for _ in range(4))) == 0
    assert partials(x, *(functools.partial(functools.partial(plus, 2), times=3) for _ in range(4))) == 0
    assert partials(x, *(functools.partial(lambda v, by: v * by, by=torch.ones(2)) for _ in range(4))) == 0
    assert partials(x, *(functools.partial(scaled(2)) for _ in range(4))) == 0


def test_what_a_partial_holds_counts():
    x = torch.ones(2)
    assert partials(x, *(functools.partial(plus, by=i) for i in (2, 3, 4, 5))) == 1
    others = (functools.partial(plus, 2), functools.partial(plus, times=2), functools.partial(torch.sub, x))
    assert partials(x, functools.partial(plus, by=2), *others) == 3


def test_a_partial_that_is_changed():
    held = functools.partial(plus, by=2)
    x, compiled = torch.ones(2), compile_fresh(lambda x: apply(x, held))
    for change in (
        lambda: None,
        lambda: held.keywords.update(by=5),
        lambda: held.keywords.update(times=2),
        lambda: held.keywords.clear(),
        lambda: held.__setstate__((torch.mul, (7,), {}, None)),
    ):
        change()
        for _ in range(2):
            assert torch.equal(compiled(x), apply(x, held))


def test_partials_compared_and_combined():
    def program(x, f, g):
        both = functools.partial(f, times=3)
        return both(x) + (f is g), {f: 1}.get(g, 0), f == g, f.keywords.get("by"), len(g.args)

    compiled = compile_fresh(program)
    x = torch.ones(2)
    one, two = (functools.partial(plus, by=2) for _ in range(2))
    for pair in ((one, two), (one, one), (two, functools.partial(plus, 1)), (functools.partial(plus), one), (two, two)):
        torch.testing.assert_close(compiled(x, *pair), program(x, *pair))


KNOWN = {}


def test_partials_as_keys_from_outside():
    def program(x, f):
        return x * KNOWN[f]

    first, second = functools.partial(plus), functools.partial(plus)
    KNOWN.update({first: 2, second: 3})
    compiled, x = compile_fresh(program), torch.ones(2)
    for f in (first, second, first):
        assert torch.equal(compiled(x, f), program(x, f))
    KNOWN.clear()


def test_partials_of_bound_methods():
    class Owner:
        def __init__(self, k):
            self.k = k

        def times(self, v, by):
            return v * self.k * by

    x = torch.ones(2)
    assert partials(x, *(functools.partial(Owner(2).times, by=3) for _ in range(4))) == 0
    assert partials(x, *(functools.partial(Owner(k).times, by=3) for k in (2, 3, 4, 5))) == 1


def test_functions_of_pytorch_that_are_followed_are_known_by_their_code():
    """The line search of an optimizer, for one, is given a function that each step defines."""
    pliant.reset()
    namespace = {"__name__": "torch.optim.searched"}
    exec("def define(factor):\n    return lambda x: x * factor", namespace)
    compiled = pliant.compile(lambda function, x: function(x) + 1, backend="eager", dynamic=False)
    x = torch.randn(3)
    for _ in range(3):
        torch.testing.assert_close(compiled(namespace["define"](2.0), x), x * 2 + 1)
    assert pliant.stats()["recompiles"] == 0


def test_functions_of_numpy_are_told_apart():
    """They are objects in C, most of one class."""
    functions = [np.mean, np.sum, np.linalg.norm, np.max, np.mean]
    table = {}
    for program in (
        lambda x, f: x * f(np.array([1.0, 2.0, 4.0])).item(),
        lambda x, f: x * float(f([1.0, 2.0, 4.0])),
        lambda x, f: x * table["f"](np.array([1.0, 2.0, 4.0])).item(),
    ):
        pliant.reset()
        compiled = pliant.compile(program)
        for function in functions:
            table["f"] = function
            x = torch.ones(2)
            torch.testing.assert_close(compiled(x, function), program(x, function))
        assert pliant.stats()["graphs"] == 4 and not pliant.stats()["graph_breaks"]
