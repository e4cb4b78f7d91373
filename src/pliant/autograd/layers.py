"""Layers of a program that are equal but for the tensors they work on, as a transformer has one after the other.

In:     a `CapturedGraph`.
Out:    `find_layers`: before which nodes to cut, so that each layer is a segment; `Built`: segments, compiled once for all that
        are alike.
Holds:  where to cut is a guess from what repeats, and changes no result: segments share code if their keys are equal.
        Programs are left whole where a call for each layer would be noticed (`Target.layer_bytes`), and where code is
        chosen by all of them (layouts of images).
Reads on: `runtime.py`, which builds the segments.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from torch import fx
from torch.utils._pytree import tree_leaves

from pliant.autograd.around import Call
from pliant.autograd.joint import JointGraph, trace_joint
from pliant.autograd.partition.cost import FLOPS_PER_BYTE, hinted, size_in_bytes
from pliant.autograd.program_keys import Unkeyed, argument_key, program_key, value_key
from pliant.autograd.segments import Cuts
from pliant.graph.contracts import CapturedGraph, known_name
from pliant.graph.fake_tensor import FakeTensor
from pliant.targets.registry import known_target

LEAST_LAYERS = 3
LEAST_NODES = 8  # of a layer
LEAST_SAVED = 64  # nodes that need not be compiled
_MOST_PERIODS = 8  # that are tried
_MOST_ALIKE = 8  # nodes of a layer that are alike

# Products by name, with the position of a factor whose last dimension is summed over.
_PRODUCTS = {"linear": 0, "matmul": 0, "__matmul__": 0, "mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
# Their layout is chosen for the whole program; what the program asks of autograd, or hooks, is about all of it.
_WHOLE = ("conv", "hook", "gradients", "backward", "requires_grad", "retain_grad")


def find_layers(captured: CapturedGraph) -> Cuts | None:
    """Where to cut a program that has enough equal layers, one after the other."""
    nodes = [node for node in captured.module.graph.nodes if node.op.startswith("call_")]
    if len(nodes) < LEAST_SAVED or not lends_itself(captured, nodes):
        return None
    try:
        kinds = _kinds(nodes)
    except Unkeyed:
        return None
    first, repeated, period = _longest_repeat(kinds)
    if repeated < period * (LEAST_LAYERS - 1) or repeated < LEAST_SAVED or not _is_long(nodes[first : first + period]):
        return None
    places = {node: place for place, node in enumerate(captured.module.graph.nodes)}
    starts = range(_narrowest(nodes, first, period), min(first + repeated + period, len(nodes)), period)
    return Cuts(tuple([places[nodes[start]] for start in starts]))


def lends_itself(captured: CapturedGraph, nodes: list[fx.Node]) -> bool:
    """Whether the program only computes: writes may be seen by tensors of any layer."""
    if captured.shape_env.has_unbacked or captured.attributes.get("moved_inputs") or captured.changed_inputs():
        return False
    return not any(part in known_name(node) for node in nodes for part in _WHOLE)


def _kinds(nodes: list[fx.Node]) -> list[int]:
    """A number for each node, the same for those that are alike. What a node gives is described once: many may take it."""
    kinds: dict[Hashable, int] = {}
    values: dict[Hashable, int] = {}
    known: dict[fx.Node, int] = {}

    def given(one: fx.Node) -> int:
        found = known.get(one)
        if found is None:
            found = known[one] = values.setdefault(value_key(one.meta.get("val")), len(values))
        return found

    def kind(node: fx.Node) -> Hashable:
        named = tuple([(name, argument_key(value, given)) for name, value in node.kwargs.items()])
        return node.op, argument_key(node.target, given), argument_key(node.args, given), named, given(node)

    return [kinds.setdefault(kind(node), len(kinds)) for node in nodes]


def _longest_repeat(kinds: Sequence[int]) -> tuple[int, int, int]:
    """(first, count, period): so many items from the first one on are each equal to the one a period later."""
    gaps: Counter[int] = Counter()
    seen: dict[int, list[int]] = {}
    for place, kind in enumerate(kinds):
        earlier = seen.setdefault(kind, [])
        gaps.update(place - one for one in earlier[-_MOST_ALIKE:])
        earlier.append(place)
    found = 0, 0, 1
    for period, _ in [(gap, count) for gap, count in gaps.most_common() if gap >= LEAST_NODES][:_MOST_PERIODS]:
        first = 0
        for place in range(len(kinds) - period + 1):
            if place < len(kinds) - period and kinds[place] == kinds[place + period]:
                continue
            if place - first > found[1]:
                found = first, place - first, period
            first = place + 1
    return found


def _narrowest(nodes: list[fx.Node], first: int, period: int) -> int:
    """The place in the first layer before which fewest tensors are made that are read behind it, in the second layer."""
    places = {node: place for place, node in enumerate(nodes)}
    crossing = [0] * (len(nodes) + 2)  # first by how many more than one place before
    for place, node in enumerate(nodes):
        if node.users:
            crossing[place + 1] += 1
            crossing[max(places.get(user, len(nodes)) for user in node.users) + 1] -= 1
    crossing = list(itertools.accumulate(crossing))
    return min(range(first, first + period), key=lambda place: (crossing[place + period], place))


def _is_long(layer: list[fx.Node]) -> bool:
    """Whether a layer takes so long that a call of its own is not noticed."""
    least = least_work(layer)
    return least is not None and sum(map(_work, layer)) >= least


def least_work(nodes: list[fx.Node]) -> int | None:
    """Work in bytes next to which a call of its own is not noticed; None where each call is."""
    values = [one for node in nodes for one in tree_leaves(node.meta.get("val")) if isinstance(one, FakeTensor)]
    targets = {known_target(device) for device in {value.device for value in values}}
    least = [target.layer_bytes * target.units if target is not None else 0 for target in targets]
    return max(least) if least and all(least) else None


def _work(node: fx.Node) -> int:
    """Work in bytes that could be moved meanwhile."""
    made = sum(map(size_in_bytes, tree_leaves(node.meta.get("val"))))
    factor = _PRODUCTS.get(known_name(node))
    if factor is None or len(node.args) <= factor:
        return made
    summed = node.args[factor]
    fake = summed.meta.get("val") if isinstance(summed, fx.Node) else None
    return made * hinted(fake.size_[-1]) // FLOPS_PER_BYTE if isinstance(fake, FakeTensor) and fake.size_ else made


class Built:
    """What was made of a program's segments; with `shares`, once for all that are alike."""

    def __init__(self, build: Callable[[CapturedGraph, JointGraph], Call], shares: bool) -> None:
        self._build, self._shares = build, shares
        self._traced: dict[Hashable, JointGraph | Cuts] = {}
        self._calls: dict[JointGraph, Call] = {}

    def traced(self, segment: CapturedGraph) -> JointGraph | Cuts:
        """Its joint graph, or that of one that is alike."""
        key = _key_of(segment) if self._shares else None
        if key is None:
            return trace_joint(segment)
        if key not in self._traced:
            self._traced[key] = trace_joint(segment)
        return self._traced[key]

    def call(self, segment: CapturedGraph, joint: JointGraph) -> Call:
        """What runs a segment of which this is the joint graph."""
        if joint not in self._calls:
            self._calls[joint] = self._build(segment, joint)
        return self._calls[joint]


def _key_of(segment: CapturedGraph) -> Hashable | None:
    try:
        return program_key(segment)
    except Unkeyed:
        return None
