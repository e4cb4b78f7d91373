"""`torch.autograd.Function` with a `vmap` staticmethod of its own, or a generated one, below `torch.vmap`: as in eager."""

import pytest
import torch
from tests.capture.against_eager import check
from torch.autograd import Function
from torch.func import grad, jacrev, vmap

import pliant
from pliant.debug import events

SEEN = []


class Halved(Function):
    """A rule that is not what its forward does to each sample: it shows which of the two was called."""

    @staticmethod
    def forward(x, k):
        return x * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k * 10, None

    @staticmethod
    def vmap(info, in_dims, x, k):
        return Halved.apply(x, k) / info.batch_size + (in_dims[0] == 1), in_dims[0]


class Product(Function):
    """Two tensors, each with a batch or without; saved for the backward."""

    @staticmethod
    def forward(a, b):
        return a @ b, a.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.total = output[1] * 2

    @staticmethod
    def backward(ctx, g, h):
        a, b = ctx.saved_tensors
        return g @ b.mT + h * ctx.total, a.mT @ g

    @staticmethod
    def vmap(info, in_dims, a, b):
        a = a.movedim(in_dims[0], 0) if in_dims[0] is not None else a.expand(info.batch_size, *a.shape)
        b = b.movedim(in_dims[1], 0) if in_dims[1] is not None else b.expand(info.batch_size, *b.shape)
        return (torch.bmm(a, b).transpose(0, 1) * 3, a.flatten(1).sum(1)), (1, 0)


class Generated(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a, b):
        return a * b.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b.sum() * 2, (g * a).sum() * torch.ones_like(b)


class InContainers(Function):
    """Arguments in a list, results in a dict, one of them without a batch."""

    @staticmethod
    def forward(pair, flag):
        return {"sum": pair[0] + pair[1], "zero": pair[0].new_zeros(2)}

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, pair, flag):
        (first, second), dims = pair, in_dims[0]
        assert info.randomness == "error" and in_dims[1] is None
        if dims[0] is None:
            first, dims = first.unsqueeze(0), [0, dims[1]]
        if dims[1] is not None:
            second = second.movedim(dims[1], dims[0])
        else:
            second = second.unsqueeze(dims[0])
        return {"sum": first + second, "zero": torch.full((2,), 7.0)}, {"sum": dims[0], "zero": None}


def tensors(*shapes, trained=True):
    made = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=made, dtype=torch.float64).requires_grad_(trained) for shape in shapes]


A, B, C = tensors((3, 4, 4), (4, 3, 4), (4, 4))

MAPPED = {
    "first": lambda a, b, c: vmap(lambda x: Halved.apply(x, 3).sin())(a),
    "second": lambda a, b, c: vmap(lambda x: Halved.apply(x.cos(), 3), in_dims=1, out_dims=1)(b),
    "last": lambda a, b, c: vmap(lambda x: Halved.apply(x.transpose(0, 1), 3), in_dims=-1)(b),
    "without a batch": lambda a, b, c: vmap(lambda x: x + Halved.apply(c, 3))(a),
    "without a batch, computed": lambda a, b, c: vmap(lambda x, y: x + Halved.apply(y * 2, 3), in_dims=(0, None))(a, c),
    "both": lambda a, b, c: vmap(lambda x, y: Product.apply(x, y)[0], in_dims=(0, 1))(a, b),
    "one of two": lambda a, b, c: vmap(lambda x: Product.apply(x.tanh(), c))(a),
    "the other": lambda a, b, c: vmap(lambda x: Product.apply(c, x)[0] * 2 + Product.apply(c, x)[1])(a),
    "twice": lambda a, b, c: vmap(lambda x: Halved.apply(Halved.apply(x, 2) + c, 3))(a),
    "inside a map": lambda a, b, c: vmap(vmap(lambda x: Halved.apply(x, 3).sin(), in_dims=1))(a),
    "inside a map, one of two": lambda a, b, c: vmap(lambda y: vmap(lambda x: Halved.apply(x * y, 3))(a))(c),
    "containers": lambda a, b, c: vmap(lambda x, y: InContainers.apply([x, y], True), in_dims=(0, 1))(a, b),
    "containers, one of two": lambda a, b, c: vmap(lambda y: InContainers.apply([c, y], True)["sum"])(a),
    "generated": lambda a, b, c: vmap(lambda x, y: Generated.apply(x, y), in_dims=(0, 1))(a, b),
    "generated, one of two": lambda a, b, c: vmap(lambda x: Generated.apply(c, x), in_dims=2, out_dims=-1)(a),
    "generated, inside a map": lambda a, b, c: vmap(vmap(lambda x: Generated.apply(x, c[0])), in_dims=1)(a),
    "gradients of samples": lambda a, b, c: vmap(grad(lambda x: Halved.apply(x, 3).sin().sum()))(a),
    "gradients, two outputs": lambda a, b, c: vmap(grad(lambda x: sum(o.sin().sum() for o in Product.apply(x, c))))(a),
    "gradients, generated": lambda a, b, c: vmap(grad(lambda x: Generated.apply(x, c).sin().sum()))(a),
    "mapped gradients": lambda a, b, c: grad(lambda x: vmap(lambda r: Halved.apply(r, 3).sin())(x).sum())(a),
    "jacobian": lambda a, b, c: jacrev(lambda x: vmap(lambda r: Halved.apply(r, 3).sin())(x))(a[:2, 0]),
}


# Derivatives of these derivatives are of what the rule calls, in eager: they break.
ONCE = ("gradients of samples", "gradients, two outputs")


@pytest.mark.parametrize("name", MAPPED)
def test_as_in_eager(name):
    check(MAPPED[name], A, B, C, whole=name not in ONCE, tolerance=1e-9)


@pytest.mark.parametrize("name", MAPPED)
def test_without_gradients(name):
    check(MAPPED[name], *(one.detach() for one in (A, B, C)), tolerance=1e-9, ways=({"backend": "aot_eager"},))


class Noted(Function):
    """A rule with an effect, once for each call."""

    @staticmethod
    def forward(x):
        return x

    @staticmethod
    def vmap(info, in_dims, x):
        SEEN.append((info.batch_size, in_dims))
        return x * 2, in_dims[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


def around(x):
    return vmap(lambda row: Noted.apply(row).sin())(x) + 1


def test_a_rule_with_effects_breaks_and_has_them_once():
    SEEN.clear()
    expected = around(A)
    noted = list(SEEN)
    SEEN.clear()
    assert torch.equal(pliant.compile(around)(A), expected)
    assert SEEN == noted


class Counted(Noted):
    """What the batch's size is, is a number of the program."""

    @staticmethod
    def vmap(info, in_dims, x):
        return x * info.batch_size + x.shape[in_dims[0]], in_dims[0]


def test_varying_batches():
    compiled = pliant.compile(lambda x: vmap(lambda row: Counted.apply(row), in_dims=1)(x), dynamic=True, fullgraph=True)
    with events.collect("capture") as captures:
        for n in (3, 5, 7, 8):
            x = torch.randn(2, n, 4)
            assert torch.equal(compiled(x), (x * n + n).transpose(0, 1))
    assert len(captures) == 1


def refused(function, *inputs):
    pliant.reset()
    compiled = pliant.compile(function)
    torch.testing.assert_close(compiled(*inputs), function(*inputs))
    assert pliant.stats()["break_reasons"]


def test_batches_of_parts_break():
    """The rule was traced for one size of batch, and the last part has another."""
    refused(lambda x: vmap(lambda row: Counted.apply(row), chunk_size=2)(x), A.detach())


class Closing(Halved):
    """A rule that reads a global."""

    @staticmethod
    def vmap(info, in_dims, x, k):
        return x * SEEN[0], in_dims[0]


class Both(Halved):
    generate_vmap_rule = True


class Neither(Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


@pytest.mark.parametrize("function", [lambda x: vmap(lambda r: Both.apply(r, 3))(x), lambda x: vmap(Neither.apply)(x)])
def test_errors_are_eagers(function):
    with pytest.raises(RuntimeError) as expected:
        function(A)
    with pytest.raises(RuntimeError) as found:
        pliant.compile(function)(A)
    assert str(found.value) == str(expected.value)


def test_a_global_that_the_rule_reads_is_guarded():
    SEEN[:] = [2.0]
    compiled = pliant.compile(lambda x: vmap(lambda row: Closing.apply(row, 1))(x), fullgraph=True)
    assert torch.equal(compiled(A), A * 2)
    SEEN[:] = [3.0]
    assert torch.equal(compiled(A), A * 3)
