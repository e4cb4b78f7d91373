"""Symbolic floats that C++ takes as `double`: one graph for all values where nothing is decided by them."""

import pytest
import torch
import torch.nn.functional as F

import pliant

PASSED_ON = {
    "layer_norm": lambda x, y, s: F.layer_norm(x, (6,), eps=s),
    "rms_norm": lambda x, y, s: F.rms_norm(x, (6,), eps=s),
    "group_norm": lambda x, y, s: F.group_norm(x[..., None], 2, eps=s),
    "batch_norm": lambda x, y, s: F.batch_norm(x, torch.zeros(6), torch.ones(6), training=True, momentum=s, eps=s),
    "cosine_similarity": lambda x, y, s: F.cosine_similarity(x, y, eps=s),
    "pairwise_distance": lambda x, y, s: F.pairwise_distance(x, y, eps=s),
    "huber": lambda x, y, s: F.huber_loss(x, y, delta=s),
    "smooth_l1": lambda x, y, s: F.smooth_l1_loss(x, y, beta=s),
    "margin": lambda x, y, s: F.margin_ranking_loss(x, y, y.sign(), margin=s),
    "attention": lambda x, y, s: F.scaled_dot_product_attention(x[None], y[None], x[None], scale=s),
    "nan_to_num": lambda x, y, s: torch.nan_to_num(x / 0 * 0, nan=s),
    "pad": lambda x, y, s: F.pad(x, (1, 1), value=s) * 2,
    "tensor": lambda x, y, s: x * torch.tensor(s) + torch.tensor([[s], [x.size(0)]], dtype=torch.float32).sum(),
    "isclose": lambda x, y, s: x * torch.isclose(x, y, atol=s),
    "negated beside itself": lambda x, y, s: x * torch.empty_like(y).uniform_(-s, s),
}
VALUES = (0.5, 0.25, 0.75, 1.5, 2.5)


def outcome(f, x, y, s):
    x.grad = None
    torch.manual_seed(0)
    out = f(x, y, s)
    out.square().sum().backward()
    return out.detach(), x.grad


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()


@pytest.mark.parametrize("name", PASSED_ON)
def test_one_graph(name):
    f = PASSED_ON[name]
    compiled = pliant.compile(f, dynamic=True)
    for n, s in enumerate(VALUES):
        x, y = torch.randn(4 + n, 6, requires_grad=True), torch.randn(4 + n, 6)
        torch.testing.assert_close(
            outcome(compiled, x, y, s), outcome(f, x, y, s), equal_nan=True, atol=1e-4, rtol=1e-4
        )
    assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


def test_decisions_are_guarded():
    """`cdist` computes in another way for each of 0, 1, 2 and the rest."""
    f = lambda x, y, s: torch.cdist(x, y, s)  # noqa: E731
    compiled = pliant.compile(f, dynamic=True)
    for s in (1.5, 1.0, 0.5, 2.0, 0.0, 3.0, 1.5):
        x, y = torch.randn(4, 6, requires_grad=True), torch.randn(5, 6)
        torch.testing.assert_close(outcome(compiled, x, y, s), outcome(f, x, y, s))


def test_errors_stay():
    compiled = pliant.compile(lambda x, s: F.huber_loss(x, x * 2, delta=s), dynamic=True)
    compiled(torch.randn(3), 0.5)
    with pytest.raises(RuntimeError, match="non-positive values for delta"):
        compiled(torch.randn(3), -0.5)
    compiled = pliant.compile(lambda x, s: torch._VF.dropout(x, s, True), dynamic=True)
    kept = {p: (compiled(torch.ones(20_000), p) != 0).float().mean().item() for p in (0.5, 0.25, 0.125)}
    assert all(abs(1 - p - share) < 0.03 for p, share in kept.items()) and pliant.stats()["graphs"] == 2
    with pytest.raises(RuntimeError, match="dropout probability"):
        compiled(torch.ones(3), 1.5)


def test_derivatives_get_the_number_too():
    """`1 / (1 - p)` is worked out in C++ when the derivative is asked for."""
    compiled = pliant.compile(lambda x, s: torch.native_dropout(x, s, True)[0] * 2, dynamic=True)
    for s in (0.5, 0.25, 0.75):
        x = torch.ones(100, requires_grad=True)
        out = compiled(x, s)
        out.sum().backward()
        torch.testing.assert_close(x.grad, out.detach())
        torch.testing.assert_close(out.detach()[out != 0].unique(), torch.tensor([2 / (1 - s)]))
    assert pliant.stats()["graphs"] == 1


@pytest.mark.parametrize("name", ["momentum", "eps"])
def test_statistics_from_outside(name):
    """The numbers are inputs beside the statistics that the operator writes."""
    f = lambda x, mean, var, s: F.batch_norm(x, mean, var, training=True, **{name: s})  # noqa: E731
    compiled = pliant.compile(f, backend="eager")
    for s in VALUES:
        x, mine, theirs = torch.randn(4, 3), [torch.zeros(3), torch.ones(3)], [torch.zeros(3), torch.ones(3)]
        torch.testing.assert_close(compiled(x, *mine, s), f(x, *theirs, s))
        torch.testing.assert_close(mine, theirs)
    assert pliant.stats()["graphs"] == 2 and not pliant.stats()["fallbacks"]
