"""torch.testing's databases as named cases.

In:     the name of a case, `kind/name/variant/options`.
Out:    its samples, and what `gradient_check.check` says of them.
Holds:  samples of a case are the same in every process.
"""

from __future__ import annotations

import copy
import functools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_map

import pliant
from ops import optimizers
from ops.gradient_check import Verdict, check, compilers

SAMPLES = 3
DEVICE = os.environ.get("SWEEP_DEVICE", "cpu")
DTYPES = {
    "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "i64": torch.int64, "b8": torch.bool,
    "c64": torch.complex64,
}  # fmt: skip

# What is not compared, and why.
SHAPES_ONLY = {
    **dict.fromkeys(
        ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "as_strided_copy"),
        "memory as it was found",
    ),
}  # fmt: skip
EXCLUDED: dict[str, str] = {}

Sample = tuple[list[Any], dict[str, Any]]


def _seed() -> None:
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)


# ---- operators
def op_cases(dtypes: tuple[str, ...] = ("f32", "f64"), modes: tuple[str, ...] = ("static", "dynamic")) -> list[str]:
    return [
        f"op/{op.name}/{op.variant_test_name}/{dtype}/{mode}"
        for dtype in dtypes
        for mode in modes
        for op in op_db
        if DTYPES[dtype] in op.supported_dtypes(DEVICE) and op.name not in EXCLUDED
    ]


@functools.cache
def _ops() -> dict[tuple[str, str], Any]:
    return {(op.name, op.variant_test_name): op for op in op_db}


def op_samples(op: Any, dtype: torch.dtype, gradients: bool = True) -> Iterator[Sample]:
    _seed()
    gradients = gradients and dtype in op.supported_backward_dtypes(DEVICE) and op.supports_autograd
    for number, sample in enumerate(op.sample_inputs(DEVICE, dtype, requires_grad=gradients)):
        if number == SAMPLES:
            return
        yield [sample.input, *sample.args], sample.kwargs


def run_op(name: str, variant: str, dtype: str, mode: str) -> Verdict:
    op = _ops()[name, variant]

    def call(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    return _check_samples(call, op_samples(op, DTYPES[dtype]), mode == "dynamic", op.name in SHAPES_ONLY)


def _check_samples(call: Callable[..., Any], samples: Iterator[Sample], dynamic: bool, shapes_only: bool) -> Verdict:
    found = [Verdict("skip", "no samples")]
    compiled = None
    for args, kwargs in samples:
        if compiled is None or not dynamic:  # with symbols, one compiled function serves all samples
            pliant.reset()
            compiled = compilers(call, dynamic)
        found.append(check(call, args, kwargs, *compiled, shapes_only=shapes_only))
    return worst(found)


def worst(verdicts: list[Verdict]) -> Verdict:
    """The first that fails, else the first that breaks, else any that passes."""
    tried = [v for v in verdicts if v.status != "skip"]
    if not tried:
        return verdicts[-1]
    return min(tried, key=lambda v: (v.status == "pass", v.whole, not v.fallback))


# ---- operators of other dtypes, forward only
def dtype_cases() -> list[str]:
    return [
        f"dtype/{op.name}/{op.variant_test_name}/{dtype}"
        for dtype in ("bf16", "i64", "b8", "c64")
        for op in op_db
        if DTYPES[dtype] in op.supported_dtypes(DEVICE) and op.name not in EXCLUDED
    ]


def run_dtype(name: str, variant: str, dtype: str) -> Verdict:
    op = _ops()[name, variant]

    def call(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    return _check_samples(call, op_samples(op, DTYPES[dtype], gradients=False), False, op.name in SHAPES_ONLY)


# ---- operators in other forms
def _method(op: Any) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x, op.name.split(".")[-1])(*args, **kwargs)


def _in_place(op: Any) -> Callable[..., Any]:
    """On an intermediate, so that gradients flow."""

    def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        made = x * 1
        return op.inplace_variant(made, *args, **kwargs), made

    return call


def _in_place_on_input(op: Any) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: op.inplace_variant(x, *args, **kwargs)


def _out(op: Any) -> Callable[..., Any]:
    """Into given tensors; the first argument says what the results are like."""
    return lambda out, *args, **kwargs: op.op(*args, out=out, **kwargs)


def _plain(op: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: op.op(*args, **kwargs)


_FORMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "method": _method, "inplace": _in_place, "input": _in_place_on_input, "out": _out, "strided": _plain,
}  # fmt: skip


def _has_form(op: Any, form: str) -> bool:
    if form == "method":
        return op.method_variant is not None and hasattr(torch.Tensor, op.name)
    if form in ("inplace", "input"):
        return op.inplace_variant is not None
    return bool(op.supports_out) if form == "out" else True


def form_cases() -> list[str]:
    return [
        f"form/{op.name}/{op.variant_test_name}/{form}"
        for form in _FORMS
        for op in op_db
        if _form_dtype(op) in op.supported_dtypes(DEVICE) and op.name not in EXCLUDED and _has_form(op, form)
    ]


def _form_dtype(op: Any) -> torch.dtype:
    return torch.float32 if torch.float32 in op.supported_dtypes(DEVICE) else torch.int64


def _strided(value: Any) -> Any:
    """Tensors of the same values in memory with gaps, transposed where they have two dimensions or more."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.dim() == 0:
        return value
    room = value.new_empty(*value.shape[:-2], *value.shape[-2:][::-1], 2)
    made = room[..., 1] if value.dim() == 1 else room[..., 1].mT
    return made.copy_(value.detach()).requires_grad_(value.requires_grad)


def _results_like(op: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Tensors to write the results into."""
    made = tree_map(lambda v: torch.zeros_like(v) if isinstance(v, torch.Tensor) else v, op.op(*args, **kwargs))
    return tuple(made) if isinstance(made, tuple | list) else made


def _form_samples(op: Any, form: str) -> Iterator[Sample]:
    for args, kwargs in op_samples(op, _form_dtype(op), gradients=form in ("method", "inplace", "strided")):
        if form == "strided":
            args, kwargs = tree_map(_strided, (args, kwargs))
        elif form == "out":
            args = [_results_like(op, args, kwargs), *args]
        yield args, kwargs


def run_form(name: str, variant: str, form: str) -> Verdict:
    op = _ops()[name, variant]
    return _check_samples(_FORMS[form](op), _form_samples(op, form), False, op.name in SHAPES_ONLY)


# ---- modules
def module_cases() -> list[str]:
    return [
        f"module/{info.name}/{dtype}/{mode}" for info in module_db for dtype in ("f32",) for mode in ("train", "eval")
    ]


def run_module(name: str, dtype: str, mode: str) -> Verdict:
    info = next(one for one in module_db if one.name == name)
    found = [Verdict("skip", "no samples")]
    _seed()
    inputs = info.module_inputs_func(
        info, device=DEVICE, dtype=DTYPES[dtype], requires_grad=True, training=mode == "train"
    )
    for given in inputs[:SAMPLES]:
        made, call = given.constructor_input, given.forward_input
        if call is None:
            continue
        pliant.reset()
        torch.manual_seed(0)
        module = info.module_cls(*made.args, **made.kwargs).to(DEVICE, DTYPES[dtype]).train(mode == "train")
        whole = pliant.compile(copy.deepcopy(module), dynamic=False, fullgraph=True)
        found.append(check(module, call.args, call.kwargs, pliant.compile(copy.deepcopy(module), dynamic=False), whole))
    return worst(found)


KINDS: dict[str, tuple[Callable[..., Verdict], Callable[[], list[str]]]] = {
    "op": (run_op, op_cases),
    "dtype": (run_dtype, dtype_cases),
    "form": (run_form, form_cases),
    "module": (run_module, module_cases),
    "optimizer": (optimizers.run_optimizer, optimizers.cases),
}


def run_case(name: str) -> Verdict:
    kind, *rest = name.split("/")
    return KINDS[kind][0](*rest)


def cases(kind: str) -> list[str]:
    return KINDS[kind][1]()
