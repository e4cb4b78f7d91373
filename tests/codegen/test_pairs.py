"""Results that lie side by side in pairs are computed and stored on vectors."""

import pytest
import torch

from codegen.test_vectors import options  # noqa: F401  # the fixture: each width of vectors
from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import compile_program
from pliant.schedule.schedule import schedule

aten = torch.ops.aten


def rotated(x):
    """By pairs of neighbours, as GPT-J does."""
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * 0.5 + turned * x[:1]


def put_together(x):
    return torch.stack(x.chunk(2, -1), -1).flatten(-2)


def with_neighbours(x):
    """What is computed is stored in one place by pairs, in another one by halves."""
    a, b = x[..., ::2] * 2, x[..., 1::2]
    pairs = torch.stack((a + b, a - b), -1)
    return pairs, pairs.mT.contiguous()


def of_twins(x):
    """Of the pairs, some read one element alone."""
    return torch.stack((x[..., 1::2], x[..., : x.shape[-1] // 2]), -1) + 1


def gradient(x):
    """Of every second element, from the second on; and of all but the last of the others."""
    half = x[..., ::2] * 3
    one = aten.slice_backward(half, x.shape, x.dim() - 1, 1, 9223372036854775807, 2)
    other = aten.slice_backward(half[..., 1:], x.shape, x.dim() - 1, 0, x.shape[-1] - 2, 2)
    return one + other, aten.slice_backward(x[1::2], x.shape, 0, 0, 9223372036854775807, 2)


def written(x):
    return x.slice_scatter(x[..., ::2].exp(), -1, 1, None, 2) + 1


FUNCTIONS = (rotated, put_together, with_neighbours, of_twins, gradient, written)


def everything(*given):
    found = [function(x) for x in given for function in FUNCTIONS]
    return tuple(t for one in found for t in (one if isinstance(one, tuple) else (one,)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_are_eagers(dtype, options):  # noqa: F811
    """At lengths of whole vectors, and some that leave lanes without a pair."""
    torch.manual_seed(0)
    given = [(torch.randn(4, columns) * 9).to(dtype) for columns in (64, 22)]
    compiled = compile_program(lower(trace(everything, (*given,))), options)
    for found, wanted in zip(compiled([*given]), everything(*given), strict=True):
        close = 2e-6 if dtype is torch.float32 else 2e-2
        torch.testing.assert_close(found, wanted, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64, torch.bool])
def test_what_is_put_together_is_eagers(dtype):
    torch.manual_seed(0)
    x = (torch.randn(4, 22) * 9).to(dtype)
    (found,) = compile_program(lower(trace(put_together, (x,))))([x])
    assert torch.equal(found, put_together(x))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_pairs_are_stored_together(function):
    steps = schedule(lower(trace(function, (torch.randn(4, 64),))), config.Config().schedule).steps
    texts = [write_kernel(step).text for step in steps]
    assert sum("p_store_pairs((" in text for text in texts) == len(texts) - (function is gradient)
    assert not any("omp simd" in text for text in texts)
    assert not any("p_load_2(" in text for text in texts) or function in (of_twins, gradient, written)


def test_doubles_are_not():
    """gcc 12 makes fused operations of a difference and a sum of products side by side, whatever it is told."""

    def product(x, y):
        (a, b), (c, d) = x.unbind(-1), y.unbind(-1)
        return torch.stack((a * c - b * d, a * d + b * c), -1)

    torch.manual_seed(0)
    x, y = torch.randn(2, 7, 32, 2, dtype=torch.float64).unbind(0)
    (found,) = compile_program(lower(trace(product, (x, y))))([x, y])
    assert torch.equal(found, product(x, y))
