"""`torch.autograd.Function` in all its forms is captured whole, with eager's values and gradients."""

import pytest
import torch
from tests.capture.against_eager import check
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import pliant

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
W = torch.randn(5, generator=torch.Generator().manual_seed(2), requires_grad=True)
FACTOR = 2.0


class Scale(Function):
    @staticmethod
    def forward(ctx, x, w, k):
        y = (x * w).exp()
        ctx.save_for_backward(x, w, y)
        ctx.k = k
        ctx.mask = x > 0
        return y * k

    @staticmethod
    def backward(ctx, g):
        x, w, y = ctx.saved_tensors
        d = g * y * ctx.k * ctx.mask
        return d * w, (d * x).sum(0), None


def test_saved_inputs_outputs_intermediates_and_attributes():
    check(lambda x, w: Scale.apply(x.sin(), w, 3).cos(), X, W)


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, x)
        return x * 2 + len(ctx.saved_tensors)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * len(ctx.saved_tensors)


def test_tensors_are_saved_once_forward_has_ended():
    found, expected = [], []
    for call, results in ((pliant.compile(Counting.apply, backend="eager", fullgraph=True), found), (Counting.apply, expected)):
        x = torch.ones(3, requires_grad=True)
        call(x).sum().backward()
        results += [call(x), call(x.detach()), x.grad]
    torch.testing.assert_close(found, expected)


def test_without_gradients():
    check(lambda x, w: Scale.apply(x, w, 3), X.detach(), W.detach())

    def f(x, w):
        with torch.no_grad():
            y = Scale.apply(x, w, 2)
        return y + x

    check(f, X, W)


class Mixed(Function):
    @staticmethod
    def forward(ctx, a, b, c):
        ctx.save_for_backward(a, b, c)
        return a * b + c * c

    @staticmethod
    def backward(ctx, g):
        a, b, c = ctx.saved_tensors
        return g * b, g * a, 2 * g * c


def test_the_same_tensor_twice_with_another_between():
    check(lambda x, y: Mixed.apply(x, y, x), X, X.detach().clone().requires_grad_())


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def test_straight_through():
    check(lambda x: StraightThrough.apply(x * 3) ** 2, X)


class NeedsInput(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g * w if ctx.needs_input_grad[0] else None
        gw = (g * x).sum(0) if ctx.needs_input_grad[1] else None
        return gx, gw


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_needs_input_grad(first, second):
    check(lambda x, w: NeedsInput.apply(x, w) + x, X.detach().requires_grad_(first), W.detach().requires_grad_(second))


class Sort(Function):
    @staticmethod
    def forward(ctx, x):
        values, index = x.sort(-1)
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        return values, index

    @staticmethod
    def backward(ctx, g, g_index):
        (index,) = ctx.saved_tensors
        return torch.zeros(ctx.shape, dtype=g.dtype).scatter(-1, index, g)


def test_several_outputs_one_not_differentiable():
    def f(x):
        values, index = Sort.apply(x)
        return values * 2, index

    check(f, X)


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(3)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


def test_mark_dirty():
    def f(x):
        y = x.sin()
        z = InPlace.apply(y)
        assert z is y
        return z * 2, y

    check(f, X)


class Sparse(Function):
    """Does not materialize gradients."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g1, g2):
        if g1 is None:
            return g2 * 30
        if g2 is None:
            return g1 * 20
        return g1 * 2 + g2 * 3


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_missing_gradients(used):
    def f(x):
        outputs = Sparse.apply(x.sin())
        return [outputs[i] for i in used]

    check(f, X)


class Materialized(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g1, g2):
        return g1 + g2 + 1


def test_missing_gradients_are_zeros():
    check(lambda x: Materialized.apply(x)[1], X)


class SetupContext(Function):
    @staticmethod
    def forward(x, w, scale=2.0):
        return x * w * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, scale = inputs
        ctx.save_for_backward(x, w)
        ctx.scale = scale

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * ctx.scale, (g * x).sum(0) * ctx.scale, None


def test_setup_context():
    check(lambda x, w: SetupContext.apply(x, w, 3.0), X, W)
    check(lambda x, w: SetupContext.apply(x, w), X, W)


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2


def test_once_differentiable():
    check(lambda x: Once.apply(x) * 2, X)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.fallbacks_expected  # eager tells the error
def test_differentiating_such_a_function_twice_is_an_error(inside):
    def f(x, p):
        result = Once.apply(x * x) * p
        return torch.autograd.grad(result.sum(), x, create_graph=True)[0] if inside else result

    x, p = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    result = pliant.compile(f)(x, p)
    gradient = result if inside else torch.autograd.grad(result.sum(), x, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


def test_defined_in_the_function():
    def f(x, k):
        class Local(Function):
            @staticmethod
            def forward(ctx, x):
                return x * k

            @staticmethod
            def backward(ctx, g):
                return g * k * 10

        return Local.apply(x)

    check(f, X, 3.0)


class Inner(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return Scale.apply(g, ctx.saved_tensors[0][0], 2)


class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Inner.apply(x) * 2

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            y = Inner.apply(x) * 2
        return torch.autograd.grad(y, x, g)[0]


def test_nested():
    check(lambda x: Inner.apply(x) + Inner.apply(x * 2), X)
    check(lambda x: Outer.apply(x) * 2, X)


class Closure(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = FACTOR
        return x * FACTOR

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor + FACTOR


def test_globals_are_guarded():
    global FACTOR
    compiled = pliant.compile(lambda x: Closure.apply(x).sum())
    try:
        for FACTOR in (2.0, 5.0):
            x = X.detach().clone().requires_grad_()
            compiled(x).backward()
            torch.testing.assert_close(x.grad, torch.full_like(x, 2 * FACTOR))
    finally:
        FACTOR = 2.0


class ReturnsInput(Function):
    @staticmethod
    def forward(ctx, x, w):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 5, None


def test_an_input_is_returned():
    check(lambda x, w: ReturnsInput.apply(x, w) * 2, X, W)
    check(lambda x, w: ReturnsInput.apply(x, w) * 2, X.detach(), W.detach())


class Flagged(Function):
    @staticmethod
    def forward(ctx, x, pair, flag=None):
        ctx.count = len(pair)
        return x * pair[0] + pair[1], ctx.count, None

    @staticmethod
    def backward(ctx, g, *rest):
        assert rest == (None, None)
        return g * ctx.count, None, None


def test_containers_and_numbers():
    check(lambda x, w: Flagged.apply(x, [w.detach(), 2.0], None), X, W)


class SameTwice(Function):
    @staticmethod
    def forward(ctx, a, b):
        return a * 2 + b

    @staticmethod
    def backward(ctx, g):
        return g * 2, g * 7


def test_one_tensor_twice():
    def f(x):
        y = x.sin()
        return SameTwice.apply(y, y)

    check(f, X)


class Printing(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        print("backward")
        return g * 2


def test_side_effects_of_the_backward_happen_there(capsys):
    compiled = pliant.compile(lambda x: Printing.apply(x.sin()).sum())
    x = X.detach().clone().requires_grad_()
    loss = compiled(x)
    assert capsys.readouterr().out == ""
    loss.backward()
    assert capsys.readouterr().out == "backward\n"
    torch.testing.assert_close(x.grad, x.detach().cos() * 2 * 1)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(5, 5))

    def forward(self, x):
        return Linear.apply(x, self.weight, None)


class Linear(Function):
    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


def test_in_a_module():
    layer = Layer()
    check(lambda layer, x: layer(x).relu(), layer, X)


class Mapped(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x.sin() * w, x.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    def backward(ctx, g, h):
        x, w, y = ctx.saved_tensors
        return g * x.cos() * w + h * y.cos(), (g * x.sin()).sum_to_size(w.shape)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda x, w: torch.func.grad(lambda a: Mapped.apply(a, w)[0].sum())(x),
        lambda x, w: torch.vmap(Mapped.apply, in_dims=(0, None))(x, w),
        lambda x, w: torch.vmap(torch.func.grad(lambda a: Mapped.apply(a, w)[1] ** 2))(x),
        lambda x, w: torch.func.jacrev(lambda a: Mapped.apply(a, w)[0])(x),
        lambda x, w: torch.func.vjp(Mapped.apply, x, w.expand_as(x))[1]((x, x.sum())),
    ],
    ids=["grad", "vmap", "vmap of grad", "jacrev", "vjp"],
)
def test_below_transforms(transformed):
    check(transformed, X, W)


def test_a_graph_of_its_own_that_the_backward_differentiates():
    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.leaf = x.detach().requires_grad_()
                ctx.result = (ctx.leaf**3).sin()
            return ctx.result.detach()

        @staticmethod
        def backward(ctx, g):
            return torch.autograd.grad(ctx.result, ctx.leaf, g, retain_graph=True)[0]

    check(lambda x: Inner.apply(x * 2), X)


class Unchecked(Function):
    """Writes behind the back of autograd, and returns what it is given."""

    @staticmethod
    def forward(ctx, room, value, at):
        ctx.at = at
        room.data[at] = value
        return room

    @staticmethod
    def backward(ctx, g):
        return g, g[ctx.at], None


def fill(x, w):
    room = Unchecked.apply(torch.zeros(3, 5), w, 0)
    room = Unchecked.apply(room, room.sum(0) * x[0], 1)
    return Unchecked.apply(room, x[1], 2).sin()


def fill_given(x, w):
    before = w.view(1, 5)
    room = Unchecked.apply(w * 1, x[0, :1].expand(5), slice(0, 5))
    return Unchecked.apply(room, x[1], slice(0, 5)) + before


def fill_what_is_read_before(x, w):
    room = Unchecked.apply(torch.zeros(3, 5), w, 0)
    read = room * 2
    Unchecked.apply(room, x[1], 1)
    return read, room + 1


def fill_parts(x, w):
    one, other = (x * 1).chunk(2)
    one.data.mul_(2)
    other.data[0] = w.detach()
    return one * 3 + other


def fill_unrecorded(x, w):
    with torch.no_grad():
        part = x[1:]
    part.data.mul_(2)
    return part * w


FILLS = [fill, fill_given, fill_what_is_read_before, fill_parts, fill_unrecorded]


@pytest.mark.parametrize("function", FILLS, ids=lambda f: f.__name__)
def test_data_of_what_may_not_be_written_otherwise(function):
    check(function, X, W)


@pytest.mark.parametrize("backend", ["eager", "pliant"])
def test_data_of_what_may_not_be_written_otherwise_behind_breaks(backend):
    def function(x, w):
        room = Unchecked.apply(torch.zeros(3, 5), w, 0)
        pliant.graph_break()
        room = Unchecked.apply(room, room.sum(0) * x[0], 1)
        pliant.graph_break()
        return Unchecked.apply(room, x[1], 2).sin()

    pliant.reset()
    check(function, X, W, whole=False, ways=({"backend": backend},))
    assert set(pliant.stats()["break_reasons"]) == {"user-request"}
