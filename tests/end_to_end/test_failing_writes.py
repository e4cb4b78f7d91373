"""A part of the table of operators that fail in functions that write: what it found, and a sample of the rest."""

import pytest
import torch
from tests.end_to_end.failing_writes import Case, difference, sample

import pliant

FOUND = [
    Case("index", "input", "before", "list", caught=False),  # a lookup and a write in one native call
    Case("index", "input", "before", "list", caught=True),
    Case("index of the written", "two inputs", "before", "list", caught=False),
    Case("gather", "view of an input", "around", "print", caught=True),
    Case("embedding", "written by the same", "after", "dict", caught=True),  # the value of a write may fail
    Case("cholesky", "two inputs", "before", "module", caught=True),
]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("case", FOUND, ids=str)
def test_case_is_as_in_eager(case, grad):
    assert difference(case, grad) is None
    pliant.reset()


@pytest.mark.parametrize("case", sample(10), ids=str)
def test_sampled_case_is_as_in_eager(case):
    assert difference(case) is None
    pliant.reset()


def test_a_graph_that_cannot_fail_writes_where_it_computes():
    pliant.reset()
    compiled = pliant.compile(lambda x, y: x.add_(y.sin()).sum(), fullgraph=True)
    compiled(torch.zeros(3), torch.ones(3))
    assert pliant.stats()["fallbacks"] == 0
    pliant.reset()
