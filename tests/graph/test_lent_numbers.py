"""Symbolic numbers that C++ takes as `double`: one graph for all values where nothing is decided by them."""

import math
import re

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


OF_INTEGERS = ("layer_norm", "cosine_similarity", "huber", "smooth_l1", "margin", "attention", "isclose", "negated beside itself")


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_one_graph_of_integers(name):
    """As numbers of the program's, and as sizes."""
    for f in (PASSED_ON[name], lambda x, y, s: PASSED_ON[name](x, y, x.size(0))):
        pliant.reset()
        compiled = pliant.compile(f, dynamic=True)
        for n in (3, 4, 7, 9):
            x, y = torch.randn(n, 6, requires_grad=True), torch.randn(n, 6)
            torch.testing.assert_close(outcome(compiled, x, y, n), outcome(f, x, y, n), atol=1e-4, rtol=1e-4)
        assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


STAY_INTEGERS = {
    "dimension": (lambda x, y, s: x[None].cumsum(s), (0, 1, 2)),
    "order": (lambda x, y, s: torch.special.polygamma(s, x.abs() + 1), (1, 2, 3)),
    "count": (lambda x, y, s: torch.matrix_power(x @ y.T, s), (2, 3, 4)),
}


@pytest.mark.parametrize("name", STAY_INTEGERS)
def test_integers_that_stay_integers(name):
    f, values = STAY_INTEGERS[name]
    compiled = pliant.compile(f, dynamic=True)
    for s in values:
        x, y = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)
        torch.testing.assert_close(outcome(compiled, x, y, s), outcome(f, x, y, s), atol=1e-3, rtol=1e-3)
    assert not pliant.stats()["fallbacks"]


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


DERIVATIVES = {
    "power of a number": lambda x, y, s: s ** x,
    "power": lambda x, y, s: x.abs() ** s,
    "float power": lambda x, y, s: torch.float_power(x.abs(), s),
    "lerp": torch.lerp,
    "celu": lambda x, y, s: F.celu(x, s),
    "xlogy": lambda x, y, s: torch.xlogy(x, s),
    "random slopes": lambda x, y, s: F.rrelu(x, s / 4, s, training=True),
    "slopes": lambda x, y, s: F.rrelu(x, 0.1, s),
    "alpha dropout": lambda x, y, s: F.alpha_dropout(x, s / 3, training=True),
    "channels": lambda x, y, s: F.feature_alpha_dropout(x[..., None], s / 3, training=True),
    "pool": lambda x, y, s: F.lp_pool1d(x.abs()[None], s, 2),
    "smooth labels": lambda x, y, s: F.cross_entropy(x, torch.zeros(x.size(0), dtype=torch.long), label_smoothing=s / 3),
    "resize": lambda x, y, s: F.interpolate(x[None], scale_factor=s + 1),
    "resize by lines": lambda x, y, s: F.interpolate(x[None], scale_factor=s + 1, mode="linear"),
    "trapezoid": lambda x, y, s: torch.trapezoid(x, dx=s),
    "operator": lambda x, y, s: torch.ops.aten.huber_loss.default(x, y, 1, s),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_ask(name):
    f = DERIVATIVES[name]
    compiled = pliant.compile(f, backend="aot_eager", dynamic=True)
    for n, s in enumerate(VALUES):
        x, y = torch.randn(4 + n, 6, requires_grad=True), torch.randn(4 + n, 6)
        torch.testing.assert_close(outcome(compiled, x, y, s), outcome(f, x, y, s), atol=1e-4, rtol=1e-4)
    assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


SPECIAL = (2.5, 0.5, 1.5, 0.0, 1.0, 2.0, -1.0, -2.5, math.nan, math.inf, -math.inf, -0.0, 3.5)


@pytest.mark.parametrize("name", ["power of a number", "power", "norm", "lerp", "celu", "elu", "logit", "softshrink", "xlogy"])
def test_special_numbers(name):
    f = {
        "norm": lambda x, y, s: torch.linalg.vector_norm(x, s, dim=1),
        "elu": lambda x, y, s: F.elu(x, s),
        "logit": lambda x, y, s: torch.logit(x, s),
        "softshrink": lambda x, y, s: F.softshrink(x, s),
        **DERIVATIVES,
    }[name]  # fmt: skip
    compiled = pliant.compile(f, backend="pliant" if name in ("celu", "elu", "logit", "softshrink") else "aot_eager")
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    x[0, :3] = torch.tensor([0.0, 1.0, 0.25])
    x.requires_grad_()
    for s in SPECIAL:
        if name == "logit" and math.isnan(s):  # eager's gradients are 0 in whole vectors, others in what remains
            continue
        pliant.reset() if name == "norm" else None  # each number has its own formula
        try:
            expected = outcome(f, x, y, s)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error)[:30])):
                outcome(compiled, x, y, s)
        else:
            torch.testing.assert_close(outcome(compiled, x, y, s), expected, equal_nan=True, atol=1e-4, rtol=1e-4)


def test_constants_are_not_taken_for_a_number_that_is_zero_at_first():
    """`1 - 0` is no sign of it."""
    compiled = pliant.compile(lambda x, s: F.layer_norm(x, (6,), eps=s) * 1.0 + 1.0 / (x.exp() + 1.0), dynamic=True)
    f = lambda x, s: F.layer_norm(x, (6,), eps=s) * 1.0 + 1.0 / (x.exp() + 1.0)  # noqa: E731
    for s in (0.0, 0.5, 2.5):
        x = torch.randn(4, 6, requires_grad=True)
        torch.testing.assert_close(compiled(x, s), f(x, s))


def test_order_of_two_numbers():
    """One that is above the other is an error."""
    f = lambda x, low, high: F.rrelu(x, low, high)  # noqa: E731
    compiled = pliant.compile(f, dynamic=True)
    x = torch.randn(4, requires_grad=True)
    for low, high in ((0.1, 0.3), (0.2, 0.7), (0.4, 0.45), (0.5, 0.5)):
        torch.testing.assert_close(compiled(x, low, high), f(x, low, high))
    with pytest.raises(RuntimeError, match="Lower bound"):
        compiled(x, 0.7, 0.2)


def test_derivatives_of_derivatives():
    """They ask again, of what the first made of the number."""

    def f(x, s):
        (g,) = torch.autograd.grad((x**s).sum(), x, create_graph=True)
        return (g * g).sum()

    compiled = pliant.compile(f, dynamic=True)
    for s in (3.5, 2.5, 4.25, 1.0, 2.0, 3.0, 0.5):
        x = torch.rand(4) + 0.1
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected, found = f(one, s), compiled(other, s)
        expected.backward()
        found.backward()
        torch.testing.assert_close((found, other.grad), (expected, one.grad))
    assert not pliant.stats()["fallbacks"]


INTEGERS = {
    "power": lambda x, n: x**n,
    "power of a number": lambda x, n: n**x,
    "by its own length": lambda x, n: x ** x.size(0),
    "norm": lambda x, n: x.norm(n),
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "celu": lambda x, n: F.celu(x - 1, n),
    "trapezoid": lambda x, n: torch.trapezoid(x, dx=n),
    "sizes": lambda x, n: x.expand(n, *x.shape).reshape(-1, n) ** 2,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name):
    f = INTEGERS[name]
    compiled = pliant.compile(f, backend="aot_eager", dynamic=True)
    for n in (3, 5, 4, 7):
        x = torch.rand(n + 1, 6, requires_grad=True)
        expected, found = f(x, n), compiled(x, n)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(*[torch.autograd.grad(one.sum(), x) for one in (found, expected)])
    assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


@pytest.mark.parametrize("name", ["power", "power of a number", "norm"])
def test_special_integers(name):
    f = INTEGERS[name]
    compiled = pliant.compile(f)
    x = torch.rand(4, 6)
    x[0, :2] = torch.tensor([0.0, 1.0])
    x.requires_grad_()
    for n in (3, 5, 0, 1, 2, -1, -3, 4):
        try:
            expected = f(x, n)
            gradient = torch.autograd.grad(expected.sum(), x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error)[:30])):
                torch.autograd.grad(compiled(x, n).sum(), x)
            continue
        found = compiled(x, n)
        torch.testing.assert_close(found, expected, equal_nan=True)
        torch.testing.assert_close(torch.autograd.grad(found.sum(), x), gradient, equal_nan=True)


@pytest.mark.parametrize("name", ["chunk", "unsafe_chunk"])
def test_integers_that_c_divides_by_are_not_lent(name):
    """No operator is given how many parts there are to be, only how long they are."""
    compiled = pliant.compile(lambda x, n: getattr(x, name)(n), backend="aot_eager")
    x = torch.rand(5, 4)
    for n in (3, 2, 4, 5, 1):
        torch.testing.assert_close(compiled(x, n), getattr(x, name)(n), rtol=0, atol=0)


@pytest.mark.parametrize("trains", [False, True])
def test_counts_are_not_tried_with_large_numbers(trains):
    """C++ makes as many tensors as it is told: a large one in the place of the program's would not end."""
    x = torch.rand(5, requires_grad=trains)
    compiled = pliant.compile(torch.combinations, backend="aot_eager")
    for n in (2, 3, 4):
        torch.testing.assert_close(compiled(x, n), torch.combinations(x, n), rtol=0, atol=0)
