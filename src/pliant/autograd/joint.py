"""Trace a captured program and its gradient into one functional ATen graph.

In:     a `CapturedGraph`.
Out:    `JointGraph`: forward and backward in one `fx.Graph`, and the plan of how the caller's outputs are made.
Holds:  the graph is functional but for `copy_` nodes at its very end. Placeholders: the captured inputs, constants
        that the program holds, tangents. It returns the forward's results, then a gradient (or None) for each captured input.
        Derivatives are torch's: the program runs on fakes with autograd above the recording mode.
Reads on: `functionalize.py`, `aliasing.py`, `partition/`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from itertools import repeat
from typing import Any

import torch
from torch import fx

from pliant import torch_adapter
from pliant.autograd.aliasing import OutputPlan, UnsupportedAliasing, check_overlap, plan_outputs, with_gradients
from pliant.autograd.casts import casting
from pliant.autograd.functional_ops import UnsupportedMutation
from pliant.autograd.functionalize import FunctionalMode, new_input
from pliant.autograd.history import Root, find_roots, hooks_to_keep, reached_by, sharing, spoilt_for_all, tensors_given
from pliant.autograd.refused import NoDerivative, after_own_gradients, is_missing, views_refused, without_derivative
from pliant.autograd.run_module import is_noted, run_module
from pliant.autograd.saved import Ways, note_saved, saved_for
from pliant.autograd.segments import (
    Cuts,
    ReadFirst,
    Timeline,
    WrittenViews,
    find_cuts,
    read_before_written,
    unseen_writes,
    written_views,
)  # fmt: skip
from pliant.autograd.tails import find_tails
from pliant.autograd.tangent_layouts import tangent_strides
from pliant.debug import events
from pliant.errors import Unsupported
from pliant.graph.concrete_sizes import as_numbers_wanted
from pliant.graph.contracts import CapturedGraph, GraphInput, returned
from pliant.graph.fake_tensor import FakeTensor, counting_as
from pliant.graph.map_rules.kernels import for_derivatives_of
from pliant.graph.tensor_spec import same_known
from pliant.graph.unbacked import CHECKS, assume, written
from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.symbolic.expr import Symbol
from pliant.symbolic.runtime_asserts import RuntimeAssert
from pliant.torch_adapter import append_placeholder, set_grad_enabled

_aten = torch.ops.aten


@dataclass(slots=True, eq=False)
class JointGraph:
    """`results`, `gradients`: what the output node holds. `gradients` has one item for each captured input.

    `reached_by`: for each captured input the tangents that lead to its gradient, as bits by their order in the plan.
    `sharing`: for each tangent those that cannot be given once it was, since saved tensors are freed, as bits.
    `roots`: where the results that have tangents are found among outputs and inputs when the program runs again.
    `ends`: the fakes of the inputs and of the outputs, as they were when the program had run.
    `refusal`: the error that asking for gradients is in eager too; "" if it is none.
    `refused`: by tangent, the error that asking for its gradients is, where only some are. `freed`: for each input the
    tangents, as bits, that lead there through functions which the program has run backward.
    `affine`: the program hooks what it computes, so that no gradient is not the same as one of zeros.
    `read_first`: the inputs that are read before they are written.
    `copies_show`: see `copies_in_doubt.py`.
    `saved_inputs`, `saved_results`: for which gradients eager's autograd has kept each input, as it is in the end, and result.
    `leaf_order`: the leaves among the inputs in the order in which eager's engine gets to them.
    """

    graph: fx.Graph
    captured: CapturedGraph
    plan: OutputPlan
    primals: list[fx.Node]
    constants: list[torch.Tensor]
    tangents: list[fx.Node]
    reached_by: list[int] = field(default_factory=list)
    sharing: list[int] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)
    ends: tuple[list[Any], tuple[Any, ...]] = ([], ())
    refusal: str = ""
    refused: dict[int, str] = field(default_factory=dict)
    freed: list[int] = field(default_factory=list)
    leaf_order: list[int] = field(default_factory=list)
    affine: bool = False
    read_first: ReadFirst = ReadFirst()
    copies_show: bool = False
    saved_inputs: list[Ways] = field(default_factory=list)
    saved_results: list[Ways] = field(default_factory=list)

    @property
    def results(self) -> list[Any]:
        return returned(self.graph)[: len(self.plan.results)]

    @property
    def gradients(self) -> list[Any]:
        return returned(self.graph)[len(self.plan.results) :]


class JointTracer:
    """One joint trace."""

    def __init__(self, captured: CapturedGraph, refusal: str, refused: dict[int, str]) -> None:
        self.captured, self.refusal, self.refused = captured, refusal, refused
        self.freed = [0] * len(captured.inputs)
        self.graph = fx.Graph()
        self.mode = FunctionalMode(captured.shape_env, self.graph)
        self.leaves: list[Any] = []  # what gradients are asked for: a leaf for each tensor that requires grad
        self.leaf_order: list[int] = []
        self.values: dict[fx.Node, Any] = {}  # what the program's nodes gave
        self.timeline = Timeline(self.values)
        self.inputs: list[Any] = []  # what the program is given
        for position, one in enumerate(captured.inputs):
            self._add_input(position, one)
        self.histories = [one.grad_fn if type(one) is FakeTensor else None for one in self.inputs]
        self.flags = [one.requires_grad if type(one) is FakeTensor else False for one in self.inputs]

    def _add_input(self, position: int, one: GraphInput) -> None:
        node = self.mode.last_primal = append_placeholder(self.graph, one.name)
        if not isinstance(one.fake, torch.Tensor):
            node.meta.update(val=one.fake, stage="forward")
            self.inputs.append(one.fake)
            self.leaves.append(None)
            return
        described = one.example if isinstance(one.example, torch.Tensor) else one.fake
        with counting_as(described):
            leaf, given = self._fake_input(one.fake, described)
        node.meta.update(val=given, stage="forward")
        new_input(node, given, position)
        self.inputs.append(given)
        self.leaves.append(leaf)

    def _fake_input(self, like: Any, described: torch.Tensor) -> tuple[Any, FakeTensor]:
        """(what the gradient is asked for, what the program is given): not the same for the result of earlier work,
        which may be written in place where a leaf may not."""
        mode, requires_grad = self.mode, described.requires_grad
        fake = mode.new(like.size_, like.stride_, like.dtype_, like.device_, requires_grad, like.offset_)
        if not requires_grad:
            fake.is_parameter_ = like.is_parameter_
            return None, fake
        leaf, given = mode.with_state(fake, described)
        leaf.is_parameter_ = like.is_parameter_
        return leaf, given

    # -- forward ------------------------------------------------------------------------------------------------------
    def _on_node(self, node: fx.Node | None) -> None:
        self._note_assumptions()
        self.mode.origin = node
        self.timeline.note(node)
        env = self.captured.shape_env
        if env.has_unbacked and node is not None:
            if env.replayed:
                raise Unsupported("a data-dependent operator makes other values the second time", kind="replay")
            env.replayed = list(node.meta.get("made", ()))
            if node.target in CHECKS:
                self.mode.check(node.target, *node.meta["check"])

    def _note_assumptions(self) -> None:
        """Record what operators' rules took for granted, which the forward checks."""
        env, mode = self.captured.shape_env, self.mode
        if env.fresh:
            raise Unsupported("a data-dependent number is not among an operator's results", kind="data-dependent")
        stage, mode.stage = mode.stage, "forward"
        for one in env.take_asserts(self._is_ready if env.has_unbacked else None):
            if self._bound_late() & one.expr.free:
                raise Unsupported(f"the backward pass assumes `{one}`", kind="data-dependent")
            mode.check(assume, env.as_written(one.expr), str(one), str(one.origin))
        mode.stage = stage

    def _is_ready(self, one: RuntimeAssert) -> bool:
        """Whether the graph has the symbols of an assert by now. A segment of a program has those of what it takes, but
        for those that are known to equal another: an input is then described by the other."""
        env = self.captured.shape_env
        unbacked = env.unbacked_symbols(one.expr)
        if not unbacked:
            return True
        told = {binding.symbol for node in self.graph.nodes for binding in node.meta.get("binds", ())}
        for given in self.inputs:
            if type(given) is FakeTensor:
                told.update(e for e in map(env.simplify, map(env.expr_of, given.size_)) if isinstance(e, Symbol))
            elif isinstance(given, torch.SymInt | torch.SymFloat | torch.SymBool):
                told |= {written(given)}
        return unbacked <= told

    def _bound_late(self) -> set[Symbol]:
        """The unbacked symbols that only the backward gives values."""
        late = [node for node in self.graph.nodes if node.meta.get("stage") == "backward"]
        return {one.symbol for node in late for one in node.meta.get("binds", ())}

    def forward(self) -> tuple[Any, ...]:
        before = torch.is_grad_enabled()
        set_grad_enabled(self.captured.grad_enabled)
        try:
            with self.mode:
                module, constant = self.captured.module, self.mode.constant
                return run_module(module, self.inputs, self._on_node, constant, self.values)
        finally:
            self.captured.shape_env.replayed = None
            set_grad_enabled(before)

    def _check_flags(self) -> None:
        """Refuse `requires_grad_()` and `detach_()` of an input, if the caller's tensor is to change and its entry sees not to that."""
        told = self.captured.attributes.get("told_inputs", ())
        for position, (fake, history, flag) in enumerate(zip(self.inputs, self.histories, self.flags)):
            if position in told and fake.is_leaf:
                fake.requires_grad_(flag)
            if type(fake) is not FakeTensor:
                continue
            came = fake.requires_grad and not flag and fake.grad_fn is None
            went = flag and not fake.requires_grad or history is not None and fake.grad_fn is None
            if came or went or (fake.grad_fn is not history and fake.node.base.version == 0):
                raise UnsupportedMutation("the autograd state of an input is changed", kind="metadata-mutation")

    def _check_inference_tensors(self, plan: OutputPlan) -> None:
        """Refuse what is an error in eager, at calls that the fakes, which are no such tensors, do not tell: a write
        of a tensor made in inference mode, and keeping one for a backward.
        """
        if torch.is_inference_mode_enabled():
            return
        examples = [one.example for one in self.captured.inputs]
        made = {i for i, t in enumerate(examples) if isinstance(t, torch.Tensor) and t.is_inference()}
        if made and is_noted(self.values) or any(write.input in made for write in plan.writes):
            raise UnsupportedMutation("an input was made in inference mode", kind="inference-tensor")

    # -- backward -----------------------------------------------------------------------------------------------------
    def tangents(self, plan: OutputPlan) -> list[FakeTensor]:
        made = []
        for position in plan.differentiable:
            like = plan.results[position]
            fake = self.mode.new(like.size_, tangent_strides(like), like.dtype_, like.device_)
            node = self.graph.placeholder(f"tangent_{position}")
            node.meta.update(val=fake, stage="backward")
            fake.node = None
            new_tangent(node, fake)
            made.append(fake)
        return made

    def backward(self, plan: OutputPlan, tangents: list[FakeTensor]) -> list[Any]:
        """The gradient fake, or None, for each captured input."""
        wanted = [leaf for leaf in self.leaves if leaf is not None and not self.refusal]
        if not wanted or not tangents:
            return [None] * len(self.leaves)
        given = [n for n in range(len(tangents)) if n not in self.refused]
        roots = [plan.results[plan.differentiable[n]] for n in given]
        self.mode.stage, self.mode.differentiated = "backward", self._differentiated if events.wants("nodes") else None
        env = self.captured.shape_env
        versions = self._versions()
        self._follow_leaves()
        with as_numbers_wanted(), casting(()), for_derivatives_of(self.graph), self.mode:
            env.lends = True
            try:
                found = iter(_gradients(roots, wanted, [tangents[n] for n in given]))
            except NoDerivative as error:
                raise NoDerivative(error.what, {given[n]: why for n, why in error.refused.items()}) from None
            finally:
                env.settle()
                env.lends = False
        self._note_assumptions()
        if versions != self._versions():
            raise UnsupportedAliasing("the backward pass writes an input", kind="backward-mutation")
        results = [plan.results[position] for position in plan.differentiable]
        nodes = list(self.captured.module.graph.nodes)
        note_saved(results, self.leaves, self.mode, lambda f: "recompute" in nodes[max(self.timeline.position_of(f), 0)].meta)
        if any(saved_for(self._placeholder(i)) for i in self.captured.attributes.get("moved_inputs", ())):
            raise UnsupportedMutation("a gradient reads the other data that an input is given", kind="metadata-mutation")
        return [None if leaf is None else next(found) for leaf in self.leaves]

    def _follow_leaves(self) -> None:
        """Have the engine tell when it gets to leaves: the caller's hooks on them, now or later, are called in this order."""
        order = self.leaf_order
        for position, (leaf, given) in enumerate(zip(self.leaves, self.inputs)):
            if leaf is not None and leaf is given:
                leaf.register_hook(lambda gradient, position=position: order.append(position))

    def _versions(self) -> list[int]:
        return [one.node.base.version for one in self.inputs if type(one) is FakeTensor]

    def _cuts(self, plan: OutputPlan, outputs: tuple[Any, ...]) -> Cuts:
        results = [plan.results[position] for position in plan.differentiable]
        passing = self.captured.attributes.get("passing_inputs", ())
        each = enumerate(zip(self.inputs, self.histories))
        written = [one for i, (one, h) in each if type(one) is FakeTensor and one.grad_fn is not h and i not in passing]
        given = {id(one) for one in self.inputs}
        given |= {id(outputs[i]) for i in self.captured.attributes.get("passing_outputs", ())}
        seen = with_gradients(outputs, given)
        kept = hooks_to_keep(self.mode.hooks, [*seen, *written])
        hooks = [self.timeline.places[node] for node in kept]
        closed = [one for one in tensors_given(kept, self.values) if id(one) not in given]  # they may differentiate these
        seen, results = [*seen, *closed], [*results, *[one for one in closed if one.grad_fn is not None]]
        if hooks and self.mode.asked:
            what = "gradients are asked for, and a tensor that the caller gets has hooks"
            raise UnsupportedAliasing(what, kind="returned-intermediate")
        cuts = find_cuts(results, [*seen, *written], self.timeline, self.mode.freed, hooks, self._rewritten)
        if not cuts.before:
            return cuts
        whole, tails = self._undivided(), cuts.tails
        if whole and "tails" not in self.captured.attributes:
            sides, mode = (results, [*seen, *written]), self.mode
            tails = find_tails(*sides, self.timeline, mode.freed, whole, self.values, mode.written, mode.graph)
        return dataclasses.replace(cuts, whole=(*whole, *self._unseen()), tails=tails)

    def _rewritten(self) -> WrittenViews:
        return written_views(self.values, self.mode.written, self.timeline.places)

    def _unseen(self) -> tuple[tuple[int, int], ...]:
        return unseen_writes(self.values, self.mode.written, self.timeline.places)

    def _undivided(self) -> tuple[tuple[int, int], ...]:
        """From where to where gradients get that the program itself asks for."""
        places = {node: place for place, node in enumerate(self.captured.module.graph.nodes)}
        asked = [(places[node], list(map(self.timeline.position_of, path))) for node, path in self.mode.asked if path]
        return tuple((min(positions), last) for last, positions in asked)

    # -- all ----------------------------------------------------------------------------------------------------------
    def run(self) -> JointGraph | Cuts:
        env = self.captured.shape_env
        outer, env.origin_callback = env.origin_callback, self._line
        taken = env.asserts_taken()
        found = None
        try:
            found = self._trace()
            return found
        finally:
            env.origin_callback = outer
            if not isinstance(found, JointGraph):
                env.take_again(taken)
                release(self.graph, self.mode)

    def _line(self) -> SourceLocation | None:
        """The line of the program whose operator, or whose derivative, is being traced."""
        node = (self._differentiated() if self.mode.stage == "backward" else None) or self.mode.origin
        return None if node is None else node.meta.get("origin")

    def _differentiated(self) -> fx.Node | None:
        """The call whose derivative is being traced."""
        function = torch_adapter.running_function()
        nodes = self.captured.module.graph.nodes
        return None if function is None else list(nodes)[max(self.timeline.position_of(function), 0)]

    def _trace(self) -> JointGraph | Cuts:
        mode = self.mode
        outputs = self.forward()
        self._check_flags()
        plan = plan_outputs(outputs, self.inputs, self.histories)
        if mode.in_doubt is not None:
            mode.in_doubt.note_outputs(outputs)
        self._check_inference_tensors(plan)
        check_overlap(self.captured.inputs, {write.input for write in plan.writes})
        if not self.captured.attributes.get("whole"):
            cuts = self._cuts(plan, outputs)
            if cuts.before or cuts.inside:
                return cuts
        results = [self._result(value) for value in plan.results]
        writes = [(self.inputs[w.input].node.root(), w) for w in plan.writes if w.in_graph]
        new_values = [(self._placeholder(w.input), mode.read(root)) for root, w in writes]
        differentiable = [plan.results[position] for position in plan.differentiable]
        self.roots = find_roots(differentiable, outputs, self.inputs)
        self.reached_by = reached_by(differentiable, self.leaves, self.inputs)
        self.sharing = sharing(differentiable)
        self._refuse(plan, differentiable)
        read = read_before_written(differentiable, self.histories, self.mode.written, self.timeline)
        read.check(self.captured, {write.input for write in plan.writes if write.in_graph})
        tangents = self.tangents(plan)
        gradients = [None if g is None else mode.read(g.node) for g in self.backward(plan, tangents)]
        _check_sparse(self.graph)
        if self.captured.shape_env.has_waiting() and "passing_inputs" not in self.captured.attributes:  # not a segment
            raise Unsupported("sizes are assumed to be equal that nothing tells", kind="data-dependent")
        joint = self._finish(plan, results, new_values, gradients)
        joint.ends, joint.read_first = (self.inputs, outputs), read
        return joint

    def _refuse(self, plan: OutputPlan, differentiable: list[Any]) -> None:
        """Find the results whose gradients are errors; where all are, no backward is traced."""
        if self.refusal or not all(write.in_graph for write in plan.writes):
            return
        refused, self.freed = after_own_gradients(differentiable, self.leaves, self.mode.freed)
        self.refused = refused | self.refused
        if self.refused and len(self.refused) == len(differentiable):
            self.refusal = next(iter(self.refused.values()))

    def _placeholder(self, position: int) -> fx.Node:
        holders: list[fx.Node] = list(self.graph.find_nodes(op="placeholder"))
        return holders[position]

    def _result(self, value: Any) -> Any:
        """The node of a result, with the strides that eager gives it."""
        if type(value) is not FakeTensor:
            return value
        node = self.mode.read(value.node)
        return node if _same_layout(node.meta["val"], value) else self.mode.laid_out(node, value)

    def _finish(
        self, plan: OutputPlan, results: list[Any], writes: list[tuple[fx.Node, fx.Node]], gradients: list[Any]
    ) -> JointGraph:
        graph, constants = self.graph, [tensor for tensor, _ in self.mode.constants.values()]
        holders = list(graph.find_nodes(op="placeholder"))
        primals = len(self.captured.inputs) + len(constants)
        for target, value in writes:
            node = graph.call_function(_aten.copy_.default, (target, value))
            node.meta.update(val=target.meta["val"], stage="forward", eager_saves=bool(saved_for(value)))
        graph.output((*results, *gradients))
        last = dict(enumerate(holders[: len(self.captured.inputs)])) | {holders.index(node): value for node, value in writes}
        last |= {write.input: results[write.position] for write in plan.writes if not write.in_graph}
        affine = bool(self.mode.hooks)
        copies_show = self.mode.in_doubt is not None and self.mode.in_doubt.show
        release(graph, self.mode)
        return JointGraph(
            graph, self.captured, plan, holders[:primals], constants, holders[primals:],
            self.reached_by, self.sharing, self.roots, refusal=self.refusal, refused=self.refused, freed=self.freed,
            leaf_order=self.leaf_order,
            affine=affine, copies_show=copies_show,
            saved_inputs=[saved_for(last[i]) for i in range(len(last))], saved_results=list(map(saved_for, results)),
        )  # fmt: skip


def _check_sparse(graph: fx.Graph) -> None:
    """A sparse gradient is handed on as it is; fakes, which are dense, do not say what else reading it gives."""
    made = graph.find_nodes(op="call_function", target=_aten._sparse_coo_tensor_with_dims_and_tensors.default)
    if any(user.op != "output" for node in made for user in node.users):
        raise Unsupported("a sparse gradient is used", kind="sparse")


def _gradients(roots: list[Any], leaves: list[Any], tangents: list[Any]) -> tuple[Any, ...]:
    try:
        with torch_adapter.no_anomaly_mode():
            return torch_adapter.gradients(roots, leaves, tangents, retain_graph=True)
    except RuntimeError as error:
        if is_missing(error):
            raise NoDerivative(str(error), without_derivative(roots, leaves, tangents)) from None
        if _WRITTEN not in str(error):
            raise
        # Eager raises this if backward is called, and only then; never under hooks on saved tensors, which may keep copies.
        always = torch_adapter.saved_tensor_hooks(True) is None and all(map(_fails, roots, repeat(leaves), tangents))
        kind = SAVED_WRITTEN if always else "saved-tensor-written"
        raise UnsupportedAliasing(str(error).splitlines()[0], kind=kind) from None


_WRITTEN = "modified by an inplace operation"
SAVED_WRITTEN = "all-saved-tensors-written"


def _fails(root: Any, leaves: list[Any], tangent: Any) -> bool:
    """Whether eager has no gradient of this result either, whatever of the leaves is asked for."""
    try:
        torch_adapter.gradients([root], leaves, [tangent], retain_graph=True)
    except RuntimeError as error:
        return _WRITTEN in str(error) and spoilt_for_all(root, leaves)
    return False


def new_tangent(node: fx.Node, fake: FakeTensor) -> None:
    """Make `fake` a value that no input's storage holds."""
    new_input(node, fake, -1)
    fake.node.base.input = None


def _same_layout(one: FakeTensor, other: FakeTensor) -> bool:
    return one is other or same_known(one.stride_, other.stride_)


def release(graph: fx.Graph, mode: FunctionalMode) -> None:
    """Cut what the descriptions hold of the trace: autograd's graph and the aliases; and what leads back from them."""
    mode.close()
    for node in graph.nodes:
        value = node.meta.get("val")
        if type(value) is FakeTensor:
            node.meta["val"] = _plain(value, mode)
        elif isinstance(value, (list, tuple)):
            node.meta["val"] = type(value)(_plain(v, mode) if type(v) is FakeTensor else v for v in value)


def _plain(fake: FakeTensor, mode: FunctionalMode) -> FakeTensor:
    fake.node = None
    if not fake.requires_grad:
        return fake
    return mode.new(fake.size_, fake.stride_, fake.dtype_, fake.device_, False, fake.offset_)


def trace_joint(captured: CapturedGraph, *, refusal: str = "") -> JointGraph | Cuts:
    """The joint graph of a captured program, or where to cut it first. With a `refusal` no backward is traced."""
    with views_refused():
        try:
            return JointTracer(captured, refusal, {}).run()
        except NoDerivative as error:
            if not error.refused:
                raise
            return JointTracer(captured, refusal, error.refused).run()
