"""GELU and its derivative: as near to the functions as eager's, with cheaper functions than `erf` and `exp`."""

import math

import pytest
import torch
import torch.nn.functional as F

import pliant
from loop_programs import Program, get
from pliant.codegen.prelude import SNIPPETS
from pliant.debug import events
from pliant.ir.scalar import apply
from pliant.runtime.compile_program import compile_program

ALL = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def in_units(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Errors in units in the last place of bfloat16."""
    exponents = torch.frexp(exact.abs().clamp_min(2.0**-126)).exponent
    return (got.double() - exact).abs() / torch.ldexp(torch.ones_like(exact), exponents - 8)


@pytest.mark.parametrize("step", [1, 3])  # on vectors; one by one, where elements are not neighbours
def test_gelu_of_bfloat16_is_as_exact_as_eagers(step, monkeypatch):
    monkeypatch.setattr("pliant.codegen.kernel_writer.DEAR", 1000)
    x = ALL.repeat_interleave(step)[::step]
    with events.collect("output_code") as found:
        got = pliant.compile(F.gelu, dynamic=False)(x)
    text = found[-1].fields["text"]
    assert ("p_normal_cdfv(t" in text) == (step == 1) and "p_erfv(t" not in text
    assert got[x.isnan()].isnan().all() and got[x == torch.inf] == torch.inf
    known = x.abs() < 1e38  # eager gives inf for what is larger
    eager, exact = F.gelu(x), F.gelu(x.double())
    errors, eagers = (in_units(one, exact)[known] for one in (got, eager))
    assert errors.mean() <= 1.01 * eagers.mean()
    near = x[known] > -4
    assert errors[near].max() < 1.1 * eagers[near].max() and (errors[~near] <= 2 * eagers[~near] + 0.6).all()
    assert (got[(x < -6) & known] == 0).all()


EXACT = {
    "normal_cdf": torch.special.ndtr,
    "fast_normal_cdf": torch.special.ndtr,
    "gelu_slope": lambda x: torch.special.ndtr(x) + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi),
}
FLOATS = torch.cat([
    torch.linspace(-9, 9, 200_001), torch.randn(1000) * 1e-6, torch.tensor([0.0, -0.0, 1e-45, 1e30, -1e30, torch.nan]),
])  # fmt: skip


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("name", EXACT)
def test_errors_of_float32(name, step, monkeypatch):
    monkeypatch.setattr("pliant.codegen.kernel_writer.DEAR", 1000)
    p = Program()
    a = p.tensor(len(FLOATS), strides=(step,))
    run = compile_program(p.done(p.pointwise((len(FLOATS),), lambda i: apply(name, get(a, i)))))
    assert (f"p_{name}v(" in run.source) == (step == 1)
    (got,) = run([FLOATS.repeat_interleave(step)[::step]])
    exact = EXACT[name](FLOATS.double())
    assert got[-1].isnan() and (got[:-1] - exact[:-1]).abs().max() < (3e-7 if name == "fast_normal_cdf" else 1.5e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gelu_and_its_gradient_are_about_as_near_as_eagers(dtype):
    def gradients(f, x):
        x = x.clone().requires_grad_()
        y = f(x)
        return y.detach(), *torch.autograd.grad(y.sum(), x)

    x = FLOATS[FLOATS.abs() < 10].to(dtype)
    with events.collect("output_code") as found:
        got = gradients(pliant.compile(F.gelu, dynamic=False), x)
    assert all("p_erfv(t" not in one.fields["text"] for one in found)
    for ours, eager, exact in zip(got, gradients(F.gelu, x), gradients(F.gelu, x.double())):
        ours, eager = ((one.double() - exact).abs().max() for one in (ours, eager))
        assert ours <= 1.5 * eager  # whose own error depends on how wide the processor's vectors are


@pytest.mark.parametrize("suffix", ["f", "v"])
def test_the_slope_is_one_exponential_and_one_polynomial(suffix):
    text = SNIPPETS[f"p_gelu_slope{suffix}"].split("#else")[-1]
    assert text.count("p_exp") == 1 and "p_erf" not in text and "p_normal_cdf" not in text


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slopes_at_infinity_are_no_numbers(dtype):
    x = torch.tensor([torch.inf, -torch.inf, 1.0] * 8, dtype=dtype)
    slopes = torch.ops.aten.gelu_backward
    got = pliant.compile(lambda g, x: slopes(g, x), dynamic=False)(torch.ones_like(x), x)
    assert torch.equal(got.isnan(), slopes(torch.ones_like(x), x).isnan())


def test_slopes_far_away_are_0_and_1():
    x = torch.tensor([-1e30, -100.0, -14.0, 14.0, 100.0, 1e30] * 4)
    got = pliant.compile(lambda g, x: torch.ops.aten.gelu_backward(g, x), dynamic=False)(torch.ones_like(x), x)
    assert torch.equal(got, (x > 0).float())
