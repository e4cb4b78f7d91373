"""A loop that breaks the graph in each turn goes on at the same depth, however many turns it takes."""

import gc
import sys
import traceback

import pytest
import torch

import pliant
from pliant.debug import events

TURNS = 2 * sys.getrecursionlimit()


def counting(x, n):
    for i in range(n):
        x = x + i
        pliant.graph_break()
    return x


def ending(x, n):
    turns = 0
    while True:
        x = x + 1
        turns += 1
        if x.sum() > 2 * n:
            break
    return x, turns


def nested(x, n):
    for i in range(n // 50):
        for _ in range(50):
            pliant.graph_break()
            x = x + i
    return x


def handling(x, n):
    caught = 0
    for i in range(n):
        try:
            pliant.graph_break()
            if i % 3 == 0:
                raise ValueError(i)
            x = x + 1
        except ValueError as error:
            pliant.graph_break()
            caught += error.args[0]
        finally:
            x = x * 1
    return x, caught


def inner(x, i):
    pliant.graph_break()
    return x + i


def calling(x, n):
    for i in range(n):
        x = inner(x, i) - 1
    return x


def closing(x, n):
    count = 0

    def add():
        nonlocal count
        count += 1

    for _ in range(n):
        pliant.graph_break()
        add()
    return x, count


def stepping(n):
    for i in range(n):
        pliant.graph_break()
        yield i


def generating(x, n):
    for i in stepping(n):
        x = x + i
    return x


def collecting(x, n):
    found = []
    for i in range(n):
        found.append(x.sum() + i)
        if torch.stack(found).eq(-1).any():
            break
    return torch.stack(found)


PROGRAMS = [counting, ending, nested, handling, calling, closing, generating, collecting]


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_turn_runs_eagerly(program):
    n = 120 if program is collecting else TURNS if program in (counting, ending) else 300
    x = torch.zeros(2)
    expected = program(x, n)
    compiled = pliant.compile(program, backend="eager")
    with events.collect("fallback") as failures:
        for _ in range(2):
            torch.testing.assert_close(compiled(x, n), expected)
    assert not failures


def test_errors_have_the_programs_frames():
    def program(x):
        for i in range(70):
            pliant.graph_break()
            if i == 60:
                raise ValueError("at sixty")
        return x

    def shown(function):
        with pytest.raises(ValueError, match="at sixty") as error:
            function(torch.ones(1))
        frames = traceback.extract_tb(error.value.__traceback__)
        return [(frame.name, frame.line) for frame in frames if frame.filename == __file__]

    assert shown(pliant.compile(program, backend="eager"))[1:] == shown(program)[1:]


def test_what_a_turn_lets_go_of_is_gone():
    gone, seen = [], []

    class Thing:
        def __del__(self):
            gone.append(self)

    @pliant.disable
    def note():
        seen.append(len(gone))

    def program(n):
        for _ in range(n):
            thing = Thing()
            pliant.graph_break()
            del thing
            note()
        return n

    gc.disable()
    try:
        pliant.compile(program, backend="eager")(70)
    finally:
        gc.enable()
    assert seen == list(range(1, 71))


def test_in_another_process(tmp_path):
    """What is kept on disk ends in the same way."""
    compiled = pliant.compile(counting, backend="pliant")
    with pliant.config.patch(cache_dir=str(tmp_path)):
        torch.testing.assert_close(compiled(torch.zeros(2), 200), counting(torch.zeros(2), 200))
        pliant.reset()
        again = pliant.compile(counting, backend="pliant")
        with events.collect("fallback") as failures:
            torch.testing.assert_close(again(torch.zeros(2), 200), counting(torch.zeros(2), 200))
    assert not failures
