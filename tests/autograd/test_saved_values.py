"""Writes of what autograd keeps: an error at the gradients that eager has none of, and at no others."""

import pytest
import torch
import torch.nn.functional as F

import pliant

# Eager keeps the second argument of some, and no formula reads it; of others the first, or the result.
PROGRAMS = {
    "index_add": lambda a, b: a.index_add(0, torch.tensor([0]), b[:1]),
    "gather": lambda a, b: a.gather(1, torch.zeros(4, 4, dtype=torch.long)) + b,
    "lerp": lambda a, b: torch.lerp(a.detach(), a.detach(), b),
    "det": lambda a, b: torch.linalg.det(a) * b.sum(),
    "solve": lambda a, b: torch.linalg.solve(a.detach() + torch.eye(4), b),
    "rows": lambda a, b: a[0] * b[1],  # views of inputs are kept
    "rows behind a norm": lambda a, b: F.layer_norm(a, (4,), b[0], b[1]),
    "sum": lambda a, b: a + b,
    "exp": lambda a, b: a.exp() * b,
    "twins": lambda a, b: a.detach().exp() * b.detach() + a + b,
}
WRITES = {
    "in place": lambda one: one.add_(1),
    "a view": lambda one: (one[:1] if one.dim() else one).mul_(2),
    "detached": lambda one: one.detach().add_(1),
    "several at once": lambda one: torch._foreach_add_([one.detach()], 1),
    "out": lambda one: torch.add(one.detach(), 1, out=one.detach()),
    "data": lambda one: one.data.add_(0),  # nobody counts it
}


def outcome(function, written, write, asked):
    torch.manual_seed(0)
    leaves = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    a, b = (one * 1 for one in leaves)
    result = function(a, b)
    with torch.no_grad():
        WRITES[write]({"a": a, "b": b, "result": result}[written])
    try:
        return torch.autograd.grad(result.sum(), [leaves[i] for i in asked], allow_unused=True)
    except RuntimeError as error:
        return str(error).split(":")[0]


@pytest.mark.spread(2, "asked", "name")
@pytest.mark.parametrize("asked", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_errors_are_those_of_eager(name, asked):
    program = PROGRAMS[name]
    compiled = pliant.compile(program, backend="aot_eager")
    for written in ("a", "b", "result"):
        for write in WRITES:
            expected, found = (outcome(f, written, write, asked) for f in (program, compiled))
            assert isinstance(expected, str) == isinstance(found, str), (written, write, expected, found)
            torch.testing.assert_close(found, expected) if isinstance(found, tuple) else None
            assert isinstance(found, tuple) or found == expected


class Keeps(torch.autograd.Function):
    """Keeps one argument under autograd's checks, another on its own."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a)
        ctx.b = b
        return a * b

    @staticmethod
    def backward(ctx, gradient):
        (a,) = ctx.saved_tensors
        return gradient * ctx.b, gradient * a


@pytest.mark.parametrize("written", ["a", "b", "result"])
def test_custom_functions_have_checked_what_they_save(written):
    found = [outcome(f, written, "in place", (0, 1)) for f in (Keeps.apply, pliant.compile(lambda a, b: Keeps.apply(a, b)))]
    assert [isinstance(one, str) for one in found] == [written == "a"] * 2


def test_a_gradient_reads_the_data_that_an_input_is_given():
    def program(weight, x):
        result = (weight * x).sum()
        weight.data = weight.detach() + 1
        return result

    def gradient(function):
        weight, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        return torch.autograd.grad(function(weight, x), x)[0]

    pliant.reset()
    assert torch.equal(gradient(pliant.compile(program)), gradient(program))
