"""Numbers and generated code as people read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

LONGEST_CODE = 24_000  # characters of one function


def bytes_text(n: float | None) -> str:
    """12.3 MB"""
    return "?" if n is None else _scaled(n, "B")


def count_text(n: float | None) -> str:
    """12.3 M"""
    return "?" if n is None else _scaled(n, "").rstrip()


def _scaled(n: float, unit: str) -> str:
    if n and abs(n) < 1:
        return f"{n:.2g} {unit}"
    for prefix in ("", "k", "M", "G", "T"):
        if abs(n) < 1000:
            return f"{n:.3g} {prefix}{unit}"
        n /= 1000
    return f"{n:,.0f} P{unit}"


def seconds_text(seconds: float | None) -> str:
    """1.23 ms"""
    if seconds is None:
        return ""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def first_line(text: object) -> str:
    """Of a text of several lines."""
    return str(text).partition("\n")[0]


def short_place(where: object) -> str:
    """`train.py:42`"""
    return first_line(where).partition(" in ")[0]


def code_lines(text: str, link_of: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """(line, id of the program's line that a comment `// src operator call` names)"""
    for line in text[:LONGEST_CODE].split("\n"):
        words = line.split(" ")
        yield line, link_of(words[3]) if line.startswith("// src ") and len(words) > 3 else ""
    if len(text) > LONGEST_CODE:
        yield f"... {len(text) - LONGEST_CODE:,} characters more are left out", ""
