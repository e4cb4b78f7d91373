"""Arguments that are one object or two: guarded where it can matter, and nowhere else."""

import itertools

import pytest
import torch
from tests.guards.shared_arguments import OBJECT_PROGRAMS, OBJECTS, TENSOR_PROGRAMS, TENSORS, behind_break, differences

import pliant


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    yield
    pliant.reset()


@pytest.mark.parametrize("name", TENSOR_PROGRAMS)
def test_tensors(name):
    program = TENSOR_PROGRAMS[name]
    assert not differences(program, TENSORS["leaf"])
    assert not differences(behind_break(program), TENSORS["plain"])


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects(kind):
    wrong = [one for program in OBJECT_PROGRAMS.values() for one in differences(program, OBJECTS[kind])]
    assert not wrong, "\n".join(wrong)


def selects(x, c0, c1, c2, c3, c4):
    for i, flag in enumerate((c0, c1, c2, c3, c4)):
        x = torch.where(flag, x + i, x)
    return x


def selects_behind_breaks(x, c0, c1, c2, c3, c4):
    x = torch.where(c0, x + 1, x)
    pliant.graph_break()
    x = torch.where(c1, x + 2, torch.where(c2, x + 3, x))
    pliant.graph_break()
    return torch.where(c3, x + 4, torch.where(c4, x + 5, x))


@pytest.mark.parametrize("program", [selects, selects_behind_breaks])
def test_entries_do_not_grow_with_the_ways_to_share(program):
    one, other = torch.tensor([True, False]), torch.tensor([False, True])
    compiled = pliant.compile(program, backend="eager")
    for flags in itertools.product((one, other), repeat=5):
        x = torch.ones(2)
        assert torch.equal(compiled(x, *flags), program(x, *flags))
    assert pliant.stats()["recompiles"] == 0


def test_what_is_written_is_told_apart_from_the_rest_only():
    def program(x, log, first, second):
        log.append(1)
        return x * len(first) + len(second)

    compiled = pliant.compile(program, backend="eager")
    x, shared = torch.ones(2), [1, 2]
    compiled(x, [], [1, 2], [3, 4])
    compiled(x, [], shared, shared)
    assert pliant.stats()["recompiles"] == 0
