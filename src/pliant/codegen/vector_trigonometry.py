"""Sine and cosine of vectors of floats in C.

In:     nothing; this is text.
Out:    `TRIGONOMETRY`: the functions and what they share.
Holds:  no branches but for arguments so large that the reduction is not exact, which are rare: the C library computes these
        lanes one by one. Errors as `prelude.py` states them.
Source: coefficients are least-squares fits over Chebyshev nodes, weighted until the largest relative error is the least; multiples
        of pi/2 are taken away in three parts: with fused multiply-adds products are exact, without them the first two parts have
        few digits.
"""

from __future__ import annotations

_REDUCTION = """\
// x less the multiple of pi/2 that is nearest, and in `low` what rounding took from it; the lowest bits of `q` are its number
#if defined(__FMA__) || defined(__aarch64__)
#define P_FAR 102000.0f
#define P_REDUCE \\
  const p_vf t = P_FMAv(k, -1.57079637f, x), p = k * -4.37113883e-08f, r = t - p, d = r - t; \\
  *low = P_FMAv(k, 1.71512451e-15f, (t - (r - d)) - (p + d) - P_FMAv(k, -4.37113883e-08f, -p));
#else
#define P_FAR 3000.0f
#define P_REDUCE \\
  const p_vf t = x - k * 1.5703125f, p = k * 0.000483810902f, s = t - p, d = s - t; \\
  const p_vf p3 = k * 1.58932547e-08f, r = s - p3, d3 = r - s; \\
  *low = ((s - (r - d3)) - (p3 + d3)) + ((t - (s - d)) - (p + d));
#endif
P_INLINE p_vf p_quarterv(p_vf x, p_vi* q, p_vf* low) {
  const p_vf n = P_FMAv(x, 0.636619747f, 12582912.0f), k = n - 12582912.0f;
  *q = P_BITSv(n);
  P_REDUCE
  return r;
}
// the sine of r + low, or the cosine where `q` is odd; with the other sign where its next bit is set
P_INLINE p_vf p_wavev(p_vf r, p_vf low, p_vi q) {
  const p_vf z = r * r;
  p_vf s = P_FMAv(-0.00019514957966748625f, z, 0.00833215843886137f);
  p_vf c = P_FMAv(2.4432783902739175e-05f, z, -0.0013887312961742282f);
  s = P_FMAv(s, z, -0.16666655242443085f);
  c = P_FMAv(c, z, 0.04166664555668831f);
  s = r + P_FMAv(s * z, r, low);
  const p_vf top = P_FMAv(z, -0.5f, 1.0f);
  c = top + P_FMAv(c * z, z, P_FMAv(z, -0.5f, 1.0f - top) - r * low);
  return P_FLOATv(P_BITSv(P_CHOOSEv(q << 31 != 0, c, s)) ^ (q << 30 & (-0x7fffffff - 1)));
}
#if !P_PLAIN && P_L == 8
#define P_SOME(m) __builtin_ia32_movmskps256((p_vf)(m))
#elif !P_PLAIN && P_L == 16
#define P_SOME(m) P_K(m)
#else
#define P_SOME(m) p_any_lane(m)
#endif
#define P_FAR_LANES(y, x, function) \\
  { const p_vi far = P_ABSv(x) > P_FAR; if (__builtin_expect(P_SOME(far), 0)) P_EACH if (far[k]) y[k] = function(x[k]); }
"""

TRIGONOMETRY: dict[str, str] = {
    "p_far_sin": """\
static __attribute__((noinline)) float p_far_sin(float x) { return sinf(x); }
""",
    "p_far_cos": """\
static __attribute__((noinline)) float p_far_cos(float x) { return cosf(x); }
""",
    "p_wavev": _REDUCTION,
    "p_sinv": """\
P_INLINE p_vf p_sinv(p_vf v) {
  p_vi q;
  p_vf low;
  const p_vf r = p_quarterv(P_ABSv(v), &q, &low);
  p_vf y = P_FLOATv(P_BITSv(p_wavev(r, low, q)) ^ (P_BITSv(v) & (-0x7fffffff - 1)));
  P_FAR_LANES(y, v, p_far_sin)
  return y;
}
""",
    "p_cosv": """\
P_INLINE p_vf p_cosv(p_vf v) {
  p_vi q;
  p_vf low;
  const p_vf r = p_quarterv(P_ABSv(v), &q, &low);
  p_vf y = p_wavev(r, low, q + 1);
  P_FAR_LANES(y, v, p_far_cos)
  return y;
}
""",
}
