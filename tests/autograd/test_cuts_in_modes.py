"""Tensors that the caller gets, from which more is computed in the same block of autocast or of another grad mode."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events


def _casts(enabled=True):
    return torch.autocast("cpu", torch.bfloat16, enabled=enabled)


def _loss(x, w):
    with _casts():
        logits = x @ w
        return F.cross_entropy(logits, torch.arange(len(x)) % 4), logits


def _nested(x, w):
    with _casts():
        y = x @ w
        with _casts(False):
            z = (y.float() @ w).sin()
        return y, z, z @ w, (y * 2).sum()


def _grad_modes(x, w):
    with torch.no_grad():
        with torch.enable_grad():
            y = x @ w
            z = y.sin()
            total = z.sum()
        return y, z, total, total * 2


def _left_off(x, w):
    y = x @ w
    torch.set_grad_enabled(False)
    plain = y * 2
    torch.set_grad_enabled(True)
    z = y.sin()
    return y, plain, z, z.cos()


PROGRAMS = {"loss": _loss, "nested": _nested, "grad modes": _grad_modes, "left off": _left_off}


def _outcome(program, rows):
    """Results, what they record, gradients, and the gradient of each later result for the first."""
    torch.manual_seed(0)
    x, w = torch.randn(rows, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    results = program(x, w)
    recorded = [one for one in results if one.requires_grad]
    total = sum(one.float().sum() for one in recorded)
    first = recorded[0] if recorded[0].dim() else recorded[1]
    gradients = torch.autograd.grad(total, (x, w, first), retain_graph=True)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    return [*results, *gradients], [one.requires_grad for one in results]


@pytest.mark.parametrize("name", PROGRAMS)
def test_returned_within_a_mode(name):
    program = PROGRAMS[name]
    compiled = pliant.compile(program, fullgraph=True)
    with events.collect("fallback") as fell:
        for rows in (3, 5, 6):
            (found, recorded), (wanted, also) = _outcome(compiled, rows), _outcome(program, rows)
            assert recorded == also
            for one, other in zip(found, wanted, strict=True):
                assert one.dtype is other.dtype
                torch.testing.assert_close(one, other, rtol=3e-2, atol=3e-2)
    assert not fell
