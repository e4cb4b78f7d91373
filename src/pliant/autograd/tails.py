"""Sums of losses that a program asks gradients of and returns beside the losses, and what else it computes from a loss.

In:     a program in which no cut fits between a loss and such a result, since gradients are asked for through the loss.
Out:    the program with the result made again at its end, of the same losses, and that one returned.
Holds:  what is made again has no effects, draws nothing and reads nothing that is written: values and gradients are the same.
        Where gradients were asked for through it, it is known to be linear and to keep no tensor for its derivative: what
        keeps one is freed by then. What the program does with the first result stays as it is.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from torch import fx
from torch.utils._pytree import tree_leaves

from pliant.autograd.history import Node, functions_behind, gradient_of
from pliant.autograd.segments import Timeline, Write
from pliant.graph.contracts import CapturedGraph
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.late_module import LateModule
from pliant.graph.passes.purity import has_effect

_Edge = tuple[Any, int]  # as `gradient_of`

# Functions of operators that draw no numbers and whose derivative needs sizes and numbers alone.
_LINEAR = frozenset(
    "AddBackward0 SubBackward0 NegBackward0 SumBackward0 SumBackward1 MeanBackward0 MeanBackward1 StackBackward0 CatBackward0 "
    "ToCopyBackward0 ViewBackward0 UnsafeViewBackward0 UnsqueezeBackward0 SqueezeBackward0 SqueezeBackward1".split()
)


def find_tails(
    results: Sequence[FakeTensor],
    seen: Sequence[FakeTensor],
    timeline: Timeline,
    freed: set[Node],
    whole: Sequence[tuple[int, int]],
    values: dict[fx.Node, Any],
    writes: Sequence[Write],
    recorded: fx.Graph,
) -> tuple[int, ...]:
    """The positions of what is to be made again; none if nothing is, or not all may be.

    `whole`: (first, last) positions between which gradients are asked for; `recorded`: the trace's operators; the others: as
    in `find_cuts`.
    """
    roots = [one.grad_fn for one in results]
    functions = functions_behind(roots, freed)
    positions, read = _leading_there(functions, seen, timeline, whole)
    every = functions_behind(roots)
    nodes = {place: node for node, place in timeline.places.items() if node is not None}
    free = positions - {timeline.position_of(one) for one in every if one in freed}
    pure = _pure(nodes, free, recorded)
    if not positions or not _are_linear(every, positions - pure, timeline) or _lead_to(every, functions, freed, read):
        return ()
    if not all(place in nodes and timeline.modes[place] == timeline.modes[-1] for place in positions):
        return ()
    again = [nodes[place] for place in sorted(positions)]
    return tuple(sorted(positions)) if _may_be_made_again(again, seen, values, writes) else ()


def _read_by(function: Node) -> list[_Edge]:
    return [(getattr(one, "variable", one), number) for one, number in function.next_functions if one is not None]


def _leading_there(
    functions: list[Node], seen: Sequence[FakeTensor], timeline: Timeline, whole: Sequence[tuple[int, int]]
) -> tuple[set[int], set[_Edge]]:
    """The positions of the functions, and of all that lead to these, that read a tensor seen by the caller and lie with what
    made it where the program may not be cut; and what they read there."""
    made = {gradient_of(one): -1 if one.grad_fn is None else timeline.position_of(one.grad_fn) for one in seen}
    found, read = dict[Node, int](), set[_Edge]()
    for function in reversed(functions):
        place = timeline.position_of(function)
        ranges = [first for first, last in whole if place <= last]
        inside = {one for one in _read_by(function) if any(first <= made.get(one, -1) for first in ranges)}
        if inside or any(following in found for following, _ in function.next_functions):
            found[function] = place
            read |= inside
    return set(found.values()), read


def _lead_to(every: list[Node], functions: list[Node], freed: set[Node], read: set[_Edge]) -> bool:
    """Whether a result leads to one of these through a freed function as well: eager refuses all of that gradient."""
    known = set(functions)
    gone = [one for one in every if one in freed and one not in known]
    return any(not read.isdisjoint(_read_by(one)) for one in functions_behind(gone))


def _pure(nodes: dict[int, fx.Node], positions: set[int], recorded: fx.Graph) -> set[int]:
    """Those of the positions at which PyTorch is called, with operators that may be run twice."""
    effects: dict[fx.Node, bool] = {}
    for one in recorded.nodes if positions else ():
        if (origin := one.meta.get("origin")) is not None:
            effects[origin] = effects.get(origin, False) or has_effect(one.target)
    return {one for one in positions if one in nodes and not effects.get(nodes[one], True) and _is_of_torch(nodes[one])}


def _is_of_torch(node: fx.Node) -> bool:
    return node.op == "call_method" or (getattr(node.target, "__module__", "") or "").startswith(("torch", "_operator"))


def _are_linear(functions: Iterable[Node], positions: set[int], timeline: Timeline) -> bool:
    return all(one.name() in _LINEAR for one in functions if timeline.position_of(one) in positions)


def _may_be_made_again(
    again: list[fx.Node], seen: Sequence[FakeTensor], values: dict[fx.Node, Any], writes: Sequence[Write]
) -> bool:
    """Whether each makes one tensor, in memory that no other result shares, and nothing else writes what is read or made."""
    made = {id(values[node]): values[node] for node in again if type(values.get(node)) is FakeTensor}
    if len({id(values.get(node)) for node in again} - made.keys()):
        return False
    bases = {id(one.node.base) for one in made.values()}
    others = {id(base) for base, node, _ in writes if node not in again}
    read = [values.get(one) for node in again for one in node.all_input_nodes]
    given = {id(one.node.base) for one in tree_leaves(read) if type(one) is FakeTensor and id(one) not in made}
    written = {id(base) for base, _, _ in writes}
    return not (
        given & (written | bases)
        or bases & others
        or any(one.node.base.input is not None for one in made.values())
        or any(id(one.node.base) in bases and id(one) not in made for one in seen)
    )


def with_tails(captured: CapturedGraph, positions: Iterable[int]) -> CapturedGraph:
    """The program with the calls at these positions made again at its end, whose results are returned in their place."""
    graph = copy.deepcopy(captured.module.graph)
    nodes = list(graph.nodes)
    output, copies = nodes[-1], dict[fx.Node, fx.Node]()
    with graph.inserting_before(output):
        for position in positions:
            copies[nodes[position]] = graph.node_copy(nodes[position], lambda node: copies.get(node, node))
    output.args = fx.map_arg(output.args, lambda node: copies.get(node, node))
    module = LateModule(captured.module, graph)
    return dataclasses.replace(captured, module=module, attributes={**captured.attributes, "tails": True})
