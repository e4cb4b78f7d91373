"""A compiled program as one function of autograd's graph.

In:     the forward, the backward, what is saved between them.
Out:    `Halves`, given to `node.Compiled`, the one subclass of `torch.autograd.Function`.
Holds:  a gradient is None where eager's is; saved tensors are freed after their last use unless the graph is retained.
        Gradients that are to have a history come from `higher_order.py`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from pliant import torch_adapter
from pliant.autograd.around import without_casts
from pliant.autograd.casts import Products, change, products_of
from pliant.autograd.higher_order import GradientProgram
from pliant.autograd.kept_inputs import WRITTEN, KeptInputs, check_versions, given_again, unchanged
from pliant.autograd.leaf_hooks import spare_hooks_of_leaf
from pliant.autograd.node import Compiled, as_saved
from pliant.autograd.outputs import inner_views
from pliant.autograd.places import Saved, ViewOf
from pliant.autograd.refused import FREED, Refused
from pliant.autograd.result_hooks import hooks_on_results
from pliant.autograd.saved_memory import InOwnMemory, Lying, lying_inputs
from pliant.autograd.tangent_layouts import (
    LAYOUTS,
    Layout,
    OtherLayouts,
    apart,
    is_sparse,
    laid_out,
    layout_of_tangent,
    lies_as_traced,
    lying,
)
from pliant.autograd.views import version
from pliant.autograd.wanted import Edge, gets_somewhere
from pliant.graph.contracts import Runnable
from pliant.graph.generator_states import random_bytes, set_random_bytes
from pliant.guards.alike import KnownTensors
from pliant.records import dataclass

if TYPE_CHECKING:
    from pliant.autograd.joint import JointGraph
    from pliant.autograd.partition.split import Partition


@dataclass(frozen=True, slots=True)
class HalvesFacts:
    """What autograd's function of a program needs to know, as plain values. Positions count inputs or forward outputs.

    `results`, `numbers`, `inputs`: how many. `saved`...`tangents`: as in `Partition`. `inner`: as in `OutputPlan`.
    `lying`: sizes and strides of those of `saved` that are inputs of sizes that do not vary, by place.
    `plain`: results that are tensors and have no gradient. `layouts`: of the tangents, or how to tell them from the result.
    `reached`: of each of `wanted` the tangents, as bits. `reads`: of each saved tensor the tangents that it is combined
    with. `tensors`: the inputs that are tensors. `read_results`: results that eager's gradients read. `refused`: the tangents
    that are errors, if there are any. `products`: what those of the backward multiply.
    """

    results: int
    numbers: int
    inputs: int
    saved: list[Saved]
    wanted: list[int]
    tangents: list[int]
    constants: list[torch.Tensor]
    inner: dict[int, ViewOf]
    plain: list[int]
    layouts: list[Layout | str]
    reached: list[int]
    reads: list[int]
    sharing: list[int]
    affine: bool
    tensors: list[int]
    kept: KeptInputs
    read_results: list[int]
    refused: Refused | None
    products: Products
    lying: dict[int, Lying | None]

    @classmethod
    def of(cls, joint: JointGraph, parts: Partition, reads: list[int], read_results: list[int]) -> HalvesFacts:
        results, differentiable = joint.plan.results, set(parts.tangents)
        return cls(
            results=parts.n_results,
            numbers=len(parts.symbols),
            inputs=len(joint.captured.inputs),
            saved=parts.saved,
            wanted=parts.wanted,
            tangents=parts.tangents,
            constants=joint.constants,
            inner=joint.plan.inner,
            plain=[i for i, v in enumerate(results) if i not in differentiable and isinstance(v, torch.Tensor)],
            layouts=[layout_of_tangent(results[i]) for i in parts.tangents],
            reached=[joint.reached_by[i] for i in parts.wanted],
            reads=reads[len(parts.symbols) :],
            sharing=joint.sharing,
            affine=joint.affine,
            tensors=[i for i, one in enumerate(joint.captured.inputs) if isinstance(one.fake, torch.Tensor)],
            kept=KeptInputs.of(joint, parts),
            read_results=read_results,
            refused=Refused.of(joint.refused, joint.reached_by, joint.freed),
            products=products_of(joint.graph.nodes),
            lying=lying_inputs(joint.captured.inputs, parts.saved),
        )


class Halves:
    """Forward and backward of a program, as `Compiled` runs them. `ctx` is the record of one call.

    `backwards` gives the compiled backward, which may not exist before it is asked for. `apart`: inputs of which views may be
    given; `detached`: those that are given detached. `ordinary`: what runs the backward of a call where it is the only one,
    of all its results' gradients.
    """

    def __init__(
        self, facts: HalvesFacts, run: Runnable, backwards: Backwards, again: GradientProgram, apart: Sequence[int] = (),
        detached: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.apart, self.detached = apart, detached
        self.run, self.backwards, self.kept, self.again = run, backwards, facts.kept, again
        self.run_without_casts, self.random, self.unsaved = without_casts(run), facts.kept.random, facts.kept.unsaved
        self.n_results, self.n_numbers, self.n_inputs = facts.results, facts.numbers, facts.inputs
        self.wanted, self.tangents = facts.wanted, facts.tangents
        self.constants, self.inner, self.plain = facts.constants, inner_views(facts.inner), facts.plain
        self.layouts = [LAYOUTS[one] if isinstance(one, str) else one for one in facts.layouts]
        self.reached, self.reads = facts.reached, facts.reads
        self.all = (1 << len(facts.tangents)) - 1
        self.sharing, self.affine = facts.sharing, facts.affine
        self.read_results, self.refused, self.products = facts.read_results, facts.refused, facts.products
        self.ordinal = {position: number for number, position in enumerate(facts.tensors)}
        # what each call would find out again:
        self.only_tensors = len(facts.plain) + len(facts.tangents) == facts.results
        self.layouts_vary = any(map(callable, self.layouts))
        self.saved, self.in_places = _saved(facts), _in_places(facts)
        self.saved_inputs = _saved_inputs(facts)
        self.nothing_left, self.frees_all = _nothing_left(facts), all(facts.sharing)
        self.never_ordinary = self.nothing_left is None or self.refused is not None
        self.given_tangents, self.unsaved_of = _picker(facts.tangents), _picker(facts.kept.unsaved)
        self.laid_out, self.other_layouts = KnownTensors(), OtherLayouts()
        lying = {place: one for place, one in facts.lying.items() if one is not None}
        self.in_own_memory = InOwnMemory(lying) if lying else None
        self.lie_as_they_come = [place for place, one in facts.lying.items() if one is None]
        self.in_order = facts.wanted == list(range(facts.inputs))
        self.ordinary = self._found()

    def own(self, before: Any, inputs: tuple[Any, ...]) -> list[Any]:
        """The inputs with the caller's tensors in place of views of them: a tensor that is given other data has it in all that
        was saved."""
        found = list(inputs)
        for position in self.apart:
            if isinstance(before[position], torch.Tensor):
                found[position] = before[position]
        return found

    def versions(self, inputs: Sequence[Any]) -> list[int]:
        """Of the inputs that are saved: under hooks autograd does not tell whether they were written since."""
        return [version(inputs[position]) for position, _ in self.saved_inputs]

    def with_views(self, results: tuple[Any, ...], before: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results, some of them in the memory of inputs or of others: they come out as those of any custom function. What is
        a view of an input is one of the caller's tensor, which says whether later views need gradients."""
        found = list(results)
        if before is not None and self.detached:
            inputs = tuple([before[i] if i in self.detached else one for i, one in enumerate(inputs)])
        for position, get in self.inner.items():
            found[position] = get(inputs, found, [])
        return tuple(found)

    def _written_unseen(self, ctx: Any, asked: int) -> bool:
        if ctx.unwatched is None:
            return False
        compared = zip(self.saved_inputs, self.versions(ctx.inputs), ctx.unwatched)
        return any(bits & asked and now != before for (_, bits), now, before in compared)

    def layouts_of(self, results: tuple[Any, ...]) -> list[Any]:
        return [one(results[i]) if callable(one) else one for i, one in zip(self.tangents, self.layouts)]

    def backward(self, ctx: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients, whatever is given and asked for."""
        if self.ordinary is None and not self.never_ordinary:
            self.ordinary = self._found()  # for the next one
        return self._by_what_is_given(ctx, given)

    def _found(self) -> Runnable | None:
        """What runs the backward where all its tangents are given, if it is there by now."""
        run = None if self.never_ordinary else self.backwards.found.get(0)
        return None if run is None else without_casts(run)

    def learn(self, tangents: tuple[Any, ...]) -> bool:
        """Whether tangents that are not known lie as the backward was traced for; they are known from now on."""
        layouts: list[Any] = self.layouts
        if not all(map(lies_as_traced, tangents, layouts)):
            return False
        self.laid_out.learn(tangents)
        return True

    def _by_what_is_given(self, ctx: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        asked = sum([1 << n for n, position in enumerate(self.tangents) if given[position] is not None])
        if self.refused is not None:
            asked = self._without_refused(ctx, asked, self.refused)
        unreached = frozenset() if asked == self.all else self._unreached(ctx, asked)
        asked, saved = self._saved_for(ctx, asked, unreached)
        if not asked:
            return self._placed({})
        arguments, lacking = [*ctx.numbers, *saved], any(one is None for one in saved)
        del saved  # what runs the backward empties `arguments`, and with them memory, as it goes
        if ctx.watched:
            check_versions(ctx.watched, asked, lambda: sum([1 << i for i in self._needed(ctx, unreached)]))
        observer = "a torch dispatch mode" if torch_adapter.count_dispatch_modes() else ""
        observer = observer or "a transform" * any(map(torch_adapter.is_transformed, given))
        observer = observer or "a pass of sparse gradients" * any(map(is_sparse, given))
        missing = self.all & ~asked
        again = torch.is_grad_enabled() or bool(observer) and not self.backwards.has_graph
        again = again or torch_adapter.any_autocast() and change(self.products)
        run = None if again else self.backwards.get(missing, observer)
        if run is None and not again:
            again = self.affine or bool(missing) and not self.backwards.has_graph or lacking
            if not again:  # tangents that cannot be left out are zeros
                missing, run = 0, self.backwards.get(0, observer)
                again = run is None
        layouts = ctx.layouts if self.layouts_vary else self.layouts
        tangents = [
            None if missing >> n & 1 else laid_out(given[position], layout)
            for n, (position, layout) in enumerate(zip(self.tangents, layouts))
        ]
        if again:
            needed = self._needed(ctx, unreached)
            return self._placed(dict(zip(needed, self._by_the_program(ctx, asked, tangents, needed))))
        others = self._given_otherwise(given, tangents) if not missing and not observer else []
        run_on_fakes = self.backwards.strides_as_made if others else None
        strides = run_on_fakes and self.other_layouts.strides(run_on_fakes, self.n_numbers, arguments, others)
        copied = not observer and any(one is not given[position] for position, one in zip(self.tangents, tangents) if one is not None)
        arguments += tangents
        tangents.clear()
        if self._is_freed(ctx):
            ctx.inputs = ()
        assert run is not None
        values: Any = apart(run(arguments)) if copied else run(arguments)
        if strides is not None:
            values = list(map(lying, values, strides))
        if unreached:
            values = [None if number in unreached else value for number, value in enumerate(values)]
        return self.in_places((None, *values))

    def _given_otherwise(self, given: tuple[Any, ...], tangents: list[Any]) -> list[Any]:
        """The tangents as they were given, if some of them lie otherwise than those that the backward gets."""
        came = [given[position] if given[position] is not None else one for position, one in zip(self.tangents, tangents)]
        moved = any(one.stride() != other.stride() for one, other in zip(came, tangents))
        return came if moved and self.backwards.has_graph else []

    def _without_refused(self, ctx: Any, asked: int, refused: Refused) -> int:
        """The asked tangents that have gradients. It is an error if one that is refused is wanted by the engine."""
        edges = ctx.next_functions
        reached = [(i, bits & asked) for i, bits in enumerate(refused.at)]
        wanted = [bits for i, bits in reached if bits and gets_somewhere([edges[self.ordinal[i]]])]
        if wanted:
            raise refused.error(functools.reduce(operator.or_, wanted))
        return asked & ~refused.whole

    def _placed(self, gradients: dict[int, Any]) -> tuple[Any, ...]:
        """What the engine takes: these gradients by the inputs' positions, None elsewhere."""
        return (None, None, *map(gradients.get, range(self.n_inputs)))

    def _saved_for(self, ctx: Any, asked: int, unreached: frozenset[int]) -> tuple[int, list[Any]]:
        """(those of the asked tangents that lead to what the engine wants, the saved tensors). All of them count where all
        are given: leaving some out would be another program."""
        if asked == self.all and ctx.rest is None:
            try:
                return asked, self._take_saved(ctx, asked)
            except RuntimeError:  # what was written since need not be what is wanted
                if self._leading_on(ctx, asked, unreached) == asked:
                    raise
        asked = self._leading_on(ctx, asked, unreached)
        return asked, self._take_saved(ctx, asked)

    def _leading_on(self, ctx: Any, asked: int, unreached: frozenset[int]) -> int:
        needed = self._needed(ctx, unreached)
        return asked & functools.reduce(operator.or_, [self.reached[self.wanted.index(i)] for i in needed], 0)

    def _take_saved(self, ctx: Any, asked: int) -> list[Any]:
        """The saved tensors. They are freed, as eager's are (unless retain_graph), but for those that only results of
        which no gradient was asked are in need of: eager can still give these."""
        used, rest = ctx.used, ctx.rest
        if rest is None:
            saved = self._unpacked(ctx, asked)
        elif any(bits & used for n, bits in enumerate(self.sharing) if asked >> n & 1):
            raise RuntimeError(FREED)
        else:
            saved = [one if one is None else unchanged(*one) for one in rest]
            if any(one is None and bits & asked for one, bits in zip(saved, self.reads)):
                raise RuntimeError(f"{WRITTEN} a saved tensor of a compiled function")
        if not torch_adapter.engine_keeps_graph():
            ctx.used = used = used | asked
            ctx.maybe_clear_saved_tensors()
            if used == self.all and self.nothing_left is not None:
                ctx.rest = self.nothing_left
                return saved
            left = sum([1 << n for n, bits in enumerate(self.sharing) if not bits & used])
            ctx.rest = [
                (tensor.detach(), version(tensor)) if tensor is not None and bits & left else None
                for tensor, bits in zip(saved, self.reads)
            ]  # fmt: skip
        return saved

    def _is_freed(self, ctx: Any) -> bool:
        """Whether eager has no further gradients: each result's functions saved something, which is gone."""
        return all(bits & ctx.used for bits in self.sharing) and not torch_adapter.engine_keeps_graph()

    def _unpacked(self, ctx: Any, asked: int) -> list[Any]:
        """The saved tensors; None for what was written since, if these tangents are not combined with it."""
        try:
            return list(as_saved(ctx, ctx.saved_tensors, self.in_own_memory))
        except RuntimeError:
            if asked == self.all:
                raise
            saved = list(as_saved(ctx, torch_adapter.saved_one_by_one(ctx), self.in_own_memory))
            if any(one is None and bits & asked for one, bits in zip(saved, self.reads)):
                raise
            return saved

    def _unreached(self, ctx: Any, asked: int) -> frozenset[int]:
        """Which of the gradients no given tangent leads to."""
        found = frozenset(number for number, bits in enumerate(self.reached) if not bits & asked)
        for number in found:
            spare_hooks_of_leaf(ctx.next_functions[self.ordinal[self.wanted[number]]][0])
        return found

    def _needed(self, ctx: Any, unreached: frozenset[int]) -> tuple[int, ...]:
        """The inputs whose gradients the engine wants."""
        edges = ctx.next_functions  # of the tensors among the inputs
        asked = [i for n, i in enumerate(self.wanted) if n not in unreached]
        return tuple(i for i in asked if gets_somewhere([edges[self.ordinal[i]]]))

    def edges_behind(self, edges: tuple[Edge, ...], result: int) -> list[Edge]:
        """Those of the function's edges that the gradient of this result leads to."""
        if result not in self.tangents:
            return []
        tangent = 1 << self.tangents.index(result)
        return [edges[self.ordinal[i]] for i, bits in zip(self.wanted, self.reached) if bits & tangent]

    def _by_the_program(self, ctx: Any, asked: int, tangents: list[Any], needed: tuple[int, ...]) -> tuple[Any, ...]:
        """Gradients computed from the inputs and with the random numbers that the forward drew. They have a history
        where gradients are recorded."""
        if not needed:
            return ()
        compute = self.again.without_history
        if torch.is_grad_enabled():
            compute = self.again
        elif torch_adapter.any_autocast() and not torch_adapter.count_dispatch_modes():
            compute = self.again.detached
        hooks = hooks_on_results(ctx) if torch.is_grad_enabled() else {}
        by_tangent = {self.tangents.index(i): hook for i, hook in hooks.items() if i in self.read_results}
        if by_tangent:
            compute = functools.partial(self.again.hooked, by_tangent)
        return self._with_numbers(ctx, asked, lambda inputs: compute(inputs, tangents, needed))

    def _with_numbers(self, ctx: Any, asked: int, compute: Callable[[list[Any]], tuple[Any, ...]]) -> tuple[Any, ...]:
        """`compute` of the inputs of a call, with the random numbers that it drew."""
        if len(ctx.inputs) < self.n_inputs:
            raise RuntimeError(FREED)
        if self.kept.changed(ctx.inputs, ctx.versions, asked) or self._written_unseen(ctx, asked):
            raise RuntimeError(f"{WRITTEN} an input of a compiled function was written after the call")
        inputs = given_again(ctx.inputs)
        for i in self.wanted:
            if not inputs[i].requires_grad:  # any more: eager's functions know nothing of that
                inputs[i] = inputs[i].detach().requires_grad_()
        if ctx.random_state is None:
            return compute(inputs)
        gpus = self.kept.gpus
        now = random_bytes(gpus)
        set_random_bytes(ctx.random_state, gpus)
        try:
            return compute(inputs)
        finally:
            set_random_bytes(now, gpus)

    def results_again(self, ctx: Any) -> tuple[Any, ...]:
        """The results of a call, which are gone, with a history: `kept.replays` says whether they may be asked for."""
        apply = functools.partial(torch_adapter.direct_apply(Compiled), self)
        with torch.enable_grad():
            return self._with_numbers(ctx, -1, lambda inputs: apply(self.kept.before(inputs), *inputs))


Picker = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def _picker(places: list[int]) -> Picker:
    """A function that gives what is at these places of a tuple."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    start = places[0] if places else 0
    return operator.itemgetter(slice(start, start + len(places)))


def _saved_inputs(facts: HalvesFacts) -> list[tuple[int, int]]:
    """The inputs that are saved and kept themselves, each with the tangents, as bits, that it is combined with."""
    others = {*facts.kept.copied, *facts.kept.absent}
    saved = [(s, bits) for s, bits in zip(facts.saved, facts.reads) if s.is_input and s.position < facts.inputs]  # no constants
    return [(one.position, bits) for one, bits in saved if one.position not in others]


def _saved(facts: HalvesFacts) -> Picker:
    """What of the inputs, the constants and the forward's outputs is saved."""
    first = facts.inputs + len(facts.constants)
    return _picker([s.position if s.is_input else first + s.position for s in facts.saved])


def _in_places(facts: HalvesFacts) -> Picker:
    """Of None and the gradients what the engine takes: one for each argument of the function, None for its first two."""
    number = {position: n for n, position in enumerate(facts.wanted, 1)}
    return _picker([0, 0, *[number.get(i, 0) for i in range(facts.inputs)]])


def _nothing_left(facts: HalvesFacts) -> list[None] | None:
    """What is left of the saved tensors after all gradients, if that is nothing."""
    left = sum(1 << n for n, bits in enumerate(facts.sharing) if not bits)
    return None if any(bits & left for bits in facts.reads) else [None] * len(facts.reads)


class Backwards(Protocol):
    """What `training.Backwards` is."""

    has_graph: bool  # whether it can run operator by operator
    found: Any  # what runs it, for sets of tangents that are missing
    strides_as_made: Any  # how its results lie where it runs operator by operator

    def get(self, missing: int = 0, observer: str = "") -> Runnable | None: ...
