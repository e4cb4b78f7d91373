"""Kernels whose text is kept: `python -m tests.codegen.golden_kernels` writes it anew.

In:     `PROGRAMS`: functions of tensors and their arguments.
Out:    `texts()`: for each program the C text of its kernels, and their CUDA C.
Holds:  a change of the code generators that is not meant to change a text does not: the test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the command finds `lowering.tracing`

from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.codegen.cuda.writer import write_kernel as write_device_kernel
from pliant.lowering.lower import lower
from pliant.schedule.kernel import Kernel
from pliant.schedule.schedule import schedule
from pliant.targets import cuda

FOLDER = Path(__file__).with_name("golden")
aten = torch.ops.aten
_X, _Y, _V = (8, 96), (8, 96), (96,)


def floats(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros(shape, dtype=dtype) for shape in shapes)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add": (lambda x, y: x + y, floats(_X, _Y)),
    "broadcast": (lambda x, v: x * v + 1, floats(_X, _V)),
    "gelu": (F.gelu, floats(_X)),
    "gelu_bf16": (F.gelu, floats(_X, dtype=torch.bfloat16)),
    "silu_gate": (lambda x, y: F.silu(x) * y, floats(_X, _Y)),
    "where": (lambda x, y: torch.where(x > y, x, y - 1), floats(_X, _Y)),
    "integers": (lambda i: (i // 3) % 5 + (i << 1), (torch.zeros(64, dtype=torch.int64),)),
    "cast": (lambda x: x.to(torch.int8).to(torch.float64), floats(_X)),
    "softmax": (lambda x: F.softmax(x, -1), floats(_X)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), floats(_X)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (96,), w, b), floats(_X, _V, _V)),
    "rms_norm": (lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w, floats(_X, _V)),
    "sum_rows": (lambda x: x.sum(1), floats((64, 2048))),
    "sum_doubles": (lambda x: (x.sum(1), x.amax(1)), floats((64, 512), dtype=torch.float64)),
    "sum_columns": (lambda x: x.sum(0), floats((64, 512))),
    "sum_all": (lambda x: x.sum(), floats((64, 512))),
    "argmax": (lambda x: x.argmax(-1), floats(_X)),
    "any": (lambda x: (x > 0).any(1), floats(_X)),
    "max_pool": (lambda x: F.max_pool2d(x, 2, return_indices=True), floats((2, 4, 8, 64))),
    "max_pool_gradient": (
        lambda g, x: aten.max_pool2d_with_indices_backward(
            g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, F.max_pool2d(x, 2, return_indices=True)[1]),
        floats((2, 4, 4, 32), (2, 4, 8, 64))),
    "depthwise_gradient": (
        lambda g, x, w: aten.convolution_backward(
            g, x, w, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 4, [False, True, False])[1],
        floats((2, 4, 12, 12), (2, 4, 12, 12), (4, 1, 3, 3))),
    "transposed": (lambda x, y: x.t() + y, floats((96, 128), (128, 96))),
    "embedding": (lambda w, i: F.embedding(i, w), (torch.zeros(50, 32), torch.zeros(7, dtype=torch.int64))),
    "cat": (lambda x, y: torch.cat([x, y * 2], 1), floats(_X, _Y)),
    "cat_rows": (lambda x, y: torch.cat([x, y * 2]), floats(_X, _Y)),
    "batch_norm": (lambda x, w, b: aten.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)[0], floats((4, 8, 6, 6), (8,), (8,))),
}  # fmt: skip
DYNAMIC = ("add", "softmax", "sum_columns")  # with symbolic sizes, too


def texts() -> dict[str, str]:
    """name -> text, by the name of its file."""
    found: dict[str, str] = {}
    for name, (function, args) in PROGRAMS.items():
        for suffix, dynamic in (("", False), ("_dynamic", True))[: 1 + (name in DYNAMIC)]:
            planned = schedule(lower(trace(function, args, dynamic)), config.Config().schedule)
            kernels = [step for step in planned.steps if isinstance(step, Kernel)]
            found[f"{name}{suffix}.c"] = "\n".join(write_kernel(kernel).text for kernel in kernels)
            target = cuda.target(90)
            written = [one for kernel in kernels for one in write_device_kernel(kernel, target)]
            found[f"{name}{suffix}.cu"] = "\n".join(one.text for one in written)
    return found


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
