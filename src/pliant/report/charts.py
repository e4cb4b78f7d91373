"""Stages of compilation, memory and traffic as geometry.

In:     stage events; programs of `graphs.py`.
Out:    bars in parts of a width, points of curves.
Holds:  what is too small to be seen is counted instead of drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pliant.debug.events import Event
from pliant.records import dataclass
from pliant.report.graphs import Program, Step

MOST_BARS = 1200
_SMALLEST = 0.0004  # of the width
_APART = 0.004  # of the width, between two times of compiling


@dataclass(frozen=True, slots=True)
class Bar:
    """A stage. left, width: parts of the chart's width; depth: how many stages are around it."""

    name: str
    of: str
    left: float
    width: float
    depth: int
    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class Flames:
    """The chart of one thread. hidden: stages too short to be drawn."""

    thread: int
    bars: tuple[Bar, ...]
    depth: int
    seconds: float
    hidden: int


def flames(stages: Sequence[Event], start: float) -> list[Flames]:
    """A chart a thread; the thread that compiled longest first. Time in which nothing was compiled is left out."""
    threads: dict[int, list[Event]] = {}
    for event in stages:
        threads.setdefault(event.thread, []).append(event)
    return sorted((_flame(thread, seen, start) for thread, seen in threads.items()), key=lambda one: -one.seconds)


def _flame(thread: int, seen: Sequence[Event], start: float) -> Flames:
    spans: list[tuple[float, float, Any]] = sorted(
        ((_number(e, "start"), _number(e, "seconds"), e) for e in seen), key=lambda one: (one[0], -one[1])
    )
    pieces: list[list[float]] = []  # begin, end
    for begin, seconds, _ in spans:
        if pieces and begin <= pieces[-1][1]:
            pieces[-1][1] = max(pieces[-1][1], begin + seconds)
        else:
            pieces.append([begin, begin + seconds])
    whole = sum(end - begin for begin, end in pieces) or 1e-9
    gap = min(_APART, 0.2 / len(pieces)) * whole
    scale = whole + gap * (len(pieces) - 1)
    shift: list[tuple[float, float]] = []
    before = 0.0
    for begin, end in pieces:
        shift.append((begin, before))
        before += end - begin + gap
    bars: list[Bar] = []
    ends: list[float] = []  # of the stages around
    piece = 0
    for begin, seconds, event in spans:
        while piece + 1 < len(shift) and shift[piece + 1][0] <= begin:
            piece += 1
        while ends and ends[-1] <= begin + 1e-9:
            ends.pop()
        left = (begin - shift[piece][0] + shift[piece][1]) / scale
        bars.append(Bar(event.fields["name"], _subject(event), left, seconds / scale, len(ends), seconds, begin - start))
        ends.append(begin + seconds)
    large = sorted((b for b in bars if b.width >= _SMALLEST), key=lambda b: -b.width)[:MOST_BARS]
    shown = sorted(large, key=lambda b: (b.left, b.depth))
    return Flames(thread, tuple(shown), 1 + max([b.depth for b in shown], default=0), whole, len(bars) - len(shown))


def _number(event: Event, name: str) -> float:
    return float(str(event.fields[name]))


def _subject(event: Event) -> str:
    return str(event.fields.get("graph") or event.fields.get("of_name") or "")


@dataclass(frozen=True, slots=True)
class Curve:
    """Memory over the steps of a program, as an SVG's path in `WIDTH` by `HEIGHT`. peak: bytes; at: the step's place."""

    path: str
    peak: int
    at: int


WIDTH, HEIGHT = 600, 120


def memory_curve(values: Sequence[int], most: int) -> Curve | None:
    """Bytes over steps, where `most` bytes are the whole height."""
    if not values or not most:
        return None
    across = WIDTH / len(values)
    points = [f"M0,{HEIGHT}"]
    for k, value in enumerate(values):
        y = HEIGHT - HEIGHT * value / most
        points.append(f"L{k * across:.1f},{y:.1f} L{(k + 1) * across:.1f},{y:.1f}")
    points.append(f"L{WIDTH},{HEIGHT} Z")
    peak = max(values)
    return Curve(" ".join(points), peak, values.index(peak))


@dataclass(frozen=True, slots=True)
class Dot:
    """A step of the roofline chart. x: operations a byte, y: operations a second, or bytes where nothing was measured."""

    program: Program
    step: Step
    x: float
    y: float
    left: float
    top: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """Dots in parts of the chart's width and height. ticks: (where, text) of both axes. roof: from (x, y) to (x, y) in parts: the
    largest bandwidth that was measured."""

    dots: tuple[Dot, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    measured: bool
    bandwidth: float
    roof: tuple[float, float, float, float] | None


def roofline(programs: Sequence[Program]) -> Roofline | None:
    """The chart of all steps whose sizes are known; measured ones alone if there are any."""
    known = [(p, s) for p in programs for s in p.steps if s.moved and s.operations]
    measured = [(p, s) for p, s in known if s.seconds]
    shown = measured or known
    if not shown:
        return None
    points = [_point(step, bool(measured)) for _, step in shown]
    xs, ys = _decades([x for x, _ in points]), _decades([y for _, y in points])
    dots = [Dot(p, s, x, y, _part(x, xs), 1 - _part(y, ys)) for (p, s), (x, y) in zip(shown, points, strict=True)]
    bandwidth = max([(s.moved or 0) / s.seconds for _, s in measured if s.seconds], default=0.0)
    return Roofline(
        tuple(dots),
        tuple((_part(10.0**k, xs), _power(k)) for k in range(xs[0], xs[1] + 1)),
        tuple((1 - _part(10.0**k, ys), _power(k)) for k in range(ys[0], ys[1] + 1)),
        bool(measured), bandwidth, _roof(bandwidth, xs, ys) if bandwidth else None,
    )  # fmt: skip


def _point(step: Step, measured: bool) -> tuple[float, float]:
    operations, moved = step.operations or 0, step.moved or 1
    return operations / moved, operations / step.seconds if measured and step.seconds else moved


def _roof(bandwidth: float, xs: tuple[int, int], ys: tuple[int, int]) -> tuple[float, float, float, float]:
    """The line y = bandwidth * x inside of the chart."""
    low = max(10.0 ** xs[0], 10.0 ** ys[0] / bandwidth)
    high = min(10.0 ** xs[1], 10.0 ** ys[1] / bandwidth)
    return _part(low, xs), 1 - _part(low * bandwidth, ys), _part(high, xs), 1 - _part(high * bandwidth, ys)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _part(value: float, decades: tuple[int, int]) -> float:
    return (math.log10(value) - decades[0]) / (decades[1] - decades[0])


def _power(k: int) -> str:
    names = {0: "1", 3: "1 k", 6: "1 M", 9: "1 G", 12: "1 T", 1: "10", 2: "100", -1: "0.1", -2: "0.01"}
    units = {3: "k", 6: "M", 9: "G", 12: "T"}
    base = k - k % 3
    return names.get(k) or (f"{10 ** (k % 3)} {units[base]}" if base in units else f"1e{k}")
