"""A pattern as a pass over an exported program.

In:     a program (anything with a functional ATen `graph` and a method `constant`), a `Pattern` with a replacement.
Out:    the same graph, the replacement's calls in the place of each match.
Holds:  whoever runs the pass checks the program behind it (`exporting/transforms.py`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torch import fx

from pliant.debug import events
from pliant.errors import PatternError
from pliant.patterns.finding import Match, find
from pliant.patterns.substitution import call_of, replacing
from pliant.patterns.traced import Traced, trace
from pliant.torch_adapter import append_node

if TYPE_CHECKING:
    from pliant.patterns.pattern import Pattern


def replace_in(program: Any, pattern: Pattern) -> None:
    """Replace all matches."""
    if pattern.replacement is None:
        raise PatternError(f"the pattern `{pattern.name}` has no replacement", kind="replacement", do="give one, or use `find`")
    renamed: dict[fx.Node, fx.Node] = {}
    for match in list(find(program.graph, pattern)):
        where = match.nodes[-1].meta.get("where", match.outputs[0].name)
        try:
            _replace(program, match, _traced(pattern, match), renamed)
        except LookupError as unfit:
            events.record("pattern_left", name=pattern.name, where=where, why=str(unfit))
        else:
            events.record("pattern", name=pattern.name, where=where)


def _traced(pattern: Pattern, match: Match) -> Traced:
    traced, orders = replacing(pattern, match)
    if not any(orders):
        return traced
    fakes = [node.meta["val"] for node in match.inputs]
    laid_out = functools.partial(call_of(pattern), orders=orders)
    return trace(laid_out, fakes, match.numbers, fakes[0].fake_mode.shape_env, [False] * len(fakes))


def _replace(program: Any, match: Match, traced: Traced, renamed: dict[fx.Node, fx.Node]) -> None:
    """`renamed`: what stands for results of earlier matches."""
    graph: fx.Graph = program.graph
    order = {node: place for place, node in enumerate(graph.nodes)}
    before = min(match.outputs, key=order.__getitem__)
    inputs = [renamed.get(node, node) for node in match.inputs]
    if any(order[node] >= order[before] for node in inputs):
        raise LookupError("it is given what is computed after its first result")
    made: dict[fx.Node, Any] = dict(zip(traced.inputs, inputs))
    for node, tensor in traced.constants.items():
        made[node] = program.constant(node.name, tensor)
    place = {"where": before.meta["where"]} if "where" in before.meta else {}
    for node in traced.calls:
        args, kwargs = fx.map_arg((node.args, node.kwargs), made.__getitem__)
        with graph.inserting_before(before):
            made[node] = append_node(graph, "call_function", node.target, args, kwargs, node.name)
        made[node].meta = {"val": node.meta["val"], "stage": "forward", **place}
    for output, result in zip(match.outputs, traced.outputs):
        output.replace_all_uses_with(made[result])
        renamed[output] = made[result]
    for node in reversed(match.nodes):
        if not node.users:
            graph.erase_node(node)


