"""Operators registered with `torch.library`: in graphs, with gradients, with fixed and symbolic sizes, writing arguments."""

import numpy
import pytest
import torch
from tests.capture.against_eager import check

import pliant
from pliant.errors import GraphBreakError

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)


@torch.library.custom_op("pliant_tests::scaled_sin", mutates_args=())
def scaled_sin(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.from_numpy(numpy.sin(x.detach().numpy())) * factor


@scaled_sin.register_fake
def _(x, factor):
    return torch.empty_like(x)


def _save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.factor = inputs[1]


def _gradient(ctx, g):
    (x,) = ctx.saved_tensors
    return g * x.cos() * ctx.factor, None


scaled_sin.register_autograd(_gradient, setup_context=_save)


def test_forward_and_gradient():
    check(lambda x: scaled_sin(x * 2, 3.0) + 1, X)
    check(lambda x: scaled_sin(x * 2, 3.0) + 1, X.detach())


def test_by_the_namespace():
    check(lambda x: torch.ops.pliant_tests.scaled_sin(x * 2, 3.0) + 1, X)
    check(lambda x: torch.ops.pliant_tests.scaled_sin.default(x * 2, factor=3.0) + 1, X)


@torch.library.custom_op("pliant_tests::increment_", mutates_args=("x",))
def increment_(x: torch.Tensor, by: int = 1) -> None:
    x.add_(by)


@torch.library.custom_op("pliant_tests::swap_scale", mutates_args=("a", "b"))
def swap_scale(a: torch.Tensor, b: torch.Tensor | None, k: float) -> torch.Tensor:
    old = a.clone()
    a.copy_(a * k)
    if b is not None:
        b.add_(old)
    return old.sum()


@swap_scale.register_fake
def _(a, b, k):
    return a.new_empty(())


@torch.library.custom_op("pliant_tests::fill_each", mutates_args=("tensors",))
def fill_each(tensors: list[torch.Tensor], value: float) -> None:
    for tensor in tensors:
        tensor.fill_(value)


def test_writes_to_intermediates():
    def f(x):
        y = x * 2
        increment_(y, 3)
        return y + 1

    check(f, X.detach())


def test_writes_to_inputs_and_views():
    def f(x):
        increment_(x)
        row = x[1]
        increment_(row, 10)
        return x * 2

    check(f, X.detach())


def test_writes_two_and_returns():
    def f(x):
        y = x + 1
        return swap_scale(x, y, 3.0), y, swap_scale(y, None, 2.0)

    check(f, X.detach())


def test_writes_lists():
    def f(x):
        parts = [x * 2, x[0] * 3]
        fill_each(parts, 4.0)
        return parts

    check(f, X.detach())


@torch.library.custom_op("pliant_tests::multiples", mutates_args=())
def multiples(tensors: list[torch.Tensor], n: int, name: str = "a") -> list[torch.Tensor]:
    return [x * n for x in tensors]


@multiples.register_fake
def _(tensors, n, name="a"):
    return [torch.empty_like(x) for x in tensors]


def test_lists():
    check(lambda x: sum(multiples([x, x * 2], 3)), X.detach())


@torch.library.custom_op("pliant_tests::split_stats", mutates_args=())
def split_stats(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.mean(0), x.t().contiguous()


@split_stats.register_fake
def _(x):
    return x.new_empty(x.shape[1]), x.new_empty(x.shape[1], x.shape[0])


def test_other_shapes():
    def f(x):
        mean, turned = split_stats(x * 2)
        return mean * 2, turned + 1

    check(f, X.detach())


@torch.library.custom_op("pliant_tests::undescribed", mutates_args=())
def undescribed(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_without_fake_implementation_breaks():
    def f(x):
        return undescribed(x.sin()) + 1

    check(f, X.detach(), whole=False)
    with pytest.raises(GraphBreakError, match="register_fake"):
        pliant.compile(f, fullgraph=True)(X.detach())


@torch.library.custom_op("pliant_tests::positives", mutates_args=())
def positives(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positives.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def test_sizes_from_values():
    check(lambda x: positives(x * 2).sum() + 1, X.detach(), whole=False)


LIBRARY = torch.library.Library("pliant_tests_lib", "DEF")
LIBRARY.define("multiply(Tensor x, int k=2) -> Tensor")
LIBRARY.impl("multiply", lambda x, k=2: x * k, "CompositeExplicitAutograd")
torch.library.register_fake("pliant_tests_lib::multiply", lambda x, k=2: torch.empty_like(x), lib=LIBRARY)
LIBRARY.define("composed(Tensor x) -> Tensor")
LIBRARY.impl("composed", lambda x: x.sin() * 2, "CompositeImplicitAutograd")
LIBRARY.define("double_(Tensor(a!) x) -> Tensor(a!)")
LIBRARY.impl("double_", lambda x: x.mul_(2), "CPU")


def test_library_definitions():
    check(lambda x: torch.ops.pliant_tests_lib.multiply(x * 2) + 1, X.detach())
    check(lambda x: torch.ops.pliant_tests_lib.multiply(x * 2, 5) + 1, X.detach())
    check(lambda x: torch.ops.pliant_tests_lib.composed(x * 2) + 1, X)


def test_library_definition_that_writes():
    def f(x):
        y = x * 2
        z = torch.ops.pliant_tests_lib.double_(y)
        return y, z is y

    check(f, X.detach())


def test_inside_custom_function():
    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.ops.pliant_tests.scaled_sin(x, 2.0)

        @staticmethod
        def backward(ctx, g):
            return torch.ops.pliant_tests.scaled_sin(g, 1.0) + ctx.saved_tensors[0]

    check(lambda x: Through.apply(x) * 2, X)


@pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")
def test_an_operator_that_is_a_kernel_only_breaks_where_gradients_are_recorded():
    """Eager differentiates what the kernel calls."""
    library = torch.library.Library("kernel_only", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.define("place(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CPU")
    library.impl("place", lambda x: x.argmax(0), "CPU")
    torch.library.register_fake("kernel_only::double", torch.empty_like, lib=library)
    torch.library.register_fake("kernel_only::place", lambda x: x.new_empty((), dtype=torch.int64), lib=library)
    ops = torch.ops.kernel_only
    x = torch.randn(4, requires_grad=True)
    pliant.compile(lambda x: ops.double(x).sin() * 3)(x).sum().backward()
    torch.testing.assert_close(x.grad, (6 * (2 * x).cos()).detach())
    whole = pliant.compile(lambda x: ops.double(x).sin() * 3, fullgraph=True)
    torch.testing.assert_close(whole(x.detach()), (2 * x.detach()).sin() * 3)
    assert pliant.compile(lambda x: ops.place(x), fullgraph=True)(x) == x.argmax()


@torch.library.custom_op("pliant_tests::by_segment", mutates_args=())
def by_segment(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    parts, start = [], 0
    for number, end in enumerate(ends.tolist()):
        parts.append(x[start:end] * (number + 1))
        start = end
    return torch.cat(parts)


by_segment.register_fake(lambda x, ends: torch.empty_like(x))


def _save_segments(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.ends = inputs[1]


def _gradient_by_list(ctx, g):
    return by_segment(g, ctx.ends) if ctx.ends.tolist() else g, None


def _gradient_by_item(ctx, g):
    return by_segment(g, ctx.ends) * (1 if ctx.ends[-1].item() > 0 else 2), None


def _gradient_of_new_values(ctx, g):
    return g * sum(ctx.doubled.tolist()[0]), None


def _keep_new_values(ctx, inputs, output):
    ctx.doubled = inputs[0] * 2


def _by_name(x, ends):
    return torch.ops.pliant_tests.by_segment(x.sin(), ends=ends).cos() * 2


def _gradients_of(functions):
    """The gradients, and the statistics of the last function, which is compiled."""
    found = []
    for function in functions:
        pliant.reset()
        x, ends = X.detach().requires_grad_(), torch.tensor([1, 4])
        function(x, ends).sum().backward()
        found.append(x.grad)
    stats = pliant.stats()
    torch.testing.assert_close(*found)
    return stats["graphs"], stats["graph_breaks"], stats["fallbacks"]


@pytest.mark.parametrize("gradient", [_gradient_by_list, _gradient_by_item])
def test_a_derivative_that_reads_values_is_one_operator(gradient):
    by_segment.register_autograd(gradient, setup_context=_save_segments)
    assert _gradients_of((_by_name, pliant.compile(_by_name))) == (1, 0, 0)


def test_a_derivative_that_reads_what_its_setup_computes_breaks_at_its_operator():
    by_segment.register_autograd(_gradient_of_new_values, setup_context=_keep_new_values)
    assert _gradients_of((_by_name, pliant.compile(_by_name))) == (2, 1, 0)
    pliant.reset()
    x, ends = X.detach(), torch.tensor([1, 4])
    torch.testing.assert_close(pliant.compile(_by_name, fullgraph=True)(x, ends), _by_name(x, ends))
    assert pliant.stats()["graph_breaks"] == 0  # nothing is differentiated


def test_packets_without_a_default_overload_are_recorded():
    check(lambda x: torch.ops.aten.index(x, [torch.tensor([0, 2])]) * 2, X)


# ---- results and written arguments that lists hold

NESTED = {
    "after(Tensor x) -> (Tensor, Tensor[])": lambda x: (x + 1, [x + 2, x + 3]),
    "around(Tensor x) -> (Tensor[], Tensor, Tensor[])": lambda x: ([x + 2, x + 3], x + 1, [x * 4]),
    "alone(Tensor x) -> Tensor[]": lambda x: [x + 2, x + 3],
    "written(Tensor(a!)[] xs, Tensor(b!)? y) -> Tensor": lambda xs, y: (
        [x.mul_(2) for x in [*xs, *([] if y is None else [y])]][0] + 1
    ),
    "some(Tensor(a!)?[] xs) -> Tensor": lambda xs: [x.mul_(2) for x in xs if x is not None][0] + 1,
}
CALLS = {
    "after": lambda op, x, y, z: op(x),
    "an item": lambda op, x, y, z: op.after(x)[1][0] * 2,
    "around": lambda op, x, y, z: op(x * 2),
    "alone": lambda op, x, y, z: op(x),
    "written": lambda op, x, y, z: (op([x, y], z), x + y),
    "written views": lambda op, x, y, z: (op.written([x[1:], y + 1], None), x, y),
    "some": lambda op, x, y, z: (op([x, None, y]), z),
}


@pytest.fixture(scope="module")
def nested():
    with torch.library._scoped_library("test_nested", "DEF") as library:
        for schema, function in NESTED.items():
            library.define(schema)
            library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")
        yield torch.ops.test_nested


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "pliant"])
@pytest.mark.parametrize("name", CALLS)
def test_lists_of_results_and_of_written_arguments(name, backend, nested):
    pliant.reset()
    op = getattr(nested, name) if hasattr(nested, name) else nested

    def call(*tensors):
        return CALLS[name](op, *tensors)

    found = []
    for f in (call, pliant.compile(call, backend=backend, fullgraph=True)):
        tensors = [torch.arange(3.0) + k for k in range(3)]
        found.append((f(*tensors), tensors))
    torch.testing.assert_close(found[1], found[0])
    assert pliant.stats()["fallbacks"] == 0


UNCOUNTED = torch.library.Library("pliant_tests_uncounted", "DEF")
UNCOUNTED.define("next_(Tensor(a!) x) -> ()")
UNCOUNTED.impl("next_", lambda x: (x.add_(1), None)[1], "CompositeExplicitAutograd")  # no kernel that raises versions
next_ = torch.ops.pliant_tests_uncounted.next_

WRITES = {
    "whole": next_,
    "view": lambda n: next_(n[:]),
    "detached": lambda n: next_(n.detach()),
    "data": lambda n: next_(n.data),
    "foreach": lambda n: torch._foreach_clamp_min_([n], 9),
    "by a row": lambda n: [next_(row) for row in n.view(1, 1)],
}


@pytest.mark.parametrize("write", WRITES)
def test_a_number_that_an_operator_has_written_is_read_anew(write):
    def program(x):
        n = torch.tensor([x.shape[0]])
        before = int(n)
        WRITES[write](n)
        return x * n.item() + before, torch.zeros(int(n))

    for backend in ("eager", "pliant"):
        compiled = pliant.compile(program, backend=backend)
        for rows in (3, 3, 4, 5):
            for ours, expected in zip(compiled(torch.ones(rows)), program(torch.ones(rows)), strict=True):
                torch.testing.assert_close(ours, expected)


NAMED = torch.library.Library("pliant_tests_named", "DEF")
ALIKE = ("add", "mul", "max", "min", "div", "sub", "clamp")  # what PyTorch's operators of the name do, these do not
FOR_ONE = ("sum", "neg", "item", "size", "floor", "view")
for name in (*ALIKE, *FOR_ONE):
    NAMED.define(f"{name}(Tensor x, Tensor y) -> Tensor" if name in ALIKE else f"{name}(Tensor x) -> Tensor")
    NAMED.impl(name, lambda x, *y: x * 0 + 77, "CPU")
    torch.library.register_fake(f"pliant_tests_named::{name}", lambda x, *y: torch.empty_like(x), lib=NAMED)


@pytest.mark.parametrize("name", [*ALIKE, *FOR_ONE])
def test_an_operator_that_is_named_as_one_of_pytorchs(name):
    call = getattr(torch.ops.pliant_tests_named, name)

    def program(x, k):
        found = [call(*[one] * (1 + (name in ALIKE))) for one in (k, k * 1, torch.tensor([3]), torch.tensor(5))]
        return [x * int(one) for one in found], x + 1 if found[-1] > 50 else x - 1

    compiled = pliant.compile(program, backend="eager")
    for k in (2, 3):
        ours, expected = compiled(torch.ones(2), torch.tensor([k])), program(torch.ones(2), torch.tensor([k]))
        torch.testing.assert_close(ours, expected)


NAMED.define("next_(Tensor(a!) x) -> Tensor(a!)")
NAMED.impl("next_", lambda x: x.add_(1), "CPU")
NAMED.define("next.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
NAMED.impl("next.out", lambda x, out: out.copy_(x + 1), "CPU")
NAMED.define("next(Tensor x) -> Tensor")
NAMED.impl("next", lambda x: x * 100, "CPU")
torch.library.register_fake("pliant_tests_named::next", torch.empty_like, lib=NAMED)


def test_an_operator_in_place_is_not_another_one_without_the_underscore():
    ops = torch.ops.pliant_tests_named

    def program(x):
        y, z = x * 1, x * 1
        return ops.next_(y), ops.next.out(x, out=z), ops.next(x), y

    for backend in ("aot_eager", "pliant"):
        torch.testing.assert_close(pliant.compile(program, backend=backend)(torch.ones(3)), program(torch.ones(3)))


COUNTED = []


@torch.library.custom_op("pliant_tests::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    COUNTED.append(1)
    return x + len(COUNTED)


counted.register_fake(torch.empty_like)


@pytest.mark.parametrize("made", [lambda: torch.tensor(3), lambda: torch.tensor([3, 4])], ids=["number", "two numbers"])
def test_what_a_librarys_operator_makes_of_constants_is_asked_for_at_each_call(made):
    def program(x):
        n = counted(made())
        return x * n.flatten()[0].item(), x * n.tolist() if n.dim() == 0 else n.tolist()

    compiled = pliant.compile(program, backend="eager")
    found = []
    for function in (program, compiled):
        COUNTED.clear()
        found.append([function(torch.ones(2)) for _ in range(3)])
    torch.testing.assert_close(*found)
