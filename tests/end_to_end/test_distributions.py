"""torch.distributions inside compiled functions: whole, one compile for all sizes, checks of parameters kept."""

import pytest
import torch
from torch import distributions as d

import pliant


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    """PyTorch's own compiler switches the checks of parameters off for good, whoever in the process called it."""
    monkeypatch.setattr(d.Distribution, "_validate_args", True)

PROGRAMS = {
    "normal": lambda x: d.Normal(x, x.exp()).log_prob(x * 2) + d.Normal(x, x.exp()).entropy(),
    "categorical": lambda x: d.Categorical(logits=x).log_prob(x.argmax(-1)),
    "divergence": lambda x: d.kl_divergence(d.Normal(x, x.exp()), d.Normal(0.0, 1.0)),
    "bernoulli": lambda x: d.Bernoulli(logits=x).log_prob((x > 0).float()),
    "samples": lambda x: d.Normal(x, x.exp()).rsample(),
    "independent": lambda x: d.Independent(d.Laplace(x, x.exp()), 1).log_prob(x + 1),
    "multivariate normal": lambda x: d.MultivariateNormal(x, torch.eye(3) + x.detach().abs().diag_embed()).log_prob(x * 2),
    "multivariate, of a precision": lambda x: d.MultivariateNormal(x, precision_matrix=torch.eye(3)).rsample(),
    "beta": lambda x: d.Beta(x.exp(), x.exp() + 1).log_prob(x.sigmoid()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name):
    program = PROGRAMS[name]
    program(torch.ones(2, 3))  # some fill tables of their own at the first call
    pliant.reset()
    compiled = pliant.compile(program)
    for rows in (2, 3, 5, 4):
        x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(rows), requires_grad=True)
        results = []
        for f in (program, compiled):
            torch.manual_seed(0)
            y = f(x)
            results.append((y.detach(), torch.autograd.grad(y.square().sum(), x)[0]))
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    stats = pliant.stats()
    assert (stats["graph_breaks"], stats["fallbacks"]) == (0, 0)
    assert stats["recompiles"] == 1


def test_a_parameter_out_of_its_domain_is_an_error():
    compiled = pliant.compile(lambda x, s: d.Normal(x, s, validate_args=True).log_prob(x))
    compiled(torch.ones(3), torch.ones(3))
    with pytest.raises(ValueError, match="Expected parameter scale"):
        compiled(torch.ones(3), -torch.ones(3))


def test_a_matrix_that_is_not_positive_definite_is_an_error():
    def f(x, covariance):
        return d.MultivariateNormal(x, covariance, validate_args=True).log_prob(x)

    pliant.reset()
    compiled = pliant.compile(f)
    skewed = torch.eye(3) + torch.tensor([[0.0, 1.0, 0.0]])
    for rows, covariance in enumerate((torch.eye(3), -torch.eye(3), skewed, torch.eye(3) * 2, -torch.eye(3)), 2):
        x, found = torch.ones(rows, 3), []
        for run in (f, compiled):
            try:
                found.append(run(x, covariance))
            except ValueError as error:
                found.append(str(error))
        assert found[0] == found[1] if isinstance(found[0], str) else torch.allclose(found[0], found[1])


@pytest.mark.parametrize("writes", [False, True])
def test_checks_behind_a_returned_tensor(writes):
    """Gradients of `y` may be asked for, so what follows is a function of its own, whose checks may fail."""

    def f(x, w, seen):
        y = x * w
        if writes:  # no call can run anew behind it: the check breaks the graph
            seen.mul_(2)
        z = d.Normal(y, y.exp() + x)
        return y, z.rsample().sum()

    compiled = pliant.compile(f, fullgraph=not writes)
    w = torch.ones(3, requires_grad=True)
    for number in (1.0, -2.0, 3.0):
        x, seen = torch.full((3,), number), [torch.ones(2), torch.ones(2)]
        found = []
        for function, one in zip((f, compiled), seen):
            torch.manual_seed(0)
            try:
                y, z = function(x, w, one)
                found.append([y, z, *torch.autograd.grad(z, (y, w))])
            except ValueError as error:
                found.append([str(error)])
        assert len(found[0]) == len(found[1]) == (1 if number < 0 else 4)
        if number > 0:
            torch.testing.assert_close(*found)
        assert torch.equal(*seen)
