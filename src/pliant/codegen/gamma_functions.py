"""The logarithm of the gamma function of floats in C, one text for scalars and for vectors.

In:     nothing; this is text, spelled as in `float_functions.py`.
Out:    `GAMMA`: the function.
Holds:  no branches but for negative numbers: vectors that have some compute them in double, by the function's reflection.
        Below 4 a polynomial times what is 0 where the function is; from there on the asymptotic series, whose largest term is
        kept in two floats: what two terms of one size leave has the digits of both.
Source: coefficients are least-squares fits over Chebyshev nodes in 40 digits, weighted until the largest relative error is the
        least. For negative numbers: C. Lanczos, A Precision Approximation of the Gamma Function (1964), with the nine
        coefficients for g = 7 that are in common use, as one fraction; the sine's are Taylor's.
"""

from __future__ import annotations

GAMMA: dict[str, str] = {
    "p_below_zerof": """\
#define p_below_zerof(y, x) if (__builtin_expect(x < 0.0f, 0)) y = p_below_lgamma(x);
""",
    "p_below_zerov": """\
#define p_below_zerov(y, x) \\
  { const p_vi low = x < 0.0f; if (__builtin_expect(p_any_lane(low), 0)) y = p_choosev(low, p_below_lgammav(x), y); }
""",
    "p_below_lgamma": """\
static __attribute__((noinline)) float p_below_lgamma(float x) { return lgammaf(x); }
""",
    # gamma(-z) * gamma(1 + z) * sin(pi * z) = -pi, in double: near the zeros of the result two terms of one size leave little.
    # gamma(1 + z) = (z + 7.5)^(z + 0.5) * exp(-z - 7.5) * top / bottom (Lanczos); multiples of pi are left out before the sine.
    "p_below_lgammav": """\
static __attribute__((noinline)) p_vf p_below_lgammav(p_vf x) {
  float from[P_L], to[P_L];
  p_vf r;
  __builtin_memcpy(from, &x, sizeof x);
  #pragma omp simd
  P_EACH {
    const double given = from[k] < 0.0f ? -(double)from[k] : 1.5, z = given < 1e30 ? given : 1e30;
    const double u = (z - __builtin_nearbyint(z)) * 3.141592653589793, w = u * u;
    double s = -7.647163731819816e-13 * w + 1.6059043836821613e-10;
    s = s * w + -2.505210838544172e-08;
    s = s * w + 2.7557319223985893e-06;
    s = s * w + -1.984126984126984e-04;
    s = s * w + 8.333333333333333e-03;
    s = s * w + -1.6666666666666666e-01;
    s = __builtin_fabs(u + u * w * s);
    double top = 2.5066282746305237 * z + 151.54656777042103;
    top = top * z + 4008.2052298719027;
    top = top * z + 60573.95230386002;
    top = top * z + 572100.8444380839;
    top = top * z + 3457884.34479936;
    top = top * z + 13061711.615317967;
    top = top * z + 28191871.449029636;
    top = top * z + 26619414.939900804;
    double bottom = 1.0 * z + 36.0;
    bottom = bottom * z + 546.0;
    bottom = bottom * z + 4536.0;
    bottom = bottom * z + 22449.0;
    bottom = bottom * z + 67284.0;
    bottom = bottom * z + 118124.0;
    bottom = bottom * z + 109584.0;
    bottom = bottom * z + 40320.0;
    to[k] = (float)(log(3.141592653589793 * bottom / (s * top)) - ((z + 0.5) * log(z + 7.5) - (z + 7.5)));
  }
  __builtin_memcpy(&r, to, sizeof r);
  return r;
}
""",
    # lgamma(x) / ((x - 1) * (x - 2)): from 0.5 to 1.5 over t = x - 1, from there to 4
    "p_lgamma_one@": """\
P_INLINE @F p_lgamma_one@(@F t) {
  @F p = P_FMA@(0.09993845224380493f, t, -0.07765726745128632f);
  p = P_FMA@(p, t, 0.011252682656049728f);
  p = P_FMA@(p, t, -0.03672787547111511f);
  p = P_FMA@(p, t, 0.06040284037590027f);
  p = P_FMA@(p, t, -0.060015372931957245f);
  p = P_FMA@(p, t, 0.06572910398244858f);
  p = P_FMA@(p, t, -0.0772666409611702f);
  p = P_FMA@(p, t, 0.09230248630046844f);
  p = P_FMA@(p, t, -0.11514683812856674f);
  p = P_FMA@(p, t, 0.15543268620967865f);
  p = P_FMA@(p, t, -0.2452513724565506f);
  return P_FMA@(p, t, 0.5772156715393066f);
}
""",
    "p_lgamma_two@": """\
P_INLINE @F p_lgamma_two@(@F x) {
  const @F u = x - 2.75f;
  @F p = P_FMA@(-8.433723905909574e-07f, u, 2.2795181848778157e-06f);
  p = P_FMA@(p, u, -3.900722276739543e-06f);
  p = P_FMA@(p, u, 1.2624175724340603e-05f);
  p = P_FMA@(p, u, -4.12067529396154e-05f);
  p = P_FMA@(p, u, 0.00012650115240830928f);
  p = P_FMA@(p, u, -0.0004005409136880189f);
  p = P_FMA@(p, u, 0.0013034400762990117f);
  p = P_FMA@(p, u, -0.004419467877596617f);
  p = P_FMA@(p, u, 0.016030825674533844f);
  p = P_FMA@(p, u, -0.06572934985160828f);
  return P_FMA@(p, u, 0.3620683252811432f);
}
""",
    # x * (log(x) - 1) - log(x) / 2 + ...; the logarithm less 1 is s + e
    "p_lgamma@": """\
P_INLINE @F p_lgamma@(@F x) {
  @F f;
  const @F k = p_log_split@(x, &f), tail = P_FMA@(k, 1.42860677e-6f, p_log_tail@(f));
  const @I low = x < 0.5f;  // there lgamma(x) = lgamma(x + 1) - log(x), of which k * ln 2 comes last
  const @F t = P_CHOOSE@(low, x, x - 1.0f), b = t - 1.0f, r = t * b;
  const @F smooth = P_CHOOSE@(x < 1.5f, p_lgamma_one@(t), p_lgamma_two@(x));
  const @F left = P_FMA@(t, b, -r) + t * (t - (b + 1.0f));  // by rounding
  const @F part = P_FMA@(r, smooth, P_FMA@(left, smooth, P_CHOOSE@(low, -(tail + f), 0.0f)));
  const @F near = P_FMA@(P_CHOOSE@(low, -k, 0.0f), 0.693145752f, part);
  const @F a = P_FMA@(k, 0.693145752f, -1.0f), s = a + f, d = s - a, e = (a - (s - d)) + (f - d) + tail;
  const @F i = 1.0f / x, w = i * i;
  @F p = P_FMA@(0.000739140494260937f, w, -0.0027764425612986088f);
  p = P_FMA@(P_FMA@(p, w, 0.0833333283662796f), i, P_FMA@(s + e, -0.5f, 0.418938547f));
  const @F m = x * s, far = m + (P_FMA@(x, e, P_FMA@(x, s, -m)) + p);
  @F y = P_CHOOSE@(x < 4.0f, near, P_CHOOSE@(m == P_INF, P_INF, far));
  y = P_CHOOSE@(x == 0.0f, P_INF, y);
  p_below_zero@(y, x)
  return y;
}
""",
}
