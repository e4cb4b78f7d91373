"""Elementary functions of floats for `numerics="fast"`: fewer operations, a few units in the last place more.

In:     nothing; this is text, spelled as in `float_functions.py`.
Out:    `FAST`: the functions, each named as the one whose place it takes, with `fast_`; `NAMES`: these.
Holds:  infinities, NaN, signed zeros, and that `tanh` and `erf` are at most 1 and are 1 from where they round to it. Results of
        `exp` below 2^-125.5 are 0. Errors against float64 over the whole range, measured by tests/codegen/test_prelude.py, with fused
        multiply-adds (without: up to 2 more): exp 2 ulp, sigmoid 4, tanh and erf 6. On vectors of 16 lanes the functions of
        `float_tables.py` and `float_functions.py` take their place: these were measured on narrower ones.
Source: least-squares fits over Chebyshev nodes, weighted until the largest relative error is the least; quotients of
        polynomials in x^2, whose relative errors are 2.1e-8.
"""

from __future__ import annotations

FAST: dict[str, str] = {
    # a * b + c in as few roundings as the processor can
    "p_muladd@": """\
P_INLINE @F p_muladd@(@F a, @F b, @F c) { return P_FMA@(a, b, c); }
""",
    # 2 exp(r) times 2^(n - 1), whose exponent the lowest bits of m are: 0 where n is -126, and still finite where n is 128.
    "p_fast_exp@": """\
P_INLINE @F p_fast_exp@(@F v) {
  const @F x = P_MORE@(-87.5f, P_LESS@(89.0f, v)), m = P_FMA@(x, 1.44269504f, 12583038.0f), n = m - 12583038.0f;
  const @F r = P_FMA@(n, -1.42860677e-6f, P_FMA@(n, -0.693145752f, x));
  @F p = P_FMA@(0.016580544f, r, 0.08379632f);
  p = P_FMA@(p, r, 0.33335277f);
  p = P_FMA@(p, r, 0.99998295f);
  p = P_FMA@(p, r, 1.9999994f);
  p = P_FMA@(p, r, 2.0f);
  return p * P_FLOAT@(P_BITS@(m) << 23);
}
""",
    "p_fast_tanh@": """\
P_INLINE @F p_fast_tanh@(@F v) {
  const @F x = P_MORE@(-9.05f, P_LESS@(9.05f, v)), z = x * x;
  @F p = P_FMA@(1.3319012e-08f, z, 2.0583435e-05f);
  @F q = P_FMA@(7.761994e-07f, z, 0.00032830882f);
  p = P_FMA@(p, z, 0.0034940315f);
  q = P_FMA@(q, z, 0.025871063f);
  p = P_FMA@(p, z, 0.13379715f);
  q = P_FMA@(q, z, 0.4671303f);
  p = P_FMA@(p, z, 1.0f) * x;
  q = P_FMA@(q, z, 1.0f);
  return P_MORE@(-1.0f, P_LESS@(1.0f, p / q));
}
""",
    "p_fast_erf@": """\
P_INLINE @F p_fast_erf@(@F v) {
  const @F x = P_MORE@(-3.95f, P_LESS@(3.95f, v)), z = x * x;
  @F p = P_FMA@(2.041972e-06f, z, 0.00028480866f);
  @F q = P_FMA@(3.800409e-05f, z, 0.0011652127f);
  p = P_FMA@(p, z, 0.0037796088f);
  q = P_FMA@(q, z, 0.014997436f);
  p = P_FMA@(p, z, 0.052790284f);
  q = P_FMA@(q, z, 0.114257514f);
  p = P_FMA@(p, z, 0.19078381f);
  q = P_FMA@(q, z, 0.5024105f);
  p = P_FMA@(p, z, 1.1283791f) * x;
  q = P_FMA@(q, z, 1.0f);
  return P_MORE@(-1.0f, P_LESS@(1.0f, p / q));
}
""",
    "p_fast_sigmoid@": """\
P_INLINE @F p_fast_sigmoid@(@F x) { return 1.0f / (1.0f + p_fast_exp@(-x)); }
""",
    "p_fast_normal_cdf@": """\
P_INLINE @F p_fast_normal_cdf@(@F v) { return P_FMA@(p_fast_erf@(v * 0.707106781f), 0.5f, 0.5f); }
""",
}

NAMES = [name.removeprefix("p_fast_").rstrip("@") for name in FAST if name.startswith("p_fast_")]
