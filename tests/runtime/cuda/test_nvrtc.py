"""Kernels to machine code: for every architecture, side by side, once a text, and refused texts."""

import os
import time
from pathlib import Path

import pytest

import pliant
from pliant import config
from pliant.debug import events
from pliant.errors import CompileError, NoKernels
from pliant.runtime.cuda import kernels, nvrtc

TEXT = """\
// src a node
extern "C" __global__ void __launch_bounds__(256) k%d(const float* x, float* y, long long n) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < n) y[i] = expf(x[i]) * %d.0f + x[i];
}
"""


def text(k):
    return TEXT % (k, k)


def build_kernels(texts, architecture):
    return kernels.build_kernels(texts, lambda text: "", architecture)


def _missing() -> str:
    try:
        nvrtc.library()
    except NoKernels as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(_missing()), reason="NVRTC is not installed (nvidia-cuda-nvrtc)")


@pytest.fixture(autouse=True)
def own_store(tmp_path):
    pliant.reset()
    kernels.forget_kernels()
    with config.patch(cache_dir=str(tmp_path), build_jobs=4):
        yield
    kernels.forget_kernels()
    pliant.reset()


def built() -> int:
    return len(events.events("build"))


@pytest.mark.parametrize("capability", [80, 86, 89, 90, 100])
def test_every_architecture(capability):
    cubin = nvrtc.compile_text(text(1), nvrtc.architecture(capability))
    assert cubin.startswith(b"\x7fELF") and b"k1\0" in cubin and f"sm_{capability}".encode() in cubin


def test_newer_gpus_run_what_is_built_for_older_ones_of_their_kind():
    assert nvrtc.architecture(85) == "sm_80"
    with pytest.raises(NoKernels, match=r"builds nothing for compute capability 70\.0"):
        nvrtc.architecture(700)


def test_a_kernel_is_built_once():
    texts = [text(k) for k in (1, 2, 1)]
    first = build_kernels(texts, "sm_90")
    assert first[0] == first[2] != first[1] and built() == 2
    assert build_kernels([texts[1].replace("a node", "another one")], "sm_90") == [first[1]] and built() == 2
    assert build_kernels(texts[:1], "sm_80") != first[:1] and built() == 3


def in_child(work) -> bool:
    """Whether `work` returns true in a forked child."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_another_process_finds_it_in_the_store(monkeypatch):
    (cubin,) = build_kernels([text(3)], "sm_90")

    def found():
        kernels.forget_kernels()
        monkeypatch.setattr(nvrtc, "compile_text", None)
        return build_kernels([text(3)], "sm_90") == [cubin]

    assert in_child(found)


@pytest.mark.parametrize("programs", [1, 2])
def test_refused_text_is_kept(programs):
    with config.patch(build_jobs=programs), pytest.raises(CompileError, match="NVRTC refused generated text") as caught:
        build_kernels([text(4), "this is not CUDA"], "sm_90")
    assert Path(str(caught.value.where), "part0.cu").read_text() == "this is not CUDA"
    assert "sm_90" in caught.value.why and caught.value.kind == "nvrtc"


def test_older_versions_do_without_what_they_do_not_know(monkeypatch):
    monkeypatch.setattr(nvrtc, "QUICK", ("--unheard-of",))
    monkeypatch.setattr(nvrtc, "_known_to_be_older", [])
    assert nvrtc.compile_text(text(5), "sm_90").startswith(b"\x7fELF")
    assert nvrtc._quick() == ()


def test_no_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(["/nowhere/libnvrtc.so.13"]))
    with pytest.raises(NoKernels, match="NVRTC, which builds kernels for GPUs, was not found") as caught:
        nvrtc.library.__wrapped__()
    assert caught.value.kind == "no-nvrtc" and "nvidia-cuda-nvrtc" in caught.value.do


def test_threads_compile_side_by_side(monkeypatch):
    """Not by a clock: while one compiles, others begin."""
    compiling, most = set(), []
    compile_text = nvrtc.compile_text

    def noted(text, architecture, **more):
        compiling.add(text)
        most.append(len(compiling))
        time.sleep(0.02)
        try:
            return compile_text(text, architecture, **more)
        finally:
            compiling.discard(text)

    monkeypatch.setattr(nvrtc, "compile_text", noted)
    with config.patch(build_jobs=3):
        cubins = build_kernels([text(k) for k in range(10, 16)], "sm_80")
    assert len(most) == 3 and 2 <= max(most) <= 3
    for k, cubin in enumerate(cubins, 10):  # each is in its cubin, with another
        assert b"k%d\0" % k in cubin and cubins.count(cubin) == 2


def test_a_forked_child_compiles():
    nvrtc.library()
    assert in_child(lambda: build_kernels([text(k) for k in (6, 7, 8)], "sm_80")[2].startswith(b"\x7fELF"))
