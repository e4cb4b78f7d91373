"""Equal kernels are written once; many kernels are split over translation units."""

import re

import torch

from loop_programs import Program, get
from pliant.codegen import native
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
    monkeypatch.setattr(native, "PART_TEXT", 1_000_000)
    whole = compile_program(program)
    monkeypatch.setattr(native, "PART_TEXT", 1000)
    parts = compile_program(program)
    assert len(whole.texts) == 1 and len(parts.texts) > 2
    x = [torch.randn(n, 33) for n in (9, 8, 7)]
    for a, b in zip(whole(list(x)), parts(list(x)), strict=True):
        assert torch.equal(a, b)


def test_little_kernels_are_compiled_quickly_and_apart(monkeypatch):
    monkeypatch.setattr(native, "PART_TEXT", 1000)
    compiled = compile_program(layers([(9, 33), (8, 33), (7, 33), (2000, 330), (2001, 330), (2002, 330)]).program)
    entries, *units = compiled.texts
    assert entries.startswith(native.QUICKLY) and "_part(" not in entries
    large = [unit for unit in units if re.search(r"\b200[012]\b", unit)]
    little = [unit for unit in units if unit.startswith(native.QUICKLY)]
    assert large and little and not set(large) & set(little) and len(large) + len(little) == len(units)
    assert any(re.search(r"\b9\b", unit) for unit in little)
    x = [torch.randn(n, 33) for n in (9, 8, 7)] + [torch.randn(n, 330) for n in (2000, 2001, 2002)]
    with monkeypatch.context() as patch:
        patch.setattr(native, "QUICKLY", "")
        plain = compile_program(layers([(9, 33), (8, 33), (7, 33), (2000, 330), (2001, 330), (2002, 330)]).program)
    for a, b in zip(compiled(list(x)), plain(list(x)), strict=True):
        assert torch.equal(a, b)
