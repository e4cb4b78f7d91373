"""Group kernels and entries into C translation units.

In:     the distinct kernels of a graph, as `Piece`s, and the text of its entries.
Out:    `Unit`s: the first has the entries.
Holds:  a kernel's name says its text, so that graphs that have a kernel in common can be linked with one object of it; a
        unit defines kernels for the linker, visible to nothing outside the library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from pliant.codegen import prelude
from pliant.records import dataclass
from pliant.wrappers.shared_text import ADDRESSES, LISTED, PART, PYTHON

# Characters of kernels in one translation unit; more are split into units compiled in parallel, up to so many: each takes
# the compiler's start-up, as long as three or four kernels.
PART_TEXT, MAX_UNITS = 10000, 4
UNIT_TEXT, MOST_UNITS = 24000, 16  # characters of a unit where there is more text, and how many units then
# Units of little kernels and of entries: a quarter less to compile, and not much slower. Vectors stay, and so does the
# order of sums; without expensive optimizations gcc does not clear the upper halves of vector registers at the end.
QUICKLY = '#pragma GCC optimize("O1", "tree-vectorize", "expensive-optimizations")\n'

RUN = "int64_t (*p_run)(p_part, void**, const int64_t*, int64_t, int64_t, int64_t, int32_t*);\n"

BIND = """\
void pliant_bind(void** table) { p_run = table[0]; p_addresses = table[1]; p_items = (int64_t)table[2]; }
"""
# the same, with what runs entries that are tables
BIND_TABLES = """\
typedef void (*p_kernel)(void**, const int64_t*, int32_t*);
static PyObject* (*p_enter)(PyObject* const*, const int32_t*, const int64_t*, const p_kernel*);
void pliant_bind(void** table) {
  p_run = table[0]; p_addresses = table[1]; p_items = (int64_t)table[2]; p_enter = table[3];
}
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A kernel in a unit. is_little: its own time is worth less than the compiler's."""

    name: str
    text: str
    comment: str
    is_little: bool


@dataclass(frozen=True, slots=True)
class Unit:
    """A translation unit; quickly: compiled with fewer optimizations."""

    text: str
    kernels: tuple[str, ...]
    quickly: bool


def name_of(text: str) -> str:
    """The name of the kernel with this text."""
    return "k" + hashlib.sha256(text.encode()).hexdigest()[:20]


def units_of(pieces: Sequence[Piece], others: Iterable[Piece], bodies: str) -> tuple[Unit, ...]:
    """Translation units of these kernels: one, or several, with the entries in the shortest, where there are many.
    `others`: kernels that the entries call and that are built elsewhere."""
    length = sum(len(one.text) for one in pieces)
    count = min(len(pieces), max(min(MAX_UNITS, 1 + length // PART_TEXT), min(MOST_UNITS, length // UNIT_TEXT)))
    parts = sorted(_parts(pieces, count), key=_length) if count > 1 else [list(pieces)]
    elsewhere = [one for part in parts[1:] for one in part] + list(others)
    declared = "".join(f"P_HIDDEN void {one.name}(void** p, const int64_t* n, int32_t* p_error);\n" for one in elsewhere)
    quickly = [count > 1 and all(one.is_little for one in part) for part in parts]
    written = ["".join(map(_written, part)) for part in parts]
    texts = [_unit(declared + written[0], bodies, main=True, quickly=quickly[0])]
    texts += [_unit(text, "", main=False, quickly=quick) for text, quick in zip(written[1:], quickly[1:], strict=True)]
    return tuple(
        Unit(text, tuple(one.name for one in part), quick) for text, part, quick in zip(texts, parts, quickly, strict=True)
    )


def _length(part: list[Piece]) -> int:
    return sum(len(one.text) for one in part)


def _parts(pieces: Sequence[Piece], count: int) -> list[list[Piece]]:
    """The kernels in `count` parts of much the same length, little ones apart."""
    ranked = sorted(pieces, key=lambda one: len(one.text), reverse=True)
    little = [one for one in ranked if one.is_little]
    rest = [one for one in ranked if not one.is_little]
    share = round(count * _length(little) / _length(ranked))
    if little and rest:
        share = min(share, count - 1)
    if not share:
        return [ranked[k::count] for k in range(count)]
    parts = [*(little[k::share] for k in range(share)), *(rest[k :: count - share] for k in range(count - share))]
    return [part for part in parts if part]


def _written(one: Piece) -> str:
    """The kernel with its driver visible to other translation units."""
    return one.comment + named(one.text.replace("static void @(", "P_HIDDEN void @("), one.name)


def named(text: str, name: str) -> str:
    """The text of a kernel or an entry with its name."""
    return text.replace("@", name) + "\n"


def _unit(kernels: str, entries: str, *, main: bool, quickly: bool) -> str:
    hidden = '#define P_HIDDEN __attribute__((visibility("hidden")))\n'
    parts = [QUICKLY if quickly else "", prelude.text_for(kernels + entries), hidden, PYTHON, PART]
    bind = BIND_TABLES if "p_enter" in entries else BIND
    parts += ["P_HIDDEN ", RUN, ADDRESSES, bind, LISTED if "p_listed" in entries else ""] if main else ["extern P_HIDDEN ", RUN]
    return "".join([*parts, "\n", kernels, entries])
