"""Eager and the reference interpreter agree, row by row, with fixed and with symbolic sizes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from lowering.tracing import accepted, both, check, trace
from ops.samples import ROWS, values
from pliant.errors import Unsupported
from pliant.runtime.compile_graph import compile_graph
from quick_build import quickly

# bf16 results are rounded once where eager rounds after each step
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-7}


def _arguments(sample: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(values(a) if isinstance(a, torch.dtype) else a for a in sample)


def _tolerance(args: tuple[Any, ...]) -> float:
    return max([TOLERANCE.get(a.dtype, 2e-6) for a in args if isinstance(a, torch.Tensor)])


CASES = [pytest.param(name, k, id=f"{name}-{k}") for name, (_, samples) in ROWS.items() for k in range(len(samples))]


@pytest.mark.parametrize(("name", "k"), CASES)
def test_values_with_fixed_sizes(name: str, k: int) -> None:
    function, samples = ROWS[name]
    args = _arguments(samples[k])
    check(function, *args, rtol=_tolerance(args), atol=_tolerance(args))


@pytest.mark.parametrize(("name", "k"), CASES)
def test_values_with_symbolic_sizes(name: str, k: int) -> None:
    function, samples = ROWS[name]
    args = _arguments(samples[k])
    try:
        check(function, *args, dynamic=True, rtol=_tolerance(args), atol=_tolerance(args))
    except Unsupported as refused:  # the fake mode has no rule for symbolic sizes
        pytest.skip(str(refused))


# A row's samples are one program, built as users have it: the C compiler's start is most of what a sample takes. Symbolic sizes
# are in the text of each row's first sample; `python tests/ops/sweep.py op` compiles them for PyTorch's own samples.
@pytest.mark.slow
@pytest.mark.spread(2, "name", "dynamic")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_values_of_compiled_code(name: str, dynamic: bool) -> None:
    function, samples = ROWS[name]
    tried = [_arguments(sample) for sample in samples[: 1 if dynamic else None]]
    try:
        with quickly() if dynamic else contextlib.nullcontext():
            compiled = compile_graph(trace(_all_of(function, tried), tuple(itertools.chain(*tried)), dynamic))
    except Unsupported as refused:
        pytest.skip(str(refused))
    actual = iter(compiled([a.clone() for args in tried for a in args if isinstance(a, torch.Tensor)]))
    for args in tried:
        expected, exact = both(function, args)
        tolerance = _tolerance(args)
        for e, x in zip(expected, exact, strict=True):
            a = next(actual)
            torch.testing.assert_close(a, accepted(a, e, x), rtol=tolerance, atol=tolerance, equal_nan=True)
    assert not list(actual)


def _all_of(function: Callable[..., Any], tried: list[tuple[Any, ...]]) -> Callable[..., Any]:
    """The function called with each of these, whose arguments come in one row."""

    def program(*flat: Any) -> list[Any]:
        given = iter(flat)
        return [function(*itertools.islice(given, len(args))) for args in tried]

    return program
