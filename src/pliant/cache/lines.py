"""The text of a compiled function's entry: lines of JSON, of which a call needs the first ones alone.

In:     the entry as data.
Out:    `written(data)`: the text; `Lines(text)`: what is in it, each line read when it is first asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# What explanations and checks of memory read, each on a line of its own; the code of texts, which is no text to look at.
TABLES = ("guards", "steps", "code")


def written(data: Mapping[str, Any]) -> bytes:
    """The first line has all but the tables."""
    lines = [{name: value for name, value in data.items() if name not in TABLES}, *(data[name] for name in TABLES)]
    return b"\n".join(json.dumps(line, separators=(",", ":")).encode() for line in lines)


class Lines:
    """Values by name."""

    def __init__(self, text: bytes) -> None:
        first, *tables = text.split(b"\n")
        self._read = json.loads(first)
        self._tables = dict(zip(TABLES, tables, strict=True))

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            self._read[name] = json.loads(self._tables.pop(name))
        return self._read[name]
