"""How two exported programs differ, for a reader.

In:     two `Program`s.
Out:    text: lines of `text.py`, without the model's lines, behind `-`, `+` and a space; empty where they do the same.
Holds:  a name that only has another number is no difference, an argument that comes from elsewhere is one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from pliant.exporting.program import Program
from pliant.exporting.text import program_text

_AROUND = 2  # equal lines that are shown beside others
_NAME = re.compile(r"[A-Za-z_]\w*")


def difference(one: Program, other: Program) -> str:
    """The lines that are different."""
    old, new = _lines(one), _lines(other)
    matcher = difflib.SequenceMatcher(None, [key for key, _ in old], [key for key, _ in new], autojunk=False)
    called = dict(_paired(matcher, old, new))
    same = [_NAME.sub(lambda m: called.get(m[0], m[0]), text) for _, text in old]
    # A line of the first with the second's names: what is no such line of the second takes other arguments.
    matcher = difflib.SequenceMatcher(None, same, [text for _, text in new], autojunk=False)
    shown: list[str] = []
    for group in matcher.get_grouped_opcodes(_AROUND) if same != [text for _, text in new] else ():
        for tag, a, b, c, d in group:
            if tag == "equal":
                shown += [f"  {text}" for _, text in old[a:b]]
            else:
                shown += [f"- {text}" for _, text in old[a:b]] + [f"+ {text}" for _, text in new[c:d]]
        shown.append("")
    return "\n".join(shown).rstrip()


def _paired(
    matcher: difflib.SequenceMatcher[str], old: list[tuple[str, str]], new: list[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Names of the first program, and what the second calls them."""
    for a, b, size in matcher.get_matching_blocks():
        for (_, one), (_, other) in zip(old[a : a + size], new[b : b + size], strict=True):
            if " = " in one:
                yield one.split(" = ")[0].strip(), other.split(" = ")[0].strip()


def _lines(program: Program) -> list[tuple[str, str]]:
    """Lines, each behind what it is compared by: names are those of operators that made them, not their numbers."""
    made = {node.name: _kind(node.name) for node in program.graph.nodes if node.op == "call_function"}
    return [(_NAME.sub(lambda m: made.get(m[0], m[0]), text), text) for text in _without_lines(program)]


def _without_lines(program: Program) -> Iterator[str]:
    for line in program_text(program).splitlines():
        code, mark, told = line.partition("  # ")
        yield (f"{code}  # {told.split('    ')[0]}" if mark else line).rstrip()


def _kind(name: str) -> str:
    return re.sub(r"_\d+$", "", name)
