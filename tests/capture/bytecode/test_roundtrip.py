"""Standard library code, taken apart and put together again, is the same code; decoding it obeys the op table."""

import dis
import opcode
import sys
import sysconfig
import types
import warnings
from pathlib import Path

import pytest

from pliant.capture.bytecode.assemble import assemble
from pliant.capture.bytecode.cfg import layouts, live_locals
from pliant.capture.bytecode.decode import decode
from pliant.capture.bytecode.instructions import disassemble
from pliant.capture.bytecode.ops import OPS, effect

# Chosen for variety: pattern matching, exception groups, async code, generics, long functions, thousands of constants.
MODULES = """ast.py argparse.py asyncio/taskgroups.py asyncio/base_events.py collections/__init__.py contextlib.py
    dataclasses.py enum.py fractions.py heapq.py inspect.py json/decoder.py re/_compiler.py re/_parser.py statistics.py
    tarfile.py textwrap.py typing.py _pydecimal.py html/entities.py random.py""".split()


def codes_of(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pending = [compile((Path(sysconfig.get_path("stdlib")) / path).read_bytes(), path, "exec")]
    while pending:
        code = pending.pop()
        yield code
        pending += [const for const in code.co_consts if isinstance(const, types.CodeType)]


@pytest.mark.parametrize("path", MODULES)
def test_assembling_gives_the_same_code(path):
    for code in codes_of(path):
        made = assemble(disassemble(code), code)
        assert made.co_code == code.co_code
        assert made.co_exceptiontable == code.co_exceptiontable
        assert list(made.co_positions()) == list(code.co_positions())
        assert made.co_stacksize >= _needed(code)


def _needed(code):
    """What our own layouts say that the stack needs."""
    found = [len(layout.stack) for layout in layouts(decode(code)) if layout is not None]
    return max(found)


@pytest.mark.parametrize("path", MODULES)
def test_every_operation_is_in_the_table_and_has_cpythons_effect(path):
    for code in codes_of(path):
        program = decode(code)
        for op, real in zip(program.ops, program.real, strict=True):
            pops, pushes = effect(op)
            if OPS[op.name].ends or op.name in ("RETURN_GENERATOR", "SEND", "END_ASYNC_FOR", "END_FOR"):
                continue  # CPython's table means something else for these
            assert pushes - pops == sum(map(_cpython_effect, real)), op
        assert not [op for op in program.ops if op.target is not None and op.target >= len(program.ops)]
        live_locals(program, 0)


def _cpython_effect(instruction):
    number = opcode.opmap[instruction.name]
    arg = instruction.arg if number >= opcode.HAVE_ARGUMENT else None
    return dis.stack_effect(number, arg, jump=False)


def _reassembled(namespace):
    """The functions of a module, each with code that was taken apart and put together."""

    def again(code):
        consts = tuple(again(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
        return assemble(disassemble(code), code.replace(co_consts=consts))

    for value in list(namespace.values()):
        for function in [value, *(vars(value).values() if isinstance(value, type) else ())]:
            if isinstance(function, types.FunctionType):
                function.__code__ = again(function.__code__)


def fresh_module(name):
    """The module, executed from reassembled code."""
    path = Path(sysconfig.get_path("stdlib")) / f"{name}.py"
    module = types.ModuleType(f"again_{name}")
    sys.modules[module.__name__] = module
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        exec(assemble(disassemble(code), code), vars(module))
        _reassembled(vars(module))
    finally:
        del sys.modules[module.__name__]
    return module


def test_reassembled_decimal_computes_the_same():
    import _pydecimal

    again = fresh_module("_pydecimal")
    for text in ("2", "1.5", "123.456e-7"):
        ours, theirs = again.Decimal(text), _pydecimal.Decimal(text)
        assert str(ours.sqrt() + ours.exp() * ours.ln()) == str(theirs.sqrt() + theirs.exp() * theirs.ln())
        assert f"{ours:.3e}" == f"{theirs:.3e}"
    with pytest.raises(again.DivisionByZero):
        again.Decimal(1) / again.Decimal(0)


def test_reassembled_textwrap_and_ast_do_the_same():
    import ast
    import textwrap

    text = Path(textwrap.__file__).read_text()
    assert fresh_module("textwrap").fill(text, 40) == textwrap.fill(text, 40)
    assert fresh_module("ast").unparse(ast.parse(text)) == ast.unparse(ast.parse(text))
