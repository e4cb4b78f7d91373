"""Derivatives of derivatives at batches of any size: one graph where formulas in C++ would ask for plain sizes."""

import pytest
import torch
import torch.nn.functional as F

import pliant

SIZES = (5, 7, 6, 9)


@pytest.fixture(autouse=True)
def counted_alone():
    pliant.reset()


def _weights(*shapes):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def _indices(n):
    return torch.arange(3 * n).reshape(n, 3) % 5


CASES = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=1), (4, 8), ((3, 4, 3), (3,))),
    "conv2d strided": (lambda x, w, b: F.conv2d(x, w, b, stride=2), (4, 7, 7), ((3, 4, 3, 3), (3,))),
    "conv2d dilated": (lambda x, w, b: F.conv2d(x, w, b, dilation=2), (4, 7, 7), ((3, 4, 3, 3), (3,))),
    "conv2d by channel": (lambda x, w, b: F.conv2d(x, w, b, groups=4), (4, 5, 5), ((8, 1, 3, 3), (8,))),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b, padding=1), (2, 3, 3, 3), ((3, 2, 3, 3, 3), (3,))),
    "conv_transpose2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1), (4, 5, 5), ((4, 3, 3, 3), (3,)),
    ),
    "conv_transpose2d in groups": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, groups=2), (4, 3, 3), ((4, 3, 3, 3), (6,)),
    ),
    "embedding": (lambda x, w: F.embedding(_indices(len(x)), w) * x[:, None], (4,), ((5, 4),)),
    "embedding with padding": (lambda x, w: F.embedding(_indices(len(x)), w, padding_idx=1) * x[:, None], (4,), ((5, 4),)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (3, 4), ((3,), (3,))),
    "batch_norm by statistics": (lambda x, w: F.batch_norm(x, w.detach(), w.detach().exp(), w), (3,), ((3,),)),
    "instance_norm": (lambda x: F.instance_norm(x), (3, 4), ()),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2, 2), (2, 4, 4), ()),
    "glu": (lambda x: F.glu(x, 1), (4, 3), ()),
    "glu of rows": (lambda x: F.glu(x.repeat(2, 1), 0), (4,), ()),
    "abs": (lambda x: x.abs() * x, (4,), ()),
    "l1_loss": (lambda x: F.l1_loss(x, x.cos()) * x.sum(), (4,), ()),
}  # fmt: skip


def _penalty(function):
    def program(x, *weights):
        y = function(x, *weights).tanh().pow(3)
        found = torch.autograd.grad(y.sum(), (x, *weights), create_graph=True)
        return y.sum() + sum((one * one).sum() for one in found)

    return program


def _outcome(program, shape, n, weights):
    torch.manual_seed(n)
    x = torch.randn(n, *shape, dtype=torch.float64, requires_grad=True)
    out = program(x, *weights)
    return out, *torch.autograd.grad(out, (x, *weights))


@pytest.mark.parametrize("name", CASES)
def test_gradient_penalties_are_one_graph(name):
    function, shape, shapes = CASES[name]
    program, weights = _penalty(function), _weights(*shapes)
    compiled = pliant.compile(program, backend="aot_eager")
    for n in SIZES:
        torch.testing.assert_close(_outcome(compiled, shape, n, weights), _outcome(program, shape, n, weights))
    assert pliant.stats()["graphs"] == 2


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("missing", range(4))
def test_second_derivatives_of_convolutions_are_pytorchs(groups, missing):
    """On tensors with data, without one of the three tangents."""
    from pliant.graph.map_rules.derivatives import _convolution_double_backward

    torch.manual_seed(0)
    options = [2, 1], [1, 0], [1, 2], False, [0, 0], groups
    x, w = (torch.randn(shape, dtype=torch.float64) for shape in ((2, 4, 8, 9), (6, 4 // groups, 3, 3)))
    y = torch.ops.aten.convolution(x, w, None, *options)
    tangents = [None if at == missing else torch.randn_like(like) for at, like in enumerate((x, w, y[0, :, 0, 0]))]
    given = (*tangents, torch.randn_like(y), w, x, *options, [True] * 3)
    torch.testing.assert_close(_convolution_double_backward(*given), torch.ops.aten._convolution_double_backward(*given))


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_derivatives_of_normalized_batches_are_pytorchs(trains, scaled):
    """On tensors with data."""
    from pliant.graph.map_rules.derivatives import _batch_norm_backward

    torch.manual_seed(0)
    x, dy = (torch.randn(5, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    w, mean, var = (torch.rand(3, dtype=torch.float64) for _ in range(3))
    of_batch = x.mean((0, 2)), (x.var((0, 2), correction=0) + 1e-5).rsqrt()
    given = dy, x, w if scaled else None, mean, var, *of_batch, trains, 1e-5, [True, True, True]
    torch.testing.assert_close(_batch_norm_backward(*given), torch.ops.aten.native_batch_norm_backward(*given))
    assert _batch_norm_backward(*[one.detach() if isinstance(one, torch.Tensor) else one for one in given]) is NotImplemented


@pytest.mark.parametrize("outer", ["jacfwd", "vjp", "grad"])
def test_derivatives_around_maps_are_one_graph(outer):
    def sample(x, w):
        return F.conv2d(x.reshape(1, 1, 2, 2), w[:1, None, :1, None], w[2, :1]).reshape(4).tanh()

    def mapped(x, w):
        return torch.vmap(torch.func.grad(lambda a, b: sample(a, b).pow(2).sum()), in_dims=(0, None))(x, w)

    def program(x, w):
        if outer == "jacfwd":
            return torch.vmap(lambda a: torch.func.jacfwd(lambda b: sample(b, w))(a).sum(1))(x).sum()
        if outer == "vjp":
            out, pull = torch.func.vjp(mapped, x, w)
            return sum(one.sum() for one in pull(out.cos()))
        return torch.func.grad(lambda a: mapped(a, w).sum())(x).sum()

    compiled, weights = pliant.compile(program, backend="aot_eager"), _weights((4, 4))
    for n in SIZES:
        torch.testing.assert_close(_outcome(compiled, (4,), n, weights), _outcome(program, (4,), n, weights))
    assert pliant.stats()["graphs"] == 2 and not pliant.stats()["graph_breaks"]


NORMS = {
    "layer_norm": lambda x, w: F.layer_norm(x, (4,), w[0], w[1]),
    "layer_norm of planes": lambda x, w: F.layer_norm(x.view(-1, 2, 2), (2, 2), w[0].view(2, 2)).flatten(1) + w[1],
    "layer_norm without weights": lambda x, w: F.layer_norm(x, (4,)) * w[0],
    "group_norm": lambda x, w: F.group_norm(x.view(-1, 4, 1) * w[:, :1].t(), 2, w[0], w[1])[..., 0],
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("inner", ["norm", "gradient"])
def test_tangents_of_norms_are_one_graph(name, inner):
    def program(x, w):
        function = NORMS[name] if inner == "norm" else torch.func.grad(lambda a, b: NORMS[name](a, b).tanh().sum(), argnums=(0, 1))
        out, pushed = torch.func.jvp(function, (x, w), (x.cos(), w.sin()))
        return sum(one.sum() for one in (*out, *pushed)) if inner == "gradient" else (out * pushed).sum()

    compiled, weights = pliant.compile(program, backend="aot_eager"), _weights((2, 4))
    for n in SIZES:
        torch.testing.assert_close(_outcome(compiled, (4,), n, weights), _outcome(program, (4,), n, weights))
    assert pliant.stats()["graphs"] == 2 and not pliant.stats()["graph_breaks"]


TANGENTS = {
    "cat": lambda x, w: torch.cat([x[2:], x[:2] * 2]) @ w,
    "stack": lambda x, w: torch.stack([x, x.cos()], 1)[:, 0] @ w,
    "tangents that lie otherwise": lambda x, w: (w @ x).tanh(),
}


@pytest.mark.parametrize("name", TANGENTS)
def test_tangents_of_mapped_jacobians_are_one_graph(name):
    def jacobian(x, w):
        return torch.func.jacfwd(lambda a: TANGENTS[name](a, w))(x).sum(1)

    def program(x, w):
        out, pushed = torch.func.jvp(lambda x: torch.vmap(jacobian)(x, w[:4] * x[:, :, None]), (x,), (x.cos(),))
        return (out + pushed).sum()

    compiled, weights = pliant.compile(program, backend="aot_eager"), _weights((4, 4))
    for n in SIZES:
        torch.testing.assert_close(_outcome(compiled, (4,), n, weights), _outcome(program, (4,), n, weights))
    assert pliant.stats()["graphs"] == 2 and not pliant.stats()["graph_breaks"]
