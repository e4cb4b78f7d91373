"""Kernels that differ in numbers alone are one text that takes the numbers, and do what they did."""

import random

import pytest
import torch
import torch.nn.functional as F

import pliant
from codegen.cuda.shim_backend import kernels_on_shim
from pliant.codegen.cuda import parameters
from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.runtime.cuda import backend
from pliant.symbolic.expr import lit


def kernel(body: str, sizes=(), text="") -> DeviceKernel:
    text = text or f'extern "C" __global__ void __launch_bounds__(256) @(float* a0, int64_t n0) {{\n{body}}}'
    return DeviceKernel(text, "", (), tuple(sizes), (lit(1), lit(1), lit(1)), lit(256), 0, frozenset(), lit(1))


@pytest.fixture
def few(monkeypatch):
    """Few kernels are enough."""
    monkeypatch.setattr(parameters, "MANY", 1)


def numbers(made: DeviceKernel) -> list[int]:
    return [size.as_int() for size in made.sizes]


def test_what_varies_is_an_argument(few):
    line = "  a0[{}*i0 + {}*i1 + i2 - {}] = i1 - 1 < {};\n"
    first, second, third = (kernel(line.format(*given), [lit(7)]) for given in ((48, 8, 56, 6), (80, 16, 56, 6), (99, 16, 56, 6)))
    other = kernel("  a0[0] = 1.0f;\n")
    ((a, b), (c, d, e)) = parameters.with_parameters([[first, other], [second, first, third]])
    assert a.text == c.text == e.text and b is other and d == a
    assert [numbers(one) for one in (a, c, e)] == [[7, 48, 8], [7, 80, 16], [7, 99, 16]]
    assert a.text.splitlines()[0].endswith("@(float* a0, int64_t n0, int64_t m0, int64_t m1) {")
    assert "a0[c0*i0 + c1*i1 + i2 - 56] = i1 - 1 < 6;" in a.text


def test_numbers_that_vary_alike_are_one_argument(few):
    line = "  const int i0 = item / ({0});\n  const int i1 = item % ({0});\n  a0[{0}*i0 + i1] = 0;\n"
    ((a, b),) = parameters.with_parameters([[kernel(line.format(12)), kernel(line.format(7))]])
    assert "item / (by0)" in a.text and "item % (by0)" in a.text and "a0[c0*i0 + i1]" in a.text and a.text == b.text
    assert [numbers(one) for one in (a, b)] == [[12, parameters.reciprocal(12)], [7, parameters.reciprocal(7)]]


@pytest.mark.parametrize(
    "line",
    ["  __shared__ float x[{} + 1];\n", "  float acc0[{} + 1];\n", "  p_load<{}>(v0, a0);\n", "  #pragma unroll {}\n",
     "  for (int u = 0; u < {}; u++) a0[u] = 0;\n", "  for (int q = lane; q < {}; q += 8) a0[q] = 0;\n",
     "  a0[x / ({})] = 0;\n", "  a0[0] = {}.0f * i1;\n", "  a0[4294967{}*i1] = 0;\n"],
)  # fmt: skip
def test_numbers_that_the_compiler_must_know_stay(few, line):
    given = [kernel(line.format(k)) for k in (400, 800) if "q <" not in line] or [kernel(line.format(k)) for k in (40, 80)]
    assert parameters.with_parameters([given]) == [given]


def test_kernels_that_differ_in_very_many_numbers_keep_them(few):
    most = parameters.MOST_ARGUMENTS - 2  # it has two of its own
    for count, texts in ((most, 1), (most + 1, 2)):
        given = [kernel("".join(f"  a0[{10 * k + 7 + step}*i0] = 0;\n" for k in range(count))) for step in (0, 1)]
        (made,) = parameters.with_parameters([given])
        assert len({one.text for one in made}) == texts and (texts == 1 or made == given)


def test_few_kernels_keep_their_numbers():
    given = [kernel(f"  a0[{k}*i0] = 0;\n") for k in range(2, 2 + parameters.MANY)]
    assert parameters.with_parameters([given]) == [given]
    given.append(kernel("  a0[i0*i0] = 0;\n"))
    assert len({one.text for one in parameters.with_parameters([given])[0]}) == 2


def test_quotients_are_products_and_shifts():
    drawn = random.Random(0)
    divisors = [*range(1, 70), 2**16, 2**16 + 1, 2**31 - 1, 2**30, *(drawn.randrange(1, 2**31) for _ in range(300))]
    for n in divisors:
        packed = parameters.reciprocal(n)
        factor, shift = packed & (2**32 - 1), packed >> 32
        multiples = [k * n + d for k in (1, 2, 2**31 // n - 1, 2**31 // n) for d in (-1, 0, 1)]
        for a in [0, 1, 2**31 - 1, *multiples, *(drawn.randrange(2**31) for _ in range(20))]:
            if 0 <= a < 2**31:
                assert (((a * factor) >> 32) + a) % 2**32 >> shift == a // n, (a, n)


def layers(*images: torch.Tensor) -> list[torch.Tensor]:
    """Kernels with windows, rows, columns and quotients, at each size."""
    found = []
    for x in images:
        weight = torch.arange(9.0).sin().reshape(1, 1, 3, 3).expand(x.shape[1], 1, 3, 3)
        y = F.conv2d(x, weight.contiguous(memory_format=torch.channels_last), None, 1, 1, 1, x.shape[1])
        found += [y, F.batch_norm(y, None, None, training=True), x.softmax(1), x.mean((2, 3)), x.roll(3, 2) + y]
    return found


def test_results_are_what_they_were(monkeypatch):
    images = [torch.randn(2, c, s, s).to(memory_format=torch.channels_last) for c, s in ((8, 6), (16, 10), (24, 18))]
    texts = []

    def noted(runs):
        made = parameters.with_parameters(runs)
        texts.append(len({one.text for run in made for one in run}))
        return made

    monkeypatch.setattr(backend, "with_parameters", noted)
    found = []
    for many in (1000, 1):
        monkeypatch.setattr(parameters, "MANY", many)
        pliant.reset()
        with kernels_on_shim():
            found.append(pliant.compile(layers)(*images))
    pliant.reset()
    torch.testing.assert_close(found[0], layers(*images))
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert texts[1] < texts[0]
