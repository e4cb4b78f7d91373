"""A part of `size_programs`: whole graphs for all sizes, right with gradients and at sizes 1 and 0."""

import pytest
import torch
from tests.end_to_end import size_programs
from tests.end_to_end.dynamic_programs import PROGRAMS, SIZES, check

import pliant
from pliant.debug import events

WHOLE = [name for name in size_programs.PROGRAMS if name not in size_programs.SPECIALIZED | size_programs.BROKEN]


@pytest.mark.parametrize("name", WHOLE[::4])
def test_one_graph_with_gradients(name):
    assert not check(name, True, True, SIZES[:3])


@pytest.mark.parametrize("name", WHOLE[2::8])
def test_by_default_and_at_small_sizes(name):
    assert not check(name, False, None, (*SIZES[:3], (1, 6), (5, 1), (0, 6)))


@pytest.mark.parametrize("name", sorted(size_programs.SPECIALIZED))
def test_what_is_specialized_says_so(name):
    program, inputs = PROGRAMS[name]
    pliant.reset()
    with events.collect("specialize") as found:
        args = [a.requires_grad_() for a in inputs(5, 6)]
        torch.testing.assert_close(pliant.compile(program, dynamic=True)(*args), program(*args))
    assert found and all("size_programs.py" in str(e.fields["where"]) for e in found)


@pytest.mark.parametrize("select", [torch.masked_select, torch.Tensor.masked_select])
def test_selections_by_a_mask_are_one_graph_with_gradients(select):
    pliant.reset()
    compiled = pliant.compile(lambda x: (select(x, x > 0) * 2).sum(), dynamic=True)
    for rows in (3, 5, 6):
        x = torch.arange(-4.0, rows * 4 - 4).view(rows, 4).requires_grad_()
        compiled(x).backward()
        assert torch.equal(x.grad, (x.detach() > 0) * 2.0)
    assert pliant.stats()["graphs"] == 1


def test_histograms_of_columns_are_whole():
    def program(x):
        counts, edges = torch.histogramdd(x, [2, 3], weight=x[:, 0])
        return counts, *edges, torch.histogramdd(x, edges)[0]

    compiled = pliant.compile(program, backend="aot_eager", fullgraph=True)
    for rows in (5, 7):
        x = torch.rand(rows, 2)
        torch.testing.assert_close(compiled(x), program(x))
