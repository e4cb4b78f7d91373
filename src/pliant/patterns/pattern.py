"""Patterns: a function that says what to find, another that says what to put there.

In:     plain Python functions of tensors, an example of the tensors.
Out:    `Pattern`; `find(graph, pattern)`: `Match`es, as nodes of the graph.
Holds:  what matches is exactly what the pattern's function records on the matched tensors: calls are found by operators alone,
        then the function is run on descriptions of what was found, and every number, size and dtype compared. Matches come in
        the order of the graph and share no node but those that they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from pliant.errors import PatternError
from pliant.graph.fake_tensor import FakeTensor
from pliant.patterns.matcher import Laid, is_exactly, occurrences
from pliant.patterns.traced import Traced, trace
from pliant.records import dataclass

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


class Pattern:
    """Calls to be found, and what takes their place.

    `search`, `replacement`: functions of the same tensors and keyword numbers. `example`: tensors to call them with, of the
    ranks that are to be found; their sizes and dtypes do not matter unless the functions ask. `numbers`: an example of the
    keyword numbers, which then may be any. `check(match)`: whether a match is taken. `shared`: values inside a match may be
    used outside of it, where they stay. Without a replacement, a pattern to `find`.
    """

    def __init__(
        self, search: Callable[..., Any], replacement: Callable[..., Any] | None = None, *, example: Sequence[torch.Tensor],
        numbers: Mapping[str, Number] | None = None, check: Callable[[Match], object] | None = None, shared: bool = False,
        name: str = "",
    ) -> None:  # fmt: skip
        self.search, self.replacement, self.check, self.shared = search, replacement, check, shared
        self.example, self.numbers = tuple(example), dict(numbers or {})
        self.name = name or getattr(search, "__name__", type(search).__name__)
        if not all(isinstance(one, torch.Tensor) for one in self.example):
            raise PatternError(f"the example of `{self.name}` has what is no tensor", kind="example", do="give numbers as `numbers=`")
        self.forms = self._forms()

    def __repr__(self) -> str:
        return f"Pattern({self.name})"

    def __call__(self, program: Any) -> None:
        """As a pass: `program.transform(pattern)`."""
        from pliant.patterns.program_pass import replace_in

        replace_in(program, self)

    def _forms(self) -> list[tuple[Traced, dict[str, tuple[fx.Node, Any]]]]:
        """The graphs that the function records: where autograd follows the arguments some calls become others."""
        found: dict[str, Traced] = {}
        for grad in (False, True):
            follows = [grad and one.dtype.is_floating_point for one in self.example]
            traced = self.traced(self.example, self.numbers, None, follows)
            found.setdefault(str(traced.graph), traced)
        return [(one, self._sites(one)) for one in found.values()]

    def traced(self, tensors: Sequence[Any], numbers: Mapping[str, Any], env: Any, follows: Sequence[bool]) -> Traced:
        """What the function records."""
        try:
            traced = trace(self.search, tensors, numbers, env, follows)
        except PatternError:
            raise
        except Exception as error:
            raise PatternError(
                f"the pattern `{self.name}` cannot be traced", kind="trace", why=f"{type(error).__name__}: {error}",
                do="give an `example` that the function takes, and a function that asks no element of a tensor",
            ) from error  # fmt: skip
        if any(one.op != "call_function" for one in traced.outputs):
            raise PatternError(f"the pattern `{self.name}` returns an argument", kind="result", do="return what is computed")
        unread = [place for place, node in enumerate(traced.inputs) if not node.users]
        if unread or traced.constants:
            what = f"does not read argument {unread[0]}" if unread else "holds a tensor"
            raise PatternError(f"the pattern `{self.name}` {what}", kind="argument", do="make its arguments all that it computes on")
        return traced

    def _sites(self, traced: Traced) -> dict[str, tuple[fx.Node, Any]]:
        """Where the keyword numbers are found as they are: by name, a call and the place among its arguments."""
        found: dict[str, tuple[fx.Node, Any]] = {}
        for name, number in self.numbers.items():
            for node in traced.calls:
                for place, value in [*enumerate(node.args), *node.kwargs.items()]:
                    if type(value) is type(number) and value == number:
                        found.setdefault(name, (node, place))
            if name not in found:
                raise PatternError(
                    f"`{name}` is no argument of a call in the pattern `{self.name}`", kind="number",
                    why=f"no operator is given {number!r} as it is", do="pass it to an operator, or make it a constant",
                )  # fmt: skip
        return found


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
