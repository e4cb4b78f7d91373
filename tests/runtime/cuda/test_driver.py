"""Loading and launching through the driver: a library that notes what it is asked takes its place."""

import ctypes
import threading

import pytest
import torch

from pliant import config
from pliant.codegen.cuda.entry import write_native
from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.errors import CompileError, NoKernels
from pliant.ir.loops import Buffer
from pliant.runtime.build import build
from pliant.runtime.cuda import backend, driver, load
from pliant.runtime.cuda.load import gpu_launcher
from pliant.symbolic.expr import ONE, ZERO, symbol
from pliant.targets import cuda

# Contexts are the numbers 100 + device, modules count from 1, functions are 1000 * context + module.
FAKE = """\
typedef unsigned long long u64; typedef unsigned u32;
static __thread u64 stack[8]; static __thread int depth;
static __thread int capture;
int loaded, retained, fails_launch, fails_load; u64 noted[12]; int attribute[3];
int cuDeviceGet(int* device, int index) { *device = index; return index > 1 ? 101 : 0; }
int cuDevicePrimaryCtxRetain(u64* context, int device) { retained++; *context = 100 + device; return 0; }
int cuCtxGetCurrent(u64* context) { *context = depth ? stack[depth - 1] : 0; return 0; }
int cuCtxPushCurrent_v2(u64 context) { stack[depth++] = context; return 0; }
int cuCtxPopCurrent_v2(u64* context) { *context = stack[--depth]; return 0; }
int cuThreadExchangeStreamCaptureMode(int* mode) { const int before = capture; capture = *mode; *mode = before; return 0; }
int cuModuleLoadData(u64* module, const char* cubin) { if (capture != 2) return 900; if (fails_load) return fails_load; *module = ++loaded; return 0; }
int cuModuleGetFunction(u64* function, u64 module, const char* name) {
  if (!depth) return 201;
  *function = 1000 * stack[depth - 1] + module; return 0;
}
int cuFuncSetAttribute(u64 function, int what, int value) {
  attribute[0] = function % 1000; attribute[1] = what; attribute[2] = value;
  return value > 200000 ? 1 : 0;
}
int cuGetErrorString(int code, const char** text) { *text = code == 1 ? "invalid argument" : "unhappy"; return 0; }
int cuDriverGetVersion(int* version) { *version = 12090; return 0; }
int cuLaunchKernel(u64 f, u32 x, u32 y, u32 z, u32 a, u32 b, u32 c, u32 shared, u64 stream, void** args, void** extra) {
  u64 all[] = {f, x, y, z, a, b, c, shared, stream, *(u64*)args[1], depth ? stack[depth - 1] : 0, (u64)extra};
  for (int k = 0; k < 12; k++) noted[k] = all[k];
  return fails_launch;
}
"""
N = symbol("n")


class Calls:
    """The library, with its numbers."""

    def __init__(self, library):
        self.library = library

    def __getattr__(self, name):
        if name in ("loaded", "retained", "fails_launch", "fails_load"):
            return ctypes.c_int.in_dll(self.library, name)
        if name in ("noted", "attribute"):
            kind = ctypes.c_ulonglong * 12 if name == "noted" else ctypes.c_int * 3
            return list(kind.in_dll(self.library, name))
        return getattr(self.library, name)


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """A library of its own for each test."""
    text = FAKE + f"// {tmp_path}\nconst char* own = \"{tmp_path}\";\n"
    fake = Calls(ctypes.CDLL(str(build([text], config.get().build))))
    monkeypatch.setattr(driver, "_calls", lambda: fake)
    monkeypatch.setattr(driver, "is_initialized", lambda: True)
    monkeypatch.setattr(driver, "_contexts", {})
    monkeypatch.setattr(load.nvrtc, "architecture", lambda capability: f"sm_{capability}")
    monkeypatch.setattr(load, "build_kernels", lambda texts, prelude, architecture: [t.encode() for t in texts])
    load._bound_to_driver.cache_clear()
    yield fake
    load._bound_to_driver.cache_clear()


def launcher(index=0):
    return gpu_launcher(torch.device("cuda", index), cuda.target(90))


def loaded(text="text @", index=0, shared=0):
    a = Buffer("a", torch.float32, (N,), (ONE,), torch.device("cpu"), "input")
    kernel = DeviceKernel(text, "", (a,), (N,), (N, ONE * 2, ONE * 3), ONE * 256, shared, frozenset(), ZERO)
    return load.load(write_native([[kernel]], {}, lambda text: "", {}), launcher(index))[0]


def test_what_a_launch_is_given(calls):
    launch = loaded()
    launch(torch.zeros(4), 7, 5)
    assert calls.noted == [100_001, 7, 2, 3, 256, 1, 1, 0, 5, 7, 100, 0]


def test_the_context_is_made_current_where_it_is_not(calls):
    launches = [loaded(index=k) for k in (0, 1)]
    own, before = ctypes.c_ulonglong(101), ctypes.c_ulonglong()
    calls.cuCtxPushCurrent_v2(own)
    try:
        for k, launch in enumerate(launches):
            launch(torch.zeros(4), 7, 5)
            assert calls.noted[10] == 100 + k
            calls.cuCtxGetCurrent(ctypes.byref(before))
            assert before.value == 101
    finally:
        calls.cuCtxPopCurrent_v2(ctypes.byref(before))
    found = []
    thread = threading.Thread(target=lambda: found.append(launches[0](torch.zeros(4), 1, 0)))
    thread.start()
    thread.join()
    assert found == [None] and calls.noted[10] == 100


def test_a_kernel_is_loaded_once_a_context(calls):
    for index, count in ((0, 1), (0, 1), (1, 2), (1, 2)):
        loaded(index=index)
        assert calls.loaded.value == count
    loaded("another @", index=1)
    assert calls.loaded.value == 3 and calls.retained.value == 2


def test_dynamic_shared_memory(calls):
    loaded(shared=48 << 10)
    assert calls.attribute == [0, 0, 0]
    loaded(shared=100_000)
    assert calls.attribute == [1, 8, 100_000]
    loaded(shared=64_000)  # as much is allowed already
    assert calls.attribute == [1, 8, 100_000]
    with pytest.raises(CompileError, match="cannot have 300000 bytes of shared memory: invalid argument"):
        loaded(shared=300_000)


def test_a_refused_launch(calls):
    launch = loaded()
    calls.fails_launch.value = 1
    with pytest.raises(RuntimeError, match=r"a kernel could not be launched: invalid argument \(error 1\)"):
        launch(torch.zeros(4), 7, 5)
    before = ctypes.c_ulonglong()
    calls.cuCtxGetCurrent(ctypes.byref(before))
    assert before.value == 0
    calls.fails_launch.value = 0
    assert launch(torch.zeros(4), 7, 5) is None


@pytest.mark.parametrize(("code", "error", "kind"), [(209, NoKernels, "old-driver"), (2, CompileError, "cuda-driver")])
def test_code_that_is_not_loaded(calls, code, error, kind):
    calls.fails_load.value = code
    with pytest.raises(error, match=r"kernel pliant_\w+ cannot be loaded: unhappy") as caught:
        loaded()
    assert caught.value.kind == kind
    assert kind != "old-driver" or "CUDA 12.9" in caught.value.why


def test_kept_code_builds_what_nothing_launched_when_something_does(calls, monkeypatch):
    built = []
    monkeypatch.setattr(load, "target_of", lambda device: cuda.target(90))
    monkeypatch.setattr(load, "stored", lambda place: f"cubin at {place}".encode())
    monkeypatch.setattr(load, "build_kernels", lambda texts, prelude, architecture: [built.append(t) or t.encode() for t in texts])
    a = Buffer("a", torch.float32, (N,), (ONE,), torch.device("cpu"), "input")
    kernels = [DeviceKernel(f"text {k} @", "", (a,), (N,), (symbol(f"m{k}"), ONE, ONE), ONE * 32, 0, frozenset(), ZERO) for k in (0, 1)]
    code = write_native([kernels], {}, lambda text: "", {symbol("m0"): 1, symbol("m1"): 0})
    library = backend._library(code, torch.device("cuda", 0), ["p0", "p1"])
    assert [text for *_, text in library.kernels] == ["", code.functions[1].text]
    launch = library.functions()["launch0"]
    order = [(symbol("m0"), symbol("m1"), N).index(s) for s in code.entries[0].sizes]
    for numbers, texts, function in (((1, 0, 7), [], 100_001), ((0, 1, 7), [code.functions[1].text], 100_002)):
        launch(torch.zeros(4), *(numbers[k] for k in order), 5)
        assert built == texts and calls.noted[0] == function


def test_no_such_device(calls):
    with pytest.raises(CompileError, match="no CUDA device 5: unhappy"):
        launcher(5)
