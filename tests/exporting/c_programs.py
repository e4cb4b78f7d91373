"""Models as libraries, called by a C program from 8 threads: results as eager's, no Python in the process.

    python -m tests.exporting.c_programs [--models small bert] [--calls 10]
"""

import argparse
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tests.exporting import loops
from torch import nn
from torch.utils import _pytree as pytree

import pliant
from pliant.exporting.c_interface.writer import DTYPES

CALLER = Path(__file__).with_name("c_caller.c")


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x, flip):
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        a, b = self.out(torch.where(flip[:, None], -y, y)).split([2, 3], 1)
        return {"a": a.softmax(-1).contiguous(), "b": torch.cat([b, b * x.shape[0]]), "rows": x.shape[0]}


class Block(nn.Module):
    """A basic block of residual networks."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.side = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.side(x))


def resnet18():
    widths = ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1))
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *(Block(*one) for one in widths), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def bert():
    import transformers

    config = transformers.BertConfig(vocab_size=200, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128)
    return transformers.BertModel(config, add_pooling_layer=False)


def image(batch, side=32):
    return (torch.randn(batch, 3, side, side),)


class Controls(nn.Module):
    """Branches, loops, scans, recurrent layers; results in rows."""

    def __init__(self, names=tuple(name for name in loops.MODELS if name != "random branch")):
        super().__init__()
        models = [loops.MODELS[name] for name in names]
        self.layers = nn.ModuleList(one for one in models if isinstance(one, nn.Module))
        self.functions = [one for one in models if not isinstance(one, nn.Module)]

    def forward(self, x, y):
        return [one.contiguous() for one in pytree.tree_leaves([model(x, y) for model in (*self.functions, *self.layers)])]


BATCH = pliant.Dim("batch")
MODELS = {  # model, arguments of a batch, which sizes vary, batches to call it with
    "small": (Small, lambda n: (*image(n, 8), torch.arange(n) % 2 == 0), ({0: BATCH}, {0: BATCH})),
    "resnet18": (resnet18, image, ({0: BATCH},)),
    "controls": (Controls, lambda n: loops.arguments(n, 5), ({0: BATCH},) * 2),
    "bert": (bert, lambda n: (torch.randint(0, 200, (n, 12)), torch.ones(n, 12, dtype=torch.int64)), ({0: BATCH}, {0: BATCH})),
}


def written(path, tensors):
    content = struct.pack("q", len(tensors))
    for one in tensors:
        content += struct.pack(f"{3 + one.dim()}q", DTYPES.index(one.dtype), one.dim(), one.nbytes, *one.shape) + one.numpy().tobytes()
    path.write_bytes(content)


def read(path):
    content, at = bytearray(path.read_bytes()), 8
    for _ in range(struct.unpack_from("q", content)[0]):
        dtype, rank, count = struct.unpack_from("3q", content, at)
        sizes = struct.unpack_from(f"{rank}q", content, at + 24)
        at += 24 + 8 * rank
        dtype = DTYPES[dtype]
        yield torch.frombuffer(content, dtype=dtype, offset=at, count=count // dtype.itemsize).view(sizes)
        at += count


def caller(folder):
    """The C program, linked with the library of a folder."""
    command = ["gcc", "-O1", "-Wall", f"-I{folder}", str(CALLER), f"-L{folder}", "-lprogram", f"-Wl,-rpath,{folder}", "-lpthread"]
    libraries = Path(torch.__file__).parent / "lib"
    subprocess.run([*command, f"-Wl,-rpath-link,{libraries}", "-o", str(folder / "caller")], check=True)
    needed = subprocess.run(["ldd", str(folder / "caller")], capture_output=True, text=True, check=True).stdout
    assert "libprogram" in needed and "python" not in needed.replace(str(libraries), "").replace(str(folder), ""), needed
    return folder / "caller"


def called(folder, args, threads=8, repeats=10):
    """Each thread's last results, and by how many KiB the process grew."""
    written(folder / "inputs", args)
    command = [folder / "caller", folder / "weights", folder / "inputs", folder / "results", str(threads), str(repeats)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [list(read(folder / f"results.{i}")) for i in range(threads)], int(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--calls", type=int, default=10)
    options, failed = parser.parse_args(), 0
    for name in options.models:
        build, at, said = MODELS[name]
        torch.manual_seed(0)
        model = build().eval()
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            pliant.aot_compile(pliant.export(model, at(4), dynamic_shapes=said), folder, interface="c")
            caller(folder)
            for batch in (1, 3):
                args = at(batch)
                wanted = [torch.as_tensor(one) for one in loops.plainly(model, args)]
                results, grown = called(folder, args, repeats=options.calls)
                worst = max(float((a.double() - b.double()).abs().max()) for found in results for a, b in zip(found, wanted, strict=True))
                print(f"{name}, batch {batch}: differs by {worst:.1e}, grew by {grown} KiB in {8 * options.calls} calls", flush=True)
                failed += not worst < 1e-4
            try:
                called(folder, tuple(one[..., :2] for one in at(2)))
            except RuntimeError as error:
                print(f"{name}, other arguments: {str(error).splitlines()[0]}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
