"""Replace matches in a captured program, before autograd sees it.

In:     a `CapturedGraph`, and what finds matches in the functional graph that it records.
Out:    a captured graph in which one call stands where each match gave its result; the first stays as it is.
Holds:  a match is replaced only if the program has its inputs and results as values of its own that nothing writes later, and
        if nothing else of the program sees what lies inside. The replacement makes the same sizes, dtype and layout, in memory
        of its own. Each match that is replaced or left is an event.
Reads on: `recorded.py`, `pattern.py`, `attention.py`.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from pliant.debug import events
from pliant.errors import PatternError
from pliant.graph.contracts import CapturedGraph, known_name
from pliant.graph.passes.purity import has_effect, is_random
from pliant.graph.unbacked import CHECKS
from pliant.guards.settings import SETTERS
from pliant.interruptions import pass_on
from pliant.patterns.recorded import Recorded, record
from pliant.records import dataclass
from pliant.torch_adapter import append_node

_aten = torch.ops.aten
# What asks about values between calls, where a pattern would have none.
_ASKING = ("hook", "gradients", "backward", "requires_grad", "retain_grad")
# Calls that make a value from one other, which may be made again where they are needed.
_REMADE = frozenset(
    (_aten.view.default, _aten._unsafe_view.default, _aten.expand.default, _aten.transpose.int, _aten.permute.default, _aten.t.default,
     _aten._to_copy.default, _aten.unsqueeze.default, _aten.squeeze.dim, _aten.select.int, _aten.slice.Tensor,
     _aten.clone.default)
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Found:
    """What is to be replaced. `nodes`: all calls of the match, outputs among them. `call`: what takes their place, with the
    inputs and then `options` by name; it returns the output, a tuple where there are several."""

    name: str
    inputs: Sequence[fx.Node]
    outputs: Sequence[fx.Node]
    nodes: Sequence[fx.Node]
    call: Callable[..., Any]
    options: dict[str, Any]


class Left(Exception):
    """Why a match stays as it is."""


Finder = Callable[[Recorded], Iterable[Found]]


def rewritten(captured: CapturedGraph, finders: Sequence[Finder]) -> CapturedGraph:
    """The program with the matches of the finders replaced, those of the first ones first."""
    with events.stage("patterns"):
        asking = next((n for n in captured.module.graph.nodes if any(part in known_name(n) for part in _ASKING)), None)
        if asking is not None:
            return _untouched(captured, f"the program calls `{known_name(asking)}`, which may ask about any value")
        try:
            recorded = record(captured)
        except PatternError:
            raise
        except Exception as error:  # the stages that follow say what it is
            pass_on(error)
            return _untouched(captured, f"it cannot be traced ({type(error).__name__})")
        return _Rewriting(captured, recorded).run(finders)


def _untouched(captured: CapturedGraph, why: str) -> CapturedGraph:
    events.record("pattern_left", name="any pattern", where=captured.name, why=why)
    return captured


class _Rewriting:
    """One program's."""

    def __init__(self, captured: CapturedGraph, recorded: Recorded) -> None:
        self.captured, self.recorded = captured, recorded
        self.taken: set[fx.Node] = set()
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}  # from the captured program's nodes to their copies in the new one
        self.current: dict[fx.Node, fx.Node] = {}  # to what now gives their values
        self.replaced: set[fx.Node] = set()

    def run(self, finders: Sequence[Finder]) -> CapturedGraph:
        found = [one for finder in finders for one in finder(self.recorded)]
        if not found:
            return self.captured
        self._copy()
        done = [self._tried(one) for one in found]
        if not any(done):
            return self.captured
        self._erase()
        return dataclasses.replace(self.captured, module=fx.GraphModule(self.captured.module, self.graph))

    def _copy(self) -> None:
        for node in self.captured.module.graph.nodes:
            self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
        self.current = dict(self.copies)
        self.order = {node: place for place, node in enumerate(self.captured.module.graph.nodes)}

    def _tried(self, found: Found) -> bool:
        origin = next((n.meta["origin"] for n in reversed(found.nodes) if "origin" in n.meta), None)
        where = origin.meta.get("origin") if origin is not None else None
        try:
            self._replace(found)
        except Left as left:
            events.record("pattern_left", name=found.name, where=where, why=str(left))
            return False
        events.record("pattern", name=found.name, where=where)
        return True

    def _replace(self, found: Found) -> None:
        if not self.taken.isdisjoint(found.nodes):
            raise Left("another pattern takes a part of it")
        places = [self.recorded.given.get(node) for node in found.outputs]
        results = [place for place in places if place is not None]
        if len(results) < len(places) or not self.recorded.fresh.issuperset(found.outputs):
            raise Left("its result is no tensor of the program's own, or is written later")
        if any("binds" in node.meta or is_random(node.target) or has_effect(node.target) for node in found.nodes):
            raise Left("it does more than compute")
        first = min(results, key=self.order.__getitem__)
        given = [self._value(node, first) for node in found.inputs]
        before = self.copies[first]
        with self.graph.inserting_before(before):
            new = append_node(self.graph, "call_function", found.call, tuple(given), dict(found.options), _name(found.name))
        new.meta.update(first.meta)
        several = len(results) > 1
        if several:
            new.meta["val"] = tuple([one.meta.get("val") for one in results])
        for place, result in enumerate(results):
            self._give(result, self._item(new, place, result, before) if several else new)
        self.taken.update(found.nodes)
        self.replaced.update(found.outputs)

    def _item(self, new: fx.Node, place: int, result: fx.Node, before: fx.Node) -> fx.Node:
        with self.graph.inserting_before(before):
            item = append_node(self.graph, "call_function", operator.getitem, (new, place), {}, "item")
        item.meta.update(result.meta)
        return item

    def _give(self, result: fx.Node, value: fx.Node) -> None:
        """Have everything read `value` in place of a captured node's."""
        self.current[result].replace_all_uses_with(value)
        self.current[result] = value

    def _value(self, node: fx.Node, before: fx.Node) -> fx.Node:
        """The program's own value that a node gives, in front of another; made again from one that it has."""
        held = self.recorded.given.get(node)
        if held is not None and self.order[held] < self.order[before]:
            return self.current[held]
        if node.target not in _REMADE or node.op != "call_function":
            raise Left(f"`{node.name}`, which it is given, is no tensor of the program's own, or is written later")
        source, *rest = node.args
        assert isinstance(source, fx.Node)
        if any(not isinstance(one, int | bool) for one in torch.utils._pytree.tree_leaves(rest)):
            raise Left("a tensor that it is given has sizes that vary, and is none of the program's own")
        made_from = self._value(source, before)
        with self.graph.inserting_before(self.copies[before]):
            made = append_node(self.graph, "call_function", node.target, (made_from, *rest), dict(node.kwargs), node.name)
        made.meta.update({k: v for k, v in before.meta.items() if k in ("origin", "recompute", "inference")}, val=node.meta["val"])
        return made

    # ---- what nothing needs any more
    def _erase(self) -> None:
        emitted: dict[fx.Node, list[fx.Node]] = {}
        dead = self._dead()
        for node in self.recorded.graph.nodes:
            emitted.setdefault(node.meta.get("origin"), []).append(node)
        for node in reversed(list(self.captured.module.graph.nodes)):
            own = self.copies[node]
            kept = node.op in ("placeholder", "output") or own.users or node.target in SETTERS or node.target in CHECKS
            if kept or own.meta.get("val") is None or known_name(node).endswith("_") and not emitted.get(node):
                continue
            if all(one in dead for one in emitted.get(node, ())):
                self.graph.erase_node(own)

    def _dead(self) -> set[fx.Node]:
        """What is replaced, and what was computed for that alone."""
        dead: set[fx.Node] = set()
        for node in reversed(list(self.recorded.graph.nodes)):
            if node in self.replaced or self.recorded.is_unneeded(node) and dead.issuperset(node.users):
                dead.add(node)
        return dead


def _name(text: str) -> str:
    name = re.sub(r"\W+", "_", text).strip("_")
    return name if name.isidentifier() else "replaced"
