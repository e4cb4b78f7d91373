"""`torch.func` inside compiled functions is captured whole; around them it gives eager's answers."""

import functools

import pytest
import torch
import torch.nn.functional as F
from tests.capture.against_eager import check
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

import pliant

GENERATOR = torch.Generator().manual_seed(1)
X = torch.randn(4, 5, generator=GENERATOR)
Y = torch.randn(4, 5, generator=GENERATOR)
W = torch.randn(5, 5, generator=GENERATOR)
XG, WG = X.clone().requires_grad_(), W.clone().requires_grad_()


def loss(w, x):
    return (x @ w).tanh().pow(2).sum()


# ---- derivatives
def test_grad():
    check(lambda w, x: grad(loss)(w, x), W, X)
    check(lambda w, x: grad(loss, argnums=1)(w, x), W, X)
    check(lambda w, x: grad(loss, argnums=(0, 1))(w, x), W, X)


def test_grad_and_value():
    def with_aux(w, x):
        y = x @ w
        return y.pow(2).sum(), {"y": y, "n": [y * 2]}

    check(lambda w, x: grad_and_value(loss)(w, x), W, X)
    check(lambda w, x: grad(with_aux, has_aux=True)(w, x), W, X)
    check(lambda w, x: grad_and_value(with_aux, has_aux=True)(w, x), W, X)


def test_grad_of_structures():
    def f(parameters, x):
        return (x @ parameters["w"] + parameters["b"][0]).sin().sum()

    check(lambda w, x: grad(f)({"w": w, "b": [x[0]]}, x), W, X)


def test_closures_and_keywords():
    def f(w, x):
        return grad(lambda v, *, k: (x @ v * k).sin().sum())(w, k=2.0)

    check(f, W, X)


def test_nested():
    check(lambda x: grad(lambda v: grad(lambda u: (u**3).sum())(v).sin().sum())(x), X)


def test_the_result_is_differentiable():
    check(lambda w, x: grad(loss)(w, x).pow(2).sum(), WG, XG)

    def maml(w, x):
        fast = w - 0.1 * grad(lambda v: (x @ v).pow(2).mean())(w)
        return (x @ fast).pow(2).mean()

    check(maml, WG, X)


OUTSIDE = grad(lambda w, x: (x @ w).cos().sum())


def test_made_outside():
    check(lambda w, x: OUTSIDE(w, x) * 2, W, X)
    check(grad(loss), W, X)


def test_vjp():
    def f(w, x):
        out, pull = vjp(lambda a, b: (b @ a).sin(), w, x)
        return out, pull(torch.ones_like(out)), pull(out * 2)[0]

    check(f, W, X)

    def with_aux(x):
        out, pull, aux = vjp(lambda a: ({"s": a.sin(), "c": a.cos()}, a * 2), x, has_aux=True)
        return aux, pull({"s": x, "c": x})

    check(with_aux, X)


def drawn_and_pulled(x):
    out, pull = vjp(lambda a: a * torch.rand(4, 5), x)
    return out, pull(out)[0], torch.rand(2)


def drawn_and_moved(x):
    out, along = linearize(lambda a: F.dropout(a.sin(), 0.5), x)
    return out, along(x), torch.rand(2)


def mapped_and_pulled(x):
    def of_row(row):
        out, pull = vjp(lambda a: a * torch.rand(5), row)
        return pull(out.cos())[0]

    return vmap(of_row, randomness="different")(x), torch.rand(2)


@pytest.mark.parametrize("f", [drawn_and_pulled, drawn_and_moved, mapped_and_pulled])
def test_a_derivative_is_of_the_numbers_that_were_drawn(f):
    torch.manual_seed(1)
    wanted = f(X)
    pliant.reset()
    torch.manual_seed(1)
    torch.testing.assert_close(pliant.compile(f)(X), wanted)
    assert "random-state" in pliant.stats()["break_reasons"]


def test_linearize():
    def f(x, t):
        out, along = linearize(lambda a: {"s": a.sin() * a}, x)
        return out, along(t), along(x)["s"]

    check(f, X, Y)


@pytest.mark.parametrize("create_graph", [False, True])
def test_vectorized_jacobians_of_autograd(create_graph):
    def f(x):
        return torch.autograd.functional.jacobian(
            lambda a: (a.sin() @ a.t(), a.sum(0)), x, vectorize=True, create_graph=create_graph
        )

    check(f, XG)


def test_batched_gradients():
    def f(x):
        y = x.sin() * x
        unused = torch.ones(2, requires_grad=True)
        given = torch.stack([y.detach(), torch.ones_like(y)])
        return torch.autograd.grad(y, (x, unused), given, is_grads_batched=True, allow_unused=True)

    check(f, XG)


def test_a_break_leaves_no_transform_behind():
    def f(x):
        jacobian = torch.autograd.functional.jacobian
        return jacobian(lambda a: a.sin(), x, vectorize=True, strategy="forward-mode")

    torch.testing.assert_close(pliant.compile(f)(X[0]), f(X[0]))
    assert torch.randn(2).shape == (2,)  # refused inside `vmap`


def test_jvp():
    check(lambda x, t: jvp(lambda a: a.sin() * 2, (x,), (t,)), X, Y)
    check(lambda w, x: jvp(lambda a, b: (b @ a).pow(2), (w, x), (torch.ones_like(w), torch.ones_like(x))), W, X)


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_jacobians(transform):
    check(lambda x: transform(lambda a: a.sin() @ a.t())(x), X)
    check(lambda w, x: transform(lambda a, b: {"y": b @ a, "z": b.sum()}, argnums=(0, 1))(w, x), W, X)


def test_jacrev_in_chunks():
    check(lambda x: jacrev(lambda a: a.sin().sum(1), chunk_size=2)(x), X)


def test_hessian():
    check(lambda x: hessian(lambda a: (a**3).sum())(x), X[0])


# ---- vmap
def test_vmap():
    check(lambda x: vmap(lambda row: row.sum() * row)(x), X)
    check(lambda x: vmap(lambda row: row.sum() * row)(x), XG)
    check(lambda x, y: torch.vmap(torch.dot)(x, y), X, Y)


def test_vmap_dims():
    check(lambda x, y: vmap(lambda a, b: a * b.sum(), in_dims=(0, None))(x, y), X, Y)
    check(lambda x, y: vmap(lambda a, b: a * b, in_dims=1, out_dims=1)(x, y), X, Y)
    check(lambda x: vmap(lambda d: d["a"] + d["b"][0], in_dims=({"a": 0, "b": [1]},))({"a": x, "b": [x.t()]}), X)
    check(lambda x: vmap(lambda a: (a * 2, a.sum()), out_dims=(1, 0))(x), X)
    check(lambda x: vmap(lambda a, k: a * k, in_dims=(0, None))(x, 3.0), X)


def test_vmap_keywords_and_closures():
    check(lambda x, y: vmap(lambda a, *, b: a * b + y.sum())(x, b=y), X, Y)


def test_vmap_nested_and_chunked():
    check(lambda x, y: vmap(lambda a: vmap(lambda b: a.dot(b))(y))(x), X, Y)
    check(lambda x: vmap(lambda a: a.cumsum(0), chunk_size=3)(x), X)


def test_vmap_with_branches_on_shapes():
    def f(row):
        return row * 2 if row.shape[0] > 3 else row * 3

    check(lambda x: vmap(f)(x), X)


def test_per_sample_gradients():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))

    def sample_loss(parameters, x, y):
        out = functional_call(model, parameters, (x.unsqueeze(0),))
        return ((out - y.sum()) ** 2).sum()

    def f(x, y):
        parameters = {k: v.detach() for k, v in model.named_parameters()}
        return vmap(grad(sample_loss), in_dims=(None, 0, 0))(parameters, x, y)

    check(f, X, Y)


def test_ensemble():
    torch.manual_seed(0)
    models = [torch.nn.Linear(5, 2) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    base = torch.nn.Linear(5, 2)

    def f(x):
        def one(p, b, x):
            return functional_call(base, (p, b), (x,))

        return vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)

    check(f, X)


def test_batched_jacobian():
    check(lambda x: vmap(jacrev(lambda a: a.sin() * a.sum()))(x), X)


def test_functional_call_and_functionalize():
    layer = torch.nn.Linear(5, 5)

    def f(x):
        doubled = {k: v * 2 for k, v in layer.named_parameters()}
        return functional_call(layer, doubled, (x,))

    check(f, XG)
    check(lambda x: functionalize(lambda a: a.clone().add_(1))(x), X)


def test_custom_function_inside_a_transform():
    class Tripled(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0]

    check(lambda x: grad(lambda a: Tripled.apply(a).sum())(x), X, whole=False)
    check(lambda x: vmap(grad(lambda a: Tripled.apply(a).sum()))(x), X, whole=False)


def test_side_effects_break():
    log = []

    def f(x):
        return grad(lambda a: (log.append(1), a.sin().sum())[1])(x)

    compiled = pliant.compile(f)
    for n in (1, 2):
        torch.testing.assert_close(compiled(X), X.cos())
        assert log == [1] * n


class Shared:
    """What a library keeps beside its layers while one of them runs."""

    def __init__(self):
        self.value, self.active, self.kept = None, False, torch.ones(5)

    def for_a_while(self, a):
        before, self.kept = self.kept, a
        self.value, self.active = a, True
        out = (self.value * self.kept).sum() if self.active else a.sum()
        self.value, self.active, self.kept = None, False, before
        return out


def test_what_is_stored_for_a_while_is_no_side_effect():
    shared = Shared()

    def f(x):
        return vmap(grad(shared.for_a_while))(x) * shared.kept

    pliant.reset()
    compiled = pliant.compile(f, fullgraph=True, backend="aot_eager")
    for kept in (shared.kept, torch.zeros(5)):
        shared.kept = kept
        torch.testing.assert_close(compiled(X), 2 * X * kept)
        assert (shared.value, shared.active) == (None, False)
        assert shared.kept is kept


def clears(shared):
    def f(x):
        shared.active = False
        return x.sin().sum()

    return f


def test_what_a_hook_stores_is_a_side_effect():
    shared = Shared()

    def f(x):
        y = x * 2
        y.register_hook(lambda g: clears(shared)(g) * g)
        return y.sum()

    pliant.reset()
    out = pliant.compile(f, backend="aot_eager")(XG)
    shared.active = True  # after the forward
    out.backward()
    assert not shared.active
    XG.grad = None


def test_what_was_there_at_the_first_call_alone_is_guarded():
    shared = Shared()
    pliant.reset()
    compiled = pliant.compile(lambda x: grad(clears(shared))(x), backend="aot_eager")
    for active in (False, True):
        shared.active = active
        torch.testing.assert_close(compiled(X), X.cos())
        assert not shared.active
    assert pliant.stats()["break_reasons"] == {"side-effect-call": 1}



# ---- around compiled functions
def body(x):
    return x.sin() * 2


@pytest.mark.parametrize("compiled_before", [True, False])
@pytest.mark.fallbacks_expected  # what surrounds the call sees its operators
def test_around(compiled_before):
    compiled = pliant.compile(body)
    total = pliant.compile(lambda x: (x**3).sum())
    if compiled_before:
        compiled(X), compiled(X[0]), total(X), compiled(XG)
    torch.testing.assert_close(vmap(compiled)(X), body(X))
    torch.testing.assert_close(grad(lambda x: compiled(x).sum())(X), 2 * X.cos())
    torch.testing.assert_close(grad(total)(X), 3 * X**2)
    torch.testing.assert_close(jvp(compiled, (X,), (Y,))[1], 2 * X.cos() * Y)
    torch.testing.assert_close(jacrev(compiled)(X[0]), torch.diag(2 * X[0].cos()))
    torch.testing.assert_close(vmap(grad(lambda a: compiled(a).sum()))(X), 2 * X.cos())
    torch.testing.assert_close(compiled(X), body(X))


def test_a_function_wrapped_like_a_compiled_one():
    compiled = pliant.compile(body)
    mapped = vmap(compiled)  # carries the attributes of `compiled`
    torch.testing.assert_close(pliant.compile(lambda x: mapped(x) + 1)(X), body(X) + 1)

    @functools.wraps(compiled)
    def tripled(x):
        return compiled(x) * 3

    torch.testing.assert_close(pliant.compile(tripled)(X), body(X) * 3)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.fallbacks_expected  # what surrounds the call sees its operators
def test_forward_mode_around(before):
    def f(x):
        return (x.sin() * x.sum()).cos()

    compiled = pliant.compile(f)
    x, v = torch.randn(4), torch.randn(4)
    if before:
        compiled(x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, v)
        found, expected = (torch.autograd.forward_ad.unpack_dual(one(dual)) for one in (compiled, f))
    torch.testing.assert_close(found.tangent, expected.tangent)


def test_vmap_of_a_branch() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda r: torch.cond(r.sum() > 0, lambda t: t.sin(), lambda t: t.cos() * 2, (r,)))(x)

    x = torch.randn(5, 3, requires_grad=True)
    found = pliant.compile(f, fullgraph=True)(x)
    expected = torch.where((x.sum(1) > 0)[:, None], x.sin(), x.cos() * 2)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x))


# ---- sizes that vary
def graphs_for(f, *sizes):
    """How many graphs serve the sizes, all results equal to eager's."""
    pliant.reset()
    compiled = pliant.compile(f, fullgraph=True, backend="aot_eager")
    for n in sizes:
        x = torch.randn(n, 5, generator=torch.Generator().manual_seed(n))
        torch.testing.assert_close(compiled(x), f(x))
    return pliant.stats()["graphs"]


def test_a_hessian_is_one_graph_for_all_sizes():
    assert graphs_for(lambda x: hessian(lambda a: (x @ a).sin().sum())(W[0]), 6, 7, 9) == 2


@pytest.mark.parametrize(
    "f",
    [
        lambda a: torch.take_along_dim(a, a.argsort(0), 0).sin().sum(),
        lambda a: torch.kron(a, a[:1]).sin().sum(),
        lambda a: torch.nn.functional.group_norm(a[:, :4].reshape(-1, 4, 1), 2).sin().sum(),
    ],
)
def test_functions_that_c_composes_of_plain_sizes_are_captured_in_transforms(f):
    assert graphs_for(grad(f), 6, 7, 9) == 2


def test_per_sample_gradients_are_one_graph_for_all_batches():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv1d(1, 4, 2),
        torch.nn.GroupNorm(2, 4),
        torch.nn.MaxPool1d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 3),
    )

    def sample_loss(parameters, x):
        out = functional_call(model, parameters, (x.reshape(1, 1, 5),))
        return torch.nn.functional.cross_entropy(out, torch.tensor([1]))

    parameters = {k: v.detach() for k, v in model.named_parameters()}
    assert graphs_for(lambda x: vmap(grad(sample_loss), in_dims=(None, 0))(parameters, x), 6, 7, 9) == 2
