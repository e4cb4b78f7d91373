"""The text of a compiled function's entry: lines of JSON, of which a call needs few.

In:     the entry as data.
Out:    `spelled(data)`: its lines; `written(lines)`: the text; `Lines(text)`: what is in it, each line read when it is first asked
        for.
Holds:  what most calls do not need lies packed in the text, so that it takes little to read and to check.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

# What explanations, tracebacks and checks of memory read.
_PACKED = ("held text", "guards", "steps")
# Each on a line of its own; the last is the code of texts, which is no text to look at.
TABLES = (*_PACKED, "code")


def spelled(data: Mapping[str, Any]) -> list[bytes]:
    """The first line has all but the tables."""
    parts = [{name: value for name, value in data.items() if name not in TABLES}, *(data.get(name) for name in TABLES)]
    return [json.dumps(part, separators=(",", ":")).encode() for part in parts]


def written(lines: Sequence[bytes]) -> bytes:
    """The text of these lines."""
    first, *tables = lines
    packed = [base64.b64encode(zlib.compress(one)) for one in tables[: len(_PACKED)]]
    return b"\n".join([first, *packed, *tables[len(_PACKED) :]])


class Lines:
    """Values by name."""

    def __init__(self, text: bytes) -> None:
        first, *tables = text.split(b"\n")
        self._read = json.loads(first)
        self._tables = dict(zip(TABLES, tables, strict=True))

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            line = self._tables.pop(name)
            self._read[name] = json.loads(_unpacked(line) if name in _PACKED else line)
        return self._read[name]


def _unpacked(line: bytes) -> bytes:
    """ValueError."""
    try:
        return zlib.decompress(base64.b64decode(line, validate=True))
    except zlib.error as error:
        raise ValueError(str(error)) from None
