"""Code taken apart and put together again: of the standard library, and of a program for each opcode.

`python tests/bytecode/roundtrip.py` runs all of it on an interpreter that has neither torch nor pytest, with the
sources of the package on PYTHONPATH; it prints what differs and exits with 1.
"""

import contextlib
import dis
import io
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from opcode_programs import NEVER, PROGRAMS, Program, codes

from pliant.bytecode.cfg import layouts
from pliant.bytecode.decode import decode
from pliant.bytecode.instructions import Instruction, Item, Mark, assemble, instructions

# Chosen for variety: pattern matching, exception groups, async code, generics, long functions, thousands of constants.
MODULES = """ast.py argparse.py asyncio/taskgroups.py asyncio/base_events.py collections/__init__.py contextlib.py
    dataclasses.py enum.py fractions.py heapq.py inspect.py json/decoder.py re/_compiler.py re/_parser.py statistics.py
    tarfile.py textwrap.py typing.py _pydecimal.py html/entities.py random.py""".split()


def codes_of(path: str) -> Iterator[types.CodeType]:
    """All code of a module of the standard library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = (Path(sysconfig.get_path("stdlib")) / path).read_bytes()
        yield from codes(compile(text, path, "exec"))


def disassemble(code: types.CodeType) -> list[Item]:
    """The instructions of `code` with a mark at every offset that a jump or the exception table aims at."""
    raw = instructions(code)
    labels = {one.target for one in raw if one.target is not None}
    labels |= {one.handler.target for one in raw if one.handler is not None}
    assert labels <= {one.offset for one in raw}, "a jump into the middle of an instruction"
    items: list[Item] = []
    for one in raw:
        items += [Mark(one.offset), one] if one.offset in labels else [one]
    return items


def difference(code: types.CodeType) -> str:
    """What is not as it was in code that was taken apart and put together."""
    made = assemble(disassemble(code), code)
    for name in ("co_code", "co_exceptiontable"):
        if getattr(made, name) != getattr(code, name):
            return name
    if list(made.co_positions()) != list(code.co_positions()):
        return "positions"
    needed = max(len(layout.stack) for layout in layouts(decode(code)) if layout is not None)
    return "" if made.co_stacksize >= needed else "stack size"


def again(code: types.CodeType) -> types.CodeType:
    """The code and all code inside, each taken apart and put together."""
    consts = tuple(again(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
    return assemble(disassemble(code), code.replace(co_consts=consts))


def normalised(code: types.CodeType) -> types.CodeType:
    """The code and all code inside, assembled from the normalised operations of each, and RESUME where it was."""
    inside = (normalised(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
    program = decode(code.replace(co_consts=tuple(inside)))
    resume = next(i for i in disassemble(code) if isinstance(i, Instruction) and i.name == "RESUME")
    items: list[Item] = []
    for op, real in zip(program.ops, program.real, strict=True):
        if op.offset > resume.offset:
            items += [Instruction("RESUME")] * (
                op is program.ops[0] or program.ops[op.index - 1].offset < resume.offset
            )
        items += [Mark(op.index), *real]
    return assemble(items, program.code)


# ---- a program for each opcode


def opcodes() -> list[str]:
    """The opcodes of this interpreter that code can have."""
    special = set(getattr(dis, "_specialized_opmap", ())) | set(NEVER)
    return [
        name
        for name, number in dis.opmap.items()
        if number < 256 and name not in special and not name.startswith("INSTRUMENTED_")
    ]


def program_for(opcode: str) -> Program | None:
    return next((p for p in PROGRAMS if opcode in p.opcodes and p.since <= sys.version_info[:2]), None)


def compiled(program: Program) -> types.CodeType:
    return compile(program.text, f"<{program.name}>", program.kind)


def has(code: types.CodeType, opcode: str) -> bool:
    number = dis.opmap[opcode]
    return any(number in one.co_code[::2] for one in codes(code))


def outcome(code: types.CodeType, x: Any) -> Any:
    """What the program's function returns for `x`, and what running the program prints."""
    module = types.ModuleType("program")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, vars(module))
        value = vars(module)["f"](x) if "f" in vars(module) else None
    return value, printed.getvalue()


def wrong_with(opcode: str) -> str:
    """Why the opcode's program does not run the same once it was taken apart and put together; or ""."""
    program = program_for(opcode)
    if program is None:
        return "there is no program for it"
    code = compiled(program)
    if not has(code, opcode):
        return "its program does not have it"
    before, after, normal = (outcome(make(code), 3) for make in (lambda same: same, again, normalised))
    return "" if before == after == normal else f"{before} became {after}, and of normalised operations {normal}"


def main() -> int:
    found = {opcode: wrong for opcode in opcodes() if (wrong := wrong_with(opcode))}
    for path in MODULES:
        for code in codes_of(path):
            if wrong := difference(code):
                found[f"{path}: {code.co_qualname}"] = wrong
    for what, wrong in found.items():
        print(f"{what}: {wrong}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
