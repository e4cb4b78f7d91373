"""With the option `numerics="eager-bitwise"` compiled operators give eager's bits: a row too many in `lowering/bits.py` fails here."""

from __future__ import annotations

import itertools

import pytest
import torch

from lowering.tracing import trace
from ops.bit_samples import FLOATS, INTEGERS, given, same_bits
from pliant import config
from pliant.ir.loops import Extern
from pliant.lowering import bits
from pliant.lowering.lower import lower
from pliant.lowering.registry import all_rules
from pliant.runtime.compile_graph import compile_graph

HALVES = (torch.bfloat16, torch.float16)
FLOATING, INTEGRAL = (torch.float32, torch.float64, *HALVES), (torch.int64, torch.int32, torch.int8, torch.uint8)
TOGETHER = 6  # operators in one program: the C compiler's start is most of what one takes


def _batches(names):
    return [names[k : k + TOGETHER] for k in range(0, len(names), TOGETHER)]


CASES = [
    pytest.param(dtype, names, id=f"{str(dtype)[6:]}-{names[0]}")
    for calls, dtypes in ((FLOATS, FLOATING), (INTEGERS, INTEGRAL))
    for dtype, names in itertools.product(dtypes, _batches(list(calls)))
]


@pytest.fixture(autouse=True)
def bitwise():
    with config.patch(numerics="eager-bitwise"):
        yield


@pytest.mark.parametrize(("dtype", "names"), CASES)
def test_bits_of_operators(dtype, names):
    functions = [(FLOATS if dtype.is_floating_point else INTEGERS)[name] for name in names]
    forms = given(dtype)
    flat = [t for form in forms.values() for t in form]

    def every_form(*tensors):
        return [[_listed(function(*tensors[k : k + 3])) for function in functions] for k in range(0, len(tensors), 3)]

    found = iter(compile_graph(trace(every_form, tuple(flat)))(list(flat)))
    wrong = []
    for form, results in zip(forms, every_form(*flat), strict=True):
        for name, expected in zip(names, results, strict=True):
            wrong += [(form, name, k) for k, eager in enumerate(expected) if not same_bits(next(found), eager)]
    assert not wrong


def _listed(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


def test_rows_are_of_operators_that_have_rules():
    unused = {str(target) for target in bits.ROWS if target not in all_rules()}
    assert not {name for name in unused if name.split(".")[1] in map(_name, all_rules())} - unused
    assert set(map(_name, all_rules())) >= {_name(target) for target in bits.ROWS}


def _name(target):
    return str(target).split(".")[1]


def _calls(function, *args):
    return [str(c.target) for c in lower(trace(function, args)).computations if isinstance(c, Extern)]


def test_loops_are_fused_where_they_have_eagers_bits():
    x, y = torch.randn(5, 7), torch.randn(7)
    assert _calls(lambda x, y: ((x + y) * 0.3 - x / y).relu().clamp(max=2), x, y) == []


def test_what_has_no_row_is_eagers_operator():
    x = torch.randn(5, 7)
    assert _calls(lambda x: (x + 1).softmax(-1).exp() * x.sum(0), x) == [
        "aten._softmax.default", "aten.exp.default", "aten.sum.dim_IntList",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_rounded_behind_each_operator(dtype):
    x = torch.randn(1000, dtype=dtype)
    program = lambda x: x * 1.1 * 1.1 * 1.1 * 1.1 - x  # noqa: E731
    assert torch.equal(compile_graph(trace(program, (x,)))([x])[0], program(x))
    with config.patch(numerics="default"):
        assert not torch.equal(compile_graph(trace(program, (x,)))([x])[0], program(x))
