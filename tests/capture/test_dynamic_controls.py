"""What users say about sizes beforehand: marks, ranges, names; what contradicts them is an error at the line."""

import pytest
import torch

import pliant
from pliant import config
from pliant.errors import ConstraintError


def marked(*sizes, dim=0, **bounds):
    x = torch.randn(*sizes)
    pliant.mark_dynamic(x, dim, **bounds)
    return x


def graphs(program, *calls, **options):
    """How many graphs the calls made; their results are eager's."""
    pliant.reset()
    compiled = pliant.compile(program, **options)
    for args in calls:
        torch.testing.assert_close(compiled(*args), program(*args))
    return pliant.stats()["graphs"]


def double(x):
    return x * 2


def test_a_marked_size_is_a_symbol_from_the_start():
    assert graphs(double, (marked(4, 3),), (torch.randn(5, 3),), (marked(6, 3),)) == 1


@pytest.mark.parametrize("size", [0, 1])
def test_marks_hold_for_small_sizes(size):
    assert graphs(double, (marked(size, 3),), (torch.randn(5, 3),), (torch.randn(1 - size, 3),)) == 1


def test_a_range_is_part_of_the_guards():
    def program(x):
        return x * 2 if x.shape[0] > 30 else x + 1

    inside = [(marked(n, 3, min=2, max=20),) for n in (4, 2, 20)]
    assert graphs(program, *inside) == 1
    assert graphs(program, *inside, (torch.randn(25, 3),), (torch.randn(40, 3),)) == 3


CONTRADICTIONS = {
    "a branch": (lambda x: x * 2 if x.shape[0] == 4 else x, "x.shape[0] == 4"),
    "a loop": (lambda x: [i for i in range(x.shape[0])], "range(x.shape[0])"),
    "an operator": (lambda x: x + torch.ones(4, 1), "x + torch.ones(4, 1)"),
    "a method": (lambda x: x.view(4, 3) * 2, "x.view(4, 3)"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_names_the_line(name):
    program, line = CONTRADICTIONS[name]
    with pytest.raises(ConstraintError, match=r"`?x.size\(0\)`? .*marked dynamic") as caught:
        pliant.compile(program)(marked(4, 3))
    assert line in str(caught.value)


def test_a_branch_that_excludes_a_part_of_the_range_is_an_error():
    program = lambda x: x * 2 if x.shape[0] > 10 else x  # noqa: E731
    with pytest.raises(ConstraintError, match=r"\[2, 10\]"):
        pliant.compile(program)(marked(4, 3, min=2, max=20))
    assert graphs(lambda x: program(x) + 1, (marked(4, 3),), (torch.randn(11, 3),)) == 2


def test_a_size_outside_its_range_is_an_error():
    with pytest.raises(ConstraintError, match=r"x.size\(0\) is 40, outside the range \[2, 20\]"):
        pliant.compile(double)(marked(40, 3, min=2, max=20))


def test_maybe_marked_sizes_may_be_specialized():
    def program(x):
        return x * 2 if x.shape[0] == 4 else x + 1

    calls = [(torch.randn(n, 3),) for n in (4, 5, 6)]
    for (x,) in calls:
        pliant.maybe_mark_dynamic(x, 0)
    assert graphs(double, *calls) == 1
    assert graphs(program, *calls) == 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_static_marks_win(dynamic):
    calls = [(torch.randn(n, 3),) for n in (4, 5, 6)]
    for (x,) in calls:
        pliant.mark_static(x, 0)
    assert graphs(double, *calls, dynamic=dynamic) == 3


@pytest.mark.parametrize("name", ["_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices"])
def test_marks_that_torch_leaves_on_tensors(name):
    calls = [(torch.randn(n, 3),) for n in (4, 5, 6)]
    for (x,) in calls:
        setattr(x, name, {0})
    assert graphs(double, *calls) == 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [("x", 1), ("L['x']", 1), ("x.size(0)", 1), ("L['x'].size(0)", 1), ("[a-z]", 1), ("x.size(1)", 2), ("y", 2)],
)
def test_sources_by_name(source, expected):
    with config.patch(dynamic_sources=(source,)):
        assert graphs(double, *[(torch.randn(n, 3),) for n in (4, 5, 6)]) == expected


def test_numbers_by_name():
    with config.patch(dynamic_sources=("n",)):
        assert graphs(lambda x, n: x * n, *[(torch.ones(3), n) for n in (4, 5, 6)]) == 1


def test_parts_of_containers_by_name():
    with config.patch(dynamic_sources=("items[0]",)):
        assert graphs(lambda items: items[0] * 2, *[([torch.randn(n)],) for n in (4, 5, 6)]) == 1
