"""`torch.autograd.Function.apply`: forward and backward are traced into graphs of their own, one node calls both.

In:     the class, traced arguments.
Out:    the outputs; a `CustomFunction` module in the graph.
Holds:  the backward has no side effects and is traced once for each pattern of gradients that it may be given. What it reads
        of the forward (saved tensors, attributes of the context, closures) is what the forward's graph keeps for it.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import torch
from torch.autograd.function import FunctionCtx, once_differentiable

from pliant.capture.autodiff.own_rules import by_own_rule, differentiated_in_map, has_own_rule, mapped_region
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.recording.late_state import runs_later
from pliant.capture.recording.regions import (
    Region,
    are_tensors,
    grad_kept,
    grad_recorded,
    record_module,
    tensors_in,
    tensors_of,
)
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import as_tuple, in_form_of
from pliant.capture.value_kinds import is_symbolic
from pliant.graph.custom_function import Backward, CustomFunction, FunctionPlan, Pattern
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.torch_adapter import apply_function, without_setup

ROWS = Rows()
handles = ROWS.handles

_MOST_OPTIONAL = 3  # outputs whose gradient may be missing: two to the power of this many backwards are traced
_ONCE = once_differentiable(lambda ctx: None).__code__


class Context(FunctionCtx):
    """The `ctx` of a call while it is traced: what the program stores stays here."""

    to_save: tuple[Any, ...] = ()
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()
    materialize_grads: bool = True
    needs_input_grad: tuple[bool, ...] = ()

    saved_tensors: tuple[Any, ...] = ()  # `to_save`, once `forward` has ended
    saved_variables: tuple[Any, ...] = ()


@handles(apply_function)
def _apply(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    cls, *given = args
    inputs = [t.internalize(value) for value in given]
    if _has_own_setup(t, cls):
        inputs = _with_defaults(t, cls, inputs, kwargs)
    elif kwargs:
        raise GraphBreak("bad-call", f"{cls.__name__}.apply() takes no keyword arguments")
    region = t.recorder.region
    traced_by_transform = region is not None and region.differentiated
    if traced_by_transform and not _has_own_setup(t, cls):
        raise GraphBreak("tensor-error", f"{cls.__name__} inside a transform needs setup_context")
    own_rule = has_own_rule(t, cls) and mapped_region(region) is not None
    if own_rule and not differentiated_in_map(region) and (made := by_own_rule(t, cls, inputs)):
        return made[0]
    needs = torch.is_grad_enabled() and any(one.requires_grad for one in tensors_of(inputs))
    if needs and t.recorder.marks.get("inference"):  # no other operator does there: the graph computes without gradients
        raise GraphBreak("unsupported-operator", f"{cls.__name__} in inference mode records a gradient")
    call = _Call(t, cls, inputs, own_rule)
    return call.differentiable() if needs or traced_by_transform else call.plain()


def _has_own_setup(t: Tracer, cls: type) -> bool:
    return t.world.type_lookup(cls, "setup_context") is not without_setup


def _with_defaults(t: Tracer, cls: Any, inputs: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments as `forward` takes them by position."""
    import inspect

    bound = t.native(inspect.signature(cls.forward).bind, *inputs, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise GraphBreak("bad-call", f"keyword-only arguments of {cls.__name__}.forward")
    return list(bound.args)


class _Call:
    """One call of `apply`."""

    def __init__(self, t: Tracer, cls: Any, inputs: list[Any], own_rule: bool) -> None:
        """`own_rule`: whether the class's own rule takes the place of its forward below a `vmap` around."""
        self.own_rule = own_rule
        self.by_rule = False
        self.t = t
        self.cls = cls
        self.inputs = inputs
        self.context = Context()
        region = t.recorder.region
        unknown = region is not None and region.differentiated
        self.context.needs_input_grad = tuple(
            [is_fake(i) and (i.requires_grad or unknown and i.is_floating_point()) for i in inputs]
        )

    def _forward(self) -> Any:
        """What `forward` returns; the context is set up."""
        t, cls = self.t, self.cls
        forward = t.get_attr(cls, "forward")
        if not _has_own_setup(t, cls):
            return t.call(forward, (self.context, *self.inputs), {})
        made = by_own_rule(t, cls, self.inputs) if self.own_rule else ()
        self.by_rule = bool(made)
        outputs = made[0] if made else t.call(forward, tuple(self.inputs), {})
        t.call(t.get_attr(cls, "setup_context"), (self.context, tuple(self.inputs), outputs), {})
        return outputs

    def plain(self) -> Any:
        """Nothing needs a gradient: the forward is part of the program around it."""
        t = self.t
        with grad_recorded(t, False) if torch.is_grad_enabled() else nullcontext():
            outputs = self._forward()
            for one in tensors_of(self.context.dirty_tensors):
                t.call(torch.Tensor.copy_, (one, one), {})  # which changes its version alone, as `apply` does
        return in_form_of(outputs, map(self._view_of_input, as_tuple(outputs)))

    def _view_of_input(self, output: Any) -> Any:
        """An input that is returned comes back as a view of itself, or without its history where none is recorded."""
        if is_fake(output) and any(output is one for one in self.inputs):
            if output.requires_grad:
                return self.t.call(torch.Tensor.detach, (output,), {})
            if not any(output is one for one in self.context.dirty_tensors):
                return self.t.call(torch.Tensor.view_as, (output, output), {})
        return output

    # ---- with gradients
    def differentiable(self) -> Any:
        t, cls = self.t, self.cls
        self.region = Region(t.recorder)
        with self.region.active():
            for one in tensors_of(self.inputs):
                self.region.lift(one)
            with grad_kept(False):
                outputs = self._forward()
        t.recorder.inputs.check_write(self.context.dirty_tensors)  # eager refuses it when they are written
        self.outputs = as_tuple(outputs)
        if len(tensors_in(self.outputs)) > len(tensors_of(self.outputs)):
            raise GraphBreak("unsupported-tensor", f"{cls.__name__} returns tensors inside containers")
        made = self._record()
        return in_form_of(outputs, [next(made) if is_fake(one) else one for one in self.outputs])

    def _record(self) -> Any:
        """The node. Backwards come first, since they say what the forward must keep."""
        tensors = tensors_of(self.outputs)
        t, context, region = self.t, self.context, self.region
        context.saved_tensors = context.saved_variables = tuple(context.to_save)
        self.kept: list[Any] = []
        backward = {pattern: self._backward(pattern) for pattern in self._patterns(tensors)}
        saved = {id(one) for one in context.to_save if one is not None}
        if not saved.isdisjoint(map(id, self.kept)):  # a backward that unpacks one of them has all of them checked
            for one in tensors_of(context.to_save):
                self._keep(one)
        with region.active():
            known = {id(one) for one in (*region.lifted, *tensors)}
            further = [one for one in self.kept if id(one) not in known]
            results = [*tensors, *further]
            forward = region.close(results, f"{self.cls.__name__}_forward")
        plan = FunctionPlan(
            name=self.cls.__name__,
            forward=forward,
            backward={pattern: self._padded(one) for pattern, one in backward.items()},
            n_outputs=len(tensors),
            kept=self._positions(self.kept, [*region.lifted, *results]),
            saved=frozenset(i for i, one in enumerate(self.kept) if id(one) in saved),
            dirty=self._positions(context.dirty_tensors, region.lifted),
            non_differentiable=self._positions(context.non_differentiable, tensors),
            materialize=context.materialize_grads,
            unmapped=self.own_rule and not self.by_rule,
            once=self._once,
            mapped=self.by_rule or self._has_generated_rule(),
            histories=any(one.requires_grad for one in tensors_of(further)),
        )
        return iter(record_module(t, CustomFunction(plan), region.lifted, "function"))

    def _has_generated_rule(self) -> bool:
        with self.t.world.reads_seen_by(None):  # it is read at the call
            return bool(self.t.get_attr(self.cls, "generate_vmap_rule"))

    def _padded(self, backward: Backward) -> Backward:
        """With no gradients for inputs that were found to be needed later."""
        later = len(self.region.lifted) - len(backward.gradients)
        return replace(backward, gradients=backward.gradients + (None,) * later)

    @staticmethod
    def _positions(wanted: Any, among: list[Any]) -> tuple[int, ...]:
        return tuple([next(i for i, one in enumerate(among) if one is tensor) for tensor in wanted or ()])

    def _patterns(self, outputs: list[FakeTensor]) -> list[Pattern]:
        """Which gradients may be missing: none, if torch fills them with zeros."""
        context = self.context
        if context.materialize_grads:
            return [(False,) * len(outputs)]
        fixed = [
            not one.is_floating_point() and not one.is_complex() or any(one is n for n in context.non_differentiable)
            for one in outputs
        ]
        if fixed.count(False) > _MOST_OPTIONAL:
            raise GraphBreak("unsupported-operator", f"{self.cls.__name__} has many outputs without gradients")
        choices = itertools.product(*[(True,) if never else (False, True) for never in fixed])
        return [pattern for pattern in choices if not all(pattern)]

    def _backward(self, pattern: Pattern) -> Backward:
        """The backward on fakes of the gradients that are given."""
        t, region = self.t, Region(self.t.recorder, beside=(self.region,))
        name = f"{self.cls.__name__}.backward"
        with region.active(), runs_later(t, name, self._reached_later()):
            with grad_kept(False):
                missing = iter(pattern)
                given = [region.fresh(one) if is_fake(one) and not next(missing) else None for one in self.outputs]
                found = self._call_backward(given)
            gradients, tensors = self._gradients_of_inputs(as_tuple(found))
            module = region.close(tensors, f"{self.cls.__name__}_backward")
        reads = region.lifted[len([g for g in given if g is not None]) :]
        return Backward(module, tuple([self._keep(one) for one in reads]), gradients)

    def _reached_later(self) -> list[Any]:
        """What leads to all that the backward may find: the context's values, and the functions of a class made here."""
        made = [base for base in self.cls.__mro__ if self.t.world.is_made(base)]
        return [*vars(self.context).values(), *(one for base in made for one in vars(base).values())]

    def _call_backward(self, given: list[Any]) -> Any:
        """`backward` or `vjp`."""
        t, cls = self.t, self.cls
        function = t.get_attr(cls, "backward")
        if function is torch.autograd.Function.backward:
            function = t.get_attr(cls, "vjp")
        self._once = getattr(function, "__code__", None) is _ONCE
        return t.call(function, (self.context, *given), {})

    def _gradients_of_inputs(self, found: tuple[Any, ...]) -> tuple[tuple[int | None, ...], list[FakeTensor]]:
        """For each lifted input the position of its gradient, and the gradients."""
        if len(found) < len(self.inputs) or any(one is not None for one in found[len(self.inputs) :]):
            raise GraphBreak("tensor-error", f"{self.cls.__name__}.backward returned {len(found)} gradients")
        tensors: list[FakeTensor] = []
        positions: dict[int, int] = {}
        for one, gradient in zip(self.inputs, found):
            if gradient is None:
                continue
            if not are_tensors((gradient, one)):
                raise GraphBreak("tensor-error", f"{self.cls.__name__}.backward returned a gradient for a non-tensor")
            place = positions.setdefault(id(one), len(tensors))
            if place == len(tensors):
                tensors.append(gradient)
            else:
                tensors[place] = cast(FakeTensor, tensors[place] + gradient)
        return tuple([positions.get(id(one)) for one in self.region.lifted]), tensors

    def _keep(self, value: Any) -> int:
        """The position of a value among what the forward keeps."""
        for position, known in enumerate(self.kept):
            if known is value:
                return position
        with self.region.active():
            if is_fake(value) or is_symbolic(value):
                self.t.recorder.to_nodes(value)
        self.kept.append(value)
        return len(self.kept) - 1
