"""Patterns of users: what is found, what takes its place, what is refused."""

import math

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events
from pliant.errors import ConfigError, PatternError
from pliant.patterns import Pattern, find

X = torch.randn(4, 8)


def doubled_sine(x):
    return x.sin() * 2


def sum_of_sines(x):
    return x.sin() + x.sin()


SINES = Pattern(doubled_sine, sum_of_sines, example=(X,))


def compiled(function, patterns, *args, **options):
    """The result of a compiled call, compared with eager's; which patterns were replaced; why others were left."""
    pliant.reset()
    with events.collect("pattern", "pattern_left") as seen, pliant.config.patch(keep_entries=False):
        result = pliant.compile(function, patterns=patterns, **options)(*args)
    torch.testing.assert_close(result, function(*args))
    return (
        [e.fields["name"] for e in seen if e.kind == "pattern"],
        [str(e.fields["why"]) for e in seen if e.kind == "pattern_left"],
    )


def replaced(function, patterns, *args, **options):
    return compiled(function, patterns, *args, **options)[0]


def norm(x, w, *, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def library_norm(x, w, *, eps):
    return F.rms_norm(x, x.shape[-1:], w, eps)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("trained", [False, True])
def test_operands_in_another_order_and_another_number(dynamic, trained):
    pattern = Pattern(norm, library_norm, example=(torch.randn(2, 3), torch.randn(3)), numbers={"eps": 1e-5}, name="norm")

    def model(x, w):
        x = x + 1
        return (w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))).relu()

    x, w = X.clone().requires_grad_(trained), torch.randn(8, requires_grad=trained)
    assert replaced(model, [pattern], x, w, dynamic=dynamic) == ["norm"]
    if trained:
        out = pliant.compile(model, patterns=[pattern])(x, w)
        torch.testing.assert_close(torch.autograd.grad(out.sum(), (x, w)), torch.autograd.grad(model(x, w).sum(), (x, w)))


def sines_and_sum(x):
    sine = x.sin()
    return (sine * 2).exp(), sine


def in_place(x):
    sine = x.sin()
    sine *= 2
    sine += 1
    return sine.cos()


def seen_later(x):
    sine = x.sin() * 2
    sine.view(-1).add_(1)
    return sine


@pytest.mark.parametrize(
    "function, pattern, times",
    [
        (lambda x: (x.sin() * 2).exp(), SINES, 1),
        (lambda x: (x.sin() * 3).exp(), SINES, 0),
        (lambda x: x.sin() * 2 + (x.exp().sin() * 2), SINES, 2),
        (lambda x: x.neg().neg().neg().neg().neg() + 1, Pattern(lambda x: x.neg().neg(), lambda x: x * 1, example=(X,)), 2),
        (sines_and_sum, SINES, 0),
        (sines_and_sum, Pattern(doubled_sine, sum_of_sines, example=(X,), shared=True), 1),
        (seen_later, SINES, 0),
        (in_place, Pattern(lambda x: x.sin() * 2 + 1, lambda x: sum_of_sines(x) + 1, example=(X,)), 0),
        (lambda x: x.sin() + x.cos(), Pattern(lambda x: x.sin() + x.cos(), lambda x: x.cos() + x.sin(), example=(X,)), 1),
        (lambda x: x.sin() + x.exp().cos(), Pattern(lambda x: x.sin() + x.cos(), lambda x: x.cos() + x.sin(), example=(X,)), 0),
        (lambda x: x.neg().neg() + 1, Pattern(lambda x: x.neg().neg(), lambda x: x, example=(X,)), 1),
        (lambda x: (x.sin() * 2).view(-1), Pattern(doubled_sine, lambda x: sum_of_sines(x.t().contiguous()).t(), example=(X,)), 1),
        (lambda x: x.reshape(32).sin(), Pattern(lambda x: x.reshape(32).sin(), lambda x: x.sin().reshape(-1), example=(X,)), 1),
        (lambda x: F.gelu(F.linear(x, x)), Pattern(lambda x, w: F.gelu(x @ w.t()), lambda x, w: F.gelu(F.linear(x, w)), example=(X, X)), 1),
    ],
)  # fmt: skip
def test_what_matches(function, pattern, times):
    assert len(replaced(function, [pattern], X)) == times


def test_several_outputs_with_a_value_in_common():
    pattern = Pattern(lambda x: (x.sin() * 2, x.sin() + x.cos()), lambda x: (x.sin() * 2, x.cos() + x.sin()), example=(X,))

    def model(x):
        sine = x.sin()
        return sine * 2, (sine + x.cos()).t()

    assert len(replaced(model, [pattern], X)) == 1


def test_a_check_sees_nodes_and_numbers():
    seen = []

    def check(match):
        seen.append((match.numbers, [node.name for node in match.inputs]))
        return match.numbers["many"] > 2

    pattern = Pattern(
        lambda x, *, many: x.exp() * many, lambda x, *, many: many * x.exp(), example=(X,), numbers={"many": 1.5}, check=check
    )
    assert len(replaced(lambda x: x.exp() * 2.0 + (x.exp() * 3.0), [pattern], X)) == 1
    assert [numbers["many"] for numbers, _ in seen] == [2.0, 3.0]


def test_the_first_pattern_wins():
    other = Pattern(lambda x: x.sin() * 2 + 1, lambda x: sum_of_sines(x) + 1, example=(X,), name="longer")
    names, left = compiled(lambda x: x.sin() * 2 + 1, [SINES, other], X)
    assert names == ["doubled_sine"] and left == ["another pattern takes a part of it"]


def test_blocks_of_autocast_are_left():
    pattern = Pattern(lambda x, w: (x @ w).exp(), lambda x, w: torch.exp(x @ w), example=(X, X.t()))

    def model(x):
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ x.t()).exp()

    names, left = compiled(model, [pattern], X / 4)
    assert names == [] and "autocast" in left[0]


def test_programs_that_ask_about_their_values_are_left():
    def model(x):
        y = x.sin()
        y.requires_grad_()
        return torch.autograd.grad((y * 2).sum(), y)[0]

    names, left = compiled(model, [SINES], X)
    assert names == [] and "may ask about any value" in left[0]


@pytest.mark.parametrize(
    "replacement, why",
    [
        (lambda x: (x.sin() * 2).t(), "sizes"),
        (lambda x: (x.sin() * 2).double(), "dtype"),
        (lambda x: (x.sin(), x), "number of results"),
        (lambda x: 2, "no tensor"),
        (lambda x: x.sin() * x.sum().item(), "cannot be traced"),
        (lambda x: x.mul_(2), "writes an argument"),
    ],
)
def test_replacements_that_make_something_else(replacement, why):
    pliant.reset()
    with pytest.raises(PatternError, match=why):
        pliant.compile(lambda x: x.sin() * 2, patterns=[Pattern(doubled_sine, replacement, example=(X,))])(X)


def test_replacements_that_lose_gradients():
    pliant.reset()
    pattern = Pattern(doubled_sine, lambda x: sum_of_sines(x).detach(), example=(X,))
    with pytest.raises(PatternError, match="gradients"):
        pliant.compile(lambda x: x.sin() * 2, patterns=[pattern])(X.clone().requires_grad_())


@pytest.mark.parametrize(
    "search, numbers, what",
    [
        (lambda x: x, {}, "returns an argument"),
        (lambda x: x.add_(1), {}, "writes an argument"),
        (lambda x, *, n: x.exp() * math.sqrt(n), {"n": 3.0}, "no argument of a call"),
        (lambda x: 3, {}, "returns 3"),
        (lambda x: x + X, {}, "holds a tensor"),
        (lambda x: x.view(5), {}, "cannot be traced"),
        (lambda x: torch.ones(3) + 1, {}, "does not read argument 0"),
    ],
)
def test_patterns_that_are_none(search, numbers, what):
    with pytest.raises(PatternError, match=what):
        Pattern(search, example=(X,), numbers=numbers)


def test_what_compile_takes():
    with pytest.raises(ConfigError, match="patterns cannot have"):
        pliant.compile(lambda x: x, patterns=[doubled_sine])
    with pytest.raises(ConfigError, match="patterns cannot have"):
        pliant.compile(lambda x: x, patterns=[Pattern(doubled_sine, example=(X,))])


def test_explain_shows_them():
    text = str(pliant.explain(lambda x: (x.sin() * 2).exp(), patterns=[SINES])(X))
    assert "doubled_sine is replaced at" in text


def test_other_backends_are_given_the_replacement():
    given = []

    def backend(module, inputs):
        given.append([node.name for node in module.graph.nodes if node.op != "output"])
        return module.forward

    assert replaced(lambda x: (x.sin() * 2).exp(), [SINES], X, backend=backend) == ["doubled_sine"]
    assert given == [["x", "doubled_sine", "exp"]]


# ---- weights of few bits, and operators of the program's own
@torch.library.custom_op("pliant_test_patterns::linear_int8", mutates_args=())
def linear_int8(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (x @ weight.to(x.dtype).t()) * scale


@linear_int8.register_fake
def _(x, weight, scale):
    return x.new_empty(x.shape[0], weight.shape[0])


@torch.library.custom_op("pliant_test_patterns::dequantize", mutates_args=())
def dequantize(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return weight.to(torch.float32) * scale


@dequantize.register_fake
def _(weight, scale):
    return weight.new_empty(weight.shape, dtype=torch.float32)


class Quantized(torch.nn.Module):
    def __init__(self, own):
        super().__init__()
        weight = torch.randn(6, 8)
        self.own = own
        self.register_buffer("scale", weight.abs().amax(1, keepdim=True) / 127)
        self.register_buffer("weight", (weight / self.scale).round().to(torch.int8))

    def forward(self, x):
        weight = dequantize(self.weight, self.scale) if self.own else self.weight.to(x.dtype) * self.scale
        return F.linear(x, weight).relu()


@pytest.mark.parametrize("own", [False, True])
def test_linear_of_int8_weights_becomes_an_operator_of_the_program(own):
    model = Quantized(own)
    search = (lambda x, w, s: F.linear(x, dequantize(w, s))) if own else (lambda x, w, s: F.linear(x, w.to(x.dtype) * s))
    pattern = Pattern(search, lambda x, w, s: linear_int8(x, w, s.squeeze(1)), example=(X, model.weight, model.scale), name="int8")
    with torch.no_grad(), events.collect("extern") as seen:
        assert replaced(model, [pattern], X) == ["int8"]
        program = pliant.export(model, (X,))
        (match,) = find(program.graph, pattern)
        changed = program.transform(pattern)
        torch.testing.assert_close(changed(X), model(X))
    assert any("linear_int8" in str(event.fields["name"]) for event in seen)
    assert match.nodes[-1].target in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) and len(match.inputs) == 3
    assert changed.operators() == {
        "aten.squeeze.dim": 1, "pliant_test_patterns.linear_int8.default": 1, "aten.relu.default": 1
    }  # fmt: skip


def test_operators_of_the_program_are_shown_to_backends():
    given = []

    def backend(module, inputs):
        given.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    model = Quantized(own=True)
    pliant.reset()
    pliant.compile(model, backend=backend)(X)
    assert any("dequantize" in one for one in given)


# ---- exported programs
class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        return F.gelu(self.two(F.gelu(self.one(x)))).sum(-1)


def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


def test_a_pattern_is_a_pass():
    model = Layers()
    program = pliant.export(model, (X,), dynamic_shapes=({0: pliant.Dim("batch")},))
    pattern = Pattern(linear_gelu, lambda x, w, b: F.gelu(x @ w.t() + b), example=(X, torch.randn(8, 8), X[0]))
    assert [str(match) for match in find(program.graph, pattern)] == [
        "gelu = (x, p_one_weight, p_one_bias)", "gelu_1 = (gelu, p_two_weight, p_two_bias)"
    ]  # fmt: skip
    changed = program.transform(pattern)
    assert changed.operators()["aten.mm.default"] == 2 and "aten.addmm.default" not in changed.operators()
    torch.testing.assert_close(changed(X[:3]), model(X[:3]))


@pytest.mark.parametrize(
    "replacement, operator",
    [
        (lambda x, w, b: F.gelu(x @ w.t() + b + torch.ones(8) - torch.ones(8)), "aten.mm.default"),
        (lambda x, w, b: F.gelu((w @ x.t()).t() + b), "aten.clone.default"),
    ],
)
def test_a_pass_lays_results_out_and_takes_constants(replacement, operator):
    model = Layers()
    changed = pliant.export(model, (X,)).transform(Pattern(linear_gelu, replacement, example=(X, torch.randn(8, 8), X[0])))
    assert operator in changed.operators()
    torch.testing.assert_close(changed(X), model(X))


def test_a_pass_that_makes_something_else():
    pattern = Pattern(linear_gelu, lambda x, w, b: linear_gelu(x, w, b).sum(0), example=(X, torch.randn(8, 8), X[0]))
    with pytest.raises(PatternError, match="sizes"):
        pliant.export(Layers(), (X,)).transform(pattern)
