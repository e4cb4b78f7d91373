"""Inverse sine, cosine and tangent of floats in C, one text for scalars and for vectors.

In:     nothing; this is text, spelled as in `float_functions.py`.
Out:    `INVERSE_TRIGONOMETRY`: the functions and what they share.
Holds:  no branches. What is added to a multiple of pi/2, which is kept in two floats, is rounded once: the larger parts are
        added first, exactly or nearly so, then what is small. -2.78275347e-08 times a multiple is its second float.
Source: coefficients are least-squares fits over Chebyshev nodes, weighted until the largest relative error is the least.
"""

from __future__ import annotations

INVERSE_TRIGONOMETRY: dict[str, str] = {
    # the arc tangent of q between 0 and 1, without its leading q
    "p_atan_tail@": """\
P_INLINE @F p_atan_tail@(@F q) {
  const @F z = q * q;
  @F p = P_FMA@(-0.0017828206764534116f, z, 0.010868685320019722f);
  p = P_FMA@(p, z, -0.031096985563635826f);
  p = P_FMA@(p, z, 0.05788138881325722f);
  p = P_FMA@(p, z, -0.08399306237697601f);
  p = P_FMA@(p, z, 0.10950880497694016f);
  p = P_FMA@(p, z, -0.14264015853405f);
  p = P_FMA@(p, z, 0.1999852955341339f);
  p = P_FMA@(p, z, -0.33333298563957214f);
  return p * z * q;
}
""",
    "p_atan@": """\
P_INLINE @F p_atan@(@F v) {
  const @F x = P_LESS@(1e30f, P_ABS@(v)), low = P_LESS@(1.0f, x), high = P_MORE@(1.0f, x), q = low / high;
  const @F t = P_FMA@(P_FMA@(-q, high, low), q, p_atan_tail@(q));
  const @F far = 1.57079637f - q, left = (1.57079637f - far) - q;
  return P_SIGN@(P_CHOOSE@(x > 1.0f, far + (left - (t + 4.37113883e-08f)), q + t), v);
}
""",
    # the smaller one over the larger one; of two infinities 1, of two zeros 0
    "p_atan2@": """\
P_INLINE @F p_atan2@(@F y, @F x) {
  const @F a = P_ABS@(y), b = P_ABS@(x), low = P_LESS@(a, b), high = P_MORE@(a, b);
  const @F q = P_CHOOSE@(low == high, P_CHOOSE@(low == 0.0f, low, 1.0f), low / high);
  const @I steep = a > b, left = P_BITS@(x) >> 31;
  const @F base = P_CHOOSE@(steep, 1.57079637f, P_FLOAT@(left & 0x40490fdb));
  const @I turned = P_BITS@(P_CHOOSE@(steep, -x, x)) & (-0x7fffffff - 1);
  const @F s = P_FLOAT@(P_BITS@(q) ^ turned), t = P_FLOAT@(P_BITS@(p_atan_tail@(q)) ^ turned);
  const @F r = (base + s) + P_FMA@(base, -2.78275347e-08f, t);
  return P_CHOOSE@((a <= P_INF) & (b <= P_INF), P_SIGN@(r, y), P_NAN);
}
""",
    # From 1/2 on asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)). `s` is what is taken the arc of, the result its tail.
    "p_asin_tail@": """\
P_INLINE @F p_asin_tail@(@F x, @F* s) {
  const @I high = x >= 0.5f;
  const @F z = P_CHOOSE@(high, P_FMA@(x, -0.5f, 0.5f), x * x);
  *s = P_CHOOSE@(high, P_ROOT@(z), x);
  @F p = P_FMA@(0.04221179708838463f, z, 0.02415209263563156f);
  p = P_FMA@(p, z, 0.0454760417342186f);
  p = P_FMA@(p, z, 0.07495252043008804f);
  p = P_FMA@(p, z, 0.16666753590106964f);
  return p * z * *s;
}
""",
    "p_asin@": """\
P_INLINE @F p_asin@(@F v) {
  @F s;
  const @F x = P_ABS@(v), t = p_asin_tail@(x, &s);
  const @F top = P_FMA@(s, -2.0f, 1.57079637f), left = P_FMA@(s, -2.0f, 1.57079637f - top);
  const @F high = top + (left - P_FMA@(t, 2.0f, 4.37113883e-08f));
  return P_SIGN@(P_CHOOSE@(x >= 0.5f, high, s + t), v);
}
""",
    "p_acos@": """\
P_INLINE @F p_acos@(@F v) {
  @F s;
  const @F x = P_ABS@(v), t = p_asin_tail@(x, &s);
  const @F base = P_CHOOSE@(x >= 0.5f, P_FLOAT@(P_BITS@(v) >> 31 & 0x40490fdb), 1.57079637f);
  const @F f = P_FLOAT@(P_BITS@(P_CHOOSE@(x >= 0.5f, 2.0f, -1.0f)) ^ (P_BITS@(v) & (-0x7fffffff - 1)));
  return P_FMA@(f, s, base) + P_FMA@(f, t, base * -2.78275347e-08f);
}
""",
}
