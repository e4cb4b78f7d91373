"""Elementary functions of floats in C, one text for scalars and for vectors.

In:     nothing; this is text.
Out:    `of_floats(suffix, real, integer)`: the functions for one kind of value.
Holds:  no branches; errors as `prelude.py` states them. `@F` and `@I` stand for the types of floats and of integers as
        wide, a name that ends in `@` is a function or a macro of both, with a suffix (`f`, `v`) in its place.
        `P_LESS@` and `P_MORE@` are min and max that give their second argument where one is NaN.
Source: coefficients are least-squares fits over Chebyshev nodes in 40 digits, weighted until the largest error is the least;
        reductions are the textbook ones.
"""

from __future__ import annotations

from pliant.codegen.fast_functions import FAST
from pliant.codegen.gamma_functions import GAMMA
from pliant.codegen.inverse_trigonometry import INVERSE_TRIGONOMETRY
from pliant.codegen.trigonometry import TRIGONOMETRY

_OF_FLOATS: dict[str, str] = {
    # 1 over x, or nearly so where that is cheaper: at least 14 bits
    "p_inverse@": """\
P_INLINE @F p_inverse@(@F x) { return 1.0f / x; }
""",
    # 2^n * y in two steps, so that results overflow and become denormal as they should.
    "p_scale@": """\
P_INLINE @F p_scale@(@F y, @F n) {
  const @I k = P_INT@(n), h = k >> 1;
  return y * P_FLOAT@((h + 127) << 23) * P_FLOAT@((k - h + 127) << 23);
}
""",
    # The same, and 0 where v < least; y and n are numbers there if they come of P_TAME(v, least).
    "p_scale_above@": """\
#define P_TAME@(v, least) P_CHOOSE@((v) < (least), 0.0f, v)
P_INLINE @F p_scale_above@(@F y, @F n, @F v, float least) { return P_CHOOSE@(v < least, 0.0f, p_scale@(y, n)); }
""",
    "p_exp_core@": """\
P_INLINE @F p_exp_core@(@F r) {
  @F p = P_FMA@(0.0013948776759207249f, r, 0.008370601572096348f);
  p = P_FMA@(p, r, 0.04166622832417488f);
  p = P_FMA@(p, r, 0.16666503250598907f);
  p = P_FMA@(p, r, 0.5f);
  p = P_FMA@(p, r, 1.0f);
  return P_FMA@(p, r, 1.0f);
}
""",
    # Below -104 it is 0 and not computed as such: processors take a hundred cycles for a result that is too small.
    "p_exp@": """\
P_INLINE @F p_exp@(@F v) {
  const @F x = P_LESS@(89.0f, P_TAME@(v, -104.0f));
  const @F n = P_FMA@(x, 1.44269504f, 12582912.0f) - 12582912.0f;
  const @F r = P_FMA@(n, -1.42860677e-6f, P_FMA@(n, -0.693145752f, x));
  return p_scale_above@(p_exp_core@(r), n, v, -104.0f);
}
""",
    "p_exp2@": """\
P_INLINE @F p_exp2@(@F v) {
  const @F x = P_LESS@(129.0f, P_TAME@(v, -150.0f));
  const @F n = (x + 12582912.0f) - 12582912.0f;
  return p_scale_above@(p_exp_core@((x - n) * 0.693147181f), n, v, -150.0f);
}
""",
    "p_expm1@": """\
P_INLINE @F p_expm1@(@F v) {
  const @F x = P_MORE@(-20.0f, P_LESS@(89.0f, v));
  const @F n = P_FMA@(x, 1.44269504f, 12582912.0f) - 12582912.0f;
  const @F r = P_FMA@(n, -1.42860677e-6f, P_FMA@(n, -0.693145752f, x));
  @F p = P_FMA@(0.0001990778837352991f, r, 0.0013943224912509322f);
  p = P_FMA@(p, r, 0.00833328440785408f);
  p = P_FMA@(p, r, 0.04166632518172264f);
  p = P_FMA@(p, r, 0.1666666716337204f);
  p = P_FMA@(p, r, 0.5f);
  p = P_FMA@(p * r, r, r);
  const @F s = P_FLOAT@((P_INT@(n) + 126) << 23);
  return P_CHOOSE@(x == 0.0f, v, 2.0f * P_FMA@(s, p, s - 0.5f));
}
""",
    # x = 2^k * (1 + f) with 1 + f in [0.75, 1.5); the logarithm of 1 + f without its leading f.
    "p_log_tail@": """\
P_INLINE @F p_log_tail@(@F f) {
  @F p = P_FMA@(-0.0450744666159153f, f, 0.10462995618581772f);
  p = P_FMA@(p, f, -0.13161195814609528f);
  p = P_FMA@(p, f, 0.14478400349617004f);
  p = P_FMA@(p, f, -0.1664731204509735f);
  p = P_FMA@(p, f, 0.19990861415863037f);
  p = P_FMA@(p, f, -0.2500009536743164f);
  p = P_FMA@(p, f, 0.3333345055580139f);
  return f * f * P_FMA@(p, f, -0.5f);
}
""",
    # `edges` sets right what `split` spoils: infinity, 0 and what is negative.
    "p_log_split@": """\
P_INLINE @F p_log_edges@(@F x, @F r) {
  const @F top = P_CHOOSE@(x == P_INF, P_INF, r);
  const @F low = P_CHOOSE@(x == 0.0f, -P_INF, P_NAN);
  return P_CHOOSE@(x > 0.0f, top, low);
}
P_INLINE @F p_log_split@(@F x, @F* f) {
  const @I tiny = x < 1.17549435e-38f;
  const @I b = P_BITS@(P_CHOOSE@(tiny, x * 8388608.0f, x));
  const @I k = (b - 0x3f400000) >> 23;
  *f = P_FLOAT@(b - P_UP@(k)) - 1.0f;
  return P_NUMBER@(k) - P_CHOOSE@(tiny, 23.0f, 0.0f);
}
""",
    # ln 2 in two parts of one sign, so that an infinite k stays infinite.
    "p_log@": """\
P_INLINE @F p_log@(@F x) {
  @F f;
  const @F k = p_log_split@(x, &f);
  const @F r = P_FMA@(k, 1.42860677e-6f, p_log_tail@(f)) + f;
  return p_log_edges@(x, P_FMA@(k, 0.693145752f, r));
}
""",
    # what is added to k, or to its multiple, is twice kept with what rounding takes from it, but where k is infinite
    "p_log2@": """\
P_INLINE @F p_log2@(@F x) {
  @F f;
  const @F k = p_log_split@(x, &f);
  const @F up = f * 1.44269502f, top = k + up, left = P_FMA@(f, 1.44269502f, -up) + (up - (top - k));
  const @F low = P_FMA@(f, 1.92596303e-8f, P_CHOOSE@(k - k == 0.0f, left, 0.0f));
  return p_log_edges@(x, top + P_FMA@(p_log_tail@(f), 1.44269502f, low));
}
""",
    "p_log10@": """\
P_INLINE @F p_log10@(@F x) {
  @F f;
  const @F k = p_log_split@(x, &f);
  const @F n = k * 0.301025391f, up = f * 0.434294492f, top = n + up;
  const @F left = P_FMA@(f, 0.434294492f, -up) + (up - (top - n));
  const @F low = P_FMA@(k, 4.60503907e-06f, P_FMA@(f, -1.010305e-08f, P_CHOOSE@(k - k == 0.0f, left, 0.0f)));
  return p_log_edges@(x, top + P_FMA@(p_log_tail@(f), 0.434294492f, low));
}
""",
    # the logarithm of 1 + x, and what that sum left out as a part of it: added before the last rounding
    "p_log1p@": """\
P_INLINE @F p_log1p@(@F x) {
  const @F u = 1.0f + x, c = x - (u - 1.0f);
  @F f;
  const @F k = p_log_split@(u, &f), left = P_CHOOSE@((u > 0.0f) & (x < P_INF), c / u, 0.0f);
  const @F r = (P_FMA@(k, 1.42860677e-6f, p_log_tail@(f)) + left) + f;
  return P_CHOOSE@(x == 0.0f, x, p_log_edges@(u, P_FMA@(k, 0.693145752f, r)));
}
""",
    # Below 0.7 tanh(x) = x + x^3 * P(x^2), above it 1 - 2 / (exp(2 x) + 1), where exp(2 x) + 1 = (2^n + 1) + 2^n * p is
    # rounded once: neither subtracts two numbers of one size. The sign comes last.
    "p_tanh@": """\
P_INLINE @F p_tanh@(@F v) {
  const @F x = P_LESS@(9.02f, P_FLOAT@(P_BITS@(v) & 0x7fffffff)), z = x * x, t = x + x;
  const @F m = P_FMA@(t, 1.44269504f, 12583039.0f);  // its lowest bits are n + 127
  const @F r = P_FMA@(m - 12583039.0f, -0.693147182f, t);
  @F q = P_FMA@(-0.005138651933521032f, z, 0.020091958343982697f);
  @F p = P_FMA@(0.0013950600987300277f, r, 0.008368954062461853f);
  q = P_FMA@(q, z, -0.05355885624885559f);
  p = P_FMA@(p, r, 0.04166620597243309f);
  q = P_FMA@(q, z, 0.1332911103963852f);
  p = P_FMA@(p, r, 0.166665181517601f);
  q = P_FMA@(q, z, -0.3333319127559662f);
  p = P_FMA@(p, r, 0.5f);
  p = P_FMA@(p * r, r, r);
  const @F s = P_FLOAT@(P_BITS@(m) << 23);
  const @F low = P_FMA@(q * z, x, x), high = 1.0f - 2.0f / P_FMA@(s, p, s + 1.0f);
  return P_FLOAT@(P_BITS@(P_CHOOSE@(x < 0.7f, low, high)) | (P_BITS@(v) & (-0x7fffffff - 1)));
}
""",
    # Below 0.9 erf(x) = x + x * P(x^2), above it a polynomial around 2.25, cut where it rounds to 1: even powers (p) apart
    # from odd ones (s), of which processors then compute more at a time.
    "p_erf@": """\
P_INLINE @F p_erf@(@F v) {
  const @F x = P_LESS@(3.93f, P_ABS@(v)), z = x * x, d = x - 2.25f, e = d * d;
  @F q = P_FMA@(8.513102511642501e-05f, z, -0.0008175639086402953f);
  @F p = P_FMA@(1.264265961253841e-06f, e, -1.3424825738184154e-05f);
  @F s = P_FMA@(-3.7432894259836758e-06f, e, 6.796020170440897e-05f);
  q = P_FMA@(q, z, 0.005203858949244022f);
  p = P_FMA@(p, e, -3.11096700897906e-05f);
  s = P_FMA@(s, e, -0.00036966221523471177f);
  q = P_FMA@(q, z, -0.02686050906777382f);
  p = P_FMA@(p, e, 0.0010220868280157447f);
  s = P_FMA@(s, e, -0.0006726293358951807f);
  q = P_FMA@(q, z, 0.11283715069293976f);
  p = P_FMA@(p, e, -0.002918359823524952f);
  s = P_FMA@(s, e, 0.010659378953278065f);
  q = P_FMA@(q, z, -0.37612634897232056f);
  p = P_FMA@(p, e, -0.019079122692346573f);
  s = P_FMA@(s, e, 0.021724127233028412f);
  q = P_FMA@(q, z, 0.12837916612625122f);
  p = P_FMA@(p, e, -0.016070714220404625f);
  s = P_FMA@(s, e, 0.007142345886677504f);
  p = P_LESS@(1.0f, P_FMA@(P_FMA@(p, d, s), d, 0.9985373020172119f));
  return P_SIGN@(P_CHOOSE@(x < 0.9f, P_FMA@(q, x, x), p), v);
}
""",
    # Below 1/2 a polynomial, above it exp(-x^2) times a polynomial over x + 3, of 6 / (x + 3) - 1: the square is taken in two
    # parts, the first of which is exact, and what rounding takes from quotient and product is added last.
    "p_erfc@": """\
P_INLINE @F p_erfc@(@F v) {
  const @F a = -P_ABS@(v), x = P_TAME@(a, -10.06f), h = P_FLOAT@(P_BITS@(x) & -0x1000), s = h * h;
  const @F n = P_FMA@(x * x, -1.44269504f, 12582912.0f) - 12582912.0f;
  const @F r = P_FMA@(n, -1.42860677e-6f, P_FMA@(n, -0.693145752f, -s) - (x - h) * (x + h));
  const @F d = 3.0f - x, o = p_inverse@(d), t = P_FMA@(P_FMA@(-o, d, 1.0f), o, o), u = P_FMA@(t, 6.0f, -1.0f), z = x * x;
  const @F left = P_FMA@(-t, d, 1.0f) - ((3.0f - d) - x) * t;
  @F p = P_FMA@(0.0003128721145913005f, u, -0.0004666444438043982f);
  @F e = P_FMA@(0.0013948776759207249f, r, 0.008370601572096348f);
  @F q = P_FMA@(0.004718215670436621f, z, -0.02675795368850231f);
  p = P_FMA@(p, u, -0.003071070648729801f);
  e = P_FMA@(e, r, 0.04166622832417488f);
  q = P_FMA@(q, z, 0.11282848566770554f);
  p = P_FMA@(p, u, -0.001242426922544837f);
  e = P_FMA@(e, r, 0.16666503250598907f);
  q = P_FMA@(q, z, -0.37612611055374146f);
  p = P_FMA@(p, u, 0.026838064193725586f);
  e = P_FMA@(e, r, 0.5f);
  q = P_FMA@(q, z, 0.12837916612625122f);
  p = P_FMA@(p, u, 0.11953383684158325f);
  e = P_FMA@(e * r, r, r);
  p = P_FMA@(p, u, 0.31046611070632935f);
  p = P_FMA@(p, u, 0.5902278423309326f);
  p = P_FMA@(p, u, 0.8833944797515869f);
  p = P_FMA@(p, u, 1.0740069150924683f);
  const @F g = p * t, y = p_scale_above@(g + P_FMA@(g, P_FMA@(left, P_FMA@(u, 0.7f, 1.7f), e), P_FMA@(p, t, -g)), n, a, -10.06f);
  const @F near = P_FMA@(-v, q, 1.0f - v);
  return P_CHOOSE@(a > -0.5f, near, P_CHOOSE@(v < 0.0f, 2.0f - y, y));
}
""",
    "p_normal_cdf@": """\
P_INLINE @F p_normal_cdf@(@F v) { return P_FMA@(p_erf@(v * 0.707106781f), 0.5f, 0.5f); }
""",
    # Below 0 it is exp(-v^2 / 2) times a polynomial of |v| - 0.75, above 0 what that leaves of 1; NaN of infinity.
    "p_gelu_slope@": """\
P_INLINE @F p_gelu_slope@(@F v) {
  const @F x = P_LESS@(13.25f, P_ABS@(v)), d = P_LESS@(5.7f, x) - 0.75f, e = d * d, z = x * x * -0.5f;
  const @F m = P_FMA@(z, 1.44269504f, 12583039.0f);  // its lowest bits are n + 127: 0, and so is `g`, where x is the largest
  const @F g = p_exp_core@(P_FMA@(m - 12583039.0f, -0.693147182f, z)) * P_FLOAT@(P_BITS@(m) << 23);
  @F p = P_FMA@(4.8858726842127e-08f, e, 8.144666935550049e-06f);
  @F q = P_FMA@(-9.445888622394705e-07f, e, -4.312617238610983e-05f);
  p = P_FMA@(p, e, 0.00016827683430165052f);
  q = P_FMA@(q, e, -0.0005610279040411115f);
  p = P_FMA@(p, e, 0.0017488048179075122f);
  q = P_FMA@(q, e, -0.00517966179177165f);
  p = P_FMA@(p, e, 0.014357862994074821f);
  q = P_FMA@(q, e, -0.03668483719229698f);
  p = P_FMA@(p, e, 0.08495359122753143f);
  q = P_FMA@(q, e, -0.5727101564407349f);
  p = P_FMA@(p, e, 0.0010257449466735125f);
  const @F t = P_FMA@(q, d, p) * g;
  return P_CHOOSE@(v > 0.0f, 1.0f - t, t) + (v - v);
}
""",
    # Floats of one sign are in the order of their bits.
    "p_nextafter@": """\
P_INLINE @F p_nextafter@(@F x, @F y) {
  const @I towards_zero = P_BITS@(P_CHOOSE@(x < y, x, -x)) >> 31;
  const @F next = P_FLOAT@(P_BITS@(x) + (towards_zero | 1));
  const @F off = P_CHOOSE@(x == 0.0f, P_SIGN@(P_FLOAT@((P_BITS@(x) & 0) + 1), y), next);
  return P_CHOOSE@(x != x, x, P_CHOOSE@(y != y, y, P_CHOOSE@(x == y, y, off)));
}
""",
    "p_sigmoid@": """\
P_INLINE @F p_sigmoid@(@F x) { return 1.0f / (1.0f + p_exp@(-x)); }
""",
}


def of_floats(suffix: str, real: str, integer: str) -> dict[str, str]:
    """The functions of floats with names and types of their own."""

    def spelled(text: str) -> str:
        return text.replace("@F", real).replace("@I", integer).replace("@", suffix)

    texts = _OF_FLOATS | TRIGONOMETRY | INVERSE_TRIGONOMETRY | GAMMA | FAST
    return {spelled(name): spelled(text) for name, text in texts.items()}
