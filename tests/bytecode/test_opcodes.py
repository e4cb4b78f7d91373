"""A program for each opcode of this interpreter: taken apart, put together and captured, it does what it did."""

import pytest
import torch
from tests.bytecode.opcode_programs import NEVER, PROGRAMS
from tests.bytecode.roundtrip import compiled, opcodes, outcome, program_for, wrong_with

import pliant


def test_every_opcode_has_a_program():
    assert [opcode for opcode in opcodes() if program_for(opcode) is None] == []
    assert not {opcode for program in PROGRAMS for opcode in program.opcodes} & set(NEVER)


@pytest.mark.parametrize("opcode", opcodes())
def test_taken_apart_and_put_together(opcode):
    assert wrong_with(opcode) == ""


FUNCTIONS = list({program.name: program for opcode in opcodes() if (program := program_for(opcode))}.values())


@pytest.mark.parametrize("program", [p for p in FUNCTIONS if p.kind == "exec"], ids=lambda p: p.name)
def test_captured(program):
    """The whole program in one graph, where that has a meaning; the same result in any case."""
    x = torch.arange(3.0)
    want, _ = outcome(compiled(program), x)
    scope = {}
    exec(compiled(program), scope)
    got = pliant.compile(scope["f"], backend="eager", fullgraph=program.whole)(x)
    same(got, want)


def same(got, want):
    assert type(got) is type(want)
    if isinstance(want, torch.Tensor):
        assert torch.equal(got, want)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    elif isinstance(want, dict):
        same(list(got.items()), list(want.items()))
    else:
        assert got == want
