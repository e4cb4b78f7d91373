"""Make a code object from instructions with labels.

In:     `Instruction`s, `Mark`s where their labels are, and the code object to take the rest from.
Out:    a `types.CodeType`: caches and EXTENDED_ARG put in, jumps resolved, tables encoded, stack size computed.
        The tables are encoded as CPython's Objects/exception_handling_notes.txt and Objects/locations.md say.
Holds:  what is made of the instructions of `code`, with marks at the offsets that they aim at, runs exactly as `code` does.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Any

from pliant.capture.bytecode.instructions import Instruction, Item, Label, Mark, Position
from pliant.capture.bytecode.versions import cache_entries, jump_name, never_falls_through
from pliant.records import dataclass


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


def assemble(items: Sequence[Item], template: CodeType, **changes: Any) -> CodeType:
    """A copy of `template` that runs `items`; `changes` are further fields for `CodeType.replace`.

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
        co_stacksize=max(1, _stack_size(slots, marks)),
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
            slots.append(_Slot(item, item.name, item.arg, cache_entries(item.name)))
    for number, slot in enumerate(slots):
        if slot.instruction.target is not None:
            slot.name = jump_name(slot.name, backward=marks[slot.instruction.target] <= number)
            slot.caches = cache_entries(slot.name)
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
            data += bytes((opcode.opmap["EXTENDED_ARG"], slot.arg >> 8 * prefix & 255))
        data += bytes((opcode.opmap[slot.name], slot.arg & 255))
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


def _stack_size(slots: list[_Slot], marks: dict[Label, int]) -> int:
    """The deepest stack on any path from the first instruction."""
    depths: dict[int, int] = {}
    pending = [(0, 0)]
    highest = 0
    while pending:
        number, depth = pending.pop()
        while number < len(slots) and depths.get(number, -1) < depth:
            depths[number] = depth
            slot = slots[number]
            pending += [(marks[label], at) for label, at in _branches(slot, depth)]
            depth += _effect(slot, False)
            highest = max(highest, depth, depths[number])
            if never_falls_through(slot.name):
                break
            number += 1
    return highest


def _branches(slot: _Slot, depth: int) -> list[tuple[Label, int]]:
    """Labels that control may go to from here other than by falling through, with the depth there."""
    branches: list[tuple[Label, int]] = []
    handler = slot.instruction.handler
    if handler is not None:
        branches.append((handler.target, handler.depth + handler.lasti + 1))
    if slot.instruction.target is not None:
        branches.append((slot.instruction.target, depth + _effect(slot, True)))
    return branches


def _effect(slot: _Slot, jump: bool) -> int:
    if slot.name == "RETURN_GENERATOR":  # the table of 3.11 and 3.12 forgets the value that the generator starts with
        return 1
    number = opcode.opmap[slot.name]
    return dis.stack_effect(number, slot.arg if number in _takes_argument else None, jump=jump)


_takes_argument = frozenset(n for n in opcode.opmap.values() if n >= opcode.HAVE_ARGUMENT)


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
    for units, position in _joined(runs):
        while units:
            length = min(units, _LONGEST_ENTRY)
            table += _location(length, position, line)
            line = position[0] if position[0] is not None else line
            units -= length
    return bytes(table)


def _joined(runs: Iterable[tuple[int, Position]]) -> Iterator[tuple[int, Position]]:
    """The runs with equal neighbours made one."""
    total, current = 0, None
    for units, position in runs:
        if position != current and current is not None:
            yield total, current
            total = 0
        total, current = total + units, position
    if current is not None:
        yield total, current


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
