"""Vectors of elements that are not neighbours, or are wider than a lane: loads and stores in C.

In:     nothing; this is text.
Out:    `SPACED`: functions on the types of `vectors.py`, whose text it is part of.
Holds:  a load or store under a mask touches no memory where the mask is not set. It is made of whole loads under masks of
        their own, not lane by lane: every vector of a short row has a mask.
"""

SPACED = """\
// int64 elements, clamped to what a lane holds
P_INLINE p_vi p_narrowed(p_vi low, p_vi high) { return p_choosei(high == (low >> 31), low, (high >> 31) ^ 0x7fffffff); }
// every second element (`_2`; where both are read: `_evens`, `_odds`); each element twice, or `p` and `q` in turn (`_pairs`);
// from `p` back (`_back`)
P_INLINE p_vf p_load_apart(const float* p, int64_t step) { p_vf r; P_EACH r[k] = p[step * k]; return r; }
P_INLINE p_vf p_load_apart_part(const float* p, int64_t step, p_vi m) {
  p_vf r = {};
  P_EACH if (m[k]) r[k] = p[step * k];
  return r;
}
P_INLINE void p_store_apart(float* p, int64_t step, p_vf x) { P_EACH p[step * k] = x[k]; }
P_INLINE void p_store_apart_part(float* p, int64_t step, p_vf x, p_vi m) { P_EACH if (m[k]) p[step * k] = x[k]; }
// int64 as floats
#if !P_PLAIN && P_L == 16
typedef long long p_x64 __attribute__((vector_size(64)));
P_INLINE p_vf p_load64_f(const int64_t* p) {
  typedef float p_half __attribute__((vector_size(32)));
  const p_half low = __builtin_ia32_cvtqq2ps512_mask((p_x64)p_load(p), (p_half){}, 255, 4);
  const p_half high = __builtin_ia32_cvtqq2ps512_mask((p_x64)p_load(p + 8), (p_half){}, 255, 4);
  return __builtin_ia32_insertf32x8_mask(__builtin_ia32_ps512_256ps(low), high, 1, (p_vf){}, P_ALL);
}
#else
P_INLINE p_vf p_load64_f(const int64_t* p) { p_vf r; P_EACH r[k] = (float)p[k]; return r; }
#endif
P_INLINE p_vf p_load64_f_part(const int64_t* p, p_vi m) { p_vf r = {}; P_EACH if (m[k]) r[k] = (float)p[k]; return r; }
#if P_PLAIN
P_INLINE p_vi p_load64_part(const int64_t* p, p_vi m) { p_vi r = {}; P_EACH if (m[k]) r[k] = p_clamp(p[k]); return r; }
P_INLINE void p_store64_part(int64_t* p, p_vi x, p_vi m) { P_EACH if (m[k]) p[k] = x[k]; }
P_INLINE p_vi p_load64_pairs_part(const int64_t* p, const int64_t* q, p_vi m) {
  p_vi r = {};
  P_EACH if (m[k]) r[k] = p_clamp((k % 2 ? q : p)[k / 2]);
  return r;
}
P_INLINE p_vf p_load_2_lanes(const float* p, p_vi m) { p_vf r = {}; P_EACH if (m[k]) r[k] = p[2 * k]; return r; }
P_INLINE p_vh p_load16_2_lanes(const uint16_t* p, p_vi m) { p_vh r = {}; P_EACH if (m[k]) r[k] = p[2 * k]; return r; }
P_INLINE p_vf p_load_pairs_lanes(const float* p, const float* q, p_vi m) {
  p_vf r = {};
  P_EACH if (m[k]) r[k] = (k % 2 ? q : p)[k / 2];
  return r;
}
P_INLINE p_vh p_load16_pairs_lanes(const uint16_t* p, const uint16_t* q, p_vi m) {
  p_vh r = {};
  P_EACH if (m[k]) r[k] = (k % 2 ? q : p)[k / 2];
  return r;
}
P_INLINE void p_store_pairs_part(float* p, p_vf x, p_vf y, p_vi m) { P_EACH if (m[k]) p[2 * k] = x[k], p[2 * k + 1] = y[k]; }
P_INLINE void p_store16_pairs_part(uint16_t* p, p_vh x, p_vh y, p_vi m) {
  P_EACH if (m[k]) p[2 * k] = x[k], p[2 * k + 1] = y[k];
}
P_INLINE void p_store_pairs(float* p, p_vf x, p_vf y) { P_EACH p[2 * k] = x[k], p[2 * k + 1] = y[k]; }
P_INLINE void p_store16_pairs(uint16_t* p, p_vh x, p_vh y) { P_EACH p[2 * k] = x[k], p[2 * k + 1] = y[k]; }
P_INLINE p_vi p_load64(const int64_t* p) { p_vi r; P_EACH r[k] = p_clamp(p[k]); return r; }
P_INLINE void p_store64(int64_t* p, p_vi x) { P_EACH p[k] = x[k]; }
P_INLINE p_vi p_load64_pairs(const int64_t* p, const int64_t* q) { return p_load64_pairs_part(p, q, P_BI(-1)); }
P_INLINE p_vf p_load_2(const float* p) { return p_load_2_lanes(p, P_BI(-1)); }
P_INLINE p_vf p_load_evens(const float* p) { return p_load_2(p); }
P_INLINE p_vf p_load_odds(const float* p) { return p_load_2(p + 1); }
P_INLINE p_vh p_load16_evens(const uint16_t* p) { return p_load16_2_lanes(p, P_BI(-1)); }
P_INLINE p_vh p_load16_odds(const uint16_t* p) { return p_load16_2_lanes(p + 1, P_BI(-1)); }
P_INLINE p_vh p_load16_2(const uint16_t* p) { return p_load16_2_lanes(p, P_BI(-1)); }
P_INLINE p_vf p_load_pairs(const float* p, const float* q) { return p_load_pairs_lanes(p, q, P_BI(-1)); }
P_INLINE p_vh p_load16_pairs(const uint16_t* p, const uint16_t* q) { return p_load16_pairs_lanes(p, q, P_BI(-1)); }
#else
P_INLINE p_vi p_load64(const int64_t* p) {
  const p_vi a = (p_vi)p_load(p), b = (p_vi)p_load(p + P_L / 2), even = p_lanes() * 2;
  return p_narrowed(P_BOTH(a, b, even), P_BOTH(a, b, even + 1));
}
P_INLINE void p_store64(int64_t* p, p_vi x) {
  p_vi low;
  P_EACH low[k] = k / 2 + k % 2 * P_L;
  p_store(p, (p_vf)P_BOTH(x, x >> 31, low));
  p_store(p + P_L / 2, (p_vf)P_BOTH(x, x >> 31, low + P_L / 2));
}
P_INLINE p_vi p_load64_pairs(const int64_t* p, const int64_t* q) {
  const p_vi a = (p_vi)p_load(p), b = (p_vi)p_load(q);
  p_vi even;
  P_EACH even[k] = k - k % 2 + k % 2 * P_L;
  return p_narrowed(P_BOTH(a, b, even), P_BOTH(a, b, even + 1));
}
P_INLINE p_vi p_every_second(p_vi m, p_vi first) {  // lanes `first`, `first + 2`...; none behind the last
  const p_vi i = first + p_lanes() * 2;
  return P_BOTH(m, (p_vi){}, p_choosei(i < P_L, i, P_BI(P_L)));
}
P_INLINE p_vi p_twice(p_vi m, int first) { const p_vi i = (p_lanes() >> 1) + first; return P_BOTH(m, m, i); }
P_INLINE p_vi p_load64_part(const int64_t* p, p_vi m) {
  const p_vi a = (p_vi)p_load_part((const void*)p, p_twice(m, 0)), even = p_lanes() * 2;
  const p_vi b = (p_vi)p_load_part((const void*)(p + P_L / 2), p_twice(m, P_L / 2));
  return p_narrowed(P_BOTH(a, b, even), P_BOTH(a, b, even + 1));
}
P_INLINE void p_store64_part(int64_t* p, p_vi x, p_vi m) {
  p_vi low;
  P_EACH low[k] = k / 2 + k % 2 * P_L;
  p_store_part((void*)p, (p_vf)P_BOTH(x, x >> 31, low), p_twice(m, 0));
  p_store_part((void*)(p + P_L / 2), (p_vf)P_BOTH(x, x >> 31, low + P_L / 2), p_twice(m, P_L / 2));
}
P_INLINE p_vi p_load64_pairs_part(const int64_t* p, const int64_t* q, p_vi m) {
  const p_vi a = (p_vi)p_load_part((const void*)p, p_twice(p_every_second(m, P_BI(0)), 0));
  const p_vi b = (p_vi)p_load_part((const void*)q, p_twice(p_every_second(m, P_BI(1)), 0));
  p_vi even;
  P_EACH even[k] = k - k % 2 + k % 2 * P_L;
  return p_narrowed(P_BOTH(a, b, even), P_BOTH(a, b, even + 1));
}
P_INLINE void p_store_pairs(float* p, p_vf x, p_vf y) {
  p_vi low;
  P_EACH low[k] = k / 2 + k % 2 * P_L;
  p_store(p, P_BOTH(x, y, low));
  p_store(p + P_L, P_BOTH(x, y, low + P_L / 2));
}
P_INLINE void p_store_pairs_part(float* p, p_vf x, p_vf y, p_vi m) {
  p_vi low;
  P_EACH low[k] = k / 2 + k % 2 * P_L;
  p_store_part(p, P_BOTH(x, y, low), p_twice(m, 0));
  p_store_part(p + P_L, P_BOTH(x, y, low + P_L / 2), p_twice(m, P_L / 2));
}
P_INLINE void p_store16_pairs(uint16_t* p, p_vh x, p_vh y) {
  p_vh low;
  P_EACH low[k] = k / 2 + k % 2 * P_L;
  p_store16(p, P_BOTH(x, y, low));
  p_store16(p + P_L, P_BOTH(x, y, low + P_L / 2));
}
P_INLINE void p_store16_pairs_part(uint16_t* p, p_vh x, p_vh y, p_vi m) {
  p_vh low;
  P_EACH low[k] = k / 2 + k % 2 * P_L;
  p_store16_part(p, P_BOTH(x, y, low), p_twice(m, 0));
  p_store16_part(p + P_L, P_BOTH(x, y, low + P_L / 2), p_twice(m, P_L / 2));
}
P_INLINE p_vf p_load_pairs_lanes(const float* p, const float* q, p_vi m) {
  const p_vf a = p_load_part(p, p_every_second(m, P_BI(0))), b = p_load_part(q, p_every_second(m, P_BI(1)));
  p_vi i;
  P_EACH i[k] = k / 2 + k % 2 * P_L;
  return P_BOTH(a, b, i);
}
P_INLINE p_vh p_load16_pairs_lanes(const uint16_t* p, const uint16_t* q, p_vi m) {
  const p_vh a = p_load16_part(p, p_every_second(m, P_BI(0))), b = p_load16_part(q, p_every_second(m, P_BI(1)));
  p_vh i;
  P_EACH i[k] = k / 2 + k % 2 * P_L;
  return P_BOTH(a, b, i);
}
P_INLINE p_vi p_apart_mask(p_vi m, p_vi first) {  // of the load's lane k where it is lane `(first + k) / 2`'s
  const p_vi i = first + p_lanes();
  return P_BOTH(m, (p_vi){}, p_choosei((i & 1) == 0, i >> 1, P_BI(P_L)));
}
P_INLINE p_vf p_load_2_lanes(const float* p, p_vi m) {
  const p_vf a = p_load_part(p, p_apart_mask(m, P_BI(0)));
  const p_vf b = p_load_part(p + P_L - 1, p_apart_mask(m, P_BI(P_L - 1)));
  p_vi i;
  P_EACH i[k] = 2 * k + (2 * k >= P_L);
  return P_BOTH(a, b, i);
}
P_INLINE p_vh p_load16_2_lanes(const uint16_t* p, p_vi m) {
  const p_vh a = p_load16_part(p, p_apart_mask(m, P_BI(0)));
  const p_vh b = p_load16_part(p + P_L - 1, p_apart_mask(m, P_BI(P_L - 1)));
  p_vh i;
  P_EACH i[k] = 2 * k + (2 * k >= P_L);
  return P_BOTH(a, b, i);
}
P_INLINE p_vf p_load_evens(const float* p) { return P_BOTH(p_load(p), p_load(p + P_L), p_lanes() * 2); }
P_INLINE p_vf p_load_odds(const float* p) { return P_BOTH(p_load(p), p_load(p + P_L), p_lanes() * 2 + 1); }
P_INLINE p_vh p_load16_evens(const uint16_t* p) {
  p_vh i;
  P_EACH i[k] = 2 * k;
  return P_BOTH(p_load16(p), p_load16(p + P_L), i);
}
P_INLINE p_vh p_load16_odds(const uint16_t* p) {
  p_vh i;
  P_EACH i[k] = 2 * k + 1;
  return P_BOTH(p_load16(p), p_load16(p + P_L), i);
}
P_INLINE p_vf p_load_2(const float* p) {  // the second load ends with the last element that is wanted
  const p_vf a = p_load(p), b = p_load(p + P_L - 1);
  p_vi i;
  P_EACH i[k] = 2 * k + (2 * k >= P_L);
  return P_BOTH(a, b, i);
}
P_INLINE p_vh p_load16_2(const uint16_t* p) {
  const p_vh a = p_load16(p), b = p_load16(p + P_L - 1);
  p_vh i;
  P_EACH i[k] = 2 * k + (2 * k >= P_L);
  return P_BOTH(a, b, i);
}
P_INLINE p_vf p_load_pairs(const float* p, const float* q) {
  const p_vf a = p_load_part(p, p_upto(P_L / 2)), b = p_load_part(q, p_upto(P_L / 2));
  p_vi i;
  P_EACH i[k] = k / 2 + k % 2 * P_L;
  return P_BOTH(a, b, i);
}
#if P_L == 8 && defined(__AVX2__)
P_INLINE p_vh p_load16_half(const void* p) { int64_t q; __builtin_memcpy(&q, p, 8); return (p_vh)(p_q2){q, 0}; }
#else
P_INLINE p_vh p_load16_half(const void* p) { return p_load16_part(p, p_upto(P_L / 2)); }
#endif
P_INLINE p_vh p_load16_pairs(const uint16_t* p, const uint16_t* q) {
  const p_vh a = p_load16_half(p), b = p_load16_half(q);
  p_vh i;
  P_EACH i[k] = k / 2 + k % 2 * P_L;
  return P_BOTH(a, b, i);
}
#endif
P_INLINE p_vi p_backwards(p_vi x) { return P_BACK(x, P_L - 1 - p_lanes()); }
P_INLINE p_vf p_load_back(const float* p) { return (p_vf)p_backwards((p_vi)p_load(p - (P_L - 1))); }
P_INLINE p_vf p_load_back_part(const float* p, p_vi m) {
  return (p_vf)p_backwards((p_vi)p_load_part(p - (P_L - 1), p_backwards(m)));
}
P_INLINE p_vh p_backwards16(p_vh x) { p_vh i; P_EACH i[k] = P_L - 1 - k; return P_BACK(x, i); }
P_INLINE p_vh p_load16_back(const uint16_t* p) { return p_backwards16(p_load16(p - (P_L - 1))); }
P_INLINE p_vh p_load16_back_part(const uint16_t* p, p_vi m) {
  return p_backwards16(p_load16_part(p - (P_L - 1), p_backwards(m)));
}
P_INLINE p_vf p_load_2_part(const float* p, p_vi m) { return p_all_lanes(m) ? p_load_2(p) : p_load_2_lanes(p, m); }
P_INLINE p_vh p_load16_2_part(const uint16_t* p, p_vi m) {
  return p_all_lanes(m) ? p_load16_2(p) : p_load16_2_lanes(p, m);
}
P_INLINE p_vf p_load_pairs_part(const float* p, const float* q, p_vi m) {
  return p_all_lanes(m) ? p_load_pairs(p, q) : p_load_pairs_lanes(p, q, m);
}
P_INLINE p_vh p_load16_pairs_part(const uint16_t* p, const uint16_t* q, p_vi m) {
  return p_all_lanes(m) ? p_load16_pairs(p, q) : p_load16_pairs_lanes(p, q, m);
}
"""
