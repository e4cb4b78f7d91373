"""Whether objects of an abstract class can be made is asked again at each call."""

import abc

import pytest
import torch

import pliant


def program(kind):
    def made(x):
        try:
            kind()
        except TypeError as error:
            return x * 3, str(error)
        return x * 2, ""

    return made


def implement(kind):
    kind.rule = lambda self: 1
    abc.update_abstractmethods(kind)


def demand(kind):
    kind.__abstractmethods__ = frozenset({"other"})


@pytest.mark.parametrize("changes", [(implement,), (demand,), (implement, demand), (demand, implement, demand)])
@pytest.mark.parametrize("derived", [False, True])
def test_objects_can_be_made_or_not(changes, derived):
    class Base(abc.ABC):
        @abc.abstractmethod
        def rule(self):
            return 0

    kind = type("Derived", (Base,), {}) if derived else Base
    eager, x = program(kind), torch.ones(3)
    compiled = pliant.compile(eager, fullgraph=True)
    for change in (lambda kind: None, *changes):
        change(kind)
        for _ in range(2):
            (got, said), (expected, told) = compiled(x), eager(x)
            assert torch.equal(got, expected) and said == told


def test_one_entry_serves_as_long_as_nothing_changes():
    class Kind(abc.ABC):
        scale = 2.0

    compiled = pliant.compile(lambda x: x * Kind().scale, fullgraph=True)
    before = pliant.stats()["graphs"]
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert pliant.stats()["graphs"] == before + 1
