"""CUDA C snippets that generated kernels use, each written out only where it is used.

In:     the text of a kernel.
Out:    `text_for(body)`: the snippets and what they need, in order. No header is included: NVRTC has none at hand.
Holds:  float functions are CUDA's own accurate ones, as eager's kernels use them; kernels are built without fast math and
        without contraction of products and sums, so that they round as eager's separate kernels do. `numerics="fast"`
        contracts those that its pass has chosen, and has the same functions.
        Wide accesses to memory check the alignment of their address when they run: views may begin anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pliant.codegen.fast_functions import NAMES as FAST
from pliant.codegen.prelude import SNIPPETS as C_SNIPPETS
from pliant.wrappers.launches import ROW_WORDS

BASE = """\
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define _Bool bool
#define P_INLINE static __device__ __forceinline__
#define INT64_C(x) x##ll
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
"""

_FLOAT_FUNCTIONS = "exp exp2 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 tanh erf erfc lgamma nextafter fmod"


def _renamed(name: str) -> str:
    args = ("float x, float y", "x, y") if name in ("pow", "nextafter", "atan2", "fmod") else ("float x", "x")
    return f"P_INLINE float p_{name}f({args[0]}) {{ return {name}f({args[1]}); }}\n"


SNIPPETS: dict[str, str] = {
    "p_rows": f"struct p_rows {{ int64_t words[{ROW_WORDS}]; }};\n",
    "p_integers": """\
template <class A, class B> P_INLINE auto p_floordiv(A a, B b) -> decltype(a / b) {
  return a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
}
template <class A, class B> P_INLINE auto p_mod(A a, B b) -> decltype(a % b) {
  return a % b + ((a % b != 0) & ((a % b < 0) != (b < 0)) ? b : 0);
}
template <class A, class B> P_INLINE auto p_min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
template <class A, class B> P_INLINE auto p_max(A a, B b) -> decltype(a + b) { return b > a ? b : a; }
P_INLINE int64_t p_pow(int64_t a, int64_t b) {
  int64_t r = 1;
  for (; b > 0; b >>= 1, a *= a) if (b & 1) r *= a;
  return r;
}
""",
    # of numbers that are not negative: division of 64 bits takes several times as long
    "p_quotient": """\
P_INLINE int64_t p_quotient(int64_t a, int64_t b) {
  return (uint64_t)(a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}
""",
    # what numbers from 0 to 2**31 are divided by; `reciprocal`: what to multiply by, and above it how far to shift
    "p_divisor": """\
struct p_divisor {
  uint32_t n, factor, shift;
  __device__ p_divisor(int64_t n, int64_t reciprocal)
      : n((uint32_t)n), factor((uint32_t)reciprocal), shift((uint32_t)(reciprocal >> 32)) {}
};
P_INLINE int operator/(int a, const p_divisor& b) {
  return (int)(((uint32_t)((uint64_t)(uint32_t)a * b.factor >> 32) + (uint32_t)a) >> b.shift);
}
P_INLINE int operator%(int a, const p_divisor& b) { return a - a / b * (int)b.n; }
P_INLINE int64_t operator/(int64_t a, const p_divisor& b) { return a / (int64_t)b.n; }
P_INLINE int64_t operator%(int64_t a, const p_divisor& b) { return a % (int64_t)b.n; }
""",
    "p_signbit": """\
P_INLINE bool p_signbit(float x) { return __float_as_int(x) < 0; }
P_INLINE bool p_signbit(double x) { return __double_as_longlong(x) < 0; }
""",
    **{f"p_{name}f": _renamed(name) for name in _FLOAT_FUNCTIONS.split()},
    **{f"p_fast_{name}f": f"P_INLINE float p_fast_{name}f(float x) {{ return p_{name}f(x); }}\n" for name in FAST},
    "p_pickf": "P_INLINE float p_pickf(bool c, float a, float b) { return c ? a : b; }\n",
    "p_pick_d": "P_INLINE double p_pick_d(bool c, double a, double b) { return c ? a : b; }\n",
    "p_fmod_d": "P_INLINE double p_fmod_d(double x, double y) { return fmod(x, y); }\n",
    "p_muladdf": "P_INLINE float p_muladdf(float a, float b, float c) { return fmaf(a, b, c); }\n",
    "p_sigmoidf": "P_INLINE float p_sigmoidf(float x) { return 1.0f / (1.0f + expf(-x)); }\n",
    "p_normal_cdff": "P_INLINE float p_normal_cdff(float x) { return fmaf(erff(x * 0.707106781f), 0.5f, 0.5f); }\n",
    "p_gelu_slopef": """\
P_INLINE float p_gelu_slopef(float x) { return fmaf(x * 0.398942280f, expf(x * x * -0.5f), p_normal_cdff(x)); }
""",
    **{
        name: C_SNIPPETS[name]
        for name in "p_floordivf p_floordiv_d p_remainderf p_remainder_d p_fmod p_fmin p_fmax p_sigmoid_d p_nextafter_d".split()
    },
    "p_check_index": """\
P_INLINE int64_t p_check_index(int64_t i, int64_t n) {
  const int64_t j = i < 0 ? i + n : i;
  if ((uint64_t)j >= (uint64_t)n) __trap();
  return j;
}
""",
    "p_f16": """\
P_INLINE float p_from_f16(uint16_t x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
P_INLINE uint16_t p_to_f16(float x) { uint16_t r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
""",
    "p_bf16": """\
P_INLINE float p_from_bf16(uint16_t x) { return __uint_as_float((uint32_t)x << 16); }
P_INLINE uint16_t p_to_bf16(float x) { uint16_t r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
""",
    **{
        f"p_nan_{op}": f"""\
P_INLINE float p_nan_{op}(float a, float b) {{ float r; asm("{op}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }}
P_INLINE double p_nan_{op}(double a, double b) {{ return a != a || a {sign} b ? a : b; }}
"""
        for op, sign in (("max", ">"), ("min", "<"))
    },
    # Elements side by side: in the widest pieces that their address allows. The branch is the same for a whole warp
    # wherever rows begin alike.
    "p_pieces": """\
template <int BYTES> struct p_piece { typedef uint4 type; };
template <> struct p_piece<8> { typedef uint2 type; };
template <> struct p_piece<4> { typedef uint32_t type; };
template <> struct p_piece<2> { typedef uint16_t type; };
template <> struct p_piece<1> { typedef uint8_t type; };
""",
    # Elements that begin anywhere: whole pieces of memory of which each holds one of them, shifted; else one by one, as where
    # tests look for reads beside an array.
    "p_load_apart": """\
template <int N, class T> P_INLINE void p_load_apart(T* to, const T* from) {
#ifndef P_EXACT_READS
  if (N * sizeof(T) % 16 == 0) {
    const uint4* pieces = (const uint4*)((uint64_t)from & ~(uint64_t)15);
    const int bytes = (int)((uint64_t)from & 15);
    uint4 a = pieces[0];
#pragma unroll
    for (int k = 0; k < N * sizeof(T) / 16; k++) {
      const uint4 b = pieces[k + 1];
      uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 6; i++) w[i] = bytes & 8 ? w[i + 2] : w[i];
#pragma unroll
      for (int i = 0; i < 5; i++) w[i] = bytes & 4 ? w[i + 1] : w[i];
#pragma unroll
      for (int i = 0; i < 4; i++)
        ((uint32_t*)to)[4 * k + i] = (uint32_t)(((uint64_t)w[i + 1] << 32 | w[i]) >> bytes % 4 * 8);
      a = b;
    }
    return;
  }
#endif
#pragma unroll
  for (int k = 0; k < N; k++) to[k] = from[k];
}
""",
    "p_load": """\
template <int N, class T> P_INLINE void p_load(T* to, const T* from) {
  typedef typename p_piece<N * sizeof(T) < 16 ? N * sizeof(T) : 16>::type P;
  if ((uint64_t)from % sizeof(P) == 0) {
#pragma unroll
    for (int k = 0; k < N * sizeof(T) / sizeof(P); k++) ((P*)to)[k] = ((const P*)from)[k];
  } else {
    p_load_apart<N>(to, from);
  }
}
template <int N, class T> P_INLINE void p_load(T* to, const T* from, int low, int end) {
  if (low <= 0 && end >= N) return p_load<N>(to, from);
#pragma unroll
  for (int k = 0; k < N; k++) to[k] = k >= low && k < end ? from[k] : (T)0;
}
template <int N, class T> P_INLINE void p_load(T* to, const T* from, int end) { p_load<N>(to, from, 0, end); }
""",
    # The same of elements that are aligned if the buffer is.
    "p_load_even": """\
template <int N, class T> P_INLINE void p_load_even(T* to, const T* from) {
  typedef typename p_piece<N * sizeof(T) < 16 ? N * sizeof(T) : 16>::type P;
  if ((uint64_t)from % sizeof(P) == 0) {
#pragma unroll
    for (int k = 0; k < N * sizeof(T) / sizeof(P); k++) ((P*)to)[k] = ((const P*)from)[k];
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) to[k] = from[k];
  }
}
template <int N, class T> P_INLINE void p_load_even(T* to, const T* from, int end) {
  if (end >= N) return p_load_even<N>(to, from);
#pragma unroll
  for (int k = 0; k < N; k++) to[k] = k < end ? from[k] : (T)0;
}
""",
    "p_store": """\
template <int N, class T> P_INLINE void p_store(T* to, const T* from) {
  typedef typename p_piece<N * sizeof(T) < 16 ? N * sizeof(T) : 16>::type P;
  if ((uint64_t)to % sizeof(P) == 0) {
#pragma unroll
    for (int k = 0; k < N * sizeof(T) / sizeof(P); k++) ((P*)to)[k] = ((const P*)from)[k];
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) to[k] = from[k];
  }
}
template <int N, class T> P_INLINE void p_store(T* to, const T* from, int low, int end) {
  if (low <= 0 && end >= N) return p_store<N>(to, from);
#pragma unroll
  for (int k = 0; k < N; k++) if (k >= low && k < end) to[k] = from[k];
}
template <int N, class T> P_INLINE void p_store(T* to, const T* from, int end) { p_store<N>(to, from, 0, end); }
""",
    # The same where all address pieces of memory that are aligned.
    "p_whole": """\
struct p_whole {};
template <int N, class T> P_INLINE void p_copy_whole(T* to, const T* from) {
  typedef typename p_piece<N * sizeof(T) < 16 ? N * sizeof(T) : 16>::type P;
#pragma unroll
  for (int k = 0; k < N * sizeof(T) / sizeof(P); k++) ((P*)to)[k] = ((const P*)from)[k];
}
template <int N, class T> P_INLINE void p_load(T* to, const T* from, p_whole) { p_copy_whole<N>(to, from); }
template <int N, class T> P_INLINE void p_store(T* to, const T* from, p_whole) { p_copy_whole<N>(to, from); }
""",
    # The same where a condition holds, without a branch: all that a thread reads is on its way at a time.
    "p_load_if": """\
template <int N, class T> P_INLINE void p_load_if(T* to, const T* from, bool there) {
  const int size = N * sizeof(T);
  uint32_t* w = (uint32_t*)to;
  const uint64_t at = (uint64_t)__cvta_generic_to_global(from);
  if (size % 16 == 0) {
#pragma unroll
    for (int k = 0; k < size / 16; k++, w += 4)
      asm("{.reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];}"
          : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3]) : "l"(at + 16 * k), "r"((uint32_t)there));
  } else if (size == 8) {
    asm("{.reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.v2.u32 {%0, %1}, [%2];}"
        : "+r"(w[0]), "+r"(w[1]) : "l"(at), "r"((uint32_t)there));
  } else if (size == 4) {
    asm("{.reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.u32 %0, [%1];}"
        : "+r"(w[0]) : "l"(at), "r"((uint32_t)there));
  } else if (there) {
#pragma unroll
    for (int k = 0; k < N; k++) to[k] = from[k];
  }
}
""",
    "p_lanes": """\
template <int G> P_INLINE uint32_t p_lanes() {
  return G >= 32 ? 0xffffffffu : ((1u << (G & 31)) - 1) << (threadIdx.x & 31 & ~(G - 1));
}
""",
    "p_shuffle": """\
template <int G, class T> P_INLINE T p_shuffle(T x, int o) {
  return (T)__shfl_xor_sync(p_lanes<G>(), x, o);
}
""",
    # Blocks of a cluster: each waits for all, and reads what another has at the same place of its shared memory.
    "p_cluster_sync": """\
P_INLINE void p_cluster_sync() {
  asm volatile("barrier.cluster.arrive;\\n\\tbarrier.cluster.wait;" ::: "memory");
}
""",
    "p_peer": """\
template <class T> P_INLINE T p_peer(const T* at, int rank) {
  uint64_t there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((uint64_t)at), "r"(rank));
  return *(const volatile T*)there;
}
""",
    # Two narrow floats are a word of memory.
    **{
        f"p_at_{kind}": f"""\
P_INLINE float p_at_{kind}(const uint16_t* v, int k) {{
  const uint32_t w = ((const uint32_t*)v)[k >> 1];
  return {text};
}}
"""
        for kind, text in (
            ("bf16", "__uint_as_float(k & 1 ? w & 0xffff0000u : w << 16)"),
            ("f16", "p_from_f16((uint16_t)(k & 1 ? w >> 16 : w))"),
        )
    },
    **{
        f"p_pair_{kind}": f"""\
P_INLINE uint32_t p_pair_{kind}(float low, float high) {{
  uint32_t r;
  asm("cvt.rn.{kind}x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}}
"""
        for kind in ("bf16", "f16")
    },
    **{
        f"p_store_{kind}": f"""\
template <int N, class... L> P_INLINE void p_store_{kind}(uint16_t* to, const float* from, L... limits) {{
  alignas(16) uint32_t words[N / 2];
#pragma unroll
  for (int k = 0; k < N / 2; k++) words[k] = p_pair_{kind}(from[2 * k], from[2 * k + 1]);
  p_store<N>(to, (const uint16_t*)words, limits...);
}}
"""
        for kind in ("bf16", "f16")
    },
    # a / b, where s = p_scale(b) and i = 1 / (b * s) are at hand: correctly rounded unless the quotient
    # is a denormal or `a` is below 2**-100, where the last bit may differ.
    "p_scale": """\
P_INLINE float p_scale(float b) {
  const float a = fabsf(b);
  return a > 1.2676506e30f ? 5.421011e-20f : a < 7.888609e-31f ? 1.8446744e19f : 1.0f;
}
""",
    "p_ratio": """\
P_INLINE float p_ratio(float a, float b, float s, float i) {
  const float q = a * s * i;
  const float r = __fmaf_rn(-q, b, a);
  const float p = __fmaf_rn(r * s, i, q);
  return fabsf(p) > 0.0f ? p : q;
}
""",
    # Scatters. Types that the hardware does not add go by compare and swap, 16-bit ones on their own halfword.
    "p_swap": """\
template <int BYTES> struct p_word { typedef unsigned short type; };
template <> struct p_word<4> { typedef unsigned int type; };
template <> struct p_word<8> { typedef unsigned long long type; };
template <class T, class F> P_INLINE void p_swap(T* at, F next) {
  typedef typename p_word<sizeof(T)>::type W;
  W seen = *(volatile W*)at;
  while (true) {
    T old; *(W*)&old = seen;
    const T now = next(old);
    const W was = atomicCAS((W*)at, seen, *(const W*)&now);
    if (was == seen) return;
    seen = was;
  }
}
template <class F> P_INLINE void p_swap_byte(uint8_t* at, F next) {
  uint32_t* const word = (uint32_t*)((uint64_t)at & ~(uint64_t)3);
  const int shift = 8 * (int)((uint64_t)at & 3);
  uint32_t seen = *(volatile uint32_t*)word;
  while (true) {
    const uint32_t now = (seen & ~(255u << shift)) | ((uint32_t)(uint8_t)next((uint8_t)(seen >> shift)) << shift);
    const uint32_t was = atomicCAS(word, seen, now);
    if (was == seen) return;
    seen = was;
  }
}
template <class F> P_INLINE void p_swap(uint8_t* at, F next) { p_swap_byte(at, next); }
template <class F> P_INLINE void p_swap(int8_t* at, F next) {
  p_swap_byte((uint8_t*)at, [=](uint8_t x) { return (uint8_t)next((int8_t)x); });
}
""",
    **{
        f"p_add_{kind}": f"""\
P_INLINE void p_add_{kind}(uint16_t* at, uint16_t x) {{
#if __CUDA_ARCH__ >= {since}
  asm volatile("red.add.noftz.{kind} [%0], %1;" :: "l"(at), "h"(x) : "memory");
#else
  p_swap(at, [=](uint16_t old) {{ return p_to_{kind}(p_from_{kind}(old) + p_from_{kind}(x)); }});
#endif
}}
"""
        for kind, since in (("bf16", 900), ("f16", 700))
    },
    "p_add": """\
P_INLINE void p_add(float* at, float x) { atomicAdd(at, x); }
P_INLINE void p_add(double* at, double x) { atomicAdd(at, x); }
P_INLINE void p_add(int32_t* at, int32_t x) { atomicAdd(at, x); }
P_INLINE void p_add(uint32_t* at, uint32_t x) { atomicAdd(at, x); }
P_INLINE void p_add(int64_t* at, int64_t x) { atomicAdd((unsigned long long*)at, (unsigned long long)x); }
P_INLINE void p_add(uint64_t* at, uint64_t x) { atomicAdd((unsigned long long*)at, (unsigned long long)x); }
template <class T> P_INLINE void p_add(T* at, T x) { p_swap(at, [=](T old) { return (T)(old + x); }); }
""",
    # To shared memory. Floats of a warp that go to one place are added up first: there they would wait for each other.
    "p_add_shared": """\
template <class T> P_INLINE void p_add_shared(T* at, T x) { p_add(at, x); }
P_INLINE void p_add_shared(float* at, float x) {
  int alike = 0;
  if (__activemask() == ~0u) __match_all_sync(~0u, (unsigned long long)at, &alike);
  if (!alike) return p_add(at, x);
#pragma unroll
  for (int o = 16; o > 0; o /= 2) x += __shfl_xor_sync(~0u, x, o);
  if (threadIdx.x % 32 == 0) p_add(at, x);
}
""",
}

_MENTION = re.compile(r"\bp_\w+")
_INTEGERS = frozenset("p_floordiv p_mod p_min p_max p_pow".split())
_PROVIDES = {
    **dict.fromkeys(_INTEGERS, "p_integers"),
    "p_from_bf16": "p_bf16", "p_to_bf16": "p_bf16", "p_from_f16": "p_f16", "p_to_f16": "p_f16", "p_piece": "p_pieces",
}  # fmt: skip
_ORDER = {name: k for k, name in enumerate(["p_integers", "p_pieces", "p_swap", *SNIPPETS])}


def text_for(body: str, replaced: Mapping[str, str] = {}) -> str:
    """The prelude that `body` needs; `replaced`: snippets to use in place of those of the table."""
    wanted: set[str] = set()
    _collect(body, wanted)
    found = "".join(replaced.get(n) or SNIPPETS[n] for n in sorted(wanted, key=_ORDER.__getitem__))
    signs = "#define signbit p_signbit\n" if "signbit(" in body else ""
    return BASE + found + signs


def _collect(text: str, wanted: set[str]) -> None:
    names = _MENTION.findall(text)
    if "signbit(" in text:
        names.append("p_signbit")
    for name in dict.fromkeys(names):
        name = _PROVIDES.get(name, name)
        if name in SNIPPETS and name not in wanted:
            wanted.add(name)
            _collect(SNIPPETS[name], wanted)
