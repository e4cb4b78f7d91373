"""Elementary functions by tables in registers, for processors that look lanes up in 32 floats with one instruction.

In:     nothing; this is text.
Out:    `TABLE_FUNCTIONS`: C text for vectors of 16 lanes with AVX-512, by name; others compute as `float_functions.py` says.
Holds:  f(|v|) = c0 + d * (c1 + d * (...)), where d is the distance to the centre of |v|'s interval, a quarter of an octave:
        the sum is rounded where it is nearly as large as the result. What lies below the lowest interval is one around
        0; what lies above `top` is taken for it. A division or an `exp` costs twice as much. The normal distribution and
        GELU's derivative, which are added to or multiplied, need not be as exact where they are small: they have
        intervals of equal width and fewer rows.
Source: `tools/float_tables.py` makes the numbers. Errors over float32: tanh 1.0 ulp, erf 0.95 ulp.
"""

from __future__ import annotations

# Bits of floats in hexadecimal: centres of the intervals, then coefficients from the lowest; columns by the last five bits
# of what precedes the mantissa's third bit.
_TANH = """\
400ff913 402ff3f9 40500e3c 40700b93 408ff0a1 40aff45f 40cff794 40f00fa0
41083896 00000000 00000000 00000000 3d900619 3daff1a0 3dcffef3 3deff173
3e0ff907 3e300350 3e500d6b 3e700b9c 3e900e3e 3eb00034 3ecff7d5 3ef00b3f
3f100c58 3f2ffe3e 3f500e7e 3f6ffcad 3f900aae 3faff78f 3fd00924 3feff4c0
3f7a5eb7 3f7de9bd 3f7f3b94 3f7fb7a6 3f7fefc4 3f7ffdce 3f7fffb4 3f7ffff6
3f7fffff 00000000 00000000 00000000 3d8fc970 3daf8324 3dcf48a1 3deed9ef
3e0f0812 3e2e4cbb 3e4d3c6f 3e6bbe2d 3e8c5ef9 3ea96191 3ec53cfc 3edfe04e
3f028d5a 3f18aace 3f2bcc77 3f3bea94 3f4f35b9 3f613882 3f6ce61e 3f743a4a
3d322df8 3c850562 3bc420a9 3b109f90 3a01dc9c 388c8032 371800c7 35a3869d
342aff51 00000000 00000000 3f800000 3f7ebcf5 3f7e1eae 3f7d60a6 3f7c8498
3f7b0160 3f78953a 3f75b762 3f726e95 3f6cc1ff 3f63fb82 3f5a0245 3f4f0ddd
3f3d6c23 3f24f4b9 3f0cb536 3eec1eea 3eb09027 3e676e7c 3e131ba7 3db806ad
bd2e42cf bc83efc4 bbc38a2d bb1076b0 ba01d3de b88c7e76 b7180012 b5dd4678
b558089b 00000000 00000000 b1046f5a bd8f13fd bdae392b bdcd28fb bdeb9a3e
be0c3db0 be293fef be44fdda be5f3f9d be81d1ed be96d7ec bea7f7af beb5127f
bec13301 bec4bebb bebcdad9 bead52f2 be8ee99d be4b9b31 be0821ba bdaf9044
3cde12e6 3c2d0915 3b819222 3ac02e53 39acd5d0 383b1cb9 36ca728e 355d6ce3
341b9f58 00000000 00000000 beaaaa9f bea75069 bea5ae39 bea3ba26 bea179d6
be9d8ae4 be97514b be9011de be87ec66 be747e5d be4c2bfb be214416 bdeb7173
bd5e0c88 3c6b7f8c 3d83bb69 3dc215b4 3de348fa 3dcbf78f 3d99e0d0 3d544c1a
bc4a0983 bba7590c bb00034d ba3f5539 b92cc097 b7bb2d46 b64a888a 364b6a90
36a43ebe 00000000 00000000 b7c38d4c 3d3b02d2 3d6a32c0 3d7f6f2d 3d99cc42
3db5f3ed 3dd7dbc2 3df68ae9 3e092d03 3e1993cf 3e2812f4 3e2e1d37 3e2c359f
3e1d1c24 3df4c6cf 3da365ec 3d3146cc 3b52b6ef bcaed190 bcce91cc bcaafb6c
3b825f3f 3afb4b32 3a49a5a2 399937f8 388fc6cd 371c20d7 35a8fea9 33fb3860
b40380a7 00000000 00000000 3e0943a1 3e03120b 3e011e87 3df93925 3df22e2f
3de56369 3dd12d94 3dba66aa 3da11ba0 3d71b369 3d02e20f 3bc31db4 bc8cd47c
bd3241ca bd7c2d30 bd805342 bd595a91 bd0314e8 bc1c27cc 3ab7bf42 3b96b8b7
ba3c5b9a ba0eee94 b97f6231 b8c882bd b7bcebef b64e1224 b4df59ef b704c010
b736859a 00000000 00000000 bc25b4f6 40aabe9d c12381b0 41fde56c 3e84e23e
bf0c1ca7 bd63953c 3e87562d bef01c3f bd92c2ae bd593755 bd94abca bd8abd40
bd19339d bc447367 3bf7e9fb 3c86ec2b 3c976400 3c33daeb 3b87376e 3a288ef1
"""

_ERF = """\
400ffe44 403001ed 40500652 406dd22f 00000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000 3d8ff716 3daffbec 3dcff8b6 3df0006a
3e100788 3e2ff091 3e500567 3e6ffc1f 3e900272 3eb00747 3ecff219 3ef00b34
3f1000b0 3f300b48 3f4ff41b 3f6ffc37 3f8ff4a8 3fb00490 3fcffbc8 3feff4dc
3f7fa017 3f7ff969 3f7fffb8 3f7ffffe 00000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000 3da22e1d 3dc616ce 3de9ddd8 3e06ca03
3e217453 3e449720 3e678990 3e84f559 3e9e4fe1 3ebf1216 3ede5aa9 3efc41fb
3f12dce5 3f2b5111 3f3fd5f0 3f50a8c7 3f636630 3f72bcd4 3f7a7a9c 3f7df250
3bea2680 3a19981d 37f447e3 3598187d 00000000 00000000 00000000 00000000
00000000 00000000 00000000 3e0375d4 3f8fb878 3f8f5eb7 3f8ef366 3f8e766c
3f8d9a6e 3f8c3b29 3f8a97e8 3f88b6ab 3f85724c 3f8054a7 3f74f03c 3f67dd4d
3f528304 3f340510 3f15522d 3eefebba 3ea3154e 3e2e61b2 3da4e04c 3d099438
bc83b410 bad33208 b8c67a94 b71a28e9 00000000 00000000 00000000 00000000
00000000 00000000 00000000 b084f05b bda1a58f bdc51da8 bde84378 be058f38
be1f5613 be40c071 be613cb1 be80292c be962322 beb07bb1 bec6f5e3 bed9699e
beecd486 bef796d4 bef297a8 bee0e972 beb76984 be6fcc8c be05f386 bd80f4f9
3cb20dbb 3b34a958 394c3d5e 372f69c5 00000000 00000000 00000000 00000000
00000000 00000000 00000000 bec0939e bebdbbd1 bebc5643 bebaab8d beb8bba0
beb5557a beafef7e bea98a0a bea242c7 be95c6aa be82a82f be5ad7a8 be2d3eb7
bdce1cf7 bc503562 3d7e9e8b 3df259a9 3e264f31 3e21b60b 3deb3fac 3d8a3d3f
bc9c69cb bb55646c b995b9cd 394f1bbe 00000000 00000000 00000000 00000000
00000000 00000000 00000000 b743d746 3d2b4315 3d41b563 3d7c4804 3d77ac7c
3d9deb51 3dbd45f0 3ddabc42 3df654ad 3e0e3375 3e2294ba 3e310bbc 3e398d01
3e3adec2 3e29883b 3e07de88 3dba4a39 3ce60b16 bcfa0727 bd4ba439 bd2d2d2f
3c2d63ea 3b391de5 39ae0e00 3781eb5f 00000000 00000000 00000000 00000000
00000000 00000000 00000000 3de7d2b1 3de4461b 3dde4fa9 3de04276 3dd7aace
3dd0943f 3dc644f7 3db9ae87 3dab79a4 3d93aef2 3d6015e2 3d137d2f 3c897348
bc30f405 bd2a7339 bd7c73ca bd8e5144 bd7a3c92 bcfae25c bb17ad2a 3c3975a5
bb366cc0 bada8a32 b98f48ee bb2fa667 00000000 00000000 00000000 00000000
00000000 00000000 00000000 bba5738e c1b97754 40b199b7 c245991c 421b444e
bf4e6c38 bec79f3f 3ea09413 3f2720fa bd09bb12 bd528d2d bcfca234 bd4a7d0a
bd3dc65a bd0cb1a1 bc93145c bb301553 3c7b0cdc 3cb48ff6 3c6bdc5c 3b87cecd
"""

_NORMAL_CDF = """\
3f000000 3edb10d2 3eb75444 3e95df75 3e6f2258 3e3a02bd 3e0cf5d0 3dcffd56
3d954b52 3d506963 3d0d62ee 3cba5e7c 3c6e9343 3c143f40 3bb2cec7 3b5141d8
3aed8e4a 3a82c60b 3a0b9c90 39907fd3 3910f90e 388cf821 3804d6b6 37729669
36d69c59 3637ef35 3598b5a7 34f59dd4 343f504d 33905281 32d2dfcf 00000000
bd948d33 bd921dc6 bd8b0c2f bd8004a3 bd640fd3 bd4489c5 bd23dd43 bd042e06
bcce4f2d bc9bc54a bc639359 bc20d596 bbdbf0ba bb917e61 bb3a3b9c bae6a0b2
ba8a28bf ba2025d2 b9b39971 b942dd32 b8cc8d0a b84fbcb1 b7cc1cc5 b7420783
b6b27252 b61ec749 b588af1a b4e3acec b4377440 b38f03cc b2d7ba75 00000000
b480caf6 3a9a9205 3b131790 3b4b22e4 3b714158 3b81f13b 3b8201f4 3b74b209
3b5a3e57 3b39610b 3b167669 3ae9f0a8 3aae7f75 3a7a1aef 3a2c61bf 39e4b96d
39922793 3934017d 38d5bf1e 3874cd0d 38073ff2 37903a26 37147651 36938c10
360d9a07 35833fbe 34eb04d9 344b461f 33a9ddfb 330928fb 32560b78 00000000
39d22966 39c6fb4b 39a9f6bb 397d71be 391783bb 38412c07 b82e6f57 b8e654fd
b921f092 b937f7e4 b938c9d2 b929fe23 b911c1f6 b8eb55fc b8b4038a b8830875
b83614fb b7f20d9c b79a2dd8 b73c7942 b6dd51a5 b679dd34 b607b3a0 b58de634
b50eea13 b48ab1ac b401be4e b36a0f38 b2cba139 b22ae8db b18a6b3a 00000000
b62dc894 b72203e8 b794b8e9 b7c16259 b7d1e0eb b7c6bfcd b7a57899 b76d4520
b70758a3 b6265a0c 36030ea0 36a52d49 36d87758 36e3b8ae 36d2f2e1 36b2644d
368c3a9c 364f1310 3610907a 35bfb76c 357243dd 351234c9 34a8ddad 343ae73d
33c6783b 334a6363 32c6598b 323af2a3 31a98c81 311408f3 3078f73e 00000000
"""

_GELU_SLOPE = """\
3f000000 3eaf6052 3e4a0133 3d983439 bca300d0 bdaaa14e bdf191a8 be03f459
bdfb3c87 bdd974e2 bdae8e03 bd835c2d bd3a91f1 bcfb1f37 bca0a13d bc43b7ad
bbe37940 bb7c7c2b bb05f03d ba87eda2 ba04075b b97597a6 b8dace12 b83acb98
b798d91b b6efcfd0 b634651f b582251b b4b4200e b3ef29b0 b318564c 00000000
be236815 be1cf7a3 be0ac699 bddfd771 bda15fe7 bd46392d bcb22b28 ba9d0785
3c4b89ce 3ca0655d 3cb0eaf1 3ca510d5 3c89f5a3 3c53dcc5 3c177994 3bcb5019
3b80bec1 3b1a6732 3aafce0d 3a3e690f 39c475f1 39415359 38b59b9b 3822fb6b
378bd28c 36e57532 36342815 358765f7 34c2e0e4 340653de 333169b4 00000000
b61e011e 3bcaf9bd 3c395bf6 3c6e7936 3c7f2a00 3c6ddec7 3c4379b3 3c0c1f99
3ba77c26 3b0d9036 32d11618 baabd94b baf7f7cc baff8290 badf19fa baae44a4
ba799744 ba260ee5 b9cef69c b972e50f b906b7b4 b88da123 b80d67fa b7864bad
b6f2f2e3 b651839b b5ac682b b5077884 b44b6948 b391fbcc b2c864b0 00000000
3b0c3690 3afda73a 3aba9874 3a3b5a64 b7d46322 ba283351 ba876d64 ba995c37
ba8e7fe6 ba619077 ba170a25 b9a08ff7 b8c744be 38301835 38e8a798 3907d3d4
38f76c79 38c35c52 388b252f 38365619 37de4831 377de572 370885a2 368ab5d9
36057ed9 3573e02f 34d3c173 342f00a2 3389cc81 32cef083 32144899 00000000
b7d2950c b8c15aca b927e23e b945c004 b9389d58 b9080827 b88a9fbd b68b3860
38322f0d 388d7da0 38968533 3880781a 383651e0 37d170dc 3727f2f9 338334aa
b6ace034 b6e47df2 b6d580fc b6a7e62c b66aed7f b615f869 b5b128f7 b5434dec
b4ca1570 b4450d80 b3b59ec5 b31e9668 b2836cb8 b1cf0907 b11b2cfe 00000000
"""

_ROW = 32

# At `top`, for which all above it is taken, the sum is exactly 1: 1 + erf(x) may be multiplied by a large number.
_TEXT = """\
static const int32_t p_@_table[@N][32] __attribute__((aligned(64))) = {
@T};
#define P_ROW(k) p_pick32(i, (const float*)p_@_table[k])
P_INLINE p_vf p_@v(p_vf v) {
  const p_vf x = P_LESSv(@Mf, P_ABSv(v));
  const p_vi i = P_BITSv(P_MOREv(0.06f, x)) >> 21;
  const p_vf d = x - P_ROW(0);
  p_vf p = P_ROW(@L);
  #pragma GCC unroll 8
  for (int k = @L - 1; k > 1; k--) p = p_fmav(p, d, P_ROW(k));
  return P_FLOATv(P_BITSv(P_LESSv(1.0f, p_fmav(p, d, @C))) | (P_BITSv(v) & (-0x7fffffff - 1)));
}
#undef P_ROW
"""


# Of functions that go to 0 below 0 and are what is left of 1 above it. The size is counted in steps; added to 1.5 * 2^23 it
# is rounded to one, of whose lowest bits a lookup takes five. The last interval has zeros; NaN stays.
_FALLING_TEXT = """\
static const int32_t p_@_table[@N][32] __attribute__((aligned(64))) = {
@T};
#define P_ROW(k) p_pick32(i, (const float*)p_@_table[k])
P_INLINE p_vf p_@v(p_vf v) {
  const p_vf x = P_LESSv(@Mf, P_ABSv(v)), n = P_FMAv(x, @Cf, 12582912.0f), d = P_FMAv(x, @Cf, 12582912.0f - n);
  const p_vi i = P_BITSv(n);
  p_vf p = P_ROW(@L);
  #pragma GCC unroll 8
  for (int k = @L - 1; k >= 0; k--) p = p_fmav(p, d, P_ROW(k));
  return P_CHOOSEv(v > 0.0f, 1.0f - p, p)@E;
}
#undef P_ROW
"""


def _table(text: str, numbers: str) -> str:
    """The text with the table's rows and how many there are."""
    words = [f"0x{bits}" if bits < "8" else f"-0x{(1 << 32) - int(bits, 16):x}" for bits in numbers.split()]
    rows = [", ".join(words[k : k + _ROW]) for k in range(0, len(words), _ROW)]
    return text.replace("@N", f"{len(rows)}").replace("@L", f"{len(rows) - 1}").replace(
        "@T", "".join(f"  {{{row}}},\n" for row in rows)
    )


def _function(name: str, numbers: str, top: float, first: str = "P_ROW(1)") -> str:
    """`first`: the constant coefficient."""
    return _table(_TEXT.replace("@M", f"{top}").replace("@C", first), numbers).replace("@", name)


def _falling(name: str, numbers: str, steps: float, more: str = "") -> str:
    """`steps`: intervals to 1; `more`: added at the end."""
    text = _FALLING_TEXT.replace("@M", f"{31 / steps:.6f}").replace("@C", f"{steps}").replace("@E", more)
    return _table(text, numbers).replace("@", name)


TABLE_FUNCTIONS: dict[str, str] = {
    "p_tanhv": _function("tanh", _TANH, 9.0),
    # 2 / sqrt(pi) rounds: below the lowest interval x is added to what is left of the product
    "p_erfv": _function("erf", _ERF, 3.92, "P_CHOOSEv(x < 0.0625f, x, P_ROW(1))"),
    "p_normal_cdfv": _falling("normal_cdf", _NORMAL_CDF, 5.5),
    "p_gelu_slopev": _falling("gelu_slope", _GELU_SLOPE, 5.0, " + (v - v)"),  # NaN of infinity
}
