"""What eager's autograd keeps of a program's values, whether a gradient reads it or not.

In:     a traced program's results, with their history.
Out:    `note_saved`: marks on the nodes of what is kept. `saved_for(node)`: for which gradients it is.
Holds:  a write of such a value after the call is an error at exactly these gradients.
Reads on: `training.py`, which has such writes noticed where the compiled backward reads something else.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx
from torch.utils._pytree import tree_leaves

from pliant.autograd.aliases import alias_of
from pliant.autograd.history import Node, functions_behind, functions_to, names_of_saved
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import memory_root

if TYPE_CHECKING:
    from pliant.autograd.functionalize import FunctionalMode


# (results, inputs), each as bits: where a gradient of one of these results is asked for, with regard to one of these inputs.
Ways = tuple[tuple[int, int], ...]


def note_saved(results: Sequence[Any], leaves: Sequence[Any], mode: FunctionalMode, runs_again: Callable[[Node], bool]) -> None:
    """Mark what the functions between the results and the leaves (None: another input) keep. What an activation checkpoint
    made it makes anew: `runs_again` tells its functions."""
    with mode:
        for function, tensor, way in _saved_behind(results, leaves):
            if type(tensor) is FakeTensor:
                meta = memory_root(mode.read(alias_of(tensor))).meta
                if "recompute" not in meta or not runs_again(function):
                    meta["eager_saves"], meta["saved_for"] = True, meta.get("saved_for", {}) | {way: None}


def saved_for(value: Any) -> Ways:
    """The gradients for which eager reads what it has saved of a value."""
    return tuple(memory_root(value).meta.get("saved_for", ())) if isinstance(value, fx.Node) else ()


def results_of(ways: Ways) -> int:
    """All the results of some ways, as bits."""
    return functools.reduce(operator.or_, [results for results, _ in ways], 0)


def _saved_behind(results: Sequence[Any], leaves: Sequence[Any]) -> Iterator[tuple[Node, Any, tuple[int, int]]]:
    """(function, what it keeps, the results and the leaves that it is between)."""
    functions, places = functions_to(results), {id(leaf): i for i, leaf in enumerate(leaves) if leaf is not None}
    ends = dict[Node, int]()
    for node in reversed(functions_behind(list(functions))):
        mine = functions.get(node, 0)
        leaf = getattr(node, "variable", None)  # AccumulateGrad's
        ends[node] = 1 << places[id(leaf)] if id(leaf) in places else 0
        for following, _ in node.next_functions:
            ends[node] |= ends.get(following, 0)
        for name in names_of_saved(node.__class__) if mine and ends[node] else ():
            try:
                kept = tree_leaves(getattr(node, name))
            except RuntimeError:  # written since, or gone
                continue
            for one in kept:
                yield node, one, (mine, ends[node])
