"""Kernels that differ in whole numbers only become one C function that takes these numbers.

In:     the `KernelText`s of a graph.
Out:    the same kernels; those of a large enough kind have the numbers in which they differ as further `sizes`, constant
        expressions, and one text.
Holds:  a number becomes a variable of the type that C gives the number, so every expression keeps its meaning. Divisors
        in inner loops and what the preprocessor reads stay: there a constant is worth more, or nothing else is allowed.
        A loop that only machines with some vectors need is there on all where kernels with and without it share a text.
        A program that unrolls a loop over its rows (step i reads i of them) has thousands of operators and few kinds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from pliant.codegen.c import KernelText
from pliant.symbolic.expr import ONE, Expr

MANY = 64  # distinct kernels, from which on the compiler's time is worth more than constants
ALIKE = 4  # kernels of a kind that are worth one function with arguments
FEW = 16  # distinct kernels, from which on the same holds of little ones, and of two that are alike
_LARGEST = 1 << 31  # a larger number is no `int`

# Numbers of any kind; whole ones that may become arguments are the last group.
_KEPT = r"INT64_C\(\d+\)|, \d+\)|[/%] \(?\d+|"  # a macro; divisors, which the compiler turns into products
_NUMBERS = (
    r"\b0[xX][\w.]*(?:[pP][+-]?\d+\w*)?|\b\d+(?:\.\d*)?[eE][+-]?\d+\w*|\b\d+\.\w*|\b\d+[a-zA-Z_]\w*|\.\d\w*|\b(\d+)\b"
)
_INSIDE, _ANY = re.compile(_KEPT + _NUMBERS), re.compile(_NUMBERS)
_ARRAY = re.compile(r"\s*(?:static )?(?:const )?\w+ \w+\[")
_ITEM = re.compile(r"\s*const int64_t \w+ = \(*[tq]\d* [/%]")  # what item of the parallel loop it is, once an item

_LANES = re.compile(r"^#(?:if P_L .*|endif)\n", re.M)  # lines around loops that only machines with some vectors need

Change = Callable[[int, bool], str]


def _changed(text: str, change: Change) -> str:
    """The text with `change(number, is a length of an array)` for each whole number that may become an argument."""
    return "\n".join(_changed_line(line, change) for line in text.split("\n"))


def _changed_line(line: str, change: Change) -> str:
    is_array = _ARRAY.match(line) is not None
    if line.lstrip().startswith("#") or (is_array and not line.endswith("];")):
        return line
    numbers = _ANY if is_array or _ITEM.match(line) else _INSIDE
    return numbers.sub(lambda m: change(int(m[1]), is_array) if m[1] else m[0], line)


def _kind(text: str, known: dict[str, str]) -> str:
    """The text without such numbers. `known`: the same of lines, which kernels have in common."""
    lines = []
    for line in _LANES.sub("", text).split("\n"):
        found = known.get(line)
        if found is None:
            found = known[line] = _changed_line(line, lambda number, is_length: "#")
        lines.append(found)
    return "\n".join(lines)


def share(runs: Sequence[Sequence[KernelText]]) -> list[list[KernelText]]:
    """The kernels of all runs, those of one kind with one text where there are many."""
    texts = dict.fromkeys(kernel.text for run in runs for kernel in run)
    if len(texts) < FEW:
        return [list(run) for run in runs]
    large = {kernel.text for run in runs for kernel in run if not kernel.is_little}
    kinds: dict[str, list[str]] = defaultdict(list)
    known: dict[str, str] = {}
    for text in texts:
        kinds[_kind(text, known)].append(text)
    shared: dict[str, tuple[str, tuple[Expr, ...]]] = {}
    counts = {kernel.text: len(kernel.sizes) for run in runs for kernel in run}
    for alike in kinds.values():
        if len(alike) >= ALIKE and len(texts) >= MANY or len(alike) > 1 and large.isdisjoint(alike):
            shared |= _with_arguments(alike, counts[alike[0]])
    return [[_replaced(kernel, shared) for kernel in run] for run in runs]


def _replaced(kernel: KernelText, shared: dict[str, tuple[str, tuple[Expr, ...]]]) -> KernelText:
    if kernel.text not in shared:
        return kernel
    text, numbers = shared[kernel.text]
    return replace(kernel, text=text, sizes=(*kernel.sizes, *numbers))


def _with_arguments(alike: list[str], sizes: int) -> dict[str, tuple[str, tuple[Expr, ...]]]:
    """For each text the common one and the numbers it takes. Places that always agree share an argument; arrays are as
    long as the longest; a loop that one of them needs is there on all machines."""
    columns = list(zip(*map(_whole_numbers, alike), strict=True))
    lengths = {k for k, (_, is_length) in enumerate(_found(alike[0])) if is_length}
    differing = dict.fromkeys(c for k, c in enumerate(columns) if k not in lengths and len(set(c)) > 1)
    if any(max(column) >= _LARGEST for column in differing):
        return {}
    names = {column: f"c{k}" for k, column in enumerate(differing)}
    places = iter(columns)

    def argument(number: int, is_length: bool) -> str:
        column = next(places)
        return str(max(column)) if is_length else names.get(column, str(number))

    head = "".join(f"  const int c{k} = (int)n[{sizes + k}];\n" for k in range(len(names)))
    first = alike[0] if len({tuple(_LANES.findall(text)) for text in alike}) == 1 else _LANES.sub("", alike[0])
    common = re.sub(r"(static void @.*\{\n)", lambda m: m[1] + head, _changed(first, argument))
    return {text: (common, tuple(ONE * column[k] for column in differing)) for k, text in enumerate(alike)}


def _whole_numbers(text: str) -> list[int]:
    return [number for number, _ in _found(text)]


def _found(text: str) -> list[tuple[int, bool]]:
    found: list[tuple[int, bool]] = []

    def note(number: int, is_length: bool) -> str:
        found.append((number, is_length))
        return ""

    _changed(text, note)
    return found
