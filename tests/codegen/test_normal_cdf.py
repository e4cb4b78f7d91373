"""GELU in bfloat16, over all numbers: as near to the function as eager's, with a cheaper function than float32 needs."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

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


def test_other_types_use_erf():
    for dtype in (torch.float32, torch.float16):
        with events.collect("output_code") as found:
            pliant.compile(F.gelu, dynamic=False)(torch.randn(4, 16, dtype=dtype))
        assert "p_normal_cdf" not in found[-1].fields["text"]
