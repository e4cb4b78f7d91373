"""Errors of a float function over all of float32, beside eager's: `python -m tests.codegen.float_errors tanh [--every 1]`.

Prints the largest errors against float64, in units in the last place of the rounded result, and where they are. With
`--every n` only each n-th bit pattern is tried.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from tests.codegen.test_prelude import EXACT, errors_in_ulp

from loop_programs import Program, get
from pliant.ir.scalar import apply
from pliant.runtime.compile_program import compile_program

CHUNK = 1 << 22


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(EXACT))
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    p = Program()
    a = p.tensor(CHUNK)
    run = compile_program(p.done(p.pointwise((CHUNK,), lambda i: apply(options.name, get(a, i)))))
    eager = getattr(torch, options.name.removeprefix("fast_"))
    worst = {"eager": (0.0, math.nan), "pliant": (0.0, math.nan)}
    for start in range(0, 1 << 32, CHUNK * options.every):
        bits = np.arange(start, start + CHUNK * options.every, options.every, dtype=np.int64)
        x = bits.astype(np.uint32).view(np.float32)
        given = torch.from_numpy(x)
        for kind, got in (("eager", eager(given)), ("pliant", run([given])[0])):
            error = errors_in_ulp(EXACT[options.name], x, got.numpy())
            where = int(error.argmax())
            if error[where] > worst[kind][0]:
                worst[kind] = float(error[where]), float(x[where])
    for kind, (error, at) in worst.items():
        print(f"{options.name:12} {kind:8} {error:.3f} ulp at {at!r}")


if __name__ == "__main__":
    main()
