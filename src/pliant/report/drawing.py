"""A small graph as a layered drawing.

In:     rows of nodes.
Out:    boxes and curves in the units of an SVG, or None for a graph that is too large to be read as a drawing.
Holds:  a node lies below all that it reads. In a layer nodes are ordered by the middle of what they read, so that few lines
        cross.
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.graph.told import NodeRow
from pliant.records import dataclass

MOST_NODES = 40
MOST_ABREAST = 8
WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 132, 30, 150, 62, 10
_LONGEST = 18  # characters in a box


@dataclass(frozen=True, slots=True)
class Box:
    """A node. x, y: its upper left corner."""

    row: NodeRow
    label: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes, and the paths of lines between them."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    paths: tuple[str, ...]


def drawn(rows: Sequence[NodeRow]) -> Drawing | None:
    """The drawing of a graph."""
    read = {name for row in rows for name in row.reads}
    rows = [row for row in rows if row.kind == "output" or row.name in read or row.kind == "call"]
    layers = _layers(rows)
    if not 1 < len(rows) <= MOST_NODES or max(map(len, layers), default=0) > MOST_ABREAST:
        return None
    places = _places(layers)
    boxes = tuple(Box(row, _label(row), *places[row.name]) for layer in layers for row in layer)
    paths = [_path(places[name], places[row.name]) for row in rows for name in row.reads if name in places]
    width = max(x for x, _ in places.values()) + WIDTH + MARGIN
    return Drawing(width, len(layers) * DOWN - (DOWN - HEIGHT) + 2 * MARGIN, boxes, tuple(paths))


def _layers(rows: Sequence[NodeRow]) -> list[list[NodeRow]]:
    """Each node in the layer behind the last that it reads; inputs directly before the first that reads them."""
    depth: dict[str, int] = {}
    for row in rows:
        depth[row.name] = 1 + max([depth.get(name, -1) for name in row.reads], default=-1)
    for row in reversed(rows):
        if row.kind in ("input", "constant"):
            readers = [depth[other.name] for other in rows if row.name in other.reads]
            depth[row.name] = max(0, min(readers, default=1) - 1)
    found: list[list[NodeRow]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for row in rows:
        found[depth[row.name]].append(row)
    return [layer for layer in found if layer]


def _places(layers: Sequence[Sequence[NodeRow]]) -> dict[str, tuple[int, int]]:
    """The corner of each box: under what it reads where that is free."""
    found: dict[str, tuple[int, int]] = {}
    for k, layer in enumerate(layers):
        wanted = []
        for row in layer:
            above = [found[name][0] for name in row.reads if name in found]
            wanted.append((sum(above) / len(above) if above else 0.0, row))
        free = MARGIN
        for middle, row in sorted(wanted, key=lambda one: one[0]):
            x = max(free, round(middle) or MARGIN)
            found[row.name] = (x, MARGIN + k * DOWN)
            free = x + ACROSS
    return found


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    x, y = start[0] + WIDTH // 2, start[1] + HEIGHT
    to_x, to_y = end[0] + WIDTH // 2, end[1]
    half = max(12, (to_y - y) // 2)
    return f"M{x},{y} C{x},{y + half} {to_x},{to_y - half} {to_x},{to_y}"


def _label(row: NodeRow) -> str:
    text = "return" if row.kind == "output" else row.name
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
