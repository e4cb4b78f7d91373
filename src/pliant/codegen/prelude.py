"""C snippets that generated kernels use, each written out only where it is used.

In:     the names a kernel's text mentions.
Out:    `text_for(names)`: the snippets and what they need, in order; no header is included, which keeps builds short.
Holds:  float functions are branch-free so that compilers vectorize them; errors against float64, measured by
        tests/codegen/test_prelude.py over the whole range with denormals, infinities and NaN: exp, expm1, exp2, log,
        log1p, log2, log10, tanh, erf, sigmoid: 3 ulp; what comes from the C library (sin, cos, pow...; its vector
        variants where it has them): 4 ulp. Doubles come from the C library.
Source: coefficients are least-squares fits over Chebyshev nodes in 40 digits; reductions are the textbook ones.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re

BASE = """\
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define P_INLINE static inline __attribute__((always_inline))
#if defined(__FMA__) || defined(__aarch64__)
#define P_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define P_FMA(a, b, c) ((a) * (b) + (c))
#endif
#define P_INF __builtin_inff()
#define P_NAN __builtin_nanf("")
P_INLINE int32_t p_bits(float x) { int32_t r; __builtin_memcpy(&r, &x, 4); return r; }
P_INLINE float p_float(int32_t x) { float r; __builtin_memcpy(&r, &x, 4); return r; }
#define INT64_C(x) x##ll
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define signbit(x) __builtin_signbit(x)
P_INLINE int64_t p_floordiv(int64_t a, int64_t b) { int64_t q = a / b; return q - ((a % b != 0) & ((a ^ b) < 0)); }
P_INLINE int64_t p_mod(int64_t a, int64_t b) { int64_t r = a % b; return r + ((r != 0) & ((r ^ b) < 0) ? b : 0); }
P_INLINE int64_t p_min(int64_t a, int64_t b) { return a < b ? a : b; }
P_INLINE int64_t p_max(int64_t a, int64_t b) { return a > b ? a : b; }
P_INLINE int64_t p_pow(int64_t a, int64_t b) {
  int64_t r = 1;
  for (; b > 0; b >>= 1, a *= a) if (b & 1) r *= a;
  return r;
}
"""


def _of_both(name: str, text: str) -> dict[str, str]:
    """A function `@` of floats and, as `name_d`, of doubles."""
    doubled = re.sub(r"(\d\.\d)f", r"\1", text).replace("float", "double")
    doubled = re.sub(r"\b(fmod|floor|copysign)f\b", r"\1", doubled)
    return {f"{name}f": text.replace("@", f"{name}f"), f"{name}_d": doubled.replace("@", f"{name}_d")}


SNIPPETS: dict[str, str] = {
    # 2^n * y in two steps, so that results overflow and become denormal as they should.
    "p_scale": """\
P_INLINE float p_scale(float y, int32_t n) {
  const int32_t h = n >> 1;
  return y * p_float((h + 127) << 23) * p_float((n - h + 127) << 23);
}
""",
    "p_exp_core": """\
P_INLINE float p_exp_core(float r) {
  float p = 0.0013948776759207249f;
  p = P_FMA(p, r, 0.008370601572096348f);
  p = P_FMA(p, r, 0.04166622832417488f);
  p = P_FMA(p, r, 0.16666503250598907f);
  p = P_FMA(p, r, 0.5f);
  return P_FMA(p * r, r, r) + 1.0f;
}
""",
    "p_expf": """\
P_INLINE float p_expf(float v) {
  float x = v > 89.0f ? 89.0f : v;
  x = x < -104.0f ? -104.0f : x;
  const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  const float r = P_FMA(n, -1.42860677e-6f, P_FMA(n, -0.693145752f, x));
  return p_scale(p_exp_core(r), (int32_t)n);
}
""",
    "p_exp2f": """\
P_INLINE float p_exp2f(float v) {
  float x = v > 129.0f ? 129.0f : v;
  x = x < -151.0f ? -151.0f : x;
  const float n = (x + 12582912.0f) - 12582912.0f;
  return p_scale(p_exp_core((x - n) * 0.693147181f), (int32_t)n);
}
""",
    "p_expm1f": """\
P_INLINE float p_expm1f(float v) {
  float x = v > 89.0f ? 89.0f : v;
  x = x < -20.0f ? -20.0f : x;
  const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  const float r = P_FMA(n, -1.42860677e-6f, P_FMA(n, -0.693145752f, x));
  float p = 0.0001990778837352991f;
  p = P_FMA(p, r, 0.0013943224912509322f);
  p = P_FMA(p, r, 0.00833328440785408f);
  p = P_FMA(p, r, 0.04166632518172264f);
  p = P_FMA(p, r, 0.1666666716337204f);
  p = P_FMA(p, r, 0.5f);
  p = P_FMA(p * r, r, r);
  const float s = p_float(((int32_t)n + 126) << 23);
  return x == 0.0f ? v : 2.0f * P_FMA(s, p, s - 0.5f);
}
""",
    # x = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); the logarithm of 1 + f without its leading f.
    "p_log_tail": """\
P_INLINE float p_log_tail(float f) {
  float p = 0.06800912320613861f;
  p = P_FMA(p, f, -0.11726605147123337f);
  p = P_FMA(p, f, 0.11890989542007446f);
  p = P_FMA(p, f, -0.12396445125341415f);
  p = P_FMA(p, f, 0.14217762649059296f);
  p = P_FMA(p, f, -0.16668511927127838f);
  p = P_FMA(p, f, 0.20002245903015137f);
  p = P_FMA(p, f, -0.25f);
  p = P_FMA(p, f, 0.3333331048488617f);
  return f * f * P_FMA(p, f, -0.5f);
}
P_INLINE float p_log_edges(float x, float r) {
  const float top = x == P_INF ? P_INF : r;
  const float low = x == 0.0f ? -P_INF : P_NAN;
  return x > 0.0f ? top : low;
}
P_INLINE float p_log_split(float x, float* f) {
  const int tiny = x < 1.17549435e-38f;
  const int32_t b = p_bits(tiny ? x * 8388608.0f : x);
  const int32_t k = (b - 0x3f3504f3) >> 23;
  *f = p_float(b - (int32_t)((uint32_t)k << 23)) - 1.0f;
  return (float)(k - (tiny ? 23 : 0));
}
""",
    "p_logf": """\
P_INLINE float p_logf(float x) {
  float f;
  const float k = p_log_split(x, &f);
  const float r = P_FMA(k, -2.12194440e-4f, p_log_tail(f)) + f;
  return p_log_edges(x, P_FMA(k, 0.693359375f, r));
}
""",
    "p_log2f": """\
P_INLINE float p_log2f(float x) {
  float f;
  const float k = p_log_split(x, &f);
  const float t = p_log_tail(f);
  const float r = P_FMA(t, 1.44269504f, P_FMA(f, 1.92596299e-8f, f * 1.44269502f));
  return p_log_edges(x, k + r);
}
""",
    "p_log10f": """\
P_INLINE float p_log10f(float x) {
  float f;
  const float k = p_log_split(x, &f);
  const float t = (p_log_tail(f) + f) * 0.434294482f;
  return p_log_edges(x, P_FMA(k, 0.301029996f, t));
}
""",
    "p_log1pf": """\
P_INLINE float p_log1pf(float x) {
  const float u = 1.0f + x;
  const float c = x - (u - 1.0f);
  const float r = p_logf(u) + c / u;
  return (u > 0.0f && x < P_INF) ? (x == 0.0f ? x : r) : p_logf(u);
}
""",
    "p_tanhf": """\
P_INLINE float p_tanhf(float x) {
  const float a = __builtin_fabsf(x), z = x * x;
  float p = -0.005704042501747608f;
  p = P_FMA(p, z, 0.020637862384319305f);
  p = P_FMA(p, z, -0.05373915657401085f);
  p = P_FMA(p, z, 0.133314311504364f);
  p = P_FMA(p, z, -0.3333328068256378f);
  const float small = P_FMA(p * z, x, x);
  const float big = __builtin_copysignf(1.0f - 2.0f / (p_expf(2.0f * a) + 1.0f), x);
  return a < 0.625f ? small : big;
}
""",
    # erf(t) = -expm1(-q(t)) with q(t) = -log(1 - erf(t)), a smooth function with q(0) = 0.
    "p_erff": """\
P_INLINE float p_erff(float x) {
  const float a = __builtin_fabsf(x);
  const float t = a > 3.95f ? 3.95f : a;
  float q = -9.361183401779272e-06f;
  q = P_FMA(q, t, 0.00011855667980853468f);
  q = P_FMA(q, t, -0.0006360078696161509f);
  q = P_FMA(q, t, 0.0016726118046790361f);
  q = P_FMA(q, t, -0.00016570970183238387f);
  q = P_FMA(q, t, -0.01915038749575615f);
  q = P_FMA(q, t, 0.10277718305587769f);
  q = P_FMA(q, t, 0.6366194486618042f);
  q = P_FMA(q, t, 1.128379225730896f);
  q = -(q * t);
  const float n = (q * 1.44269504f + 12582912.0f) - 12582912.0f;
  const float r = P_FMA(n, -1.42860677e-6f, P_FMA(n, -0.693145752f, q));
  float p = 0.0013948776759207249f;
  p = P_FMA(p, r, 0.008370601572096348f);
  p = P_FMA(p, r, 0.04166622832417488f);
  p = P_FMA(p, r, 0.16666503250598907f);
  p = P_FMA(p, r, 0.5f);
  p = P_FMA(p * r, r, r);
  const float s = p_float(((int32_t)n + 127) << 23);
  return __builtin_copysignf(P_FMA(s, p, s - 1.0f), x);
}
""",
    "p_sigmoidf": """\
P_INLINE float p_sigmoidf(float x) { return 1.0f / (1.0f + p_expf(-x)); }
""",
    **_of_both(
        "p_floordiv",
        """\
P_INLINE float @(float a, float b) {
  const float m = fmodf(a, b);
  const float q = (a - m) / b;
  const float d = (m != 0.0f && (b < 0.0f) != (m < 0.0f)) ? q - 1.0f : q;
  const float f = floorf(d);
  const float r = d - f > 0.5f ? f + 1.0f : f;
  const float z = d != 0.0f ? r : copysignf(0.0f, a / b);
  return b == 0.0f ? a / b : z;
}
""",
    ),
    **_of_both(
        "p_remainder",
        """\
P_INLINE float @(float a, float b) {
  const float m = fmodf(a, b);
  return (m != 0.0f && (b < 0.0f) != (m < 0.0f)) ? m + b : m;
}
""",
    ),
    "p_fmod": """\
P_INLINE double p_fmod(double a, double b) {
  const double r = fmod(a, b);
  return r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : copysign(0.0, b);
}
""",
    "p_fmin": """\
P_INLINE double p_fmin(double a, double b) { return b < a ? b : a; }
""",
    "p_fmax": """\
P_INLINE double p_fmax(double a, double b) { return b > a ? b : a; }
""",
    "p_sigmoid_d": """\
P_INLINE double p_sigmoid_d(double x) { return 1.0 / (1.0 + exp(-x)); }
""",
    "p_check_index": """\
#define p_check_index(i, n) p_checked((i), (n), p_error)
P_INLINE int64_t p_checked(int64_t i, int64_t n, int32_t* error) {
  const int64_t j = i < 0 ? i + n : i;
  if (__builtin_expect((uint64_t)j >= (uint64_t)n, 0)) { *error = 1; return 0; }
  return j;
}
""",
    "p_f16": """\
P_INLINE float p_from_f16(uint16_t x) { _Float16 h; __builtin_memcpy(&h, &x, 2); return (float)h; }
P_INLINE uint16_t p_to_f16(float x) {
  const _Float16 h = (_Float16)x;
  uint16_t r;
  __builtin_memcpy(&r, &h, 2);
  return r;
}
""",
    "p_bf16": """\
P_INLINE float p_from_bf16(uint16_t x) { return p_float((int32_t)((uint32_t)x << 16)); }
P_INLINE uint16_t p_to_bf16(float x) {
  const uint32_t b = (uint32_t)p_bits(x);
  const uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
  return (uint16_t)(x != x ? 0x7fc0u : rounded);
}
""",
}


def vector_math() -> bool:
    """Whether the C library brings vector variants (glibc's libmvec); loads it so that kernels find them."""
    return _load_libmvec()


@functools.cache
def _load_libmvec() -> bool:
    if platform.machine() != "x86_64":
        return False
    try:
        library = ctypes.CDLL("libmvec.so.1", mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    except OSError:
        return False
    # glibc 2.35 completed the set (tan, asin, hypot...); older ones have six functions, which are not worth a case.
    return getattr(library, "_ZGVdN8v_tanf", None) is not None and getattr(library, "_ZGVdN4vv_hypot", None) is not None


# Operators whose name in the table is ours but whose work the C library does: name -> function.
RENAMED = {
    **{f"p_{n}_d": n for n in "exp exp2 expm1 log log2 log10 log1p sin cos tanh erf pow".split()},
    **{f"p_{n}f": f"{n}f" for n in "sin cos pow".split()},
}

_VECTOR_1 = "sin cos tan asin acos atan sinh cosh asinh acosh atanh tanh exp exp2 exp10 expm1 log log2 log10 "
_VECTOR_1 += "log1p erf erfc cbrt"
_VECTOR_2 = "pow atan2 hypot"
LIBM_1 = frozenset(f"{_VECTOR_1} lgamma tgamma".split())
LIBM_2 = frozenset(f"{_VECTOR_2} fmod nextafter remainder".split())
_VECTORIZED = frozenset(f"{_VECTOR_1} {_VECTOR_2}".split())


_EXACT_1 = "sqrt floor ceil trunc nearbyint fabs round".split()
_EXACT_2 = "copysign fmin fmax".split()
_FUNCTIONS: dict[str, tuple[int, str]] = {
    **{n: (1, n) for n in (*LIBM_1, *_EXACT_1)},
    **{n: (2, n) for n in (*LIBM_2, *_EXACT_2)},
}


def declaration(name: str) -> str:
    """The prototype of a C library function (`sinf`, `sin`), with its vector variants announced to the compiler."""
    base, real = (name, "double") if name in _FUNCTIONS else (name[:-1], "float")
    arguments = f"{real}, {real}" if _FUNCTIONS[base][0] == 2 else real
    simd = '__attribute__((simd("notinbranch"), const)) ' if base in _VECTORIZED and vector_math() else ""
    return f"extern {simd}{real} {name}({arguments});\n"


_NAMES = "|".join(sorted(_FUNCTIONS, key=len, reverse=True))
_MENTION = re.compile(rf"\bp_\w+|\b(?:{_NAMES})f?(?=\()")
_PROVIDES = {
    "p_from_bf16": "p_bf16", "p_to_bf16": "p_bf16", "p_from_f16": "p_f16", "p_to_f16": "p_f16",
    "p_log_edges": "p_log_tail", "p_log_split": "p_log_tail",
}  # fmt: skip


def text_for(body: str) -> str:
    """The prelude that `body` needs."""
    wanted: dict[str, None] = {}
    _collect(body, wanted)
    libm = [declaration(n) for n in wanted if n not in SNIPPETS]
    return BASE + "".join(libm) + "".join(SNIPPETS[n] for n in SNIPPETS if n in wanted)


def _collect(text: str, wanted: dict[str, None]) -> None:
    for name in dict.fromkeys(_MENTION.findall(text)):
        name = _PROVIDES.get(name, name)
        if name not in wanted and (name in SNIPPETS or not name.startswith("p_")):
            wanted[name] = None
            _collect(SNIPPETS.get(name, ""), wanted)
