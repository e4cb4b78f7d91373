"""Loops that are left to the compiler's vectorizer: halves become floats as the processor does it, doubles fill the widest vectors."""

import ctypes
import platform
import subprocess

import numpy as np
import pytest
import torch

from pliant import config
from pliant.codegen.prelude import text_for
from pliant.runtime.build import MEANING_FLAGS, build
from pliant.runtime.compilers import find_compiler

HALVES = """\
void widen(float* out, const uint16_t* in, int64_t n) {
  #pragma omp simd
  for (int64_t i = 0; i < n; i++) out[i] = p_from_f16(in[i]);
}
void narrow(uint16_t* out, const float* in, int64_t n) {
  #pragma omp simd
  for (int64_t i = 0; i < n; i++) out[i] = p_to_f16(in[i]);
}
"""
DOUBLES = """\
void scale(double* out, const double* in, int64_t n) {
  #pragma omp simd
  for (int64_t i = 0; i < n; i++) out[i] = in[i] * 3.0;
}
"""
PROCESSORS = ["native", "haswell", "x86-64"]


def floats() -> torch.Tensor:
    """All that are halves, what lies in the middle of two, what is beside these, and some of everything."""
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16).float().numpy()
    middles = np.float32(0.5) * (halves[1:] + halves[:-1])
    with np.errstate(all="ignore"):
        beside = [np.nextafter(one, np.float32(end)) for one in (halves, middles) for end in (-np.inf, np.inf)]
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    ends = np.array([65519.996, 65520.0, 3.4e38, np.inf, np.nan, 1e-45, 2**-25, 2**-25 * 1.0001], dtype=np.float32)
    return torch.from_numpy(np.concatenate([halves, middles, *beside, bits, ends, -ends]))


@pytest.fixture(params=PROCESSORS)
def flags(request):
    if platform.machine() != "x86_64" and request.param != "native":
        pytest.skip("for x86-64 processors")
    return ("-O2", "-ftree-vectorize", f"-march={request.param}")


def run(function, source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    found = torch.empty(len(source), dtype=dtype)
    function(*map(ctypes.c_void_p, (found.data_ptr(), source.data_ptr(), len(source))))
    return found


@pytest.mark.parametrize("flushed", [False, True], ids=["", "flushed"])
def test_halves_are_converted_as_by_eager(flags, flushed):
    options = config.get().with_options({"opt_flags": flags}).build
    library = ctypes.CDLL(str(build([text_for(HALVES) + HALVES], options)))
    halves, wide = torch.arange(-(2**15), 2**15, dtype=torch.int16), floats()
    expected, narrow = halves.view(torch.float16).float(), wide.half()
    try:
        torch.set_flush_denormal(flushed)
        widened, narrowed = run(library.widen, halves, torch.float32), run(library.narrow, wide, torch.int16)
    finally:
        torch.set_flush_denormal(False)
    for found, exact in ((widened, expected), (narrowed.view(torch.float16), narrow)):
        bits = torch.int32 if found.dtype == torch.float32 else torch.int16
        assert torch.equal(found.isnan(), exact.isnan())
        assert torch.equal(found.view(bits)[~found.isnan()], exact.view(bits)[~exact.isnan()])


@pytest.mark.parametrize(
    ("text", "march", "instruction"), [(HALVES, "haswell", "vpsrld"), (DOUBLES, "skylake-avx512", "zmm")], ids=["halves", "doubles"]
)
def test_the_compiler_makes_vectors_of_them(text, march, instruction, tmp_path):
    compiler = find_compiler(config.get().build.compiler)
    if platform.machine() != "x86_64" or "clang" in compiler.identity:
        pytest.skip("looks at what gcc writes for x86-64")
    source = tmp_path / "loops.c"
    source.write_text(text_for(text) + text)
    flags = ["-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", *MEANING_FLAGS, f"-march={march}"]
    command = [*compiler.command, *flags, "-S", "-o", "-", str(source)]
    assert instruction in subprocess.run(command, capture_output=True, text=True, check=True).stdout
