"""Run torch's own operator samples, forward and backward, under `EagerCheck`."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

import short_stack

from .eager_check import EagerCheck


def check_all(symbolic: bool, dtypes: tuple[torch.dtype, ...], samples: int, part: int, of: int) -> EagerCheck:
    """Every `of`-th operator of the database from the `part`-th on, with a few samples each."""
    return short_stack.called(_check_all, symbolic, dtypes, samples, op_db[part::of])


def _check_all(symbolic: bool, dtypes: tuple[torch.dtype, ...], samples: int, operators: list[Any]) -> EagerCheck:
    check = EagerCheck(symbolic)
    run_all(check, dtypes, samples, operators)
    return check


def run_all(check: Any, dtypes: tuple[torch.dtype, ...], samples: int, operators: list[Any] = op_db) -> None:
    """Run the samples, each inside `check`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # samples are tiny
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op, dtype in itertools.product(operators, dtypes):
            if dtype in op.dtypes:
                differentiable = op.supports_autograd and dtype.is_floating_point
                inputs = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
                for sample in itertools.islice(inputs, samples):
                    _run(check, op, sample, differentiable)
    torch.set_num_threads(threads)


def _run(check: Any, op: Any, sample: Any, differentiable: bool) -> None:
    try:
        with check:
            out = op.op(sample.input, *sample.args, **sample.kwargs)
            if differentiable:
                _backward(out, (sample.input, sample.args, sample.kwargs))
    except (RuntimeError, NotImplementedError, TypeError, AttributeError, ValueError, AssertionError):
        pass  # the sample is not meant to run like this in eager; each call before is checked


def _backward(out: Any, inputs: Any) -> None:
    outs = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor) and one.requires_grad]
    leaves = [one for one in tree_leaves(inputs) if isinstance(one, torch.Tensor) and one.requires_grad]
    if outs and leaves:
        torch.autograd.grad(outs, leaves, [torch.ones_like(one) for one in outs], allow_unused=True)
