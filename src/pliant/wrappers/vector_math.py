"""Vector variants of the C library's functions, which kernels call where there are any."""

from __future__ import annotations

import ctypes
import functools
import os
import platform

from pliant.interruptions import pass_on


def vector_math() -> bool:
    """Whether the C library brings vector variants (glibc's libmvec); loads it so that kernels find them."""
    return _load_libmvec()


@functools.cache
def _load_libmvec() -> bool:
    if platform.machine() != "x86_64":
        return False
    try:
        library = ctypes.CDLL("libmvec.so.1", mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    except OSError as error:
        pass_on(error)
        return False
    # glibc 2.35 completed the set (tan, asin, hypot...); older ones have six functions, which are not worth a case.
    return getattr(library, "_ZGVdN8v_tanf", None) is not None and getattr(library, "_ZGVdN4vv_hypot", None) is not None
