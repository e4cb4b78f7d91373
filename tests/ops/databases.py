"""torch.testing's databases as named cases.

In:     the name of a case, `kind/name/variant/options`.
Out:    its samples, and what `gradient_check.check` says of them.
Holds:  samples of a case are the same in every process.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch.testing._internal.common_methods_invocations import op_db

import pliant
from ops.gradient_check import Verdict, check, compilers

SAMPLES = 3
DTYPES = {"f32": torch.float32, "f64": torch.float64}

# What is not compared, and why.
SHAPES_ONLY = {
    **dict.fromkeys(
        ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "as_strided_copy"),
        "memory as it was found",
    ),
}  # fmt: skip
EXCLUDED: dict[str, str] = {}


def op_cases(dtypes: tuple[str, ...] = ("f32", "f64"), modes: tuple[str, ...] = ("static", "dynamic")) -> list[str]:
    return [
        f"op/{op.name}/{op.variant_test_name}/{dtype}/{mode}"
        for dtype in dtypes
        for mode in modes
        for op in op_db
        if DTYPES[dtype] in op.supported_dtypes("cpu") and op.name not in EXCLUDED
    ]


@functools.cache
def _ops() -> dict[tuple[str, str], Any]:
    return {(op.name, op.variant_test_name): op for op in op_db}


def _seed() -> None:
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)


def op_samples(op: Any, dtype: torch.dtype) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    _seed()
    gradients = dtype in op.supported_backward_dtypes("cpu") and op.supports_autograd
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=gradients)):
        if number == SAMPLES:
            return
        yield [sample.input, *sample.args], sample.kwargs


def run_op(name: str, variant: str, dtype: str, mode: str) -> Verdict:
    op = _ops()[name, variant]

    def call(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    found = [Verdict("skip", "no samples")]
    dynamic = mode == "dynamic"
    compiled = None
    for args, kwargs in op_samples(op, DTYPES[dtype]):
        if compiled is None or not dynamic:  # with symbols, one compiled function serves all samples
            pliant.reset()
            compiled = compilers(call, dynamic)
        found.append(check(call, args, kwargs, *compiled, shapes_only=op.name in SHAPES_ONLY))
    return worst(found)


def worst(verdicts: list[Verdict]) -> Verdict:
    """The first that fails, else the first that breaks, else any that passes."""
    tried = [v for v in verdicts if v.status != "skip"]
    if not tried:
        return verdicts[-1]
    return min(tried, key=lambda v: (v.status == "pass", v.whole, not v.fallback))


KINDS = {"op": run_op}


def run_case(name: str) -> Verdict:
    kind, *rest = name.split("/")
    return KINDS[kind](*rest)


def cases(kind: str) -> list[str]:
    return {"op": op_cases}[kind]()
