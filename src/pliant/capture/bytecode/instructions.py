"""The instructions of a code object as CPython stores them, freed from their encoding.

In:     a `types.CodeType` of the running interpreter.
Out:    a list of `Instruction`; a jump names a label. Where labels are is said by `Mark`s, among instructions for `assemble`.
Holds:  EXTENDED_ARG and CACHE are gone; everything else is there, in order, under its real opcode name and argument.
        Labels made here are byte offsets of the original code.
Source: https://docs.python.org/3/library/dis.html and Objects/exception_handling_notes.txt of CPython.
"""

import dis
import opcode
from collections.abc import Hashable
from types import CodeType

from pliant.capture.bytecode.versions import cache_entries
from pliant.records import dataclass

Label = Hashable
Position = tuple[int | None, int | None, int | None, int | None]  # line, end line, column, end column
NO_POSITION: Position = (None, None, None, None)

_EXTENDED_ARG = opcode.opmap["EXTENDED_ARG"]
_JUMPS = frozenset(opcode.opname[number] for number in (*opcode.hasjrel, *opcode.hasjabs))


@dataclass(frozen=True, slots=True)
class HandlerLabel:
    """Where an exception raised by an instruction goes: the stack is cut to `depth` before `target` runs."""

    target: Label
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One real instruction. `target` is set for jumps, then `arg` is unused. `offset` is -1 when it was made by us."""

    name: str
    arg: int = 0
    target: Label | None = None
    position: Position = NO_POSITION
    handler: HandlerLabel | None = None
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """The place of a label: just before the next instruction of the list."""

    label: Label


Item = Instruction | Mark


def instructions(code: CodeType) -> list[Instruction]:
    """The instructions of `code`; the offset of each is that of its first code unit, EXTENDED_ARG included."""
    data = code.co_code
    positions = list(code.co_positions())
    handlers = _handlers(code)
    result = []
    start, high = 0, 0
    offset = 0
    while offset < len(data):
        number, arg = data[offset], data[offset + 1] | high
        after = offset + 2
        if number == _EXTENDED_ARG:
            high = arg << 8
            offset = after
            continue
        name = opcode.opname[number]
        after += 2 * cache_entries(name)
        # Jumps count from behind themselves and their caches.
        target = after + (-2 if "BACKWARD" in name else 2) * arg if name in _JUMPS else None
        handler = handlers[offset // 2]
        result.append(Instruction(name, arg, target, positions[offset // 2], handler, start))
        start = offset = after
        high = 0
    return result


def _handlers(code: CodeType) -> list[HandlerLabel | None]:
    """For every code unit the handler that covers it."""
    handlers: list[HandlerLabel | None] = [None] * (len(code.co_code) // 2)
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]  # not in the stubs
        handler = HandlerLabel(entry.target, entry.depth, entry.lasti)
        for unit in range(entry.start // 2, entry.end // 2):
            handlers[unit] = handler
    return handlers
