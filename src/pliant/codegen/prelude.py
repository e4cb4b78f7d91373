"""C snippets that generated kernels use, each written out only where it is used.

In:     the names a kernel's text mentions.
Out:    `text_for(names)`: the snippets and what they need, in order; no header is included, which keeps builds short.
Holds:  float functions are branch-free so that compilers vectorize them; errors against float64, measured by
        tests/codegen/test_prelude.py over the whole range with denormals, infinities and NaN, with fused multiply-adds:
        exp, exp2, log, pow: 1 ulp; tanh: 1.1; asin, acos, atan: 1.2; tan, log2, log10: 1.3; expm1, log1p: 1.5; lgamma,
        erf: 1.6; atan2: 1.9; sigmoid: 2; erfc: 3; sin, cos: 0.91; what comes from the C library (sinh...; its vector
        variants where it has them): 4. Doubles come from the C library.
Source: coefficients are least-squares fits over Chebyshev nodes in 40 digits; reductions are the textbook ones.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from pliant.codegen.float_functions import of_floats
from pliant.codegen.vectors import VECTOR_FUNCTIONS, vector_text
from pliant.regular import pattern
from pliant.wrappers.shared_text import BASE
from pliant.wrappers.vector_math import vector_math


def _of_both(name: str, text: str) -> dict[str, str]:
    """A function `@` of floats and, as `name_d`, of doubles."""
    doubled = re.sub(r"(\d\.\d)f", r"\1", text).replace("float", "double")
    doubled = re.sub(r"\b((?:__builtin_)?(?:fmod|floor|copysign|fabs|trunc|fma))f\b", r"\1", doubled)
    doubled = re.sub(r"\b(p_\w+)f\b", r"\1_d", doubled)
    return {f"{name}f": text.replace("@", f"{name}f"), f"{name}_d": doubled.replace("@", f"{name}_d")}


SNIPPETS: dict[str, str] = {
    **of_floats("f", "float", "int32_t"),
    **VECTOR_FUNCTIONS,
    # A choice that nobody can predict, which a compiler might make a branch.
    "p_pickf": """\
P_INLINE float p_pickf(int c, float a, float b) {
  return p_float((p_bits(a) & -(int32_t)c) | (p_bits(b) & ((int32_t)c - 1)));
}
""",
    "p_pick_d": """\
P_INLINE double p_pick_d(int c, double a, double b) {
  union { double number; int64_t bits; } x = { a }, y = { b };
  x.bits = (x.bits & -(int64_t)c) | (y.bits & ((int64_t)c - 1));
  return x.number;
}
""",
    # Exact, as the quotient rounded down below: one below 2^24 is rounded to an integer that is right or one too large, which
    # the sign of what is left tells.
    **_of_both(
        "p_fmod",
        """\
P_INLINE float @(float a, float b) {
#if defined(__FMA__) || defined(__aarch64__)
  const float d = __builtin_fabsf(b), x = __builtin_fabsf(a), q = __builtin_truncf(x / d), r = __builtin_fmaf(-q, d, x);
  if (__builtin_expect(q < 16777216.0f && d < INFINITY, 1)) return __builtin_copysignf(r < 0.0f ? r + d : r, a);
#endif
  return fmodf(a, b);
}
""",
    ),
    **_of_both(
        "p_floordiv",
        """\
P_INLINE float @(float a, float b) {
#if defined(__FMA__) || defined(__aarch64__)
  const float e = __builtin_fabsf(b), x = __builtin_fabsf(a), n = __builtin_truncf(x / e), s = __builtin_fmaf(-n, e, x);
  const int differ = !__builtin_signbit(a) != !__builtin_signbit(b);
  if (__builtin_expect(n < 1048576.0f && e < INFINITY, 1)) {  // from 2^22 on eager's own rounding shows
    const float whole = n - (float)(s < 0.0f) + (float)((s != 0.0f) & differ);
    return __builtin_copysignf(whole, a) * __builtin_copysignf(1.0f, b);
  }
#endif
  const float m = p_fmodf(a, b);
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
  const float m = p_fmodf(a, b);
  return p_pickf((m != 0.0f) & ((b < 0.0f) != (m < 0.0f)), m + b, m);
}
""",
    ),
    "p_fmod": """\
P_INLINE double p_fmod(double a, double b) {
  const double r = fmod(a, b);
  return r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : copysign(0.0, b);
}
""",
    "p_add_lanes": """\
static __attribute__((noinline)) void p_add_lanes(double* a, const float* x, int64_t n) {
  #pragma omp simd
  for (int64_t k = 0; k < n; k++) a[k] += x[k];
}
""",
    "p_fmin": """\
P_INLINE double p_fmin(double a, double b) { return b < a ? b : a; }
""",
    "p_fmax": """\
P_INLINE double p_fmax(double a, double b) { return b > a ? b : a; }
""",
    "p_opaque_i32": """\
P_INLINE int32_t p_opaque_i32(int32_t x) { P_OPAQUE(x); return x; }
""",
    "p_opaque_i64": """\
P_INLINE int64_t p_opaque_i64(int64_t x) { P_OPAQUE(x); return x; }
""",
    # Doubles of one sign are in the order of their bits.
    "p_nextafter_d": """\
P_INLINE double p_nextafter_d(double x, double y) {
  union { double number; int64_t bits; } next = { x };
  next.bits += (x < y) == (x > 0.0) ? 1 : -1;
  const double off = x == 0.0 ? __builtin_copysign(4.9406564584124654e-324, y) : next.number;
  return x != x ? x : y != y ? y : x == y ? y : off;
}
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
    # As integers: the compiler makes vectors of it, which it does not of its own conversion, one instruction for one element.
    # What has no leading bit is placed by an addition; floats too small to be such do not take part in it, be they flushed to zero.
    "p_f16": """\
P_INLINE float p_from_f16(uint16_t x) {
  const uint32_t b = (x & 0x7fffu) << 13, e = b & 0x0f800000u;
  const float small = p_float((int32_t)(b + 0x38800000u)) - 6.103515625e-05f;
  const uint32_t usual = b + (e == 0x0f800000u ? 0x70000000u : 0x38000000u);
  return p_float((int32_t)((e ? usual : (uint32_t)p_bits(small)) | (x & 0x8000u) << 16));
}
P_INLINE uint16_t p_to_f16(float x) {
  const uint32_t sign = (uint32_t)p_bits(x) & 0x80000000u, b = (uint32_t)p_bits(x) ^ sign;
  const uint32_t small = (uint32_t)p_bits(p_float((int32_t)b) + 0.5f) - 0x3f000000u;
  const uint32_t usual = (b - 0x37fff001u + ((b >> 13) & 1u)) >> 13, large = b > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (uint16_t)((b < 0x38800000u ? small : b < 0x47800000u ? usual : large) | sign >> 16);
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


# Operators whose name in the table is ours but whose work the C library does: name -> function.
_OURS = "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 tanh erf erfc lgamma pow"
RENAMED = {
    **{f"p_{n}_d": n for n in _OURS.split()},
    **{f"p_{n}f": f"{n}f" for n in ("pow",)},
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
    simd = "P_SIMD " if base in _VECTORIZED and vector_math() else ""
    return f"extern {simd}{real} {name}({arguments});\n"


# In any order they find the same, as "(" has to follow; in this one the pattern is the same in each process.
_NAMES = "|".join(sorted(_FUNCTIONS))
_MENTION = pattern(rf"\bp_\w+|\b(?:{_NAMES})f?(?=\()")
_PROVIDES = {
    "p_from_bf16": "p_bf16", "p_to_bf16": "p_bf16", "p_from_f16": "p_f16", "p_to_f16": "p_f16",
    "p_log_edgesf": "p_log_splitf", "p_log_edgesv": "p_log_splitv",
}  # fmt: skip


# Loops over doubles, and those that call the C library, are left to the compiler, which takes half of the widest vectors
# where it is not told otherwise. gcc alone has this form.
_WIDE = """\
#if defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")
#endif
"""


# The host's C library has vector variants; another processor, for which the same text may be built, may have none.
_SIMD = """\
#ifdef __x86_64__
#define P_SIMD __attribute__((simd("notinbranch"), const))
#else
#define P_SIMD
#endif
"""


def text_for(body: str) -> str:
    """The prelude that `body` needs."""
    wanted: dict[str, None] = {}
    _collect(_mentioned(body), wanted)
    libm = [declaration(n) for n in wanted if n not in SNIPPETS]
    snippets = "".join(SNIPPETS[n] for n in SNIPPETS if n in wanted)
    vectors = vector_text(snippets + body) if "P_L" in body or "p_transpose" in body else ""
    calls = any("P_SIMD" in one for one in libm)
    wide = _WIDE if calls or "double" in body else ""
    return wide + BASE + (_SIMD if calls else "") + "".join(libm) + vectors + snippets


def _collect(names: Iterable[str], wanted: dict[str, None]) -> None:
    for name in names:
        if name not in wanted:
            wanted[name] = None
            _collect(_mentioned_by(name), wanted)


@functools.cache
def _mentioned_by(snippet: str) -> list[str]:
    return _mentioned(SNIPPETS.get(snippet, ""))


def _mentioned(text: str) -> list[str]:
    """Snippets and functions of the C library that a text mentions, in order."""
    names = [_PROVIDES.get(name, name) for name in dict.fromkeys(_MENTION.findall(text))]
    return [name for name in names if name in SNIPPETS or not name.startswith("p_")]
