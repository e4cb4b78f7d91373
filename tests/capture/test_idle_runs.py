"""Loops and calls that run for long without an operation on tensors are left to Python, and say so."""

import pytest
import torch

import pliant

STEPS = 3000


def helper(n):
    total = 0
    for i in range(n):
        total = (total * 31 + i) % 1000003
    return total


def in_a_helper(x):
    return x * helper(2000) + 1


def beginning(x):
    total = i = 0
    while i < 1000:
        total = (total * 31 + i) % 1000003
        i += 1
    return x * total


def behind_operators(x):
    y = x + 1
    for i in range(2000):
        y_next = (i * 31) % 1000003
    return y * y_next


def without_end(x):
    y = x + 1
    i = 0
    while True:
        i += 1
        if i > 2000:
            return y * i


def of_short_calls(x):
    y = x.sin()
    total = 0
    for _ in range(200):
        total += helper(5)
    return y + total


def a_generator(x):
    return x.sin() + sum(i * i % 7 for i in range(2000))


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def recursion(x):
    return x.sin() + fibonacci(15)


def over_text(x):
    y = x.sin()
    found = []
    for letter in "abc def " * 400:
        if letter == " ":
            found.append(len(found))
    return y + len(found), found[-1]


def in_each_turn(x):
    for _ in range(3):
        x = x * helper(2000) / 1000
    return x


def enough_operators(x):
    for i in range(1000):
        x = x + i
    return x


LEFT = (in_a_helper, behind_operators, without_end, of_short_calls, a_generator, recursion, over_text, in_each_turn)


def run(program):
    pliant.reset()
    with pliant.config.patch(idle_steps=STEPS):
        compiled = pliant.compile(program, backend="eager")
        x = torch.ones(2, dtype=torch.float64)
        for _ in range(3):
            assert repr(compiled(x)) == repr(program(x))
    return pliant.stats()


@pytest.mark.parametrize("program", LEFT, ids=lambda program: program.__name__)
@pytest.mark.fallbacks_expected  # of what is left of the function behind the break
def test_a_long_run_is_left_to_python(program):
    stats = run(program)
    assert stats["break_reasons"].keys() == {"long-run"}
    assert stats["graphs"]


@pytest.mark.fallbacks_expected
def test_a_function_that_begins_with_one_runs_eagerly():
    stats = run(beginning)
    assert stats["fallbacks"] == 3 and "it could not be captured: [long-run]" in str(stats["fallback_reasons"])


def test_operators_between_are_no_such_run():
    stats = run(enough_operators)
    assert not stats["graph_breaks"] and not stats["fallbacks"]


def test_a_whole_graph_takes_as_long_as_it_takes():
    with pliant.config.patch(idle_steps=STEPS):
        compiled = pliant.compile(in_a_helper, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2)), in_a_helper(torch.ones(2)))
