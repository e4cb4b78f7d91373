"""Where a graph has what a pattern's function computes.

In:     a functional ATen graph, a `Pattern`.
Out:    `find(graph, pattern)`: `Match`es, as nodes of the graph.
Holds:  what matches is exactly what the pattern's function records on the matched tensors: calls are found by operators alone,
        then the function is run on descriptions of what was found, and every number, size and dtype compared. Matches come in
        the order of the graph and share no node but those that they are given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import fx

from pliant.errors import PatternError
from pliant.graph.fake_tensor import FakeTensor
from pliant.patterns.matcher import Laid, is_exactly, occurrences
from pliant.patterns.traced import Traced
from pliant.records import dataclass

if TYPE_CHECKING:
    from pliant.patterns.pattern import Pattern

Number = int | float | bool


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A place in a graph. `inputs`: what the pattern's function is given there; `outputs`: what it returns; `nodes`: its calls
    there, in the graph's order, outputs among them; `numbers`: its keyword numbers."""

    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    nodes: tuple[fx.Node, ...]
    numbers: Mapping[str, Number]

    def __str__(self) -> str:
        said = [str(node) for node in self.inputs] + [f"{name}={value}" for name, value in self.numbers.items()]
        return f"{', '.join(map(str, self.outputs))} = ({', '.join(said)})"


def find(graph: Any, pattern: Pattern, kept: Collection[fx.Node] = (), followed: Collection[fx.Node] = ()) -> Iterator[Match]:
    """The matches in an ATen graph (of an exported program, `program.graph`), as nodes."""
    taken: set[fx.Node] = set()
    for match in matches(graph, pattern, kept, followed):
        if taken.isdisjoint(match.nodes):
            taken.update(match.nodes)
            yield match


def matches(
    graph: fx.Graph, pattern: Pattern, kept: Collection[fx.Node] = (), followed: Collection[fx.Node] = ()
) -> Iterator[Match]:
    """All matches, which may overlap. `kept`: nodes that are used beside the graph's own. `followed`: those that autograd follows."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    for traced, sites in pattern.forms:
        for laid in occurrences(graph, traced.outputs):
            match = _match(traced, sites, laid, order)
            if match is None or not (pattern.shared or _is_closed(match, kept)):
                continue
            if _is_exact(pattern, match, followed) and (pattern.check is None or pattern.check(match)):
                yield match


def _match(traced: Traced, sites: dict[str, tuple[fx.Node, Any]], laid: Laid, order: dict[fx.Node, int]) -> Match | None:
    numbers: dict[str, Any] = {}
    for name, (node, place) in sites.items():
        given = laid[node]
        value = given.kwargs.get(place) if isinstance(place, str) else given.args[place] if place < len(given.args) else None
        if not isinstance(value, (int, float)):
            return None
        numbers[name] = value
    nodes = sorted({laid[node] for node in traced.calls}, key=order.__getitem__)
    return Match(tuple(laid[n] for n in traced.inputs), tuple(laid[n] for n in traced.outputs), tuple(nodes), numbers)


def _is_closed(match: Match, kept: Collection[fx.Node]) -> bool:
    """Whether nothing else reads what lies inside."""
    inside = set(match.nodes)
    between = inside.difference(match.outputs)
    return not any(node in kept for node in between) and all(user in inside for node in between for user in node.users)


def _is_exact(pattern: Pattern, match: Match, followed: Collection[fx.Node]) -> bool:
    fakes: list[FakeTensor] = [node.meta["val"] for node in match.inputs]
    follows = [node in followed for node in match.inputs]
    try:
        traced = pattern.traced(fakes, match.numbers, fakes[0].fake_mode.shape_env, follows)
    except PatternError:
        return False  # it does not take these
    return is_exactly(traced.outputs, match.outputs, dict(zip(traced.inputs, match.inputs)))
