"""Kernels built, loaded and launched on a GPU: order, streams, devices, threads, errors, wide grids."""

import threading

import pytest
import torch

from pliant.codegen.cuda.entry import write_native
from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.errors import CompileError
from pliant.ir.loops import Buffer
from pliant.symbolic.expr import ONE, ZERO, lit, symbol
from pliant.symbolic.rules.division import floordiv

pytestmark = pytest.mark.gpu

N = symbol("n")
X = symbol("x", float)
HEAD = 'extern "C" __global__ void __launch_bounds__(256) @'
# y = 3 * y + x, element by element.
STEP = f"""\
{HEAD}(const float* x, float* y, long long n, double f) {{
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < n) y[i] = y[i] * (float)f + x[i];
}}
"""
# Each block says who it is.
WIDE = f"{HEAD}(unsigned char* y) {{ if (!threadIdx.x) y[blockIdx.x] = 1 + blockIdx.x % 251; }}\n"
SPIN = f"{HEAD}(long long* y) {{ const long long t = clock64(); while (clock64() - t < 50000000) ; *y += 1; }}\n"
SHARED = f"""\
{HEAD}(float* y) {{
  extern __shared__ float s[];
  for (int k = threadIdx.x; k < 24576; k += 256) s[k] = k;
  __syncthreads();
  if (!threadIdx.x) *y = s[24575];
}}
"""


def buffer(name, device="cuda:0", dtype=torch.float32):
    return Buffer(name, dtype, (N,), (ONE,), torch.device(device), "input")


def kernel(text, buffers, sizes, blocks, threads=256, shared=0):
    return DeviceKernel(text, "// test\n", buffers, sizes, blocks, lit(threads), shared, frozenset(), ZERO)


def entries(*runs, device="cuda:0"):
    from pliant.runtime.cuda.available import target_of
    from pliant.runtime.cuda.load import gpu_launcher, load

    torch.cuda.init()
    place = torch.device(device)
    return load(write_native(runs, {}, lambda text: "", {}), gpu_launcher(place, target_of(place)))


def stream(device=0):
    from pliant.torch_adapter import current_stream_of

    return current_stream_of()(device)


def steps(count, device="cuda:0"):
    x, y = buffer("x", device), buffer("y", device)
    one = kernel(STEP, (x, y), (N, X), (floordiv(N + 255, ONE * 256), ONE, ONE))
    (launch,) = entries([one] * count, device=device)
    return lambda tx, ty, f=3.0: launch(tx, ty, tx.numel(), f, (tx.numel() + 255) // 256, stream(tx.device.index))


def expected(x, y, count, f=3.0):
    for _ in range(count):
        y = y * f + x
    return y


@pytest.mark.parametrize("n", [0, 1, 255, 257, 1 << 20])
def test_launches_in_order(n):
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    wanted = expected(x.double(), y.double(), 5)
    # Each step rounds its product and its sum, by half an epsilon of what they are at most where nothing cancels.
    most = 5 * torch.finfo(torch.float32).eps * expected(x.double().abs(), y.double().abs(), 5)
    steps(5)(x, y)
    assert bool(((y.double() - wanted).abs() <= most).all())


def test_on_the_current_stream():
    """A long kernel before, and after it a copy: the launch lies between them, on the stream that is current."""
    (spin,) = entries([kernel(SPIN, (buffer("c", dtype=torch.int64),), (), (ONE, ONE, ONE), threads=1)])
    run, side = steps(3), torch.cuda.Stream()
    count = torch.zeros(1, dtype=torch.int64, device="cuda")
    x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        spin(count, stream())
        y.fill_(2.0)
        run(x, y)
        seen = y.clone()
        done = torch.cuda.Event()
        done.record()
    assert not done.query()  # nothing waited for the GPU
    assert torch.cuda.current_stream().query()  # and nothing went to another stream
    torch.cuda.current_stream().wait_event(done)
    torch.testing.assert_close(seen, expected(x, torch.full_like(y, 2.0), 3))
    torch.cuda.synchronize()
    assert count.item() == 1


def test_in_a_cuda_graph():
    run = steps(2)
    x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x, y)
    assert y.sum().item() == 0
    for _ in range(2):
        graph.replay()
    torch.testing.assert_close(y, expected(x, torch.zeros_like(y), 4))


def test_many_threads():
    """Threads that never used CUDA before; each on a stream of its own."""
    run, failed = steps(4), []

    def work(k):
        try:
            x, y = torch.full((5000,), float(k), device="cuda"), torch.ones(5000, device="cuda")
            torch.cuda.synchronize()
            own = torch.cuda.Stream()
            with torch.cuda.stream(own):
                for _ in range(50):
                    y.fill_(1.0)
                    run(x, y)
            own.synchronize()
            torch.testing.assert_close(y, expected(x, torch.ones_like(y), 4))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_thread_without_a_context():
    """Memory and stream of the main thread: the new thread itself never touches CUDA."""
    run, handle, failed = steps(1), stream(), []
    x, y = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
    thread = threading.Thread(target=lambda: failed.append(run(x, y)) if handle == stream(0) else failed.append("stream"))
    thread.start()
    thread.join()
    assert failed == [None]
    torch.testing.assert_close(y, x)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_two_devices():
    runs = [steps(2, f"cuda:{k}") for k in (0, 1)]
    for current in (0, 1):
        with torch.cuda.device(current):
            for k, run in enumerate(runs):
                x, y = torch.ones(1000, device=f"cuda:{k}"), torch.zeros(1000, device=f"cuda:{k}")
                torch.cuda.synchronize(k)
                run(x, y)
                torch.cuda.synchronize(k)
                torch.testing.assert_close(y, expected(x, torch.zeros_like(y), 2))
            assert torch.cuda.current_device() == current


def test_wide_grids():
    blocks = (1 << 24) + 3
    (launch,) = entries([kernel(WIDE, (buffer("y", dtype=torch.uint8),), (), (N, ONE, ONE))])
    y = torch.zeros(blocks + 1, dtype=torch.uint8, device="cuda")
    launch(y, blocks, stream())
    numbers = torch.arange(blocks, device="cuda")
    assert torch.equal(y[:-1], (1 + numbers % 251).to(torch.uint8)) and y[-1] == 0
    with pytest.raises(RuntimeError, match="more blocks than a GPU allows"):
        launch(y, 1 << 31, stream())


def test_more_shared_memory_than_by_default():
    (launch,) = entries([kernel(SHARED, (buffer("y"),), (), (ONE, ONE, ONE), shared=24576 * 4)])
    y = torch.zeros(1, device="cuda")
    launch(y, stream())
    assert y.item() == 24575


def test_too_much_shared_memory_is_an_error():
    with pytest.raises(CompileError, match="cannot have 1048576 bytes of shared memory"):
        entries([kernel(SHARED, (buffer("y"),), (), (ONE, ONE, ONE), shared=1 << 20)])


def test_a_refused_launch_raises_and_leaves_the_rest_usable():
    (launch,) = entries([kernel(STEP, (buffer("x"), buffer("y")), (N, X), (ONE, ONE, ONE), threads=1024)])  # built for 256
    x, y = torch.ones(10, device="cuda"), torch.zeros(10, device="cuda")
    with pytest.raises(RuntimeError, match="a kernel could not be launched"):
        launch(x, y, 10, 3.0, stream())
    steps(1)(x, y)
    torch.testing.assert_close(y, x)


def test_what_kernels_are_written_for():
    from pliant.runtime.cuda.available import target_of

    torch.cuda.init()
    found = target_of(torch.device("cuda"))
    major, minor = torch.cuda.get_device_capability()
    assert found.architecture == f"sm_{major}{minor}" and found.kind == "cuda"
    assert found.units == torch.cuda.get_device_properties(0).multi_processor_count
