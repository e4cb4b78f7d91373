"""The instructions of a code object as CPython stores them, freed from their encoding.

In:     a `types.CodeType` of the running interpreter.
Out:    a list of `Instruction` and `Mark`; a jump names a label, and a `Mark` says where that label is.
Holds:  EXTENDED_ARG and CACHE are gone; everything else is there, in order, under its real opcode name and argument.
        Labels made here are byte offsets of the original code. `assemble` turns such a list back into a code object.
Source: https://docs.python.org/3/library/dis.html and Objects/exception_handling_notes.txt of CPython.
"""

import opcode
from collections.abc import Hashable, Iterator
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


@dataclass(frozen=True, slots=True)
class ExceptionEntry:
    """One row of the exception table, in byte offsets; `end` is exclusive."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def exception_entries(code: CodeType) -> list[ExceptionEntry]:
    """The exception table of `code`, decoded."""
    numbers = _varints(code.co_exceptiontable)
    entries = []
    for start in numbers:
        length, target, depth_lasti = next(numbers), next(numbers), next(numbers)
        depth, lasti = depth_lasti >> 1, bool(depth_lasti & 1)
        entries.append(ExceptionEntry(start * 2, (start + length) * 2, target * 2, depth, lasti))
    return entries


def _varints(table: bytes) -> Iterator[int]:
    """The numbers of an exception table: six bits a byte, high ones first, bit 6 says that more follow."""
    octets = iter(table)
    for octet in octets:
        value = octet & 63
        while octet & 64:
            octet = next(octets)
            value = value << 6 | octet & 63
        yield value


def disassemble(code: CodeType) -> list[Item]:
    """The instructions of `code` with a mark at every offset that a jump or the exception table aims at."""
    raw = instructions(code)
    starts = {instruction.offset for instruction in raw}
    labels = {instruction.target for instruction in raw if instruction.target is not None}
    labels |= {instruction.handler.target for instruction in raw if instruction.handler is not None}
    assert labels <= starts, "a jump into the middle of an instruction"
    items: list[Item] = []
    for instruction in raw:
        if instruction.offset in labels:
            items.append(Mark(instruction.offset))
        items.append(instruction)
    return items


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
        target = _jump_target(name, arg, after) if name in _JUMPS else None
        handler = handlers[offset // 2]
        result.append(Instruction(name, arg, target, positions[offset // 2], handler, start))
        start = offset = after
        high = 0
    return result


def _jump_target(name: str, arg: int, after: int) -> int:
    """The byte offset that a jump aims at; `after` is the offset behind the jump and its caches."""
    return after - 2 * arg if "BACKWARD" in name else after + 2 * arg


def _handlers(code: CodeType) -> list[HandlerLabel | None]:
    """For every code unit the handler that covers it."""
    handlers: list[HandlerLabel | None] = [None] * (len(code.co_code) // 2)
    for entry in exception_entries(code):
        handler = HandlerLabel(entry.target, entry.depth, entry.lasti)
        for unit in range(entry.start // 2, entry.end // 2):
            handlers[unit] = handler
    return handlers
