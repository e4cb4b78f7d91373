"""A program's compiled forward and backward as one function of torch's autograd, at each call.

In:     the two halves as callables, and plain values that say what belongs around them.
Out:    `trained(...)`: a callable of the list of inputs whose results have a history.
Holds:  the same in the process that compiled the halves (`training.py`) and in any that finds them on disk.
Reads on: `function.py`.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant import torch_adapter
from pliant.autograd.around import Call, bump_versions, with_gradients
from pliant.autograd.function import Halves, HalvesFacts
from pliant.autograd.higher_order import GradientProgram
from pliant.autograd.node import Compiled
from pliant.autograd.outputs import OutputMaker
from pliant.autograd.places import FromInput, MadeOutputs
from pliant.autograd.result_hooks import spare_hooks
from pliant.autograd.views import version
from pliant.graph.contracts import Runnable
from pliant.records import dataclass
from pliant.wrappers.remade import remade

if TYPE_CHECKING:
    from pliant.autograd.saved import Ways


class KeptBackwards:
    """The backward of another process, for the sets of tangents that were given there. `lost` is called where there is none
    at all for a call."""

    has_graph = False

    def __init__(self, found: dict[int, Runnable]) -> None:
        self.found = found
        self.lost: Callable[[], None] = lambda: None

    def get(self, missing: int = 0, observer: str = "") -> Runnable | None:
        """None where tangents are missing otherwise than there: they are zeros then, or the program runs again."""
        run = None if observer else self.found.get(missing)
        if run is None and not observer and 0 not in self.found:
            lost, self.lost = self.lost, lambda: None
            lost()
        return run


@remade
def of_given(run: Runnable, kept: list[int], first: int) -> Runnable:
    """`run` of these arguments and of the tangents, from place `first` on, that are given."""
    return lambda arguments: run([*[arguments[i] for i in kept], *[t for t in arguments[first:] if t is not None]])


@dataclass(frozen=True, slots=True)
class Around:
    """What is done around autograd's function. `bump`, `bump_last`: inputs that the graph writes, counted before
    it runs and after: a view that was written without autograd has a new function. `viewed`: inputs of which the program
    reads a view made before. `leaf_order`: the leaves in the order in which eager's engine gets to them. `idle`: inputs that
    no result depends on.
    `records`: gradients are recorded where the program starts."""

    bump: list[int]
    bump_last: list[int]
    viewed: list[int]
    watched: Watched
    leaf_order: list[int]
    idle: list[int]
    records: bool


@remade
def trained(
    run: Runnable, made: MadeOutputs, facts: HalvesFacts, around: Around, backwards: Any, again: GradientProgram
) -> Call:
    """The callable of a program's forward and backward."""
    kept, bump, watched = facts.kept, around.bump, around.watched
    maker = OutputMaker(made, wrote=bool(bump or around.bump_last))
    sources = {one.source.input for one in facts.inner.values() if isinstance(one.source, FromInput)}
    detached = [position for position in around.idle if position in sources]
    several = around.leaf_order if len(around.leaf_order) > 1 else []
    halves = Halves(facts, run, backwards, again, several, detached)
    apply: Any = functools.partial(torch_adapter.direct_apply(Compiled), halves)
    if around.idle:
        apply = _without_idle(apply, around.idle, detached)
    if not around.records:
        apply = with_gradients(apply)
    differentiable, whole, reshaped = facts.tangents, kept.whole, made.changed
    changed = [place for place in differentiable if place in reshaped]
    leaves = operator.itemgetter(*several) if several else operator.itemgetter(slice(0))

    def plain(inputs: list[Any]) -> tuple[Any, ...]:
        before, given = None if whole else kept.before(inputs), inputs
        if several:
            found = leaves(inputs)
            if any(map(_hooks, found)) or any(map(_hooks_after, found)):
                before, given = inputs if before is None else before, _in_order(inputs, several)
        return apply(before, *given)  # type: ignore[no-any-return]

    if made.is_plain and not bump and not around.bump_last and not watched:
        return plain

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        before = kept.before(inputs)
        first_made = maker.start(inputs) if maker.first else None
        given, found = inputs, leaves(inputs)
        if any(map(_hooks, found)) or any(map(_hooks_after, found)):
            given = _in_order(inputs, several)
        if around.viewed:
            given = _with_views(given, around.viewed)
        bump_versions(inputs, bump)
        results = apply(inputs if before is None and given is not inputs else before, *given)
        for place in changed:
            spare_hooks(results[place])
        bump_versions(inputs, around.bump_last)
        function = results[differentiable[0]].grad_fn
        outputs = maker.make(inputs, results, first_made)
        if torch_adapter.saved_tensor_hooks(True) is None:  # eager does not look at versions of what hooks keep
            function.watched = watched.versions(inputs, results)
        return outputs

    return call


def _with_views(inputs: list[Any], places: list[int]) -> list[Any]:
    """The inputs, with views of those at these places."""
    found = list(inputs)
    with torch.enable_grad():  # they are to follow what the inputs are views of
        for place in places:
            found[place] = found[place].view_as(found[place])
    return found


def _in_order(inputs: list[Any], order: list[int]) -> list[Any]:
    """The inputs such that gradients reach the leaves among them in this order, which hooks see.

    The engine, given all gradients at once, goes to leaves first, all of which are alike to it, and then to what was made
    last. So leaves from the first one with hooks on are views of their own, made in the opposite order.
    """
    first = next(i for i, place in enumerate(order) if _hooks(inputs[place]) or _hooks_after(inputs[place]))
    return _with_views(inputs, order[: first - 1 if first else None : -1])


_hooks, _hooks_after = operator.attrgetter("_backward_hooks"), operator.attrgetter("_post_accumulate_grad_hooks")


def _without_idle(apply: Callable[..., Any], idle: list[int], detached: list[int]) -> Callable[..., Any]:
    """`apply` whose gradients do not reach inputs that no result depends on: those of `detached` are kept as they are, for
    the results that are views of them."""

    def call(before: Any, *inputs: Any) -> Any:
        given = list(inputs)
        for position in idle:
            given[position] = given[position].detach()
        own = inputs if before is None else before
        if detached:
            own = [inputs[i] if i in detached else one for i, one in enumerate(own)]
        return apply(own, *given)

    return call


@dataclass(frozen=True, slots=True)
class Watched:
    """Tensors in the caller's hands that eager's backward would find written, though ours does not read them: positions of
    inputs and results, and for each the gradients that read it."""

    inputs: list[int]
    results: list[int]
    read: list[Ways]

    def __bool__(self) -> bool:
        return bool(self.inputs or self.results)

    def versions(self, inputs: list[Any], results: Any) -> list[tuple[Any, int, Ways]]:
        """(the tensor, its version, the gradients that read it)."""
        tensors = [*[inputs[i] for i in self.inputs], *[results[i] for i in self.results]]
        return [(weakref.ref(tensor), version(tensor), ways) for tensor, ways in zip(tensors, self.read)]
