"""Derivatives of matrix functions, whose formulas in C++ are products, keep the number of matrices symbolic."""

import pytest
import torch

import pliant


def definite(x):
    return x @ x.mT + 3 * torch.eye(x.shape[-1])


FUNCTIONS = {
    "triangular": lambda x: torch.linalg.solve_triangular(definite(x), x, upper=False),
    "triangular, other side": lambda x: torch.linalg.solve_triangular(definite(x), x, upper=True, left=False, unitriangular=True),
    "solve": lambda x: torch.linalg.solve(definite(x), x),
    "inverse": lambda x: torch.linalg.inv(definite(x)),
    "cholesky": lambda x: torch.linalg.cholesky(definite(x)),
    "determinant": lambda x: torch.linalg.det(definite(x)),
    "exponential": lambda x: torch.linalg.matrix_exp(x / 8),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_one_graph_for_all_numbers_of_matrices(function):
    compiled = pliant.compile(lambda x: function(x), backend="aot_eager", dynamic=True, fullgraph=True)
    before = pliant.stats()["graphs"]
    for rows in (3, 4, 6):
        x = torch.randn(rows, 2, 4, 4)
        ours, eagers = x.clone().requires_grad_(), x.clone().requires_grad_()
        results = compiled(ours), function(eagers)
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
        for result in results:
            result.sin().sum().backward()
        torch.testing.assert_close(ours.grad, eagers.grad, rtol=1e-3, atol=1e-3)
    assert pliant.stats()["graphs"] == before + 1
