"""The minimum cut equals brute force and SciPy's maximum flow."""

import itertools

import numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from pliant.autograd.partition.flow import min_cut

EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 9)), max_size=20)


def cut_value(edges, before):
    return sum(c for a, b, c in edges if a in before and b not in before)


@settings(max_examples=200, deadline=None)
@given(EDGES)
def test_equals_brute_force(edges):
    edges = [e for e in edges if e[0] != e[1]]
    value, before = min_cut(edges, 0, 6)
    sides = itertools.chain.from_iterable(itertools.combinations(range(1, 6), n) for n in range(6))
    assert value == min(cut_value(edges, {0, *side}) for side in sides)
    assert cut_value(edges, before) == value and 0 in before and 6 not in before


@settings(max_examples=100, deadline=None)
@given(EDGES)
def test_equals_scipy(edges):
    capacity = numpy.zeros((7, 7), dtype=numpy.int32)
    for a, b, c in edges:
        if a != b:
            capacity[a, b] += c
    wanted = maximum_flow(csr_matrix(capacity), 0, 6).flow_value
    assert min_cut([e for e in edges if e[0] != e[1]], 0, 6)[0] == wanted


def test_of_equal_cuts_the_one_nearest_the_sink():
    _, before = min_cut([("s", "a", 1), ("a", "b", 1), ("b", "t", 1)], "s", "t")
    assert before == {"s", "a", "b"}
