"""Programs that put their own in place of what the standard library makes in C, before Pliant knows of it."""

import builtins
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import own_process
import pliant

_PATCHED = """
    import collections, functools, sys
    import torch
    {first}

    class Doubling(collections.deque):
        def append(self, item):
            super().append(4.0 if item == 2.0 else item)

    class Fives(collections.defaultdict):
        def __missing__(self, key):
            return 5.0 if key == "key" else super().__missing__(key)

    class Tripling(collections.OrderedDict):
        def items(self):
            return [("a", 6.0)] if list(self) == ["a"] else super().items()

    class Sevenfold(functools.partial):
        def __call__(self, *given):
            found = super().__call__(*given)
            return found * 7 if self.func is torch.mul else found

    collections.deque, collections.defaultdict = Doubling, Fives
    collections.OrderedDict, functools.partial = Tripling, Sevenfold
    import pliant

    def in_a_deque(x):
        items = collections.deque()
        items.append(2.0)
        return x * items[0]

    def of_partial(x):
        return functools.partial(torch.mul, 2)(x)

    def missing(x):
        return x * collections.defaultdict(lambda: 2.0)["key"]

    def in_order(x):
        for _, factor in collections.OrderedDict(a=2.0).items():
            x = x * factor
        return x

    for f in (in_a_deque, of_partial, missing, in_order):
        torch.testing.assert_close(pliant.compile(f)(torch.ones(3)), f(torch.ones(3)))
"""


@pytest.mark.parametrize("first", ["", "import pliant"])
def test_classes_put_in_place_of_those_of_the_library(first):
    """`first`: whether Pliant is imported before, which loads what captures at the first call."""
    program = textwrap.dedent(_PATCHED.format(first=first))
    own_process.ran(program, check=True)


def test_builtins_of_the_program_do_not_reach_the_compiler(monkeypatch):
    """What a program puts in place of a builtin after Pliant was imported is called by the program, and by other libraries."""
    callers, own = [], str(Path(pliant.__file__).parent)

    def heard(name):
        original = getattr(builtins, name)

        def replaced(*given, **named):
            callers.append((name, sys._getframe(1).f_code.co_filename))
            return original(*given, **named)

        return replaced

    def program(x, items):
        y = torch.relu(x * sum(items) + max(items)).view(-1, 1)
        return y.sum(0) + y.mean(), any(items)

    x, items = torch.ones(3), [1, 2]
    expected = program(x, items)
    compiled = pliant.compile(program, backend="eager")
    for name in ("sum", "any", "all", "max", "min", "len", "isinstance", "sorted"):
        monkeypatch.setattr(builtins, name, heard(name))
    found = compiled(x, items)
    monkeypatch.undo()
    torch.testing.assert_close(found, expected)
    assert not [caller for caller in callers if caller[1].startswith(own)]
