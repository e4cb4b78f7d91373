"""Standard library code, taken apart and put together again, is the same code; decoding it obeys the op table."""

import dis
import opcode
import os
import shutil
import subprocess
import sys
import sysconfig
import types
from pathlib import Path

import pytest
from tests.bytecode.roundtrip import MODULES, again, codes_of, difference, disassemble

import pliant
from pliant.bytecode.cfg import live_locals
from pliant.bytecode.decode import decode
from pliant.bytecode.instructions import assemble
from pliant.bytecode.ops import OPS, effect


@pytest.mark.parametrize("path", MODULES)
def test_assembling_gives_the_same_code(path):
    assert [wrong for code in codes_of(path) if (wrong := difference(code))] == []


def _others():
    """Interpreters of the other versions, with or without torch: on the path, or where pyenv keeps them."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in (11, 12, 13):
        name = f"python3.{minor}"
        found = [shutil.which(name), *map(str, sorted(kept.glob(f"*/bin/{name}")))]
        works = [
            path for path in found if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0
        ]
        if sys.version_info[:2] != (3, minor) and works:
            yield pytest.param(works[0], id=name)


@pytest.mark.parametrize("python", list(_others()))
def test_on_other_interpreters(python):
    """The same for their standard libraries, and the program of each of their opcodes; needs nothing installed there."""
    script = Path(__file__).with_name("roundtrip.py")
    env = {**os.environ, "PYTHONPATH": str(Path(pliant.__file__).parents[1])}
    done = subprocess.run([python, str(script)], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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

    copy = fresh_module("_pydecimal")
    for text in ("2", "1.5", "123.456e-7"):
        ours, theirs = copy.Decimal(text), _pydecimal.Decimal(text)
        assert str(ours.sqrt() + ours.exp() * ours.ln()) == str(theirs.sqrt() + theirs.exp() * theirs.ln())
        assert f"{ours:.3e}" == f"{theirs:.3e}"
    with pytest.raises(copy.DivisionByZero):
        copy.Decimal(1) / copy.Decimal(0)


def test_reassembled_textwrap_and_ast_do_the_same():
    import ast
    import textwrap

    text = Path(textwrap.__file__).read_text()
    assert fresh_module("textwrap").fill(text, 40) == textwrap.fill(text, 40)
    assert fresh_module("ast").unparse(ast.parse(text)) == ast.unparse(ast.parse(text))
