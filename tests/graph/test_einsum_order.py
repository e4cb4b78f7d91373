"""The order of a sum of products over symbolic sizes."""

import math
import random

import pytest
import torch

import pliant
from pliant.graph import einsum_order
from pliant.torch_adapter import VARIABLE_FUNCTIONS

EQUATIONS = {
    "...de,...nd,...n->...ne": [lambda n: (n, 4, 5), lambda n: (n, 6, 4), lambda n: (n, 6)],
    "ij,kj,k": [lambda n: (n, 2 * n), lambda n: (n + 1, 2 * n), lambda n: (n + 1,)],
    "ij, kj, k, i -> ": [lambda n: (n, 7), lambda n: (n + 1, 7), lambda n: (n + 1,), lambda n: (n,)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_one_graph_for_all_sizes(equation, monkeypatch):
    """The package that PyTorch asks wants plain numbers: each size had a graph of its own."""
    pliant.reset()
    calls = [[torch.randn(size(n), dtype=torch.float64) for size in EQUATIONS[equation]] for n in (12, 13, 17, 9)]
    expected = [torch.einsum(equation, *operands) for operands in calls]
    monkeypatch.setattr(torch.backends.opt_einsum, "is_available", lambda: True)
    compiled = pliant.compile(lambda *operands: torch.einsum(equation, *operands), backend="aot_eager", dynamic=True)
    for operands, result in zip(calls, expected, strict=True):
        torch.testing.assert_close(compiled(*operands), result)
    assert pliant.stats()["graphs"] == 1


def cost(path, terms, result, sizes):
    terms, total = [frozenset(t) for t in terms], 0
    for i, j in path:
        both, rest = terms[i] | terms[j], [t for k, t in enumerate(terms) if k not in (i, j)]
        kept = both & frozenset(result).union(*rest)
        total += math.prod(sizes[c] for c in both) * (1 if kept == both else 2)
        terms = [*rest, kept]
    return total


def test_orders_give_the_sum_and_are_the_cheapest():
    random.seed(0)
    for _ in range(50):
        sizes = {label: random.randint(2, 9) for label in "abcde"}
        terms = ["".join(random.sample("abcde", random.randint(1, 3))) for _ in range(random.choice([3, 4]))]
        result = "".join(sorted(c for c in set("".join(terms)) if random.random() < 0.4))
        path = einsum_order._best([frozenset(t) for t in terms], frozenset(result), sizes)
        from_left = [(0, 1), *[(0, len(terms) - 2 - k) for k in range(len(terms) - 2)]]
        assert cost(path, terms, result, sizes) <= cost(from_left, terms, result, sizes)
        operands, equation = [torch.randn([sizes[c] for c in t], dtype=torch.float64) for t in terms], f"{','.join(terms)}->{result}"
        found = VARIABLE_FUNCTIONS.einsum(equation, operands, path=[k for pair in path for k in pair])
        torch.testing.assert_close(found, torch.einsum(equation, *operands))
