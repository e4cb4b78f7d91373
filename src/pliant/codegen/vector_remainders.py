"""Remainders of vectors of floats, and quotients rounded down, in C.

In:     nothing; this is text.
Out:    `REMAINDERS`: the functions, the same as those for scalars in `prelude.py` to the bit.
Holds:  the remainder is exact. A quotient below 2^24 is rounded to an integer that is right or one too large, and with a fused
        multiply-add what is left of the dividend is exact either way. Lanes with larger quotients, infinities and NaN, which are
        rare, and all lanes of processors without that instruction are the C library's, one by one.
"""

from __future__ import annotations

REMAINDERS: dict[str, str] = {
    "p_far_fmod": """\
static __attribute__((noinline)) float p_far_fmod(float a, float b) { return fmodf(a, b); }
""",
    "p_fmodv": """\
P_INLINE p_vf p_fmodv(p_vf a, p_vf b) {
#if defined(__FMA__) || defined(__aarch64__)
  const p_vf d = P_ABSv(b), x = P_ABSv(a), q = p_truncv(x / d), r = P_FMAv(-q, d, x);
  p_vf y = P_SIGNv(P_CHOOSEv(r < 0.0f, r + d, r), a);
  const p_vi far = ~((q < 16777216.0f) & (d < P_INF));
#else
  p_vf y = a;
  const p_vi far = P_BI(-1);
#endif
  if (__builtin_expect(p_any_lane(far), 0)) P_EACH if (far[k]) y[k] = p_far_fmod(a[k], b[k]);
  return y;
}
""",
    "p_remainderv": """\
P_INLINE p_vf p_remainderv(p_vf a, p_vf b) {
  const p_vf m = p_fmodv(a, b);
  return P_CHOOSEv((m != 0.0f) & ((b < 0.0f) ^ (m < 0.0f)), m + b, m);
}
""",
    "p_floordivv": """\
P_INLINE p_vf p_floordivv(p_vf a, p_vf b) {
  const p_vf m = p_fmodv(a, b), w = a / b, q = (a - m) / b;
  const p_vf d = P_CHOOSEv((m != 0.0f) & ((b < 0.0f) ^ (m < 0.0f)), q - 1.0f, q), f = p_floorv(d);
  const p_vf r = P_CHOOSEv(d - f > 0.5f, f + 1.0f, f);
  return P_CHOOSEv(b == 0.0f, w, P_CHOOSEv(d != 0.0f, r, P_SIGNv(P_B(0.0f), w)));
}
""",
}
