"""Kernels that differ in numbers only are one function with arguments, where a graph has more than a few."""

import re
import struct
from dataclasses import replace

import pytest
import torch

import pliant
from pliant.codegen.c import KernelText
from pliant.codegen.sharing import FEW, share
from pliant.debug import events
from pliant.symbolic.expr import ONE

BODY = """\
static void @_part(void** p, const int64_t* n, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; t++) {
    const int64_t i1 = t % (STEP);
    const int64_t q1 = t / (STEP);
    float acc0[STEP];
    float given[3] = {0};
    #pragma omp simd safelen(8)
    for (int64_t i2 = 0; i2 < STEP; i2++) {
      acc0[i2] = a0[i2 + 64*i1 + OFFSET] * 2.STEPf + 1e-3 + 0x1.8p-3f + (float)(i2 / 7) + p_mod(i2, 5) + powf(t, 3.0f);
      const int64_t be = p_min(b + 8, STEP);
    }
  }
}
static void @(void** p, const int64_t* n, int32_t* p_error) {
  p_run(@_part, p, n, STEP, 64);
}
"""


def kernel(step, offset, fraction="5"):
    text = BODY.replace("2.STEP", f"2.{fraction}").replace("STEP", str(step)).replace("OFFSET", str(offset))
    return KernelText(text, "", (), (), frozenset(), ONE)


def many(*kernels):
    """With as many others that nothing can be shared with."""
    return [[*kernels, *(KernelText(f"other{'x' * k}", "", (), (), frozenset(), ONE) for k in range(FEW))]]


def test_equal_up_to_numbers_is_one_text():
    kernels = [kernel(step, 64 * step) for step in (5, 6, 7)]
    (found,) = share(many(*kernels))
    shared = found[: len(kernels)]
    assert len({k.text for k in shared}) == 1
    assert [[int(s.as_int()) for s in k.sizes] for k in shared] == [[step, 64 * step] for step in (5, 6, 7)]
    text = shared[0].text
    assert text.count("const int c0 = (int)n[0];") == 2 and text.count("const int c1 = (int)n[1];") == 2
    assert "float acc0[7];" in text and "t % (c0)" in text and "i2 < c0" in text and "p_min(b + 8, c0)" in text
    for kept in ("given[3] = {0}", "safelen(8)", "2.5f", "1e-3", "0x1.8p-3f", "i2 / 7", "p_mod(i2, 5)", "64*i1"):
        assert kept in text
    assert [k.text for k in found[len(kernels) :]] == [k.text for k in many()[0]]


@pytest.mark.parametrize(
    ("literals", "ctype"), [(("2.5f", "0.10000000149011612f"), "float"), (("2.5", "1e-05"), "double")]
)
def test_fractions_are_arguments_of_their_type(literals, ctype):
    kernels = [replace(k, text=k.text.replace("2.5f", one)) for k, one in zip([kernel(5, 1)] * 2, literals)]
    found = share(many(*kernels))[0][:2]
    assert found[0].text == found[1].text and f"const {ctype} c0 = ({ctype})c0d;" in found[0].text
    assert "* c0 + 1e-3" in found[0].text
    given = [struct.unpack("d", struct.pack("q", k.sizes[0].as_int()))[0] for k in found]
    assert given == [float(one.removesuffix("f")) for one in literals]


@pytest.mark.parametrize(
    "kernels",
    [
        [kernel(5, 1)],  # one alone
        [replace(kernel(5, 1), text=kernel(5, 1).text.replace("i2 / 7", f"i2 / {k}")) for k in (7, 8)],  # a divisor
        [replace(kernel(5, 1), text=kernel(5, 1).text.replace("3.0f)", f"{k}.0f)")) for k in (2, 3)],  # an exponent
        [replace(kernel(5, 1), text=kernel(5, 1).text.replace("2.5f", one)) for one in ("2.5f", "2.5")],  # other types
        [replace(kernel(5, 1), text=kernel(5, 1).text.replace("2.5f", one)) for one in ("2.5f", "0.1f")],  # rounded twice
        [kernel(5, 1 << (31 + step)) for step in (0, 1)],  # of another type than `int`
    ],
)
def test_what_is_not_shared(kernels):
    assert share(many(*kernels)) == many(*kernels)


def test_few_kernels_keep_their_constants():
    kernels = [[kernel(step, 1) for step in (5, 6)]]
    assert share(kernels) == kernels


def test_a_loop_that_one_of_them_needs_is_in_all():
    body = "#if P_L >= 8\n      rest(i2);\n#endif\n    }\n  }\n"
    some = [kernel(step, 1) for step in range(4)]
    lanes = [replace(k, text=k.text.replace("    }\n  }\n", body)) for k in some]
    lanes[1] = replace(lanes[1], text=lanes[1].text.replace("P_L >= 8", "P_L >= 16"))
    found = share(many(*lanes))[0][:4]
    assert len({k.text for k in found}) == 1 and "#if" not in found[0].text and "rest(i2)" in found[0].text
    same = share(many(*[replace(k, text=k.text.replace("    }\n  }\n", body)) for k in some]))[0][0]
    assert "#if P_L >= 8" in same.text


def substitution(x):
    """The inverse of a unit lower triangular matrix, row by row: step i reads i rows."""
    out = -x.tril(-1)
    for i in range(1, x.size(-1)):
        row, above = out[..., i, :i].clone(), out[..., :i, :i].clone()
        out[..., i, :i] = row + (row.unsqueeze(-1) * above).sum(-2)
    return out + torch.eye(x.size(-1))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_loop_over_rows(dynamic):
    pliant.reset()
    x = (torch.randn(3, 40, 40) / 8).requires_grad_()
    with events.collect("output_code") as found:
        result = pliant.compile(substitution, dynamic=dynamic, fullgraph=True)(x)
        weight = torch.randn_like(result)
        (gradient,) = torch.autograd.grad((result * weight).sum(), x)
    expected = substitution(x)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * weight).sum(), x)[0])
    for event in found:  # 39 steps
        functions = re.findall(r"static void (k\w+)_part", str(event.fields["text"]))
        assert 0 < len(functions) < 60
