"""Models as libraries that need neither Python nor PyTorch, called by a C program from 8 threads: results as eager's.

    python -m tests.exporting.standalone [--models small bert] [--calls 10] [--image 32] [--sanitize address] [--arm | --wasm]

`--calls`: of each thread. `--image`: the side of the images that residual networks and mobilenet are called with.
`--arm`: built for ARM by Debian's cross compiler (gcc-aarch64-linux-gnu), called under qemu (qemu-user).
`--wasm`: modules of WebAssembly, built by clang with wasi-libc and called once at each batch through the package wasmtime.
"""

import argparse
import functools
import inspect
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tests.exporting import loops, wasm_module
from tests.exporting.c_programs import BATCH, MODELS, Block, Controls, image
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import pliant
from pliant.exporting.standalone.writer import DTYPES

CALLER = Path(__file__).with_name("standalone_caller.c")
ARM_COMPILER, ARM_RUNNER = "aarch64-linux-gnu-gcc", ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
ARM_OPTIONS = {"compiler": ARM_COMPILER, "opt_flags": ("-O2", "-march=armv8-a")}
_BY_CODE = {(code, bits): dtype for dtype, (code, bits, _) in DTYPES.items()}


class Squeeze(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    """A block of MobileNetV3: widen, by channel, weigh channels, narrow."""

    def __init__(self, before, wide, after, kernel, stride, squeeze, act):
        super().__init__()
        def conv(a, b, k=1, s=1, g=1):
            return nn.Conv2d(a, b, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(b, eps=0.001)

        middle = [Squeeze(wide)] if squeeze else []
        self.body = nn.Sequential(*conv(before, wide), act(), *conv(wide, wide, kernel, stride, wide), act(), *middle, *conv(wide, after))
        self.adds = stride == 1 and before == after

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet():
    hard, relu = nn.Hardswish, nn.ReLU
    rows = ((16, 16, 16, 3, 2, True, relu), (16, 72, 24, 3, 2, False, relu), (24, 88, 24, 3, 1, False, relu), (24, 96, 40, 5, 2, True, hard),
            (40, 240, 40, 5, 1, True, hard), (40, 120, 48, 5, 1, True, hard), (48, 288, 96, 5, 2, True, hard), (96, 576, 96, 5, 1, True, hard))  # fmt: skip
    stem, top = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.Conv2d(96, 576, 1, bias=False)
    return nn.Sequential(
        stem, nn.BatchNorm2d(16), hard(), *(Inverted(*row) for row in rows), top, nn.BatchNorm2d(576), hard(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(576, 1024), hard(), nn.Linear(1024, 10),
    )  # fmt: skip


class Everything(nn.Module):
    """What the larger models run, on few elements: 10,000 calls take seconds, under a sanitizer too."""

    def __init__(self):
        super().__init__()
        stem = (nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.image = nn.Sequential(
            *stem, Block(8, 8, 1), Block(8, 16, 2), Inverted(16, 32, 16, 5, 1, True, nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.names, self.mix, self.norm = nn.Embedding(20, 16), nn.Linear(16, 48), nn.LayerNorm(16)
        self.controls = Controls(("while", "associative scan", "branch in scan", "lstm"))

    def forward(self, x, at):
        rows = self.names(at) + self.image(x)[:, None]
        query, key, value = self.mix(self.norm(rows)).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=(at > 0)[:, None, None]).transpose(1, 2).flatten(2)
        first, second = (rows + F.gelu(mixed))[..., :8].chunk(2, -1)
        return self.controls(first, second)


ALL = {
    **MODELS, "mobilenet": (mobilenet, lambda n, side=64: image(n, side), ({0: BATCH},)),
    "everything": (Everything, lambda n: (*image(n, 16), (torch.arange(n * 5) % 20).view(n, 5)), ({0: BATCH},) * 2),
}  # fmt: skip


def written(path, tensors):
    content = struct.pack("q", len(tensors))
    for one in tensors:
        content += struct.pack(f"{3 + one.dim()}q", *DTYPES[one.dtype][:2], one.dim(), *one.shape) + one.contiguous().numpy().tobytes()
    path.write_bytes(content)


def read(path):
    content, at = bytearray(path.read_bytes()), 8
    for _ in range(struct.unpack_from("q", content)[0]):
        code, bits, rank = struct.unpack_from("3q", content, at)
        sizes = struct.unpack_from(f"{rank}q", content, at + 24)
        at += 24 + 8 * rank
        one = torch.empty(sizes, dtype=_BY_CODE[code, bits])
        if one.numel():
            one = torch.frombuffer(content, dtype=one.dtype, offset=at, count=one.numel()).view(sizes)
        yield one
        at += one.nbytes


def caller(folder, flags=(), compiler="gcc"):
    """The C program, linked with the library of a folder."""
    command = [compiler, "-O1", "-Wall", *flags, f"-I{folder}", str(CALLER), f"-L{folder}", "-lprogram", f"-Wl,-rpath,{folder}", "-lpthread"]
    subprocess.run([*command, "-o", str(folder / "caller")], check=True)
    needed = _needed(folder, compiler)
    assert "libprogram.so" in needed and not any(part in one for one in needed for part in ("python", "torch", "c10")), needed


def _needed(folder, compiler):
    """Names of the libraries that the program needs. `ldd` runs it, so it is for this machine's alone."""
    if compiler == "gcc":  # lines of a name, where it was found, and an address
        lines = subprocess.run(["ldd", str(folder / "caller")], capture_output=True, text=True, check=True).stdout.splitlines()
        return [line.split()[0] for line in lines]
    command = [compiler.replace("gcc", "readelf"), "-d", str(folder / "caller"), str(folder / "libprogram.so")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.rpartition("[")[2].rstrip("]") for line in lines if "NEEDED" in line]


def called(folder, args, threads=8, repeats=10, runner=()):
    """Each thread's last results; how many blocks of memory were left, and by how many KiB the process grew."""
    written(folder / "inputs", args)
    command = [*runner, folder / "caller", folder / "weights", folder / "inputs", folder / "results", threads, repeats]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:] or f"ended with {done.returncode}")
    return [list(read(folder / f"results.{i}")) for i in range(threads)], *map(int, done.stdout.split())


def difference(found, wanted):
    """The largest difference of elements, relative to the largest element; types and sizes are the same."""
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    pairs = [(a.double(), b.double()) for a, b in zip(found, wanted) if a.numel()]
    return max((float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs), default=0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(ALL), choices=list(ALL))
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 3, 8])
    parser.add_argument("--image", type=int)
    parser.add_argument("--sanitize", choices=["address", "thread", "undefined"])
    parser.add_argument("--arm", action="store_true")
    parser.add_argument("--wasm", action="store_true")
    options = parser.parse_args()
    sys.exit(sum(failures(name, options) for name in options.models))


def failures(name, options):
    """How many batches of a model were wrong."""
    flags = ["-g", f"-fsanitize={options.sanitize}"] if options.sanitize else []
    build = {"opt_flags": ("-O2", "-ftree-vectorize", "-march=native", "-fno-math-errno", *flags)}
    compiler, runner = (ARM_COMPILER, ARM_RUNNER) if options.arm else ("gcc", ())
    make, at, said = ALL[name]
    if options.image and "side" in inspect.signature(at).parameters:
        at = functools.partial(at, side=options.image)
    torch.manual_seed(0)
    model, failed = make().eval(), 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        program = pliant.export(model, at(4), dynamic_shapes=said)
        build = ARM_OPTIONS if options.arm else wasm_module.OPTIONS if options.wasm else build
        pliant.aot_compile(program, folder, interface="standalone", options=build)
        if options.wasm:
            return _module_failures(name, model, [at(batch) for batch in options.batches], folder)
        caller(folder, flags, compiler)
        for batch in options.batches:
            args = at(batch)
            results, left, grown = called(folder, args, options.threads, options.calls, runner)
            wanted = _wanted(name, model, args)
            worst = max(difference(found, wanted) for found in results)
            calls = options.threads * options.calls
            print(f"{name}, batch {batch}: differs by {worst:.1e}, {left} blocks left, grew by {grown} KiB in {calls} calls", flush=True)
            failed += left != 0 or not worst < 1e-4
        try:
            called(folder, tuple(one[..., :2] for one in at(2)), runner=runner)
            print(f"{name}, other arguments: not refused")
            failed += 1
        except RuntimeError as error:
            print(f"{name}, other arguments: {str(error).splitlines()[0]}")
    return failed


def _module_failures(name, model, calls, folder):
    """The same of a module of WebAssembly, which has one thread."""
    module, failed = wasm_module.Module(folder), 0
    for args in calls:
        worst = difference(module(*args), _wanted(name, model, args))
        print(f"{name}, batch {len(args[0])}: differs by {worst:.1e}", flush=True)
        failed += not worst < 1e-4
    return failed


def _wanted(name, model, args):
    return loops.plainly(model, args) if name in ("controls", "everything") else eager(model, args)


def eager(model, args):
    with torch.no_grad():
        return [torch.as_tensor(one) for one in pytree.tree_leaves(model(*args))]


if __name__ == "__main__":
    main()
