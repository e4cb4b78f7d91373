"""What is compiled costs as much more as it is longer: the calls of Python functions that a program of 4n parts takes, against one of
2n parts and one of n. What grows with the square of a program stands out long before it is slow. And it costs no more calls for each
part than it did: they are the same on every machine."""

import sys

import pytest
import torch

import pliant

MOST = 2.08  # what twice as many parts may add, against what the first did; 2 where all of it is linear, 4 where it is the square


def many_outputs(n):
    return (lambda x: [x + i for i in range(n)]), (torch.randn(4, requires_grad=True),)


def written_views(n):
    def program(*rows):
        for row in rows:
            row.mul_(1.5)

    return program, tuple(torch.randn(n, 4))


def rows_written(n):
    def program(x):
        y = x * 2
        for i in range(n):
            y[i].mul_(i + 1.5)
        return y

    return program, (torch.randn(n, 4),)


def asked_of_each(n):
    def program(x, *others):
        found = 0
        for one in others:
            found += (x + one).is_inference()
        return x + found

    return program, tuple(torch.randn(4) for _ in range(n + 1))


def long_list_given(n):
    def shifted(x, items):
        return x + len(items)

    @torch.no_grad()
    def program(x, *others):
        items = [x, *others]
        for _ in others:
            x = shifted(x, items)
        return x

    return program, tuple(torch.randn(4) for _ in range(n + 1))


# With how many parts each is compiled first.
PROGRAMS = {many_outputs: 16, written_views: 12, rows_written: 12, asked_of_each: 40, long_list_given: 16}


def calls_of_compiling(make, n, backend="aot_eager"):
    """How many functions of Python, and of C, are called in the first call of a program."""
    pliant.reset()
    program, args = make(n)
    compiled, count = pliant.compile(program, backend=backend), 0

    def note(_frame, event, _arg):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        compiled(*args)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(("make", "n"), PROGRAMS.items())
def test_calls_grow_as_the_program_does(make, n):
    calls_of_compiling(make, 4)  # what is found out once
    first, second, third = (calls_of_compiling(make, size) for size in (n, 2 * n, 4 * n))
    assert third - second <= MOST * (second - first)


class Block(torch.nn.Module):
    """Three calls of modules, five of operators."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.scale = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), 2.0

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x))) * self.scale + x


def blocks(n):
    return torch.nn.Sequential(*[Block() for _ in range(n)]), (torch.randn(2, 4),)


def test_capture_of_a_block_takes_as_few_calls_as_it_did():
    calls_of_compiling(blocks, 3, "eager")  # what is found out once
    assert calls_of_compiling(blocks, 8, "eager") - calls_of_compiling(blocks, 4, "eager") <= 4 * 9000
