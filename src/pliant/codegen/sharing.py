"""Kernels that differ in numbers only become one C function that takes these numbers.

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
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from pliant.codegen.c import KernelText
from pliant.regular import pattern
from pliant.symbolic.expr import ONE, Expr

FEW = 16  # distinct kernels, from which on the compiler's time is worth more than constants
ALIKE = 2  # kernels of a kind that are worth one function with arguments
_LARGEST = 1 << 31  # a larger number is no `int`

# Numbers of any kind; the groups are those that may become arguments: fractions, whole ones.
_FRACTION = r"\b(\d+\.\d+(?:e[+-]?\d+)?f?|\d+e[+-]?\d+f?)\b"
# a macro; divisors, which the compiler turns into products; exponents, some of which it knows
_KEPT = r"INT64_C\(\d+\)|, \d+\)|[/%] (?:P_B)?\(?\d[\w.]*|pow\w*\(.*|"
_OTHER = r"\b0[xX][\w.]*(?:[pP][+-]?\d+\w*)?|\b\d+(?:\.\d*)?[eE][+-]?\d+\w*|\b\d+\.\w*|\b\d+[a-zA-Z_]\w*|\.\d\w*"
_NUMBERS = rf"{_FRACTION}|{_OTHER}|\b(\d+)\b"
_INSIDE, _ANY = pattern(_KEPT + _NUMBERS), pattern(_NUMBERS)
_DIGIT = pattern(r"(?<!\w)\d")  # where numbers begin
_ARRAY = pattern(r"\s*(?:static )?(?:const )?\w+ \w+\[")
# which item of the parallel loop it is, once an item; where a block ends
_ITEM = pattern(r"\s*const int64_t \w+ = (?:\(*[tq]\d* [/%]|p_min\()")

_LANES = pattern(r"^#(?:if P_L .*|endif)\n", re.M)  # lines around loops that only machines with some vectors need

Found = tuple[str, bool]  # a number; whether it is a length of an array
Change = Callable[[str, bool], str]


def _changed(text: str, change: Change) -> str:
    """The text with `change(number, is a length of an array)` for each number that may become an argument."""
    return "\n".join(_changed_line(line, change) for line in text.split("\n"))


def _changed_line(line: str, change: Change) -> str:
    if _DIGIT.search(line) is None:
        return line
    is_array = _ARRAY.match(line) is not None
    if line.lstrip().startswith("#") or (is_array and not line.endswith("];")):
        return line
    numbers = _ANY if is_array or _ITEM.match(line) else _INSIDE
    return numbers.sub(lambda m: change(m[m.lastindex], is_array) if m.lastindex else m[0], line)


def _type_of(number: str) -> str:
    """Its type in C; an integer that is too large for `int` is no argument."""
    return "int" if number.isdigit() else "float" if number.endswith("f") else "double"


def _kind(text: str, known: dict[str, tuple[str, list[Found]]]) -> tuple[str, list[Found]]:
    """The text without such numbers, and the numbers. `known`: the same of lines, which kernels have in common."""
    lines, numbers = [], list[Found]()
    for line in _LANES.sub("", text).split("\n"):
        found = known.get(line)
        if found is None:
            inside: list[Found] = []
            found = known[line] = _changed_line(line, _noting(inside)), inside
        lines.append(found[0])
        numbers += found[1]
    return "\n".join(lines), numbers


def _noting(found: list[Found]) -> Change:
    def note(number: str, is_length: bool) -> str:
        found.append((number, is_length))
        return f"#{_type_of(number)}"

    return note


def share(runs: Sequence[Sequence[KernelText]]) -> list[list[KernelText]]:
    """The kernels of all runs, those of one kind with one text where there are many."""
    texts = dict.fromkeys(kernel.text for run in runs for kernel in run)
    if len(texts) < FEW:
        return [list(run) for run in runs]
    kinds: dict[str, dict[str, list[Found]]] = defaultdict(dict)
    known: dict[str, tuple[str, list[Found]]] = {}
    for text in texts:
        kind, numbers = _kind(text, known)
        kinds[kind][text] = numbers
    shared: dict[str, tuple[str, tuple[Expr, ...]]] = {}
    counts = {kernel.text: len(kernel.sizes) for run in runs for kernel in run}
    for alike in kinds.values():
        if len(alike) >= ALIKE:
            shared |= _with_arguments(alike, counts[next(iter(alike))])
    return [[_replaced(kernel, shared) for kernel in run] for run in runs]


def _replaced(kernel: KernelText, shared: dict[str, tuple[str, tuple[Expr, ...]]]) -> KernelText:
    if kernel.text not in shared:
        return kernel
    text, numbers = shared[kernel.text]
    return replace(kernel, text=text, sizes=(*kernel.sizes, *numbers))


def _with_arguments(found: dict[str, list[Found]], sizes: int) -> dict[str, tuple[str, tuple[Expr, ...]]]:
    """For each text the common one and the numbers it takes. Places that always agree share an argument; arrays are as
    long as the longest; a loop that one of them needs is there on all machines."""
    alike = list(found)
    columns = [tuple(number for number, _ in column) for column in zip(*found.values(), strict=True)]
    lengths = {k for k, (_, is_length) in enumerate(found[alike[0]]) if is_length}
    differing = dict.fromkeys(c for k, c in enumerate(columns) if k not in lengths and len(set(c)) > 1)
    arguments = [[_as_argument(number) for number in column] for column in differing]
    if any(None in column for column in arguments):
        return {}
    names = {column: f"c{k}" for k, column in enumerate(differing)}
    places = iter(columns)

    def argument(number: str, is_length: bool) -> str:
        column = next(places)
        return max(column, key=int) if is_length else names.get(column, number)

    head = "".join(_declared(_type_of(column[0]), names[column], sizes + k) for k, column in enumerate(differing))
    first = alike[0] if len({tuple(_LANES.findall(text)) for text in alike}) == 1 else _LANES.sub("", alike[0])
    common = re.sub(r"(static void @.*\{\n)", lambda m: m[1] + head, _changed(first, argument))
    given = zip(*arguments, strict=True) if arguments else [()] * len(alike)
    return {text: (common, tuple(ONE * bits for bits in row if bits is not None)) for text, row in zip(alike, given)}


def _declared(kind: str, name: str, at: int) -> str:
    """The variable that stands for a number in the function's text."""
    if kind == "int":
        return f"  const int {name} = (int)n[{at}];\n"
    return f"  double {name}d; __builtin_memcpy(&{name}d, n + {at}, 8); const {kind} {name} = ({kind}){name}d;\n"


def _as_argument(number: str) -> int | None:
    """The number as a kernel is given it: of a fraction the bits of a double. None where that is another number."""
    if number.isdigit():
        return int(number) if int(number) < _LARGEST else None
    value = float(number.removesuffix("f"))
    try:
        if number.endswith("f") and struct.unpack("f", struct.pack("f", value))[0] != value:
            return None
    except OverflowError:
        return None
    return int(struct.unpack("q", struct.pack("d", value))[0])
