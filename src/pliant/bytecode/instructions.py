"""The instructions of a code object as CPython stores them, freed from their encoding; and code objects made of such.

In:     a `types.CodeType` of the running interpreter.
Out:    a list of `Instruction`; a jump names a label. Where labels are is said by `Mark`s, among instructions for `assemble`.
Holds:  EXTENDED_ARG and CACHE are gone; everything else is there, in order, under its real opcode name and argument.
        Labels made here are byte offsets of the original code. `assemble` puts caches and EXTENDED_ARG in again, encodes jumps and
        tables: what it makes of the instructions of `code`, with marks where they aim at, runs exactly as `code`.
Source: https://docs.python.org/3/library/dis.html; Objects/exception_handling_notes.txt and Objects/locations.md of CPython.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Hashable, Iterable, Sequence
from types import CodeType
from typing import Any

from pliant.bytecode.versions import CACHE_ENTRIES, jump_name
from pliant.records import dataclass

Label = Hashable
Position = tuple[int | None, int | None, int | None, int | None]  # line, end line, column, end column
NO_POSITION: Position = (None, None, None, None)

_NAMES, _NUMBERS = opcode.opname, opcode.opmap
_EXTENDED_ARG = _NUMBERS["EXTENDED_ARG"]
_JUMPS = frozenset((*opcode.hasjrel, *opcode.hasjabs))


@dataclass(frozen=True, slots=True)
class Handler:
    """Where an exception goes: the stack is cut to `depth`, then the offset (if `lasti`) and the exception are pushed."""

    target: Any  # a label
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One real instruction. `target` is set for jumps, then `arg` is unused. `offset` is -1 when it was made by us."""

    name: str
    arg: int = 0
    target: Label | None = None
    position: Position = NO_POSITION
    handler: Handler | None = None
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
        name = _NAMES[number]
        after += 2 * CACHE_ENTRIES.get(name, 0)
        # Jumps count from behind themselves and their caches.
        target = after + (-2 if "BACKWARD" in name else 2) * arg if number in _JUMPS else None
        handler = handlers[offset // 2]
        result.append(Instruction(name, arg, target, positions[offset // 2], handler, start))
        start = offset = after
        high = 0
    return result


def _handlers(code: CodeType) -> list[Handler | None]:
    """For every code unit the handler that covers it."""
    handlers: list[Handler | None] = [None] * (len(code.co_code) // 2)
    if not code.co_exceptiontable:
        return handlers
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]  # not in the stubs
        handler = Handler(entry.target, entry.depth, entry.lasti)
        for unit in range(entry.start // 2, entry.end // 2):
            handlers[unit] = handler
    return handlers


# ---- and a code object made of them
@dataclass(slots=True)
class _Slot:
    """An instruction on its way into bytes: its final name, argument and place, all in code units."""

    instruction: Instruction
    name: str
    arg: int
    caches: int
    start: int = 0
    prefixes: int = 0

    @property
    def end(self) -> int:
        return self.start + self.prefixes + 1 + self.caches


_WORKING = 8  # slots of the stack for operations that are done in steps, and what stands below a frame's own


def assemble(items: Sequence[Item], template: CodeType, more: int = 0, **changes: Any) -> CodeType:
    """A copy of `template` that runs `items`; `changes` are further fields for `CodeType.replace`. `more`: how many values beside
    the template's own the stack may have to hold.

    Raises KeyError for a jump to a label without a mark.
    """
    slots, marks = _numbered(items)
    _settle(slots, marks)
    places = {label: slots[number].start for label, number in marks.items()}
    first_line = changes.get("co_firstlineno", template.co_firstlineno)
    return template.replace(
        co_code=_encode(slots),
        co_exceptiontable=encode_exception_table(_exception_entries(slots, places)),
        co_linetable=encode_locations(first_line, ((s.end - s.start, s.instruction.position) for s in slots)),
        co_stacksize=template.co_stacksize + more + _WORKING,
        **changes,
    )


def _numbered(items: Sequence[Item]) -> tuple[list[_Slot], dict[Label, int]]:
    """The instructions, and for every label the number of the instruction behind its mark."""
    slots: list[_Slot] = []
    marks: dict[Label, int] = {}
    for item in items:
        if isinstance(item, Mark):
            marks[item.label] = len(slots)
        else:
            slots.append(_Slot(item, item.name, item.arg, CACHE_ENTRIES.get(item.name, 0)))
    for number, slot in enumerate(slots):
        if slot.instruction.target is not None:
            slot.name = jump_name(slot.name, backward=marks[slot.instruction.target] <= number)
            slot.caches = CACHE_ENTRIES.get(slot.name, 0)
    return slots, marks


def _settle(slots: list[_Slot], marks: dict[Label, int]) -> None:
    """Place all instructions; longer arguments move things, so repeat until nothing grows."""
    changed = True
    while changed:
        changed = False
        place = 0
        for slot in slots:
            slot.start = place
            place = slot.end
        for slot in slots:
            if slot.instruction.target is not None:
                slot.arg = abs(slots[marks[slot.instruction.target]].start - slot.end)
            prefixes = max(slot.prefixes, (slot.arg.bit_length() - 1) // 8 if slot.arg else 0)
            changed |= prefixes != slot.prefixes
            slot.prefixes = prefixes


def _encode(slots: list[_Slot]) -> bytes:
    data = bytearray()
    for slot in slots:
        for prefix in range(slot.prefixes, 0, -1):
            data += bytes((_EXTENDED_ARG, slot.arg >> 8 * prefix & 255))
        data += bytes((_NUMBERS[slot.name], slot.arg & 255))
        data += bytes(2 * slot.caches)
    return bytes(data)


def _exception_entries(slots: list[_Slot], places: dict[Label, int]) -> list[ExceptionEntry]:
    entries: list[ExceptionEntry] = []
    previous = None
    for slot in slots:
        handler = slot.instruction.handler
        if handler is not None:
            start = entries.pop()[0] if handler == previous else slot.start
            entries.append((start, slot.end, places[handler.target], handler.depth, handler.lasti))
        previous = handler
    return entries


# ---- the two tables of a code object: which handler covers which code units, and which source range each unit is from
ExceptionEntry = tuple[int, int, int, int, bool]  # in code units: start, end (exclusive), target; depth, lasti
_LONGEST_ENTRY = 8  # code units that one entry of the location table can speak of


def encode_exception_table(entries: Iterable[ExceptionEntry]) -> bytes:
    """`entries` in code order."""
    table = bytearray()
    for start, end, target, depth, lasti in entries:
        for number, start_bit in zip((start, end - start, target, depth << 1 | lasti), (128, 0, 0, 0), strict=True):
            octets = _big_endian(number)
            octets[0] |= start_bit
            table += octets
    return bytes(table)


def _big_endian(value: int) -> bytearray:
    """Six bits a byte, high ones first, bit 6 says that more follow."""
    octets = bytearray([value & 63])
    while value := value >> 6:
        octets.insert(0, value & 63 | 64)
    return octets


def encode_locations(first_line: int, runs: Iterable[tuple[int, Position]]) -> bytes:
    """`runs` are (code units, source range) in code order."""
    table = bytearray()
    line = first_line
    for units, position in runs:
        while units:
            length = min(units, _LONGEST_ENTRY)
            table += _location(length, position, line)
            line = position[0] if position[0] is not None else line
            units -= length
    return bytes(table)


def _location(units: int, position: Position, previous_line: int) -> bytearray:
    """One entry: kind and length, then what this kind holds."""
    line, end_line, column, end_column = position
    if line is None:
        return bytearray([_head(15, units)])
    delta = _signed(line - previous_line)
    if end_line is None or column is None or end_column is None:
        return bytearray([_head(13, units)]) + delta
    rest = (end_line - line, column + 1, end_column + 1)
    return bytearray([_head(14, units)]) + delta + b"".join(map(_little_endian, rest))


def _head(kind: int, units: int) -> int:
    return 128 | kind << 3 | units - 1


def _signed(value: int) -> bytearray:
    return _little_endian((-value << 1) | 1 if value < 0 else value << 1)


def _little_endian(value: int) -> bytearray:
    """Six bits a byte, low ones first, bit 6 says that more follow."""
    octets = bytearray()
    while value > 63:
        octets.append(value & 63 | 64)
        value >>= 6
    octets.append(value)
    return octets
