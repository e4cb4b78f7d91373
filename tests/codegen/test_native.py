"""Equal kernels are written once; many kernels are split over translation units."""

import re

import pytest
import torch

import pliant
from loop_programs import Program, get
from pliant.codegen import native, units
from pliant.debug import events
from pliant.ir.scalar import apply
from pliant.runtime.compile_program import compile_program


def layers(sizes: list[tuple[int, int]]) -> Program:
    """For each size, columns and then rows normalized: kernels that do not fuse with one another."""
    p = Program()
    outputs = []
    x = None
    for rows, columns in sizes:
        if x is None or tuple(s.as_int() for s in x.shape) != (rows, columns):
            x = p.tensor(rows, columns)
        total = p.reduce("sum", (columns,), (rows,), lambda j, i, x=x: get(x, i, j))
        y = p.pointwise((rows, columns), lambda i, j, x=x: apply("sub", get(x, i, j), get(total, j)))
        top = p.reduce("max", (rows,), (columns,), lambda i, j: get(y, i, j))
        x = p.pointwise((rows, columns), lambda i, j: apply("sub", get(y, i, j), get(top, i)))
        outputs.append(x)
    p.done(*outputs)
    return p


def test_repeated_layers_share_functions():
    compiled = compile_program(layers([(9, 33)] * 6).program)
    assert compiled.kernels <= 3
    calls = compiled.source[compiled.source.index("PyObject* entry0") :]
    assert calls.count("(void*[])") == 12


def test_many_kernels_are_compiled_in_several_units(monkeypatch):
    program = layers([(9, 33), (8, 33), (7, 33)]).program
    monkeypatch.setattr(units, "PART_TEXT", 1_000_000)
    whole = compile_program(program)
    monkeypatch.setattr(units, "PART_TEXT", 1000)
    parts = compile_program(program)
    assert len(whole.texts) == 1 and len(parts.texts) > 2
    x = [torch.randn(n, 33) for n in (9, 8, 7)]
    for a, b in zip(whole(list(x)), parts(list(x)), strict=True):
        assert torch.equal(a, b)


def test_little_kernels_are_compiled_quickly_and_apart(monkeypatch):
    monkeypatch.setattr(units, "PART_TEXT", 1000)
    compiled = compile_program(layers([(9, 33), (8, 33), (7, 33), (2000, 330), (2001, 330), (2002, 330)]).program)
    texts = compiled.texts
    assert "PyObject* entry0" in texts[0]
    large = [unit for unit in texts if re.search(r"\b200[012]\b", unit)]
    little = [unit for unit in texts if unit.startswith(units.QUICKLY)]
    assert large and little and not set(large) & set(little) and len(large) + len(little) == len(texts)
    assert any(re.search(r"\b9\b", unit) for unit in little)
    x = [torch.randn(n, 33) for n in (9, 8, 7)] + [torch.randn(n, 330) for n in (2000, 2001, 2002)]
    with monkeypatch.context() as patch:
        patch.setattr(units, "QUICKLY", "")
        plain = compile_program(layers([(9, 33), (8, 33), (7, 33), (2000, 330), (2001, 330), (2002, 330)]).program)
    for a, b in zip(compiled(list(x)), plain(list(x)), strict=True):
        assert torch.equal(a, b)


def test_entries_as_tables(monkeypatch):
    """They do what entries of their own do, with numbers, constants and temporaries on the stack."""

    def step(x, n):
        y = torch.nn.functional.softmax(x * n, -1)
        return (y @ x.T).relu() + x.sum(), (x + 1).cumsum(0) @ y.T / n

    x, found = torch.randn(5, 7), []
    for most in (0, 1000):
        monkeypatch.setattr(native, "TABLE_ENTRIES", most)
        pliant.reset()
        with events.collect("output_code") as seen:
            found.append(pliant.compile(step, dynamic=True, fullgraph=True)(x, 1.5))
        assert ("p_enter(args" in seen[0].fields["text"]) == (most == 0)
    for a, b, expected in zip(*found, step(x, 1.5), strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, expected)


def test_an_entry_that_is_a_table_says_what_is_out_of_range(monkeypatch):
    monkeypatch.setattr(native, "TABLE_ENTRIES", 0)
    pliant.reset()
    lookup = pliant.compile(lambda x, i: x[i] + 1)
    assert lookup(torch.arange(3.0), torch.tensor([2])) == 3
    with pytest.raises(IndexError):
        lookup(torch.arange(3.0), torch.tensor([3]))


def test_long_text_is_compiled_in_more_units(monkeypatch):
    monkeypatch.setattr(units, "UNIT_TEXT", 1500)
    monkeypatch.setattr(native, "share", lambda runs: runs)
    sizes = [(9 + k, 33) for k in range(8)]
    compiled = compile_program(layers(sizes).program)
    assert len(compiled.texts) > 1 + units.MAX_UNITS
    with monkeypatch.context() as patch:
        patch.setattr(units, "MOST_UNITS", 1)
        few = compile_program(layers(sizes).program)
    xs = [torch.randn(n, 33) for n, _ in sizes]
    for a, b in zip(compiled(list(xs)), few(list(xs)), strict=True):
        assert torch.equal(a, b)
