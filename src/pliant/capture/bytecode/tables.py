"""The two tables of a code object: which handler covers which code units, and which source range each unit is from.

In:     (unit count, value) runs. Out: bytes as CPython reads them.
Source: Objects/exception_handling_notes.txt and Objects/locations.md of CPython.
"""

from collections.abc import Iterable, Iterator

from pliant.capture.bytecode.instructions import Position

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
