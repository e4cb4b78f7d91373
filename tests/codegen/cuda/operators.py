"""The operator table through the CUDA writer and the shim, beside eager.

    python -m codegen.cuda.operators [fixed] [symbolic] [nvrtc] [NAME ...]

runs every row (or those named), with fixed and with symbolic sizes, and prints what differs; with `nvrtc` the texts are
built for sm_80 and sm_90 too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from codegen.cuda import nvrtc_check
from codegen.cuda.programs import DeviceProgram
from codegen.cuda.shim import prepare
from lowering.tracing import accepted, both, lowered
from ops.samples import ROWS, values
from pliant.errors import Unsupported

TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-7}


@dataclass(frozen=True)
class Sample:
    """A row of the table with one tuple of arguments, and its kernels."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    device: DeviceProgram

    def check(self) -> None:
        """Kernels on the shim give eager's values."""
        tensors = [a for a in self.args if isinstance(a, torch.Tensor)]
        expected, exact = both(self.function, self.args)
        actual = self.device([t.clone(memory_format=torch.preserve_format) for t in tensors])
        tolerance = max(TOLERANCE.get(a.dtype, 2e-6) for a in tensors)
        assert len(actual) == len(expected)
        for a, e, x in zip(actual, expected, exact, strict=True):
            torch.testing.assert_close(a, accepted(a, e, x), atol=tolerance, rtol=tolerance, equal_nan=True)


def samples(names: Iterable[str] = ROWS, *, symbolic: bool = False, every: int = 1) -> Iterator[Sample]:
    """The samples that lowering takes; `every`: only one in so many."""
    cases = [(name, k) for name in names for k in range(len(ROWS[name][1]))]
    for name, k in cases[::every]:
        function, rows = ROWS[name]
        args = tuple(values(a) if isinstance(a, torch.dtype) else a for a in rows[k])
        try:
            program = lowered(function, *args, dynamic=symbolic)
        except Unsupported:  # the fake mode has no rule for symbolic sizes
            continue
        yield Sample(f"{name} {k}{' symbolic' * symbolic}", function, args, DeviceProgram(program))


def main(arguments: list[str]) -> int:
    words = {"fixed", "symbolic", "nvrtc"}
    names = [a for a in arguments if a not in words] or list(ROWS)
    kinds = {"fixed", "symbolic"} & set(arguments) or {"fixed", "symbolic"}
    found = [s for kind in sorted(kinds) for s in samples(names, symbolic=kind == "symbolic")]
    texts = list(dict.fromkeys(k.text for s in found for k in s.device.kernels))
    prepare([k for s in found for k in s.device.kernels])
    failures = 0
    for sample in found:
        try:
            sample.check()
        except Exception as error:
            failures += 1
            print(f"{sample.name}: {type(error).__name__}: {error}")
    if "nvrtc" in arguments:
        for architecture in ("sm_80", "sm_90"):
            most = max(nvrtc_check.compiled(texts, architecture))
            print(f"{architecture}: at most {most[0]} registers, {most[1]} bytes spilled")
    print(f"{len(found)} samples, {len(texts)} texts, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
