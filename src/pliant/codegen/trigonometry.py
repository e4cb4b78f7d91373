"""Sine and cosine of floats in C, one text for scalars and for vectors.

In:     nothing; this is text, spelled as in `float_functions.py`.
Out:    `TRIGONOMETRY`: the functions and what they share.
Holds:  no branches but for arguments so large that the reduction is not exact, which are rare: the C library computes these
        one by one. Errors as `prelude.py` states them. Scalars and lanes have the same bits: what is computed twice, and then
        compared, may be computed by both.
Source: coefficients are least-squares fits over Chebyshev nodes, weighted until the largest relative error is the least; multiples
        of pi/2 are taken away in three parts: with fused multiply-adds products are exact, without them the first two parts have
        few digits.
"""

from __future__ import annotations

_REDUCTION = """\
// x less the multiple of pi/2 that is nearest, and in `low` what rounding took from it; the lowest bits of `q` are its number
#if defined(__FMA__) || defined(__aarch64__)
#define P_FAR 102000.0f
#define P_REDUCE@ \\
  const @F t = P_FMA@(k, -1.57079637f, x), p = k * -4.37113883e-08f, r = t - p, d = r - t; \\
  *low = P_FMA@(k, 1.71512451e-15f, (t - (r - d)) - (p + d) - P_FMA@(k, -4.37113883e-08f, -p));
#else
#define P_FAR 3000.0f
#define P_REDUCE@ \\
  const @F t = x - k * 1.5703125f, p = k * 0.000483810902f, s = t - p, d = s - t; \\
  const @F p3 = k * 1.58932547e-08f, r = s - p3, d3 = r - s; \\
  *low = ((s - (r - d3)) - (p3 + d3)) + ((t - (s - d)) - (p + d));
#endif
P_INLINE @F p_quarter@(@F x, @I* q, @F* low) {
  const @F n = P_FMA@(x, 0.636619747f, 12582912.0f), k = n - 12582912.0f;
  *q = P_BITS@(n);
  P_REDUCE@
  return r;
}
"""

_WAVE = """\
// the sine of r + low, or the cosine where `q` is odd; with the other sign where its next bit is set
P_INLINE @F p_wave@(@F r, @F low, @I q) {
  const @F z = r * r;
  @F s = P_FMA@(-0.00019514957966748625f, z, 0.00833215843886137f);
  @F c = P_FMA@(2.4432783902739175e-05f, z, -0.0013887312961742282f);
  s = P_FMA@(s, z, -0.16666655242443085f);
  c = P_FMA@(c, z, 0.04166664555668831f);
  s = r + P_FMA@(s * z, r, low);
  const @F top = P_FMA@(z, -0.5f, 1.0f);
  c = top + P_FMA@(c * z, z, P_FMA@(z, -0.5f, 1.0f - top) - r * low);
  return P_FLOAT@(P_BITS@(P_CHOOSE@(q << 31 != 0, c, s)) ^ (q << 30 & (-0x7fffffff - 1)));
}
"""

TRIGONOMETRY: dict[str, str] = {
    "p_far_onesf": """\
#define p_far_onesf(y, x, function) if (__builtin_expect(P_ABSf(x) > P_FAR, 0)) y = function(x);
""",
    "p_far_onesv": """\
#define p_far_onesv(y, x, function) \\
  { const p_vi far = P_ABSv(x) > P_FAR; if (__builtin_expect(p_any_lane(far), 0)) P_EACH if (far[k]) y[k] = function(x[k]); }
""",
    "p_far_sin": """\
static __attribute__((noinline)) float p_far_sin(float x) { return sinf(x); }
""",
    "p_far_tan": """\
static __attribute__((noinline)) float p_far_tan(float x) { return tanf(x); }
""",
    "p_far_cos": """\
static __attribute__((noinline)) float p_far_cos(float x) { return cosf(x); }
""",
    "p_quarter@": _REDUCTION,
    "p_wave@": _WAVE,
    "p_sin@": """\
P_INLINE @F p_sin@(@F v) {
  @I q;
  @F low;
  const @F r = p_quarter@(P_ABS@(v), &q, &low);
  @F y = P_FLOAT@(P_BITS@(p_wave@(r, low, q)) ^ (P_BITS@(v) & (-0x7fffffff - 1)));
  p_far_ones@(y, v, p_far_sin)
  return y;
}
""",
    "p_cos@": """\
P_INLINE @F p_cos@(@F v) {
  @I q;
  @F low;
  const @F r = p_quarter@(P_ABS@(v), &q, &low);
  @F y = p_wave@(r, low, q + 1);
  p_far_ones@(y, v, p_far_cos)
  return y;
}
""",
    # the tangent of r + low, or -1 over it where q is odd: what rounding takes from the sum `t` counts in the quotient
    "p_tan@": """\
P_INLINE @F p_tan@(@F v) {
  @I q;
  @F low;
  const @F r = p_quarter@(P_ABS@(v), &q, &low), z = r * r;
  @F p = P_FMA@(0.004441829398274422f, z, -4.6186854888219386e-05f);
  p = P_FMA@(p, z, 0.010945543646812439f);
  p = P_FMA@(p, z, 0.02123861014842987f);
  p = P_FMA@(p, z, 0.05406865105032921f);
  p = P_FMA@(p, z, 0.13332583010196686f);
  p = P_FMA@(p, z, 0.3333335220813751f);
  const @F c = P_FMA@(p * z, r, low * P_FMA@(z, 1.5f, 1.0f)), t = r + c, u = -p_inverse@(t);
  const @F odd = P_FMA@(P_FMA@(t, u, 1.0f) + (c - (t - r)) * u, u, u);
  @F y = P_FLOAT@(P_BITS@(P_CHOOSE@(q << 31 != 0, odd, t)) ^ (P_BITS@(v) & (-0x7fffffff - 1)));
  p_far_ones@(y, v, p_far_tan)
  return y;
}
""",
}
