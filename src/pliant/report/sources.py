"""Files of the program, with what the record says of their lines.

In:     marks at `SourceLocation`s.
Out:    `File`s: lines around those that are marked, with their marks; an id for every place that can be linked to.
Holds:  a page has at most `MOST_LINES` lines; what is left out is counted. A file that cannot be read, or that has become
        shorter, shows its marks with empty lines.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator, Sequence
from dataclasses import field

from pliant.records import dataclass
from pliant.source import SourceLocation

MOST_LINES = 4000
WHOLE_FILE = 300  # lines of files that are shown whole
AROUND = 4  # lines shown before and behind one that is marked
LONGEST = 400  # characters of a line
MOST_NOTES = 20  # at a line
MOST_LINKS = 40  # of a kind, at a line


@dataclass(slots=True)
class Mark:
    """What is said of a line. kind: break, specialize, recompile, fallback, asks, guard, node, step. link: an id of the
    page. Those with a `title` are notes under the line, the others are words beside it."""

    kind: str
    text: str
    link: str = ""
    title: str = ""
    do: str = ""


@dataclass(slots=True)
class Group:
    """Marks of one kind at a line, the first of them, and how many there are."""

    kind: str
    marks: list[Mark]
    count: int


@dataclass(slots=True)
class Line:
    """A line with what is said of it; without a number: `left_out` lines that are not shown."""

    number: int
    text: str = ""
    id: str = ""
    groups: list[Group] = field(default_factory=list)
    notes: list[Mark] = field(default_factory=list)
    unsaid: int = 0
    left_out: int = 0


@dataclass(slots=True)
class File:
    """One file. is_strange: a library's, or of code that is in no file."""

    id: str
    path: str
    name: str
    is_strange: bool
    lines: list[Line]
    is_read: bool
    cut: int  # marked lines that did not fit


class Sources:
    """The marks of all files."""

    def __init__(self) -> None:
        self._marks: dict[str, dict[int, list[Mark]]] = {}
        self._ids: dict[str, str] = {}
        self._shown: set[str] = set()

    def id_of(self, place: SourceLocation) -> str:
        """The id of a place's line."""
        return f"{self._ids.setdefault(place.file, f's{len(self._ids)}')}-{place.line}"

    def add(self, place: SourceLocation, mark: Mark) -> None:
        """Note something at a line, and where a library was called from too."""
        self.id_of(place)
        marks = self._marks.setdefault(place.file, {}).setdefault(place.line, [])
        if mark not in marks:
            marks.append(mark)
        if place.caller is not None:
            self.add(place.caller, mark)

    def files(self) -> list[File]:
        """The program's own files first, those with the most marks first among them."""
        found = [(_is_strange(path), -len(marks), path) for path, marks in self._marks.items()]
        left = MOST_LINES
        files = []
        for is_strange, _, path in sorted(found):
            file = self._file(path, is_strange, left)
            left -= sum(1 for line in file.lines if line.number)
            files.append(file)
        return files

    def _file(self, path: str, is_strange: bool, left: int) -> File:
        text = linecache.getlines(path)
        marks = self._marks[path]
        shown = _shown(sorted(marks), len(text), left)
        cut = sum(1 for number in marks if number not in shown)
        lines = [self._line(path, number, text, marks.get(number, ())) for number in sorted(shown)]
        self._shown |= {line.id for line in lines}
        return File(
            self._ids[path], path, os.path.basename(path) or path, is_strange, list(_with_gaps(lines, len(text))), bool(text), cut
        )

    def _line(self, path: str, number: int, text: Sequence[str], marks: Sequence[Mark]) -> Line:
        words = text[number - 1].rstrip() if number <= len(text) else ""
        words = words if len(words) <= LONGEST else words[:LONGEST] + " ..."
        notes = [mark for mark in marks if mark.title]
        beside = _grouped([mark for mark in marks if not mark.title])
        return Line(
            number, words, f"{self._ids[path]}-{number}", beside, notes[:MOST_NOTES], max(0, len(notes) - MOST_NOTES)
        )  # fmt: skip

    def is_shown(self, id: str) -> bool:
        """Whether the page has the line. Ask when `files` is made."""
        return id in self._shown


def _is_strange(path: str) -> bool:
    return SourceLocation(path, 1, "").is_library or not linecache.getlines(path)


def _shown(marked: Sequence[int], length: int, left: int) -> set[int]:
    """The numbers of lines to show."""
    found: set[int] = set()
    if length <= min(WHOLE_FILE, left):
        return set(range(1, length + 1)) | set(marked[:left])
    for number in marked:
        more = {n for n in range(number - AROUND, number + AROUND + 1) if 1 <= n <= length} | {number}
        if len(found | more) > left:
            break
        found |= more
    return found


def _with_gaps(lines: Sequence[Line], length: int) -> Iterator[Line]:
    before = 0
    for line in lines:
        if line.number > before + 1:
            yield Line(0, left_out=line.number - before - 1)
        yield line
        before = line.number
    if before < length:
        yield Line(0, left_out=length - before)


def _grouped(marks: Sequence[Mark]) -> list[Group]:
    """The marks of each kind together."""
    kinds: dict[str, list[Mark]] = {}
    for mark in marks:
        kinds.setdefault(mark.kind, []).append(mark)
    return [Group(kind, alike[:MOST_LINKS], len(alike)) for kind, alike in kinds.items()]
