"""Constructors: interning, conversion of literals, simplifications that keep every bit."""

from __future__ import annotations

import math

import pytest
import torch

from pliant.ir import scalar
from pliant.ir.loops import Buffer
from pliant.ir.ops import OPS
from pliant.ir.printer import scalar_text
from pliant.ir.scalar import apply, cast, const, index_value, load, loads, walk, where
from pliant.symbolic.expr import lit, symbol

f32, i64 = torch.float32, torch.int64
i0 = symbol("i0")


def buffer(dtype: torch.dtype = f32) -> Buffer:
    return Buffer("x", dtype, (lit(8),), (lit(1),), torch.device("cpu"), "input")


X = load(buffer(), i0)
N = load(buffer(i64), i0)
C = load(buffer(torch.bool), i0)


def test_equal_scalars_are_one_object():
    assert apply("add", X, const(1, f32)) is apply("add", X, const(1.0, f32))
    assert const(0.0, f32) is not const(-0.0, f32)
    assert const(math.nan, f32) is const(math.nan, f32)
    assert const(1, i64) is not const(True, torch.bool)


def test_literals_take_the_value_of_their_dtype():
    assert const(0.1, f32).value == torch.tensor(0.1).item()
    assert const(0.1, torch.bfloat16).value == torch.tensor(0.1, dtype=torch.bfloat16).item()
    assert const(300, torch.uint8).value == 44
    assert const(200, torch.int8).value == -56
    assert const(2, torch.bool).value is True


@pytest.mark.parametrize(
    ("scalar", "text"),
    [
        (apply("mul", X, const(1, f32)), "load(x, i0)"),
        (apply("add", X, const(0, f32)), "add(load(x, i0), 0.0)"),  # -0.0 + 0.0 is 0.0
        (apply("add", X, const(-0.0, f32)), "load(x, i0)"),
        (apply("sub", X, const(0, f32)), "load(x, i0)"),
        (apply("mul", X, const(0, f32)), "mul(load(x, i0), 0.0)"),  # NaN and infinities
        (apply("mul", N, const(0, i64)), "0"),
        (apply("add", N, const(0, i64)), "load(x, i0)"),
        (apply("div", X, const(4, f32)), "mul(load(x, i0), 0.25)"),
        (apply("div", X, const(3, f32)), "div(load(x, i0), 3.0)"),
        (apply("neg", apply("neg", X)), "load(x, i0)"),
        (apply("add", const(1, f32), const(2, f32)), "3.0"),
        (apply("floordiv", const(1, i64), const(0, i64)), "floordiv(1, 0)"),
        (where(const(True, torch.bool), X, const(0, f32)), "load(x, i0)"),
        (where(C, X, X), "load(x, i0)"),
        (where(C, const(True, torch.bool), const(False, torch.bool)), "load(x, i0)"),
        (apply("bit_and", C, const(True, torch.bool)), "load(x, i0)"),
        (cast(cast(X, torch.float64), f32), "load(x, i0)"),
        (cast(cast(X, torch.bfloat16), f32), "cast<f32>(cast<bf16>(load(x, i0)))"),
        (cast(index_value(i0), f32), "index<f32>(i0)"),
        (index_value(lit(3)), "3"),
    ],
)
def test_simplifications(scalar, text):
    assert scalar_text(scalar) == text


@pytest.mark.parametrize("narrow", [torch.int8, torch.uint8])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_bytes_are_exact_in_halves(narrow, half):
    x = load(buffer(narrow), i0)
    assert cast(cast(x, half), f32) is cast(x, f32)
    every = torch.arange(torch.iinfo(narrow).min, torch.iinfo(narrow).max + 1, dtype=torch.int64).to(narrow)
    assert torch.equal(every.to(half).float(), every.float())


def test_results_have_the_dtype_of_the_table():
    assert apply("lt", X, X).dtype is torch.bool
    assert where(C, N, N).dtype is i64
    assert apply("exp", X).dtype is f32


def test_walk_gives_each_node_once_children_first():
    square = apply("mul", X, X)
    nodes = list(walk(apply("add", square, apply("exp", square))))
    assert len(nodes) == 4 and nodes[0] is X
    assert list(loads(square)) == [X]


def test_what_a_walk_found_is_remembered(monkeypatch):
    whole = apply("add", apply("mul", X, X), const(2.5, torch.float32))
    nodes = list(walk(whole))
    monkeypatch.setattr(scalar, "children", None)
    assert list(walk(whole)) == nodes and nodes[-1] is whole


@pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
def test_every_operator_has_a_c_text_for_its_arguments(row):
    texts = [t for t in (row.c_float, row.c_double, row.c_int, row.c_bool) if t is not None]
    assert texts
    for text in texts:
        text.format(*"abc"[: row.arity], t="T")
