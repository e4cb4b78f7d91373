"""Vectors of `P_L` lanes in C: their types, loads and stores, choices and folds, for gcc and clang without headers.

In:     nothing; this is text.
Out:    `vector_text(body)`: what a text that computes with vectors needs; `VECTOR_FUNCTIONS`: the functions of floats.
Holds:  a truth value of a vector is an integer lane, all bits set or none; `P_L` is 16 where the compiler may
        use AVX-512, 8 with AVX, else 4. A load or store under a mask touches no memory where the mask is not set.
        What is written with the processor's own instructions is written lane by lane as well, for all others.
Source: GCC manual, "Using Vector Instructions through Built-in Functions"; Intel's intrinsics guide for the meaning of
        the built-in functions.
"""

from __future__ import annotations

import functools
import re

from pliant.codegen import fast_functions
from pliant.codegen.float_functions import of_floats
from pliant.codegen.float_tables import TABLE_FUNCTIONS
from pliant.codegen.spaced_vectors import SPACED
from pliant.codegen.vector_powers import POWERS
from pliant.codegen.vector_remainders import REMAINDERS
from pliant.regular import pattern

_VECTORS = """\
#ifndef P_PLAIN
#if defined(__clang__) || !defined(__x86_64__)
#define P_PLAIN 1
#else
#define P_PLAIN 0
#endif
#endif
#if defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define P_L 16
#elif defined(__AVX__)
#define P_L 8
#else
#define P_L 4
#endif
typedef float p_vf __attribute__((vector_size(4 * P_L)));
typedef int32_t p_vi __attribute__((vector_size(4 * P_L)));
typedef uint32_t p_vu __attribute__((vector_size(4 * P_L)));
typedef uint64_t p_vq __attribute__((vector_size(4 * P_L)));
typedef uint16_t p_vh __attribute__((vector_size(2 * P_L)));
typedef uint8_t p_vb __attribute__((vector_size(P_L)));
#define P_B(x) ((x) - (p_vf){})
#define P_BI(x) ((p_vi){} + (x))
P_INLINE int32_t p_clamp(int64_t x) { return p_max(p_min(x, 0x7fffffff), -0x7fffffff - 1); }
#define P_MASK(x) ((p_vi){} - (int32_t)((x) != 0))
#define P_EACH for (int k = 0; k < P_L; k++)
P_INLINE p_vf p_choosev(p_vi c, p_vf a, p_vf b) { return (p_vf)((c & (p_vi)a) | (~c & (p_vi)b)); }
P_INLINE p_vi p_choosei(p_vi c, p_vi a, p_vi b) { return (c & a) | (~c & b); }
#if P_L == 16
#define p_lanes() ((p_vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#elif P_L == 8
#define p_lanes() ((p_vi){0, 1, 2, 3, 4, 5, 6, 7})
#else
#define p_lanes() ((p_vi){0, 1, 2, 3})
#endif
P_INLINE p_vi p_upto(int64_t n) { return p_lanes() < (int32_t)p_min(n, P_L); }
#if !P_PLAIN && P_L == 16
typedef char p_x8 __attribute__((vector_size(16)));
typedef short p_x16 __attribute__((vector_size(32)));
#define P_K(m) ((uint16_t)__builtin_ia32_cvtd2mask512(m))
#define P_ALL ((uint16_t)-1)
P_INLINE p_vf p_fmav(p_vf a, p_vf b, p_vf c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, P_ALL, 4); }
P_INLINE p_vf p_lessv(p_vf a, p_vf b) { return __builtin_ia32_minps512_mask(a, b, a, P_ALL, 4); }
P_INLINE p_vf p_morev(p_vf a, p_vf b) { return __builtin_ia32_maxps512_mask(a, b, a, P_ALL, 4); }
P_INLINE p_vf p_rootv(p_vf a) { return __builtin_ia32_sqrtps512_mask(a, a, P_ALL, 4); }
// The bits of `p_rootv`, which takes half as long again by itself, and none beside as many multiplications: Newton's steps
// from 14 bits. Below 2^-100 a remainder would lose bits.
P_INLINE p_vf p_sqrtv(p_vf a) {
  const p_vi usual = (p_vu)a - 0x0d800000u < 0x7f800000u - 0x0d800000u;
  if (__builtin_expect(P_K(usual) != P_ALL, 0)) return p_rootv(a);
  const p_vf y = __builtin_ia32_rsqrt14ps512_mask(a, a, P_ALL), s = a * y, h = y * 0.5f;
  const p_vf error = p_fmav(-s, h, P_B(0.5f)), root = p_fmav(s, error, s);
  return p_fmav(p_fmav(-root, root, a), p_fmav(h, error, h), root);
}
P_INLINE p_vi p_intv(p_vf a) { return __builtin_ia32_cvttps2dq512_mask(a, (p_vi){}, P_ALL, 4); }
P_INLINE p_vf p_load_part(const void* p, p_vi m) { return __builtin_ia32_loadups512_mask(p, (p_vf){}, P_K(m)); }
P_INLINE void p_store_part(void* p, p_vf x, p_vi m) { __builtin_ia32_storeups512_mask(p, x, P_K(m)); }
P_INLINE p_vh p_load16_part(const void* p, p_vi m) {
  return (p_vh)__builtin_ia32_loaddquhi256_mask(p, (p_x16){}, P_K(m));
}
P_INLINE void p_store16_part(void* p, p_vh x, p_vi m) { __builtin_ia32_storedquhi256_mask(p, (p_x16)x, P_K(m)); }
P_INLINE p_vb p_load8_part(const void* p, p_vi m) {
  return (p_vb)__builtin_ia32_loaddquqi128_mask(p, (p_x8){}, P_K(m));
}
P_INLINE void p_store8_part(void* p, p_vb x, p_vi m) { __builtin_ia32_storedquqi128_mask(p, (p_x8)x, P_K(m)); }
P_INLINE p_vi p_from8(p_vb x) { return (p_vi)__builtin_ia32_pmovzxbd512_mask((p_x8)x, (p_vi){}, P_ALL); }
P_INLINE p_vi p_from_signed8(p_vb x) { return (p_vi)__builtin_ia32_pmovsxbd512_mask((p_x8)x, (p_vi){}, P_ALL); }
P_INLINE p_vb p_to8(p_vi x) { return (p_vb)__builtin_ia32_pmovdb512_mask(x, (p_x8){}, P_ALL); }
P_INLINE p_vi p_from16(p_vh x) { return (p_vi)__builtin_ia32_pmovzxwd512_mask((p_x16)x, (p_vi){}, P_ALL); }
P_INLINE p_vh p_to16(p_vi x) { return (p_vh)__builtin_ia32_pmovdw512_mask(x, (p_x16){}, P_ALL); }
P_INLINE p_vf p_from_f16v(p_vh x) { return __builtin_ia32_vcvtph2ps512_mask((p_x16)x, (p_vf){}, P_ALL, 4); }
P_INLINE p_vh p_to_f16v(p_vf x) { return (p_vh)__builtin_ia32_vcvtps2ph512_mask(x, 0, (p_x16){}, P_ALL); }
P_INLINE p_vf p_scalev(p_vf y, p_vf n) { return __builtin_ia32_scalefps512_mask(y, n, y, P_ALL, 4); }
P_INLINE p_vf p_pick32(p_vi i, const float* p) {
  p_vf low, high;
  __builtin_memcpy(&low, p, sizeof low);
  __builtin_memcpy(&high, p + P_L, sizeof high);
  return __builtin_ia32_vpermt2varps512_mask(i, low, high, P_ALL);
}
P_INLINE p_vf p_floorv(p_vf x) { return __builtin_ia32_rndscaleps_mask(x, 1, x, P_ALL, 4); }
P_INLINE p_vf p_ceilv(p_vf x) { return __builtin_ia32_rndscaleps_mask(x, 2, x, P_ALL, 4); }
P_INLINE p_vf p_truncv(p_vf x) { return __builtin_ia32_rndscaleps_mask(x, 3, x, P_ALL, 4); }
P_INLINE p_vf p_nearbyintv(p_vf x) { return __builtin_ia32_rndscaleps_mask(x, 4, x, P_ALL, 4); }
#else
#define p_sqrtv p_rootv
#if !P_PLAIN && P_L == 8 && defined(__FMA__)
P_INLINE p_vf p_fmav(p_vf a, p_vf b, p_vf c) { return __builtin_ia32_vfmaddps256(a, b, c); }
#elif !P_PLAIN && P_L == 4 && defined(__FMA__)
P_INLINE p_vf p_fmav(p_vf a, p_vf b, p_vf c) { return __builtin_ia32_vfmaddps(a, b, c); }
#else
P_INLINE p_vf p_fmav(p_vf a, p_vf b, p_vf c) { p_vf r; P_EACH r[k] = P_FMAf(a[k], b[k], c[k]); return r; }
#endif
#if !P_PLAIN && P_L == 8
P_INLINE p_vf p_lessv(p_vf a, p_vf b) { return __builtin_ia32_minps256(a, b); }
P_INLINE p_vf p_morev(p_vf a, p_vf b) { return __builtin_ia32_maxps256(a, b); }
P_INLINE p_vf p_rootv(p_vf a) { return __builtin_ia32_sqrtps256(a); }
P_INLINE p_vf p_load_part(const void* p, p_vi m) { return (p_vf)__builtin_ia32_maskloadps256(p, m); }
P_INLINE void p_store_part(void* p, p_vf x, p_vi m) { __builtin_ia32_maskstoreps256(p, m, x); }
P_INLINE p_vf p_floorv(p_vf x) { return __builtin_ia32_roundps256(x, 1); }
P_INLINE p_vf p_ceilv(p_vf x) { return __builtin_ia32_roundps256(x, 2); }
P_INLINE p_vf p_truncv(p_vf x) { return __builtin_ia32_roundps256(x, 3); }
P_INLINE p_vf p_nearbyintv(p_vf x) { return __builtin_ia32_roundps256(x, 4); }
#else
P_INLINE p_vf p_lessv(p_vf a, p_vf b) { return p_choosev(a < b, a, b); }
P_INLINE p_vf p_morev(p_vf a, p_vf b) { return p_choosev(a > b, a, b); }
P_INLINE p_vf p_rootv(p_vf a) { p_vf r; P_EACH r[k] = __builtin_sqrtf(a[k]); return r; }
P_INLINE p_vf p_load_part(const float* p, p_vi m) { p_vf r = {}; P_EACH if (m[k]) r[k] = p[k]; return r; }
P_INLINE void p_store_part(float* p, p_vf x, p_vi m) { P_EACH if (m[k]) p[k] = x[k]; }
P_INLINE p_vf p_floorv(p_vf x) { p_vf r; P_EACH r[k] = __builtin_floorf(x[k]); return r; }
P_INLINE p_vf p_ceilv(p_vf x) { p_vf r; P_EACH r[k] = __builtin_ceilf(x[k]); return r; }
P_INLINE p_vf p_truncv(p_vf x) { p_vf r; P_EACH r[k] = __builtin_truncf(x[k]); return r; }
P_INLINE p_vf p_nearbyintv(p_vf x) { p_vf r; P_EACH r[k] = __builtin_nearbyintf(x[k]); return r; }
#endif
#if !P_PLAIN && P_L == 8 && defined(__AVX2__)
typedef char p_x8 __attribute__((vector_size(16)));
typedef short p_x16 __attribute__((vector_size(16)));
typedef int64_t p_q2 __attribute__((vector_size(16)));
// through a register: in memory, the wider load would have to wait for the narrower store
P_INLINE p_x8 p_wider(p_vb x) { int64_t q; __builtin_memcpy(&q, &x, 8); return (p_x8)(p_q2){q, 0}; }
P_INLINE p_vi p_from8(p_vb x) { return (p_vi)__builtin_ia32_pmovzxbd256(p_wider(x)); }
P_INLINE p_vi p_from_signed8(p_vb x) { return (p_vi)__builtin_ia32_pmovsxbd256(p_wider(x)); }
P_INLINE p_vi p_from16(p_vh x) { return (p_vi)__builtin_ia32_pmovzxwd256((p_x16)x); }
typedef int32_t p_x32 __attribute__((vector_size(16)));
typedef int64_t p_q4 __attribute__((vector_size(32)));
P_INLINE p_x32 p_high_half(p_vi x) { return (p_x32)__builtin_ia32_extract128i256((p_q4)x, 1); }
// of lanes between 0 and 65535, to which the instruction would clamp
P_INLINE p_vh p_to16(p_vi x) {
  p_x32 low;
  __builtin_memcpy(&low, &x, sizeof low);
  return (p_vh)__builtin_ia32_packusdw128(low, p_high_half(x));
}
#else
P_INLINE p_vi p_from8(p_vb x) { p_vi r; P_EACH r[k] = x[k]; return r; }
P_INLINE p_vi p_from_signed8(p_vb x) { p_vi r; P_EACH r[k] = (signed char)x[k]; return r; }
P_INLINE p_vi p_from16(p_vh x) { p_vi r; P_EACH r[k] = x[k]; return r; }
P_INLINE p_vh p_to16(p_vi x) { p_vh r; P_EACH r[k] = (uint16_t)x[k]; return r; }
#endif
#if !P_PLAIN && P_L == 8 && defined(__F16C__)
typedef short p_y16 __attribute__((vector_size(16)));
P_INLINE p_vf p_from_f16v(p_vh x) { return __builtin_ia32_vcvtph2ps256((p_y16)x); }
P_INLINE p_vh p_to_f16v(p_vf x) { return (p_vh)__builtin_ia32_vcvtps2ph256(x, 0); }
#elif defined(__FLT16_MAX__) && (defined(__F16C__) || !defined(__x86_64__))
P_INLINE p_vf p_from_f16v(p_vh x) {
  p_vf r;
  P_EACH { _Float16 h; const uint16_t b = x[k]; __builtin_memcpy(&h, &b, 2); r[k] = (float)h; }
  return r;
}
P_INLINE p_vh p_to_f16v(p_vf x) {
  p_vh r;
  P_EACH { const _Float16 h = (_Float16)x[k]; uint16_t b; __builtin_memcpy(&b, &h, 2); r[k] = b; }
  return r;
}
#else
// as integers, which `p_f16` explains: the processor has no such instruction
P_INLINE p_vf p_from_f16v(p_vh x) {
  const p_vu h = (p_vu)p_from16(x), b = (h & 0x7fffu) << 13, e = b & 0x0f800000u;
  const p_vi small = (p_vi)((p_vf)(b + 0x38800000u) - 6.103515625e-05f);
  const p_vi usual = (p_vi)(b + (p_vu)p_choosei(e == 0x0f800000u, P_BI(0x70000000), P_BI(0x38000000)));
  return (p_vf)(p_choosei(e != 0u, usual, small) | (p_vi)((h & 0x8000u) << 16));
}
P_INLINE p_vh p_to_f16v(p_vf x) {
  const p_vu sign = (p_vu)x & 0x80000000u, b = (p_vu)x ^ sign;
  const p_vi small = (p_vi)((p_vu)((p_vf)b + 0.5f) - 0x3f000000u);
  const p_vi usual = (p_vi)((b - 0x37fff001u + ((b >> 13) & 1u)) >> 13);
  const p_vi large = p_choosei(b > 0x7f800000u, P_BI(0x7e00), P_BI(0x7c00));
  const p_vi found = p_choosei(b < 0x38800000u, small, p_choosei(b < 0x47800000u, usual, large));
  return p_to16((found | (p_vi)(sign >> 16)) & 0xffff);
}
#endif
P_INLINE p_vi p_intv(p_vf a) { return __builtin_convertvector(a, p_vi); }
P_INLINE p_vh p_load16_part(const uint16_t* p, p_vi m) { p_vh r = {}; P_EACH if (m[k]) r[k] = p[k]; return r; }
P_INLINE void p_store16_part(uint16_t* p, p_vh x, p_vi m) { P_EACH if (m[k]) p[k] = x[k]; }
P_INLINE p_vb p_load8_part(const uint8_t* p, p_vi m) { p_vb r = {}; P_EACH if (m[k]) r[k] = p[k]; return r; }
P_INLINE void p_store8_part(uint8_t* p, p_vb x, p_vi m) { P_EACH if (m[k]) p[k] = x[k]; }
P_INLINE p_vb p_to8(p_vi x) { p_vb r; P_EACH r[k] = (uint8_t)x[k]; return r; }
P_INLINE p_vf p_scalev(p_vf y, p_vf n) {
  const p_vi k = p_intv(n), h = k >> 1;
  return y * (p_vf)((h + 127) << 23) * (p_vf)((k - h + 127) << 23);
}
#endif
// What most statements call is a macro: calls that are inlined take the compiler longer.
typedef float p_vf_anywhere __attribute__((vector_size(4 * P_L), aligned(1), may_alias));
#define p_load(p) ((p_vf)*(const p_vf_anywhere*)(p))
#define p_store(p, x) (*(p_vf_anywhere*)(p) = (x))
#if !P_PLAIN && P_L == 16 && (defined(__znver3__) || defined(__znver4__))
// AMD's first cores with AVX-512 (which older compilers take for those before them) read memory faster by halves
typedef float p_f8 __attribute__((vector_size(32)));
P_INLINE p_vf p_load_far(const void* p) {
  p_f8 low, high;
  __builtin_memcpy(&low, p, sizeof low);
  __builtin_memcpy(&high, (const char*)p + sizeof low, sizeof high);
  return __builtin_ia32_insertf32x8_mask(__builtin_ia32_ps512_256ps(low), high, 1, (p_vf){}, P_ALL);
}
#else
#define p_load_far(p) p_load(p)
#endif
// A loop that computes much fills the processor before it gets to loads that take long: they are asked for before, and so
// are lines that are stored, which come from memory as well.
#define P_AHEAD 2048
#define p_load_ahead(p) __builtin_prefetch((const char*)(p) + P_AHEAD)
#define p_store_ahead(p) __builtin_prefetch((const char*)(p) + P_AHEAD, 1)
P_INLINE p_vh p_chooseh(p_vi c, p_vh a, p_vh b) { const p_vh m = p_to16(c & 0xffff); return (m & a) | (~m & b); }
P_INLINE p_vh p_load16(const void* p) { p_vh r; __builtin_memcpy(&r, p, sizeof r); return r; }
P_INLINE void p_store16(void* p, p_vh x) { __builtin_memcpy(p, &x, sizeof x); }
P_INLINE p_vb p_load8(const void* p) { p_vb r; __builtin_memcpy(&r, p, sizeof r); return r; }
P_INLINE void p_store8(void* p, p_vb x) { __builtin_memcpy(p, &x, sizeof x); }
P_INLINE p_vf p_from_bf16v(p_vh x) { return (p_vf)(p_from16(x) << 16); }
#if P_L == 16 && !P_PLAIN && defined(__AVX512BF16__)
// one instruction, which takes denormal numbers for 0: vectors that have some are rounded as others
#define P_ROUNDED(x) \
  if (__builtin_expect(!__builtin_ia32_fpclassps512_mask(x, 0x20, P_ALL), 1)) { \
    const __typeof__(__builtin_ia32_cvtneps2bf16_v16sf(x)) p_q = __builtin_ia32_cvtneps2bf16_v16sf(x); \
    p_vh p_r; \
    __builtin_memcpy(&p_r, &p_q, sizeof p_r); \
    return p_r; \
  }
#else
#define P_ROUNDED(x)
#endif
P_INLINE p_vh p_to_bf16v(p_vf x) {
  P_ROUNDED(x)
  const p_vu b = (p_vu)x;
  return p_to16(p_choosei(x != x, P_BI(0x7fc0), (p_vi)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16)));
}
// whether the lanes of two vectors mix in few instructions: clang makes them of lanes whose places are constants
#if P_PLAIN && defined(__clang__)
#define P_MIXES 1
#define P_BOTH(a, b, m) ({ \
  const __typeof__(a) p_a = a, p_b = b; const __typeof__(m) p_m = m; __typeof__(a) p_r; \
  enum { n = sizeof(p_r) / sizeof(p_r[0]) }; \
  for (int k = 0; k < n; k++) p_r[k] = p_m[k] < n ? p_a[p_m[k] % n] : p_b[p_m[k] % n]; \
  p_r; \
})
#elif P_PLAIN
#define P_MIXES 0
#define P_BOTH(a, b, m) (a)
#else
#define P_MIXES 1
#endif
#if P_PLAIN
#define P_BACK(x, i) ({ __typeof__(x) p_x = x, p_r; P_EACH p_r[k] = p_x[P_L - 1 - k]; p_r; })
#else
#define P_BOTH(a, b, m) __builtin_shuffle(a, b, m)
#define P_BACK(x, i) __builtin_shuffle(x, i)
#endif
#if !P_PLAIN && P_L == 8
P_INLINE int32_t p_any_lane(p_vi x) { return __builtin_ia32_movmskps256((p_vf)x) != 0; }
P_INLINE int32_t p_all_lanes(p_vi x) { return __builtin_ia32_movmskps256((p_vf)x) == 0xff; }
#elif !P_PLAIN && P_L == 16
P_INLINE int32_t p_any_lane(p_vi x) { return P_K(x) != 0; }
P_INLINE int32_t p_all_lanes(p_vi x) { return P_K(x) == P_ALL; }
#else
P_INLINE int32_t p_any_lane(p_vi x) { int32_t r = 0; P_EACH r |= x[k]; return r != 0; }
P_INLINE int32_t p_all_lanes(p_vi x) { int32_t r = -1; P_EACH r &= x[k]; return r != 0; }
#endif
P_SPACED
P_TRANSPOSES
#define P_FMAv(a, b, c) p_fmav(P_B(a), P_B(b), P_B(c))
#define P_LESSv(a, b) p_lessv(P_B(a), P_B(b))
#define P_MOREv(a, b) p_morev(P_B(a), P_B(b))
#define P_CHOOSEv(c, a, b) p_choosev(c, P_B(a), P_B(b))
#define P_ABSv(x) ((p_vf)((p_vi)(x) & 0x7fffffff))
#define P_ROOTv(x) p_rootv(x)
#define P_SIGNv(x, s) ((p_vf)(((p_vi)(x) & 0x7fffffff) | ((p_vi)(s) & (int32_t)0x80000000)))
#define P_INTv(x) p_intv(x)
#define P_NUMBERv(k) __builtin_convertvector(k, p_vf)
#define P_UPv(k) ((p_vi)((p_vu)(k) << 23))
#define P_FLOATv(x) ((p_vf)(x))
#define P_BITSv(x) ((p_vi)(x))
// min and max in which NaN wins
#define P_NAN_LESSv(a, b) p_choosev(P_B(a) != P_B(a), P_B(a), P_LESSv(a, b))
#define P_NAN_MOREv(a, b) p_choosev(P_B(a) != P_B(a), P_B(a), P_MOREv(a, b))
// folds of the lanes, in the order of a tree
#if P_PLAIN
P_INLINE p_vf p_turn(p_vf x, int w) { p_vf r; P_EACH r[k] = x[k ^ w]; return r; }
#else
#define p_turn(x, w) __builtin_shuffle(x, p_lanes() ^ (w))
#endif
#if P_L == 16
#define P_HALVES(x, combine) x = combine(x, p_turn(x, 8)); x = combine(x, p_turn(x, 4));
#elif P_L == 8
#define P_HALVES(x, combine) x = combine(x, p_turn(x, 4));
#else
#define P_HALVES(x, combine)
#endif
#define P_FOLD(x, combine) P_HALVES(x, combine) x = combine(x, p_turn(x, 2)); x = combine(x, p_turn(x, 1)); return x[0];
#define P_PLUS(a, b) ((a) + (b))
#define P_TIMES(a, b) ((a) * (b))
P_INLINE float p_sum_lanes(p_vf x) { P_FOLD(x, P_PLUS) }
P_INLINE float p_product_of_lanes(p_vf x) { P_FOLD(x, P_TIMES) }
// the last four in double, for a total in double: each of those additions in float would round half of the sum
P_INLINE double p_sum_lanes_wide(p_vf x) {
  P_HALVES(x, P_PLUS)
  return ((double)x[0] + (double)x[2]) + ((double)x[1] + (double)x[3]);
}
P_INLINE double p_product_of_lanes_wide(p_vf x) {
  P_HALVES(x, P_TIMES)
  return ((double)x[0] * (double)x[2]) * ((double)x[1] * (double)x[3]);
}
P_INLINE float p_least_lane(p_vf x) { P_FOLD(x, p_lessv) }
P_INLINE float p_largest_lane(p_vf x) { P_FOLD(x, p_morev) }
"""

# Tiles: to[c * to_step + r] = from[r * from_step + c]. Squares of as many rows as vectors have lanes, in as many rounds as it
# has bits, each of which interleaves row k with the row half a square on.
_TRANSPOSE = """\
P_INLINE void p_transpose@B(@E* to, int64_t to_step, const @E* from, int64_t from_step, int64_t rows, int64_t columns) {
  int64_t r = 0;
  for (; P_MIXES && r + @L <= rows; r += @L) {
    int64_t c = 0;
    for (; c + @L <= columns; c += @L) {
      @V x[@L], y[@L];
      @M low, high;
      for (int k = 0; k < @L; k++) { low[k] = k / 2 + k % 2 * @L; high[k] = low[k] + @L / 2; }
      #pragma GCC unroll 16
      for (int k = 0; k < @L; k++) __builtin_memcpy(&x[k], &from[(r + k) * from_step + c], sizeof x[k]);
      #pragma GCC unroll 4
      for (int s = 1; s < @L; s *= 2) {
        #pragma GCC unroll 8
        for (int k = 0; k < @L / 2; k++) {
          y[2 * k] = P_BOTH(x[k], x[k + @L / 2], low);
          y[2 * k + 1] = P_BOTH(x[k], x[k + @L / 2], high);
        }
        #pragma GCC unroll 16
        for (int k = 0; k < @L; k++) x[k] = y[k];
      }
      #pragma GCC unroll 16
      for (int k = 0; k < @L; k++) __builtin_memcpy(&to[(c + k) * to_step + r], &x[k], sizeof x[k]);
    }
    for (; c < columns; c++) for (int k = 0; k < @L; k++) to[c * to_step + r + k] = from[(r + k) * from_step + c];
  }
  for (; r < rows; r++) for (int64_t c = 0; c < columns; c++) to[c * to_step + r] = from[r * from_step + c];
}
"""


# Bits of an element -> its type, that of a vector of them, that of a vector of lanes' numbers, lanes.
_SQUARES = {
    64: ("uint64_t", "p_vq", "p_vq", "(P_L / 2)"), 32: ("uint32_t", "p_vu", "p_vi", "P_L"),
    16: ("uint16_t", "p_vh", "p_vh", "P_L"), 8: ("uint8_t", "p_vb", "p_vb", "P_L"),
}  # fmt: skip
TRANSPOSED_BITS = frozenset(_SQUARES)


def _transposes() -> str:
    return "".join(
        _TRANSPOSE.replace("@B", str(bits)).replace("@E", e).replace("@V", v).replace("@M", m).replace("@L", lanes)
        for bits, (e, v, m, lanes) in _SQUARES.items()
    )


_VECTORS = _VECTORS.replace("P_SPACED\n", SPACED).replace("P_TRANSPOSES\n", _transposes())
_PIECES = re.split(r"^(?=P_INLINE|#|typedef|//)", _VECTORS, flags=re.M)
_DEFINED = pattern(r"P_INLINE \w+ (p_\w+)\(")
_NAME = pattern(r"\b[pP]_\w+")


@functools.cache
def _leads() -> dict[str, set[str]]:
    """For each function and macro the names that its text mentions."""
    found: dict[str, set[str]] = {}
    for piece in _PIECES:
        defined = _DEFINED.match(piece) or re.match(r"#define (\w+)", piece)
        if defined:
            found.setdefault(defined[1], set()).update(_NAME.findall(piece))
    return found


@functools.cache
def _functions() -> list[tuple[str, str | None]]:
    """The pieces, and the name of each that is a function."""
    return [(piece, found[1] if (found := _DEFINED.match(piece)) else None) for piece in _PIECES]


def vector_text(body: str) -> str:
    """The types, the macros and those of the functions that `body` leads to: the rest would only be parsed."""
    wanted, queue = set[str](), set(_NAME.findall(body))
    while queue:
        name = queue.pop()
        wanted.add(name)
        queue |= _leads().get(name, set()) - wanted
    return "".join([piece for piece, name in _functions() if name is None or name in wanted])


# What AVX-512 has instructions for.
_WIDE_FUNCTIONS: dict[str, str] = {
    **TABLE_FUNCTIONS,
    # lanes that are left out of the scaling cost nothing, results that are too small a hundred cycles
    "p_scale_abovev": """\
#define P_TAMEv(v, least) (v)
P_INLINE p_vf p_scale_abovev(p_vf y, p_vf n, p_vf v, float least) {
  return __builtin_ia32_scalefps512_mask(y, n, (p_vf){}, __builtin_ia32_cmpps512_mask(v, P_B(least), 5, P_ALL, 4), 4);
}
""",
    "p_inversev": """\
P_INLINE p_vf p_inversev(p_vf x) { return __builtin_ia32_rcp14ps512_mask(x, x, P_ALL); }
""",
    # mantissas in [0.75, 1.5), NaN of what is negative; the exponent of 0 is -inf, that of inf is inf
    "p_log_splitv": """\
P_INLINE p_vf p_log_edgesv(p_vf x, p_vf r) { return r; }
P_INLINE p_vf p_log_splitv(p_vf x, p_vf* f) {
  const p_vf m = __builtin_ia32_getmantps512_mask(x, 15, x, P_ALL, 4);
  *f = m - 1.0f;
  return __builtin_ia32_getexpps512_mask(x, x, P_ALL, 4) - __builtin_ia32_getexpps512_mask(m, m, P_ALL, 4);
}
""",
}

# What is no faster there than the usual function.
_USUAL = {
    f"p_fast_{name}v": f"P_INLINE p_vf p_fast_{name}v(p_vf x) {{ return p_{name}v(x); }}\n"
    for name in fast_functions.NAMES
}


def _of_vectors() -> dict[str, str]:
    found = of_floats("v", "p_vf", "p_vi")
    del found["p_scalev"]  # above
    found |= REMAINDERS | POWERS
    for name, text in {**_WIDE_FUNCTIONS, **_USUAL}.items():
        found[name] = f"#if !P_PLAIN && P_L == 16\n{text}#else\n{found[name]}#endif\n"
    return found


VECTOR_FUNCTIONS = _of_vectors()

_INFIX = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "neg": "-{0}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
}  # fmt: skip
_BITS = {"bit_and": "{0} & {1}", "bit_or": "{0} | {1}", "bit_xor": "{0} ^ {1}", "bit_not": "~{0}"}
_CALLED = "exp exp2 expm1 log log2 log10 log1p sigmoid tanh erf normal_cdf gelu_slope lgamma sin cos tan asin acos atan erfc sqrt "
_CALLED += "floor ceil trunc"

# (operator, kind of its arguments: f float32, i int32, b truth values) -> C text on vectors; arguments are locals.
VECTOR_OPS: dict[tuple[str, str], str] = {
    **{(op, "f"): text for op, text in _INFIX.items()},
    **{(op, "f"): f"p_{op}v({{0}})" for op in (*_CALLED.split(), *(f"fast_{name}" for name in fast_functions.NAMES))},
    ("fma", "f"): "P_FMAv({0}, {1}, {2})", ("muladd", "f"): "P_FMAv({0}, {1}, {2})",
    ("div", "f"): "{0} / {1}", ("abs", "f"): "P_ABSv({0})", ("copysign", "f"): "P_SIGNv({0}, {1})",
    **{(op, "f"): f"p_{op}v({{0}}, {{1}})" for op in ("fmod", "remainder", "floordiv", "nextafter", "atan2", "pow")},
    ("truncdiv", "f"): "p_truncv({0} / {1})", ("rsqrt", "f"): "1.0f / p_sqrtv({0})", ("round", "f"): "p_nearbyintv({0})",
    ("minimum", "f"): "P_NAN_LESSv({0}, {1})", ("maximum", "f"): "P_NAN_MOREv({0}, {1})",
    ("fmin", "f"): "p_choosev({1} != {1}, {0}, p_lessv({0}, {1}))",
    ("fmax", "f"): "p_choosev({1} != {1}, {0}, p_morev({0}, {1}))",
    ("isnan", "f"): "{0} != {0}", ("isinf", "f"): "P_ABSv({0}) == P_INF", ("signbit", "f"): "(p_vi){0} < 0",
    **{(op, "i"): text for op, text in {**_INFIX, **_BITS}.items()},
    ("minimum", "i"): "p_choosei({0} < {1}, {0}, {1})", ("maximum", "i"): "p_choosei({0} > {1}, {0}, {1})",
    ("abs", "i"): "p_choosei({0} < 0, -{0}, {0})",
    ("shift_left", "i"): "{0} << {1}", ("shift_right", "i"): "{0} >> {1}",
    **{(op, "b"): text for op, text in _BITS.items()},
    ("eq", "b"): "~({0} ^ {1})", ("ne", "b"): "{0} ^ {1}", ("minimum", "b"): "{0} & {1}", ("maximum", "b"): "{0} | {1}",
}  # fmt: skip
