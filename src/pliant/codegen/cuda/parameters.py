"""Kernels that differ in numbers alone become one kernel, to which the numbers are arguments.

In:     the kernels of a program (`DeviceKernel`s).
Out:    as many, in the same order, of fewer texts: a convolutional network has one kernel at ten sizes.
Holds:  each does what it did. A number that is the same in all kernels that are alike stays written out; numbers that vary
        alike are one argument. Numbers that C++ has to know (lengths of arrays, arguments of templates, bounds of loops that are
        unrolled) are not touched: kernels that differ in them are not alike.

Building takes time by the text, so a program of many kernels is built in half of it. The kernels of a small one are built
side by side anyhow, and keep their numbers. A quotient by an argument is a product and a shift (`p_divisor` of the prelude).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.records import dataclass
from pliant.symbolic.expr import Expr, lit

MANY = 48  # distinct kernels of a program: more than are built at once, several times over
MOST_ARGUMENTS = 256  # of a kernel that takes numbers, with its own: all have 4 KB
LONG_LOOP = 256  # a bound that is an argument: the compiler need not know it to unroll the loop
_KEPT = r"^ *(?:extern|__shared__|alignas|#pragma|\w+ \w+\[).*$"  # whole lines: declarations, of arrays and functions, and how to unroll
_NUMBER = r"(?<=[(\[ ,-])\d+(?=\*\w)|(?<=[+-] )\d+(?=[)\],]| [<>&])|(?<= < )\d+(?=\))"  # of an index or a comparison
_DIVISOR = r"(?<=item [/%] \()\d+(?=\);)|(?<=q [/%] \()\d+(?=\);)|(?<=qi\d [/%] \()\d+(?=\);)"  # of what is not negative
_BOUND = r"(?<=; q < )\d+(?=; q \+=)"
_PLACES = re.compile(rf"{_KEPT}|(?P<number>{_NUMBER})|(?P<divisor>{_DIVISOR})|(?P<bound>{_BOUND})", re.M)
_MOST = 2**31  # an `int`


@dataclass(slots=True)
class _Outline:
    """A text without its numbers, and these in order."""

    text: str
    numbers: list[int]
    divides: list[bool]


def with_parameters(runs: Sequence[Sequence[DeviceKernel]]) -> list[list[DeviceKernel]]:
    """The kernels of all runs, those that are alike as one text, if there are many."""
    texts = dict.fromkeys(kernel.text for run in runs for kernel in run)
    made = _shared(list(texts)) if len(texts) > MANY else {}
    return [[made[kernel.text].of(kernel) if kernel.text in made else kernel for kernel in run] for run in runs]


@dataclass(frozen=True, slots=True)
class _Made:
    """A text that takes numbers, and the numbers of one kernel."""

    text: str
    numbers: tuple[Expr, ...]

    def of(self, kernel: DeviceKernel) -> DeviceKernel:
        return dataclasses.replace(kernel, text=self.text, sizes=(*kernel.sizes, *self.numbers))


def _shared(texts: Sequence[str]) -> dict[str, _Made]:
    """What becomes of the texts that are like others."""
    outlines = {text: _outline(text) for text in texts}
    alike: dict[str, list[str]] = {}
    for text, outline in outlines.items():
        alike.setdefault(outline.text, []).append(text)
    made: dict[str, _Made] = {}
    for group in alike.values():
        if len(group) > 1:
            made.update(zip(group, _with_arguments([outlines[text] for text in group])))
    return made


def _outline(text: str) -> _Outline:
    numbers, divides = list[int](), list[bool]()

    def place(found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind is None or (number := int(found[0])) >= _MOST or (kind == "bound" and number < LONG_LOOP):
            return found[0]
        numbers.append(number)
        divides.append(kind == "divisor")
        return "\1" if kind == "divisor" else "\0"

    return _Outline(_PLACES.sub(place, text), numbers, divides)


def _with_arguments(alike: Sequence[_Outline]) -> Iterator[_Made]:
    """Kernels that are alike, each with its numbers as arguments of one text; none if they would be too many."""
    columns = list(zip(*(outline.numbers for outline in alike)))  # of each place, the number of each kernel
    varying = [column for column in dict.fromkeys(columns) if len(set(column)) > 1]
    divided = dict.fromkeys(c for c, divides in zip(columns, alike[0].divides) if divides and c in set(varying))
    own = alike[0].text.partition("\n")[0].count(",") + 1
    if own + len(varying) + len(divided) > MOST_ARGUMENTS:
        return
    name = {column: f"c{k}" for k, column in enumerate(varying)}
    head = [f"int64_t m{k}" for k in range(len(varying))] + [f"int64_t d{k}" for k in range(len(divided))]
    lines = [f"const int c{k} = (int)m{k};" for k in range(len(varying))]
    lines += [f"const p_divisor by{k}(m{name[c][1:]}, d{k});" for k, c in enumerate(divided)]
    by = {column: f"by{k}" for k, column in enumerate(divided)}
    written = iter([(by if divides else name).get(c, str(c[0])) for c, divides in zip(columns, alike[0].divides)])
    text = re.sub("[\0\1]", lambda _: next(written), alike[0].text)
    text = text.replace(") {\n", f", {', '.join(head)}) {{\n" + "".join(f"  {line}\n" for line in lines), 1)
    for k in range(len(alike)):
        numbers = [column[k] for column in varying] + [reciprocal(column[k]) for column in divided]
        yield _Made(text, tuple(map(lit, numbers)))


def reciprocal(divisor: int) -> int:
    """What the prelude's `p_divisor` multiplies by, and in the upper half by how much it shifts. Granlund and Montgomery,
    Division by invariant integers using multiplication, 1994."""
    shift = (divisor - 1).bit_length()
    return shift << 32 | ((1 << 32) * ((1 << shift) - divisor) // divisor + 1)
