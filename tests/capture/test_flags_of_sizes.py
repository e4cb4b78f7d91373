"""Comparisons of sizes given to PyTorch as flags: the truth is guarded, the sizes stay symbolic."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events


def attention(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[2] > 1)


def keeps_dimension(x):
    return x.sum(-1, keepdim=x.shape[2] > 1)


def flag_by_position(x):
    return torch.sum(x, (0,), x.shape[2] > 1)


def inside_python(x):
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=x.shape[2] > 1)


def two_flags(x):
    return torch.topk(x, 2, -1, x.shape[2] > 1, sorted=not x.shape[2] == 1).values


def as_value(x):
    return torch.full((2,), x.shape[2] > 1)


def negated(x):
    return x.sum(-1, keepdim=torch.sym_not(x.shape[2] == 1))


PROGRAMS = (attention, keeps_dimension, flag_by_position, inside_python, two_flags, as_value, negated)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_graph_for_all_sizes_of_one_truth(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for length, recompiles in ((5, 0), (7, 1), (9, 0), (6, 0), (1, 1), (8, 0)):
        x = torch.randn(2, 3, length, 4)
        with events.collect("recompile") as found:
            torch.testing.assert_close(compiled(x), program(x))
        assert len(found) == recompiles, length


def test_a_truth_that_only_data_tells_is_no_flag():
    def program(x):
        return x.sum(0, keepdim=(x > 0).nonzero().shape[0] > 1)

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for x in (torch.ones(3), -torch.ones(3), torch.tensor([1.0, -1.0, -1.0])):
        torch.testing.assert_close(compiled(x), program(x))
    assert set(pliant.stats()["break_reasons"]) == {"data-dependent"}
