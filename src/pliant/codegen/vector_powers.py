"""Powers of vectors of floats in C.

In:     nothing; this is text.
Out:    `POWERS`: the function. Scalars are the C library's.
Holds:  errors as `prelude.py` states them; infinities, zeros, NaN and signs are C's. The logarithm is kept in two floats, since
        the exponent multiplies its error; that needs exact products, so processors without a fused multiply-add go to the
        C library, lane by lane.
Source: the logarithm is that of (1 + s) / (1 - s), by powers of s^2; what floats of two parts are multiplied and added by is
        T. J. Dekker, A Floating-Point Technique for Extending the Available Precision (1971). Coefficients are least-squares
        fits over Chebyshev nodes, weighted until the largest relative error is the least.
"""

from __future__ import annotations

POWERS: dict[str, str] = {
    # the logarithm of x to base 2, and in `low` what is left of it
    "p_log2_pairv": """\
P_INLINE p_vf p_log2_pairv(p_vf x, p_vf* low) {
  p_vf f;
  const p_vf k = p_log_splitv(x, &f), d = f + 2.0f, o = p_inversev(d), r = P_FMAv(P_FMAv(-o, d, 1.0f), o, o);
  const p_vf s = f * r, s1 = (P_FMAv(-s, d, f) - s * (f - (d - 2.0f))) * r;
  const p_vf z = s * s, z1 = P_FMAv(s + s, s1, P_FMAv(s, s, -z));
  p_vf p = P_FMAv(0.09960423409938812f, z, 0.11077765375375748f);
  p = P_FMAv(p, z, 0.14286233484745026f);
  p = P_FMAv(p, z, 0.19999997317790985f);
  // z / 3 + z^2 p
  const p_vf t = z * 0.333333343f, t0 = P_FMAv(z, -9.93410746e-9f, P_FMAv(z1, 0.333333343f, z * z * p));
  const p_vf t1 = P_FMAv(z, 0.333333343f, -t) + t0;
  const p_vf u = t + t1, u1 = t1 - (u - t);
  // s + s u, times 2 / ln 2
  const p_vf m = s * u, m1 = P_FMAv(s, u1, P_FMAv(s1, u, P_FMAv(s, u, -m)));
  const p_vf h = s + m, h1 = (m - (h - s)) + (m1 + s1);
  const p_vf l = h * 2.88539004f, l1 = P_FMAv(h, 3.85192598e-8f, P_FMAv(h1, 2.88539004f, P_FMAv(h, 2.88539004f, -l)));
  const p_vf top = k + l, left = (l - (top - k)) + l1;
  *low = P_CHOOSEv((x > 0.0f) & (x < P_INF), left, 0.0f);
  return p_log_edgesv(x, top);
}
""",
    "p_powv": """\
P_INLINE p_vf p_powv(p_vf x, p_vf y) {
#if defined(__FMA__) || defined(__aarch64__)
  const p_vf a = P_ABSv(x), whole = p_floorv(y);
  p_vf low;
  const p_vf top = p_log2_pairv(a, &low), product = y * top;
  const p_vi far = ~(P_ABSv(product) < 1000.0f);
  const p_vf left = P_CHOOSEv(far, 0.0f, P_FMAv(y, low, P_FMAv(y, top, -product)));
  const p_vf e = P_LESSv(200.0f, P_MOREv(-200.0f, product)), n = p_nearbyintv(e), r = (e - n) + left;
  p_vf p = P_FMAv(0.00015327802975662053f, r, 0.0013390997191891074f);
  p = P_FMAv(p, r, 0.009618503041565418f);
  p = P_FMAv(p, r, 0.05550359562039375f);
  p = P_FMAv(p, r, 0.24022647738456726f);
  p = P_FMAv(p, r, 0.6931471824645996f);
  const p_vf size = p_scale_abovev(P_FMAv(p, r, 1.0f), n, e, -151.0f);
  const p_vi negative = P_BITSv(x) >> 31, odd = (whole == y) & (p_floorv(y * 0.5f) * 2.0f != y);
  const p_vf signed_size = P_FLOATv(P_BITSv(size) | (P_BITSv(x) & odd & (-0x7fffffff - 1)));
  const p_vi none = negative & (a > 0.0f) & (a < P_INF) & (whole != y);
  const p_vi one = (y == 0.0f) | (x == 1.0f) | ((a == 1.0f) & (P_ABSv(y) == P_INF));
  return P_CHOOSEv(one, 1.0f, P_CHOOSEv(none, P_NAN, signed_size));
#else
  p_vf r;
  P_EACH r[k] = powf(x[k], y[k]);
  return r;
#endif
}
""",
}
