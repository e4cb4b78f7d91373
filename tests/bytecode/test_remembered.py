"""Decoded programs do not pile up in a process that makes code without end."""

import gc

import torch

import pliant
from pliant.bytecode import decode


def made(number):
    scope = {"brk": pliant.disable(lambda: None)}
    exec(f"def program(x):\n    y = x + {number}\n    brk()\n    return y * 2", scope)
    return scope["program"]


def test_few_programs_stay(monkeypatch):
    monkeypatch.setattr(decode, "_REMEMBERED", 4)
    for number in range(12):
        program = made(number)
        x = torch.ones(2)
        assert pliant.compile(program, backend="eager")(x).equal(program(x))
    pliant.reset()
    gc.collect()
    ours = [p for p in gc.get_objects() if type(p) is decode.Program and p.code.co_filename == "<string>"]
    assert len(ours) <= 4


def test_real_instructions_are_made_for_who_assembles_them():
    program = decode.decode(made.__code__)
    assert "real" not in vars(program)
    assert len(program.real) == len(program.ops)
